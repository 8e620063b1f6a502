import asyncio
from typing import Any

import pytest

from llm.providers import find_missing_parameter
from llm.types.model_call import (
    Image,
    ModelMessage,
    ModelRequest,
    ReasoningState,
    Sampling,
    StepFinished,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    Usage,
)
from tests.llm.conftest import Connect, asking, events_of, failure_after
from tests.scripted_model import ScriptedModel

WEATHER = ToolDefinition("weather", "Tells the weather.", {"type": "object", "properties": {"city": {}}})
START = {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}
STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}


async def sent(connect: Connect, scripted_model: ScriptedModel, request: ModelRequest) -> dict[str, Any]:
    """Return the JSON that arrived at the server, which is as strict as the real service."""
    await events_of(connect("anthropic"), request)
    (record,) = await asyncio.to_thread(scripted_model.finished)
    body: dict[str, Any] = record.body
    return body


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


async def test_a_request_is_sent_as_the_protocol_wants_it(connect: Connect, scripted_model: ScriptedModel) -> None:
    calls = (ToolCall("a", "weather", '{"city": "Huế"}'), ToolCall("b", "weather", ""))
    request = ModelRequest(
        model="scripted",
        messages=(
            ModelMessage("system", "Be brief."),
            ModelMessage("user", "What is this?", images=(Image("image/png", b"\x89PNG"),)),
            ModelMessage("assistant", "I look.", tool_calls=calls),
            ModelMessage("tool", "Rain", tool_call_id="a"),
            ModelMessage("tool", "", tool_call_id="b"),
            ModelMessage("system", "Remember the date."),
            ModelMessage("user", "And now?"),
        ),
        max_output=321,
        tools=(WEATHER,),
        tool_choice="none",
        temperature=0.5,
        stop=("END", "\n"),
    )
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert await sent(connect, scripted_model, request) == {
        "model": "scripted",
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": source}, text("What is this?")]},
            {
                "role": "assistant",
                "content": [
                    text("I look."),
                    {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Huế"}},
                    {"type": "tool_use", "id": "b", "name": "weather", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "Rain"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "(empty)"},
                    text("Remember the date."),  # in front it would change the beginning of the prompt
                    text("And now?"),
                ],
            },
        ],
        "max_tokens": 321,
        "tools": [{"name": "weather", "description": "Tells the weather.", "input_schema": WEATHER.parameters}],
        "tool_choice": {"type": "none"},
        "stop_sequences": ["END"],
        "stream": True,
    }


async def test_effort_schema_and_single_calls_are_said_in_the_protocols_words(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    schema = {"type": "object", "properties": {"town": {"type": "string"}}}
    request = asking(
        tools=(WEATHER,),
        parallel_tool_calls=False,
        sampling=Sampling(top_p=0.5, seed=7, reasoning_effort="low"),
        response_format={"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}},
    )
    body = await sent(connect, scripted_model, request)
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"tool_choice": "required"}, {"type": "any", "disable_parallel_tool_use": True}),
        (
            {"tool_choice": "required", "required_tool": "weather"},
            {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        ),
        ({"tool_choice": "none"}, {"type": "none"}),
    ],
)
async def test_a_single_call_may_be_demanded_and_forbidden(
    connect: Connect, scripted_model: ScriptedModel, choice: dict[str, Any], expected: dict[str, Any]
) -> None:
    body = await sent(connect, scripted_model, asking(tools=(WEATHER,), parallel_tool_calls=False, **choice))
    assert body["tool_choice"] == expected


@pytest.mark.parametrize(
    ("sampling", "name"),
    [
        ({"top_p": 0.5}, "top_p"),
        ({"seed": 0}, "seed"),
        ({"presence_penalty": 1.0}, "presence_penalty"),
        ({"reasoning_effort": "minimal"}, "reasoning_effort"),
        ({"verbosity": "low"}, "verbosity"),
        ({"reasoning_effort": "high"}, None),
        ({}, None),
    ],
)
def test_what_the_protocol_has_no_word_for_is_known_before_it_is_sent(
    sampling: dict[str, Any], name: str | None
) -> None:
    assert find_missing_parameter("anthropic", Sampling(**sampling), None) == name
    assert find_missing_parameter("openai", Sampling(**sampling), {"type": "json_object"}) is None


async def test_what_was_not_asked_for_is_not_sent(connect: Connect, scripted_model: ScriptedModel) -> None:
    assert set(await sent(connect, scripted_model, asking())) == {"model", "messages", "max_tokens", "stream"}


@pytest.mark.parametrize(
    ("arguments", "sent_input"),
    [
        ("", {}),
        ('{"a": ', {"invalid_json": '{"a": '}),
        ("[1, 2]", {"value": [1, 2]}),
        ('{"a": NaN}', {"invalid_json": '{"a": NaN}'}),
    ],
)
async def test_arguments_that_are_no_object_are_kept_inside_one(
    connect: Connect, scripted_model: ScriptedModel, arguments: str, sent_input: dict[str, Any]
) -> None:
    messages = (
        ModelMessage("user", "Go"),
        ModelMessage("assistant", "", tool_calls=(ToolCall("a", "weather", arguments),)),
        ModelMessage("tool", "It failed", tool_call_id="a"),
    )
    body = await sent(connect, scripted_model, asking(messages=messages, tools=(WEATHER,)))
    assert body["messages"][1]["content"][0]["input"] == sent_input


async def test_repeated_and_odd_call_ids_become_unique_and_plain(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    messages = [ModelMessage("user", "Go")]
    for identity in ("call_0", "call_0", "functions.weather:0", "call_0"):
        messages += [
            ModelMessage("assistant", "", tool_calls=(ToolCall(identity, "weather", "{}"),)),
            ModelMessage("tool", "Rain", tool_call_id=identity),
        ]
    body = await sent(connect, scripted_model, asking(messages=tuple(messages), tools=(WEATHER,)))
    blocks = [block for message in body["messages"] for block in message["content"]]
    called = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert called == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert called[0] == "call_0"
    assert called[2] == "functions_weather_0"
    assert len(set(called)) == 4


async def test_calls_of_tools_that_are_gone_still_have_a_definition(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    messages = (
        ModelMessage("user", "Go"),
        ModelMessage("assistant", "", tool_calls=(ToolCall("a", "gone", "{}"),)),
        ModelMessage("tool", "Rain", tool_call_id="a"),
    )
    body = await sent(connect, scripted_model, asking(messages=messages))
    assert body["tools"] == [{"name": "gone", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("named", "choice"), [(None, {"type": "any"}), ("weather", {"type": "tool", "name": "weather"})]
)
async def test_a_call_can_be_demanded(
    connect: Connect, scripted_model: ScriptedModel, named: str | None, choice: dict[str, str]
) -> None:
    request = asking(tools=(WEATHER,), tool_choice="required", required_tool=named)
    assert (await sent(connect, scripted_model, request))["tool_choice"] == choice


@pytest.mark.parametrize(
    ("messages", "roles_and_texts"),
    [
        ([], [("user", ["(empty)"])]),
        ([("assistant", "Hi")], [("user", ["(empty)"]), ("assistant", ["Hi"])]),
        ([("user", "a"), ("user", " "), ("user", "b\n")], [("user", ["a", "b\n"])]),
        (
            [("user", "a"), ("assistant", ""), ("user", "b")],
            [("user", ["a"]), ("assistant", ["(empty)"]), ("user", ["b"])],
        ),
        ([("user", " "), ("assistant", "Hi  ")], [("user", ["(empty)"]), ("assistant", ["Hi"])]),
    ],
)
async def test_any_conversation_is_acceptable(
    connect: Connect,
    scripted_model: ScriptedModel,
    messages: list[tuple[Any, str]],
    roles_and_texts: list[tuple[str, list[str]]],
) -> None:
    request = asking(messages=tuple(ModelMessage(role, words) for role, words in messages))
    body = await sent(connect, scripted_model, request)
    assert [
        (message["role"], [block["text"] for block in message["content"]]) for message in body["messages"]
    ] == roles_and_texts


async def test_the_last_report_of_usage_counts(connect: Connect) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 30, "output_tokens": 4}
    raw = [START, STOP | {"usage": usage}, {"type": "message_stop"}]
    events = await events_of(connect("anthropic"), asking({"raw": raw}))
    assert events == [StepFinished("stop", Usage(60, 4, cached_input=20, cache_written=30))]


async def test_whole_blocks_and_unknown_events_are_understood(connect: Connect) -> None:
    tool = {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Huế"}}
    thinking = {"type": "redacted_thinking", "data": "x"}
    raw = [
        START,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "content_block_start", "index": 1, "content_block": thinking},
        {"type": "an_event_of_the_future"},
        {"type": "content_block_start", "index": 2, "content_block": tool},
        STOP | {"delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    events = await events_of(connect("anthropic"), asking({"raw": raw}))
    assert events == [
        TextDelta("Hi"),
        ToolCallStarted(0, "t", "weather"),
        ToolCallDelta(0, '{"city": "Hu\\u1ebf"}'),
        StepFinished("tool_calls", Usage(3, 2), ReasoningState(({"type": "text", "text": "Hi"}, thinking, tool))),
    ]


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence"])
async def test_these_reasons_are_the_models_own_end(connect: Connect, reason: str) -> None:
    raw = [START, STOP | {"delta": {"stop_reason": reason}}, {"type": "message_stop"}]
    assert await events_of(connect("anthropic"), asking({"raw": raw})) == [StepFinished("stop", Usage(3, 2))]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("overloaded_error", "provider_overloaded"),
        ("api_error", "provider_overloaded"),
        ("rate_limit_error", "rate_limited"),
        ("authentication_error", "bad_credentials"),
        ("timeout_error", "provider_timeout"),
    ],
)
async def test_an_error_in_the_stream_ends_it(connect: Connect, kind: str, code: str) -> None:
    raw = [START, {"type": "error", "error": {"type": kind, "message": "No."}}]
    assert (await failure_after(connect("anthropic"), asking({"raw": raw})))[1].code == code


async def test_a_base_url_may_end_in_v1(scripted_model: ScriptedModel, connect: Connect) -> None:
    scripted_model.url += "/v1/"
    assert await connect("anthropic").list_models() == ["scripted"]


async def test_without_a_limit_the_answer_may_fill_the_room_as_far_as_the_model_goes(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider = connect("anthropic")
    for left in (9_000, 150_000, 150_000):
        await events_of(provider, asking({"text": "Yes."}, max_output=None, remaining=left))
    sent = [(record.body["max_tokens"], record.status) for record in scripted_model.requests()]
    assert sent == [(9_000, 200), (150_000, 400), (64_000, 200), (64_000, 200)]
