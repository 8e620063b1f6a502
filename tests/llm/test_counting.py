"""Counts of prompts by their providers in each protocol, and estimates without such a count."""

from typing import Any

import pytest

from llm.types.model_call import ModelMessage, ToolDefinition
from tests.llm.conftest import Connect, asking
from tests.scripted_model import ScriptedModel

TOOL = ToolDefinition("get_tasks", "Lists tasks.", {"type": "object", "properties": {}})
MESSAGES = (ModelMessage("system", "Be brief."), ModelMessage("user", "word " * 800))


@pytest.mark.parametrize("kind", ["anthropic", "responses"])
@pytest.mark.asyncio
async def test_the_count_is_of_the_call_that_it_stands_for(
    connect: Connect, scripted_model: ScriptedModel, kind: str
) -> None:
    request = asking(messages=MESSAGES, tools=(TOOL,), cache_key="here", stop=("END",) if kind == "anthropic" else ())
    count = await connect(kind).count_tokens(request)
    assert count is not None and 1_000 < count < 1_050
    [counted] = scripted_model.requests()
    assert counted.path == {"anthropic": "/v1/messages/count_tokens", "responses": "/v1/responses/input_tokens"}[kind]


@pytest.mark.parametrize(
    ("says", "count"),
    [
        ({"POST /tokenize": {"count": 812, "max_model_len": 4_096, "tokens": []}}, 812),
        ({"POST /tokenize": {"tokens": [1] * 815}, "POST /apply-template": {"prompt": "<user>…"}}, 815),
        ({"POST /tokenize": {"tokens": [1] * 815}}, None),
        ({"POST /tokenize": {"count": -4}}, None),
        ({"POST /tokenize": {"count": "many"}}, None),
        ({"POST /tokenize": ["nonsense"]}, None),
        ({}, None),
    ],
)
@pytest.mark.asyncio
async def test_servers_of_chat_completions_count_where_they_tokenize(
    connect: Connect, scripted_model: ScriptedModel, says: dict[str, Any], count: int | None
) -> None:
    scripted_model.say(says)
    provider = connect("openai")
    assert await provider.count_tokens(asking(messages=MESSAGES, tools=(TOOL,))) == count
    scripted_model.forget()
    await provider.count_tokens(asking(text="Another."))
    # Who did not count is left alone for a while.
    assert bool(scripted_model.requests()) is (count is not None)


@pytest.mark.asyncio
async def test_ollama_has_no_way_to_count(connect: Connect, scripted_model: ScriptedModel) -> None:
    assert await connect("ollama").count_tokens(asking()) is None
    assert not scripted_model.requests()
