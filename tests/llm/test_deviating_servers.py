"""Servers that deviate from a protocol, over real HTTP, in each protocol concerned."""

import asyncio
import json
from typing import Any

import pytest

from core.errors import ModelError
from llm.providers import create_client
from llm.types.model_call import (
    ModelMessage,
    ParametersLeftOut,
    ReasoningDelta,
    ReasoningState,
    Sampling,
    StepEvent,
    StepFinished,
    TextBecameReasoning,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    Usage,
)
from tests.llm.conftest import Connect, asking, events_of, failure_after, text_of
from tests.llm.raw_server import RawServer, always, answer
from tests.llm.test_openai_provider import WEATHER, chunk
from tests.scripted_model import ScriptedModel

KINDS = ("openai", "responses", "anthropic", "ollama")
TASKS = ToolDefinition("list_tasks", "Lists tasks.", {"type": "object", "properties": {"date": {}}})


def calls_of(events: list[StepEvent]) -> list[ToolCall]:
    """The calls of a step, with their arguments put together."""
    started = [event for event in events if isinstance(event, ToolCallStarted)]
    return [
        ToolCall(
            each.id,
            each.name,
            "".join(e.arguments for e in events if isinstance(e, ToolCallDelta) and e.index == each.index),
        )
        for each in started
    ]


def reasoning_of(events: list[StepEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


async def sent(scripted_model: ScriptedModel) -> dict[str, Any]:
    records = await asyncio.to_thread(scripted_model.finished)
    body: dict[str, Any] = records[-1].body
    return body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streaming", [None, "ignored"])
async def test_reasoning_in_the_text_is_reasoning(connect: Connect, kind: str, streaming: str | None) -> None:
    script = {"text": "<think>\nLet me see.\n</think>\n\nThe answer is 42.", "streaming": streaming}
    events = await events_of(connect(kind), asking(script))
    assert (reasoning_of(events), text_of(events)) == ("Let me see.", "The answer is 42.")


@pytest.mark.parametrize("kind", KINDS)
async def test_reasoning_with_only_a_closing_tag_is_taken_back(connect: Connect, kind: str) -> None:
    script = {"text": "Let me see.\n</think>\n\nThe answer is 42."}
    events = await events_of(connect(kind), asking(script))
    at = events.index(TextBecameReasoning())
    assert (text_of(events[:at]), text_of(events[at:])) == ("Let me see.\n", "The answer is 42.")
    expecting = await events_of(connect(kind), asking(script, untagged_reasoning=True))
    assert (reasoning_of(expecting), text_of(expecting)) == ("Let me see.", "The answer is 42.")
    off = Sampling(reasoning_effort="none")
    plain = await events_of(connect(kind), asking({"text": "42."}, untagged_reasoning=True, sampling=off))
    assert (reasoning_of(plain), text_of(plain)) == ("", "42.")


@pytest.mark.parametrize("kind", ["responses", "anthropic"])
async def test_text_that_was_reasoning_does_not_go_back_with_the_calls(connect: Connect, kind: str) -> None:
    call = {"name": "weather", "arguments": {}}
    script = {"reasoning": "Hm.", "text": "<think>SECRET</think>Wait.", "tool_calls": [call]}
    events = await events_of(connect(kind), asking(script, tools=(WEATHER,)))
    assert isinstance(events[-1], StepFinished)
    assert (events[-1].reason, events[-1].reasoning) == ("tool_calls", None)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_whole_answer_is_read_as_one_step(connect: Connect, scripted_model: ScriptedModel, kind: str) -> None:
    call = {"id": "call_1", "name": "weather", "arguments": {"city": "Huế"}}
    script = {"reasoning": "Hm.", "text": "Let me see.", "tool_calls": [call], "usage": {"input": 30, "output": 4}}
    events = await events_of(connect(kind), asking({**script, "streaming": "ignored"}, tools=(WEATHER,)))
    assert (reasoning_of(events), text_of(events)) == ("Hm.", "Let me see.")
    assert [(each.name, json.loads(each.arguments)) for each in calls_of(events)] == [("weather", {"city": "Huế"})]
    assert isinstance(events[-1], StepFinished)
    assert (events[-1].reason, events[-1].usage) == ("tool_calls", Usage(30, 4))
    assert (await sent(scripted_model))["stream"] is True


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_refuses_to_stream_is_asked_for_the_whole_answer(
    connect: Connect, scripted_model: ScriptedModel, kind: str
) -> None:
    events = await events_of(connect(kind), asking({"text": "Here I am.", "streaming": "refused"}))
    assert events[0] == ParametersLeftOut(("stream",))
    assert text_of(events) == "Here I am."
    requests = await asyncio.to_thread(scripted_model.finished)
    assert [(each.status, each.body["stream"]) for each in requests] == [(400, True), (200, False)]
    events = await events_of(connect(kind), asking({"text": "Here I am.", "streaming": "refused"}, streaming=False))
    assert text_of(events) == "Here I am." and ParametersLeftOut(("stream",)) not in events


@pytest.mark.parametrize("kind", KINDS)
async def test_json_that_is_no_answer_is_no_model(connect: Connect, kind: str) -> None:
    for whole in ({"hello": "world"}, [1, 2], {"choices": [], "content": 7, "output": 7, "message": 7}):
        _, error = await failure_after(connect(kind), asking({"whole": whole}))
        assert (error.code, error.retryable) == ("malformed_stream", False)


BROKEN = (
    ToolCall("call_x", "functions.list_tasks", '{"date": "2026-1'),
    ToolCall("call_x", "", "null"),
    ToolCall("", "list_tasks<|channel|>commentary", '{"date": NaN}'),
)


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_go_back_as_every_server_takes_them(
    connect: Connect, scripted_model: ScriptedModel, kind: str
) -> None:
    results = (
        ModelMessage("tool", "One.", tool_call_id="call_x"),
        ModelMessage("tool", "Two.", tool_call_id="call_x"),
        ModelMessage("tool", "Three.", tool_call_id=""),
    )
    turn = (ModelMessage("assistant", tool_calls=BROKEN), *results)
    messages = (
        ModelMessage("user", "Hello"),
        *turn,
        ModelMessage("assistant", "Well."),
        ModelMessage("user", "Again"),
        *turn,
    )
    request = asking(messages=(*messages, ModelMessage("user", "And now?")), tools=(TASKS,))
    assert text_of(await events_of(connect(kind), request))
    body = await sent(scripted_model)
    if kind == "openai":
        calls = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
        answered = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
        assert [call["id"] for call in calls] == answered
        assert len(set(answered)) == 6
        first = calls[0]["function"]
        assert first["name"] == "functions_list_tasks"
        assert json.loads(first["arguments"]) == {"invalid_json": '{"date": "2026-1'}
        assert [json.loads(call["function"]["arguments"]) for call in calls[1:3]] == [
            {"value": None},
            {"invalid_json": '{"date": NaN}'},
        ]


@pytest.mark.parametrize("kind", ["responses", "anthropic"])
async def test_reasoning_with_calls_that_no_server_takes_does_not_go_back(
    connect: Connect, scripted_model: ScriptedModel, kind: str
) -> None:
    """Its items hold the calls as the model wrote them."""
    call = ToolCall("c1", "functions.x", "{}")
    items: dict[str, Any] = {
        "responses": {"type": "function_call", "call_id": "c1", "name": call.name, "arguments": "{}", "id": "fc_1"},
        "anthropic": {"type": "tool_use", "id": "c1", "name": call.name, "input": {}},
    }
    reasoning_message = ModelMessage("assistant", tool_calls=(call,), reasoning=ReasoningState((items[kind],)))
    messages = (ModelMessage("user", "Hello"), reasoning_message, ModelMessage("tool", "Rain.", tool_call_id="c1"))
    assert text_of(await events_of(connect(kind), asking(messages=messages, tools=(WEATHER,))))
    assert "functions_x" in json.dumps(await sent(scripted_model))


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic", "ollama"])
async def test_calls_that_share_an_id_get_their_own(connect: Connect, kind: str) -> None:
    calls = [{"id": "call_x", "name": "list_tasks", "arguments": {"date": day}} for day in ("20", "21")]
    events = await events_of(connect(kind), asking({"tool_calls": calls}, tools=(TASKS,)))
    unique = calls_of(events)
    assert [json.loads(each.arguments)["date"] for each in unique] == ["20", "21"]
    assert len({each.id for each in unique}) == 2


async def test_a_piece_without_id_and_name_goes_on_with_the_newest_call(connect: Connect) -> None:
    """As DeepSeek's V4 comes out of some gateways (agno, issue 8880)."""

    def piece(index: int, arguments: str, **begin: str) -> dict[str, Any]:
        name = {"name": begin["name"]} if begin else {}
        identity = {"id": begin["id"]} if begin else {}
        return chunk({"tool_calls": [{"index": index, **identity, "function": {**name, "arguments": arguments}}]})

    raw = [
        piece(0, "", id="a", name="list_tasks"),
        piece(0, '{"date": "20"}'),
        piece(0, "", id="b", name="list_tasks"),
        piece(1, '{"date": '),
        piece(1, '"21"}'),
        chunk({}, "tool_calls"),
        "[DONE]",
    ]
    events = await events_of(connect("openai"), asking({"raw": raw}, tools=(TASKS,)))
    assert calls_of(events) == [
        ToolCall("a", "list_tasks", '{"date": "20"}'),
        ToolCall("b", "list_tasks", '{"date": "21"}'),
    ]


async def test_pieces_of_two_calls_may_come_by_turns(connect: Connect) -> None:
    def piece(index: int, **fields: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": index, **fields}]})

    raw = [
        piece(0, id="a", function={"name": "list_tasks", "arguments": ""}),
        piece(1, id="b", function={"name": "list_tasks", "arguments": ""}),
        piece(0, function={"arguments": '{"date": "20"}'}),
        piece(1, function={"arguments": '{"date": "21"}'}),
        chunk({}, "tool_calls"),
    ]
    events = await events_of(connect("openai"), asking({"raw": raw}, tools=(TASKS,)))
    assert [json.loads(call.arguments)["date"] for call in calls_of(events)] == ["20", "21"]


HALVES = ['{"date":', '"20"}']
ONE = [ToolCall("a", "list_tasks", '{"date":"20"}')]


def part(**fields: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [fields]})


@pytest.mark.parametrize(
    ("raw", "calls"),
    [
        # The name comes behind the first argument.
        (
            [
                part(index=0, id="a", function={"name": "", "arguments": HALVES[0]}),
                part(index=0, function={"name": "list_tasks", "arguments": HALVES[1]}),
            ],
            ONE,
        ),
        # Two calls begin without names.
        (
            [
                part(index=0, id="a", function={"arguments": ""}),
                part(index=1, id="b", function={"arguments": ""}),
                part(index=1, function={"name": "list_tasks", "arguments": '{"date":"21"}'}),
                part(index=0, function={"name": "list_tasks", "arguments": '{"date":"20"}'}),
            ],
            [*ONE, ToolCall("b", "list_tasks", '{"date":"21"}')],
        ),
        # Whole calls that all have the number 0, and no ids.
        (
            [
                part(index=0, function={"name": "list_tasks", "arguments": '{"date":"20"}'}),
                part(index=0, function={"name": "list_tasks", "arguments": '{"date":"21"}'}),
            ],
            [ToolCall("call_0", "list_tasks", '{"date":"20"}'), ToolCall("call_1", "list_tasks", '{"date":"21"}')],
        ),
        # The protocol before `tool_calls`.
        (
            [
                chunk({"function_call": {"name": "list_tasks", "arguments": HALVES[0]}}),
                chunk({"function_call": {"arguments": HALVES[1]}}),
            ],
            [ToolCall("call_0", "list_tasks", '{"date":"20"}')],
        ),
        # A call that is no list, with a number for its id.
        (
            [chunk({"tool_calls": {"id": 7, "function": {"name": "list_tasks", "arguments": "{}"}}})],
            [ToolCall("7", "list_tasks", "{}")],
        ),
    ],
)
async def test_calls_come_together_however_their_pieces_are_marked(
    connect: Connect, raw: list[Any], calls: list[ToolCall]
) -> None:
    events = await events_of(connect("openai"), asking({"raw": [*raw, chunk({}, "stop")]}, tools=(TASKS,)))
    assert calls_of(events) == calls
    assert isinstance(events[-1], StepFinished)
    assert events[-1].reason == "tool_calls"


CHUNKS = [json.dumps(each) for each in (chunk({"content": "H"}), chunk({"content": "i"}), chunk({}, "stop"))]


@pytest.mark.parametrize(
    "body",
    [
        "\n".join(CHUNKS),
        "".join(f"data: {each}\n" for each in [*CHUNKS, "[DONE]"]),
        "\ufeff" + "".join(f"data:{each}\r\n\r\n" for each in CHUNKS),
    ],
)
async def test_a_stream_in_another_form_is_read(body: str) -> None:
    (events, error) = await answered("openai", body)
    assert (text_of(events), error) == ("Hi", None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"detail": "prompt is too long: 10 tokens > 5 maximum"}', "context_too_long"),
        (
            '{"choices": null, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}',
            "quota_exhausted",
        ),
        ('data: {"message": "It is bad.", "code": 400}\n\n', "bad_model_request"),
        ('[{"error": {"code": 400, "message": "It is bad."}}]', "bad_model_request"),
    ],
)
async def test_an_error_with_a_good_status_is_an_error(body: str, code: str) -> None:
    events, error = await answered("openai", body)
    assert events == []
    assert error is not None
    assert error.code == code


async def answered(kind: str, body: str) -> tuple[list[StepEvent], ModelError | None]:
    """The events of a body that a server answers with status 200, and the failure, if it is one."""
    events: list[StepEvent] = []
    with RawServer(always(answer(body, media_type="text/plain"))) as server:
        provider = create_client(kind, base_url=f"http://127.0.0.2:{server.port}/v1", api_key="", silence_timeout=10)
        try:
            async for event in provider.stream(asking()):
                events += [event]
        except ModelError as error:
            return events, error
        finally:
            await provider.close()
    return events, None


@pytest.mark.parametrize("streamed", [True, False])
async def test_arguments_that_are_an_object_are_taken_in_the_responses_protocol(streamed: bool) -> None:
    item = {"type": "function_call", "name": "list_tasks", "arguments": {"date": "20"}}
    response = {"status": "completed", "output": [item]}
    body = json.dumps({"type": "response.completed", "response": response} if streamed else response)
    events, error = await answered("responses", f"data: {body}\n\n" if streamed else body)
    assert error is None
    assert calls_of(events) == [ToolCall("call_0", "list_tasks", '{"date": "20"}')]


@pytest.mark.parametrize(
    ("kind", "finish"),
    [
        ("openai", "function_call_filter: MALFORMED_FUNCTION_CALL"),
        ("openai", "other"),
        ("responses", "a_reason_of_the_future"),
        ("anthropic", "a_reason_of_the_future"),
        ("ollama", "a_reason_of_the_future"),
    ],
)
async def test_an_end_that_is_not_known_is_no_good_end(connect: Connect, kind: str, finish: str) -> None:
    events = await events_of(connect(kind), asking({"text": "The three reasons are: first,", "finish": finish}))
    assert isinstance(events[-1], StepFinished)
    assert (events[-1].reason, events[-1].detail) == ("other", finish)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_calls_that_were_announced_and_did_not_come_are_no_good_end(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"text": "Let me look.", "finish": "tool_calls"}, tools=(TASKS,)))
    assert isinstance(events[-1], StepFinished)
    assert (events[-1].reason, events[-1].detail) == ("other", "tool_calls")


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_in_the_text_are_run_only_where_the_model_is_known_for_them(connect: Connect, kind: str) -> None:
    text = 'Let me look.\n<tool_call>\n{"name": "list_tasks", "arguments": {"date": "20"}}\n</tool_call>'
    plain = await events_of(connect(kind), asking({"text": text}, tools=(TASKS,)))
    assert text_of(plain) == text and not calls_of(plain)
    expecting = await events_of(connect(kind), asking({"text": text}, tools=(TASKS,), written_calls=True))
    assert text_of(expecting).strip() == "Let me look."
    assert calls_of(expecting) == [ToolCall("call_0", "list_tasks", '{"date": "20"}')]
    assert isinstance(expecting[-1], StepFinished) and expecting[-1].reason == "tool_calls"


@pytest.mark.parametrize(("key", "quoted"), [("x", True), ("max-1", True), ("maximum-secret", False)])
async def test_a_short_key_is_not_cut_out_of_what_a_server_says(connect: Connect, key: str, quoted: bool) -> None:
    message = "The maximum of max-1 experiments was exceeded. Key: maximum-secret."
    _, error = await failure_after(
        connect("openai", api_key=key), asking({"error": {"status": 400, "message": message}})
    )
    assert (message in error.detail) is quoted
    assert ("maximum-secret" in error.detail) is quoted
