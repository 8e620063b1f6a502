"""Providers that refuse one tool, or too many: the request is sent again without, and says so."""

import json
from typing import Any

import pytest

from core.errors import ModelError
from llm.providers.errors import from_answer, max_tools, refused_tools
from llm.types.model_call import ParametersLeftOut, StepEvent, ToolDefinition
from tests.llm.conftest import Connect, asking, failure_after, text_of
from tests.scripted_model import ScriptedModel

GOOD = {"type": "object", "properties": {"a": {"type": "string"}}}
NO_ITEMS = {"type": "object", "properties": {"list": {"type": "array"}}}  # OpenAI refuses that
SPACE = {"type": "object", "properties": {"a b": {"type": "string"}}}  # and Anthropic that
ANSWER = {"text": "Done."}
NESTED = json.loads("[" * 900 + '"tool x"' + "]" * 900)


def tools(*schemas: dict[str, Any]) -> tuple[ToolDefinition, ...]:
    return tuple(ToolDefinition(f"tool{number}", "A tool.", schema) for number, schema in enumerate(schemas))


async def events_of(provider: Any, request: Any) -> list[StepEvent]:
    return [event async for event in provider.stream(request)]


def offered(scripted_model: ScriptedModel) -> list[int]:
    """How many tools each request had that the server got."""
    return [len(record.body.get("tools", ())) for record in scripted_model.requests() if record.method == "POST"]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [("openai", NO_ITEMS), ("responses", NO_ITEMS), ("anthropic", SPACE)],
    ids=lambda each: str(each)[:9],
)
async def test_a_request_is_sent_again_without_the_tools_that_are_refused(
    connect: Connect, scripted_model: ScriptedModel, kind: str, bad: dict[str, Any]
) -> None:
    provider, request = connect(kind), asking(ANSWER, tools=tools(GOOD, bad, GOOD, bad))
    for _ in range(2):
        events = await events_of(provider, request)
        assert text_of(events) == "Done."
        assert events[0] == ParametersLeftOut((), ("tool1", "tool3"))
    assert offered(scripted_model) == [4, 3, 2, 2]  # the second call knows
    mended = asking(ANSWER, tools=tools(GOOD, GOOD))
    assert not [each for each in await events_of(provider, mended) if isinstance(each, ParametersLeftOut)]


async def test_a_tool_that_the_call_needs_is_not_left_out(connect: Connect) -> None:
    request = asking(ANSWER, tools=tools(GOOD, NO_ITEMS), needed_tools=frozenset({"tool1"}))
    events, error = await failure_after(connect("openai"), request)
    assert not events and error.code == "bad_model_request" and "array schema missing items" in error.detail


async def test_more_tools_than_a_provider_takes_are_left_out_and_named(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider, request = connect("openai"), asking(ANSWER, tools=tools(*[GOOD] * 130))
    for _ in range(2):
        assert (await events_of(provider, request))[0] == ParametersLeftOut((), ("tool128", "tool129"))
    assert offered(scripted_model) == [130, 128, 128]


async def test_what_was_left_out_in_vain_is_not_remembered(connect: Connect, scripted_model: ScriptedModel) -> None:
    refusal = {"error": {"status": 400, "message": "The tool 'tool0' is not the trouble."}}
    provider = connect("openai")
    _, error = await failure_after(provider, asking(refusal, tools=tools(GOOD, GOOD)))
    assert error.code == "bad_model_request"
    await events_of(provider, asking(ANSWER, tools=tools(GOOD, GOOD)))
    assert offered(scripted_model) == [2, 1, 2]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        # Groq
        (
            {"error": {"message": "invalid JSON schema for tool get_x, tools[3].function.parameters: `/a`: not valid"}},
            {3, "get_x"},
        ),
        # Google's compatible endpoint
        (
            [
                {
                    "error": {
                        "code": 400,
                        "message": "* GenerateContentRequest.tools[0].function_declarations[80].parameters.properties"
                        "[data].properties: only allowed for OBJECT type\n* GenerateContentRequest.tools[0]."
                        "function_declarations[81].parameters.required: only allowed for OBJECT type",
                    }
                }
            ],
            {80, 81},
        ),
        # FastAPI's servers
        ({"detail": [{"loc": ["body", "tools", 2, "function", "parameters"], "msg": "bad", "type": "x"}]}, {2}),
        ({"error": {"message": "Invalid 'messages[0].tool_calls[1].function.arguments': bad"}}, set()),
        ("nothing of the kind", set()),
        (None, set()),
        (NESTED, set()),
    ],
    ids=range(7),
)
def test_what_an_error_says_of_tools_is_read(body: Any, named: set[str | int]) -> None:
    assert {each for each in refused_tools(body) if each != "arguments"} >= named
    assert {each for each in refused_tools(body) if isinstance(each, int)} == {n for n in named if isinstance(n, int)}


@pytest.mark.parametrize(
    ("sentence", "most"),
    [
        ("Invalid 'tools': array too long. Expected an array with maximum length 128, but got 192 instead.", 128),
        ("At most 64 tools are supported.", 64),
        ("Exceeded max number of tools: 20", 20),
        ("maximum number of tools is 512", 512),
        ("tools: List should have at most 128 items after validation, not 192", 128),
        ("'tools' : maximum number of items is 128", 128),
        ("The number of tools (192) exceeds the maximum of 128.", 128),
        ("Too many tools: 192 (max 128)", 128),
        ("You have provided 192 tools, the maximum is 128.", 128),
        ("At most 512 function declarations are allowed, got 600", 512),
        ("The context has 128 tokens.", None),
        ("Invalid 'tools[12].function.name': string too long. Expected a string with maximum length 64", None),
        ("tools.3.description exceeds 1024 characters", None),
        ("max_tokens must be at most 128; tools are fine", None),
    ],
)
def test_how_many_tools_are_taken_is_read(sentence: str, most: int | None) -> None:
    assert max_tools({"error": {"message": sentence}}) == most


def test_only_a_refused_request_speaks_of_tools() -> None:
    body = b'{"error": {"message": "Invalid schema for function \'x\'"}}'
    errors: list[ModelError] = [from_answer(status, {}, body, "") for status in (400, 500)]
    assert [each.refused_tools for each in errors] == [{"x"}, frozenset()]
