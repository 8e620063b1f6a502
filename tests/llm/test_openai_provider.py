import asyncio
import json
from typing import Any

import pytest

from llm.providers.openai import merge_neighbours
from llm.types.model_call import (
    Image,
    ModelMessage,
    ModelRequest,
    ReasoningDelta,
    Sampling,
    StepFinished,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    Usage,
)
from tests.llm.conftest import Connect, asking, events_of, failure_after, text_of
from tests.scripted_model import ScriptedModel

WEATHER = ToolDefinition("weather", "Tells the weather.", {"type": "object", "properties": {"city": {}}})


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


async def sent(connect: Connect, scripted_model: ScriptedModel, request: ModelRequest) -> dict[str, Any]:
    """The JSON that arrived at the server for a request."""
    await events_of(connect("openai"), request)
    (record,) = await asyncio.to_thread(scripted_model.finished)
    body: dict[str, Any] = record.body
    return body


async def test_a_request_is_sent_as_the_protocol_wants_it(connect: Connect, scripted_model: ScriptedModel) -> None:
    call = ToolCall("c1", "weather", '{"city": "Huế"')
    request = ModelRequest(
        model="scripted",
        messages=(
            ModelMessage("system", "Be brief."),
            ModelMessage("user", "What is this?", images=(Image("image/png", b"\x89PNG"),)),
            ModelMessage("assistant", "", tool_calls=(call,)),
            ModelMessage("tool", "Rain", tool_call_id="c1"),
            ModelMessage("system", "Remember the date."),
            ModelMessage("user", "And now?"),
        ),
        max_output=321,
        tools=(WEATHER,),
        tool_choice="none",
        temperature=0.5,
        stop=("END",),
    )
    function = {"name": "weather", "description": "Tells the weather.", "parameters": WEATHER.parameters}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    mended = json.dumps({"invalid_json": call.arguments}, ensure_ascii=False)
    wire_call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": mended}}
    assert await sent(connect, scripted_model, request) == {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]},
            {"role": "assistant", "content": "", "tool_calls": [wire_call]},
            {"role": "tool", "content": "Rain", "tool_call_id": "c1"},
            {"role": "system", "content": "Remember the date."},
            {"role": "user", "content": "And now?"},
        ],
        "max_tokens": 321,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "none",
        "temperature": 0.5,
        "stop": ["END"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_model_that_knows_one_system_message_gets_one(connect: Connect, scripted_model: ScriptedModel) -> None:
    messages = (
        ModelMessage("system", "A"),
        ModelMessage("user", "B"),
        ModelMessage("system", ""),
        ModelMessage("system", "C"),
    )
    body = await sent(connect, scripted_model, asking(messages=messages, several_system_messages=False))
    assert body["messages"] == [{"role": "system", "content": "A\n\nC"}, {"role": "user", "content": "B"}]


TALK = (
    ModelMessage("system", "Be brief."),
    ModelMessage("system", "Today: nothing."),
    ModelMessage("user", "These are your files."),
    ModelMessage("user", "What is there?"),
    ModelMessage("assistant", tool_calls=(ToolCall("call00001", "weather", "{}"),)),
    ModelMessage("tool", "Rain.", tool_call_id="call00001"),
    ModelMessage("user", "Remember: in one line."),
)


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
async def test_messages_are_ordered_as_a_models_template_takes_them(
    dialect: str, connect: Connect, scripted_model: ScriptedModel
) -> None:
    provider = connect("openai", dialect=dialect)
    whole = [(message.role, message.text) for message in TALK]
    together = [("system", "Be brief.\n\nToday: nothing."), *whole[2:]]
    by_turns = [together[0], ("user", "These are your files.\n\nWhat is there?"), ("assistant", "")]
    by_turns += [("tool", "Rain.\n\nRemember: in one line.")]
    for model, expected in (("llama-4", whole), ("qwen-coder", together), ("gemma-4-it", by_turns)):
        for refused in ((400 if dialect == "vllm" else 500) if expected is not whole else None, None):
            scripted_model.forget()
            assert text_of(await events_of(provider, asking(messages=TALK, model=model)))
            requests = scripted_model.requests()
            assert [record.status for record in requests] == ([refused, 200] if refused else [200])
        assert [(each["role"], each["content"]) for each in requests[-1].body["messages"]] == expected


def test_questions_and_answers_are_put_by_turns_without_losing_anything() -> None:
    image = Image("image/png", b"\x89PNG")
    call = ToolCall("c1", "weather", "{}")
    messages = [
        ModelMessage("user", "A", images=(image,)),
        ModelMessage("user", "", images=(image,)),
        ModelMessage("assistant", "B"),
        ModelMessage("assistant", "C", tool_calls=(call,)),
        ModelMessage("tool", "D", tool_call_id="c1"),
        ModelMessage("tool", "E", tool_call_id="c2"),
        ModelMessage("user", "F", images=(image,)),
    ]
    assert merge_neighbours(messages) == [
        ModelMessage("user", "A", images=(image, image)),
        ModelMessage("assistant", "B\n\nC", tool_calls=(call,)),
        *messages[4:],
    ]


async def test_what_steers_the_answer_is_sent_under_its_own_names(
    connect: Connect, scripted_model: ScriptedModel
) -> None:
    steering: dict[str, Any] = {"top_p": 0.5, "presence_penalty": -1.0, "seed": 0, "reasoning_effort": "low"}
    format_ = {"type": "json_object"}
    request = asking(
        sampling=Sampling(**steering), response_format=format_, tools=(WEATHER,), parallel_tool_calls=False
    )
    body = await sent(connect, scripted_model, request)
    assert steering.items() <= body.items()
    assert (body["response_format"], body["parallel_tool_calls"]) == (format_, False)
    assert not {"frequency_penalty", "verbosity", "tool_choice"} & body.keys()


async def test_what_was_not_asked_for_is_not_sent(connect: Connect, scripted_model: ScriptedModel) -> None:
    body = await sent(connect, scripted_model, asking(tool_choice="none", parallel_tool_calls=False))
    assert set(body) == {"model", "messages", "max_tokens", "stream", "stream_options"}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_both_names_of_reasoning_are_understood(connect: Connect, name: str) -> None:
    raw = [chunk({name: "Hmm."}), chunk({"content": "Yes."}), chunk({}, "stop"), "[DONE]"]
    events = await events_of(connect("openai"), asking({"raw": raw}))
    assert events == [ReasoningDelta("Hmm."), TextDelta("Yes."), StepFinished("stop")]


async def test_content_in_parts_is_understood(connect: Connect) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]}
    raw = [chunk({"content": [thinking, {"type": "text", "text": "Yes."}]}, "stop")]
    events = await events_of(connect("openai"), asking({"raw": raw}))
    assert events == [ReasoningDelta("Hmm."), TextDelta("Yes."), StepFinished("stop")]


def call(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a piece of a tool call."""
    function = {key: value for key, value in (("name", fields.pop("name", None)), ("arguments", arguments)) if value}
    return fields | ({"function": function} if function else {})


ODD_CALLS = {
    "without ids": [
        [call(index=0, name="one"), call(index=1, name="two")],
        [call('{"a":', index=0), call('{"b":2}', index=1)],
        [call("1}", index=0)],
    ],
    "whole calls without numbers": [[call('{"a":1}', id="x", name="one"), call('{"b":2}', id="y", name="two")]],
    "whole calls without numbers or ids": [[call('{"a":1}', name="one")], [call('{"b":2}', name="two")]],
    "every call numbered 0": [
        [call('{"a":1}', index=0, id="x", name="one")],
        [call('{"b":2}', index=0, id="y", name="two")],
    ],
    "names in pieces": [
        [call(index=0, id="x", name="o")],
        [call(index=0, name="ne")],
        [call('{"a":1}', index=0)],
        [call(index=1, id="y", name="t"), call(index=1, name="wo")],
        [call('{"b":2}', index=1)],
    ],
    "names repeated": [
        [call(index=0, id="x", name="one")],
        [call('{"a":', index=0, id="x", name="one"), call("1}", index=0, id="x", name="one")],
        [call('{"b":', index=1, id="y", name="two"), call("2}", index=1, id="y", name="two")],
    ],
    "arguments as objects": [[call({"a": 1}, index=0, name="one"), call({"b": 2}, index=1, name="two")]],
    "numbers that begin at 1": [[call('{"a":1}', index=1, name="one")], [call('{"b":2}', index=2, name="two")]],
}


@pytest.mark.parametrize("pieces", ODD_CALLS.values(), ids=ODD_CALLS.keys())
async def test_the_ways_servers_send_tool_calls_all_mean_the_same(connect: Connect, pieces: list[Any]) -> None:
    raw = [chunk({"tool_calls": part}) for part in pieces] + [chunk({}, "stop")]
    *events, last = await events_of(connect("openai"), asking({"raw": raw}))
    started = [event for event in events if isinstance(event, ToolCallStarted)]
    assert [(event.index, event.name) for event in started] == [(0, "one"), (1, "two")]
    assert [event.id for event in started] in (["x", "y"], ["call_0", "call_1"])
    arguments = ["", ""]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert [json.loads(text) for text in arguments] == [{"a": 1}, {"b": 2}]
    assert last == StepFinished("tool_calls")


async def test_a_call_without_arguments_is_still_a_call(connect: Connect) -> None:
    raw = [chunk({"tool_calls": [call(index=0, id="x", name="now")]}), chunk({}, "tool_calls")]
    events = await events_of(connect("openai"), asking({"raw": raw}))
    assert events == [ToolCallStarted(0, "x", "now"), StepFinished("tool_calls")]


@pytest.mark.parametrize("reason", ["eos", "end_turn", "stop_sequence"])
async def test_an_unknown_reason_is_the_models_own_end(connect: Connect, reason: str) -> None:
    events = await events_of(connect("openai"), asking({"raw": [chunk({"content": "Done"}, reason)]}))
    assert events == [TextDelta("Done"), StepFinished("stop")]


async def test_the_end_mark_alone_ends_an_answer(connect: Connect) -> None:
    events = await events_of(connect("openai"), asking({"raw": [chunk({"content": "Done"}), "[DONE]"]}))
    assert events == [TextDelta("Done"), StepFinished("stop")]


async def test_the_last_report_of_usage_counts(connect: Connect) -> None:
    usages = [{"prompt_tokens": 5, "completion_tokens": number, "prompt_tokens_details": None} for number in (1, 2)]
    raw = [chunk({"content": "a"}) | {"usage": usages[0]}, chunk({}, "stop") | {"usage": usages[1]}]
    events = await events_of(connect("openai"), asking({"raw": raw}))
    assert events[-1] == StepFinished("stop", Usage(5, 2))


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"error": {"message": "upstream died", "code": 502}}, "provider_overloaded"),
        ({"error": {"message": "Rate limit", "type": "rate_limit_error"}}, "rate_limited"),
        ({"error": "boom"}, "provider_overloaded"),
        ({"object": "error", "message": "context length exceeded", "code": 400}, "context_too_long"),
        (chunk({}, "error"), "provider_overloaded"),
    ],
)
async def test_an_error_in_the_stream_ends_it(connect: Connect, event: dict[str, Any], code: str) -> None:
    raw = [chunk({"content": "So"}), event, "[DONE]"]
    events, failure = await failure_after(connect("openai"), asking({"raw": raw}))
    assert events == [TextDelta("So")]
    assert failure.code == code


async def test_a_connection_that_breaks_after_the_reason_has_lost_nothing(connect: Connect) -> None:
    events = await events_of(connect("openai"), asking({"raw": [chunk({"content": "a"}, "stop"), "x"], "cut_after": 1}))
    assert events == [TextDelta("a"), StepFinished("stop")]


async def test_counts_that_are_none_are_as_if_not_reported(connect: Connect) -> None:
    usage = {"prompt_tokens": "lots", "completion_tokens": -3, "prompt_tokens_details": {"cached_tokens": True}}
    raw = [chunk({"content": "Yes."}, "stop"), {"choices": [], "usage": usage}, "[DONE]"]
    events = await events_of(connect("openai"), asking({"raw": raw}))
    assert events == [TextDelta("Yes."), StepFinished("stop", Usage(0, 0))]
