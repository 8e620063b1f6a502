"""Requests to cache the beginning of a prompt, and refusals of the scripted providers."""

from typing import Any

import pytest

from llm.providers import anthropic, responses
from llm.types.model_call import ModelMessage, ModelRequest, ReasoningState, ToolCall
from tests.scripted_model import caching

KEPT = {"cache_control": {"type": "ephemeral"}}
THOUGHT = ReasoningState(({"type": "thinking", "thinking": "Hm.", "signature": "s"},))
PROMPT = (
    ModelMessage("system", "Be brief."),
    ModelMessage("user", "A file."),
    ModelMessage("user", "Hello"),
    ModelMessage("assistant", "", tool_calls=(ToolCall("a", "look", "{}"),), reasoning=THOUGHT),
)


def request(*points: int) -> ModelRequest:
    return ModelRequest("gpt-5.6-terra", PROMPT, 100, cache_points=points)


def test_anthropic_is_asked_at_the_last_block_of_each_border_and_never_at_a_thought() -> None:
    body = anthropic.build_body(request(1, 2, 3, 4))
    assert body["system"] == [{"type": "text", "text": "Be brief.", **KEPT}]
    question, answer = body["messages"]
    assert [{"type": "text", "text": text, **KEPT} for text in ("A file.", "Hello")] == question["content"]
    assert answer["content"] == list(THOUGHT.items)
    assert caching.anthropic_refusal(body) is None
    assert anthropic.build_body(request())["system"] == "Be brief."


def test_openai_is_asked_on_texts_of_the_user() -> None:
    body = responses.build_body(request(1, 2))
    part = {"type": "input_text", "text": "A file.", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert [item.get("content") for item in body["input"][:2]] == [[part], "Hello"]
    assert caching.responses_refusal(body) is None
    assert "Unknown parameter" in str(caching.responses_refusal({**body, "model": "gpt-5.5"}))


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([{"type": "text", "text": "a", **KEPT}] * 5, "A maximum of 4 blocks"),
        ([{"type": "thinking", "thinking": "a", **KEPT}], "thinking.cache_control"),
        ([{"type": "text", "text": " ", **KEPT}], "empty text blocks"),
    ],
)
def test_the_scripted_anthropic_refuses_what_the_real_one_does(blocks: list[Any], error: str) -> None:
    body = {"messages": [{"role": "user", "content": blocks}]}
    assert error in str(caching.anthropic_refusal(body))
