"""Test the behaviour that all kinds of providers share."""

import asyncio
from contextlib import aclosing

import pytest

from core.errors import ModelError
from llm.types.model_call import (
    ModelMessage,
    ReasoningDelta,
    StepFinished,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from tests.llm.conftest import Connect, asking, events_of, text_of
from tests.scripted_model import DEFAULT_TEXT, ScriptedModel, expected_text

pytestmark = pytest.mark.parametrize("kind", ["openai", "anthropic"])

SECRET = "sk-very-secret-0123456789"


async def test_an_answer_arrives_piece_by_piece_with_its_usage(connect: Connect, kind: str) -> None:
    script = {"text": "The quick brown fox.", "usage": {"input": 90, "cached": 40, "output": 7, "reasoning": 2}}
    *pieces, last = await events_of(connect(kind), asking(script))
    assert [event.text for event in pieces if isinstance(event, TextDelta)] == ["The", " quick", " brown", " fox."]
    assert last == StepFinished("stop", Usage(90, 7, cached_input=40, reasoning=2))


async def test_reasoning_is_kept_apart_from_the_answer(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"reasoning": "Let me see.", "text": "Four."}))
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "Let me see."
    assert text_of(events) == "Four."


async def test_tool_calls_arrive_in_order_with_their_arguments(connect: Connect, kind: str) -> None:
    calls = [
        {"name": "weather", "arguments": {"city": "Hà Nội", "days": 3}, "id": "first"},
        {"name": "clock", "arguments": "", "id": "second"},
        {"name": "broken", "arguments": '{"a": ', "id": "third"},
    ]
    events = await events_of(connect(kind), asking({"text": "I look.", "tool_calls": calls}))
    started = [event for event in events if isinstance(event, ToolCallStarted)]
    assert started == [
        ToolCallStarted(0, "first", "weather"),
        ToolCallStarted(1, "second", "clock"),
        ToolCallStarted(2, "third", "broken"),
    ]
    arguments = ["", "", ""]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert arguments == ['{"city": "H\\u00e0 N\\u1ed9i", "days": 3}', "", '{"a": ']
    assert isinstance(events[-1], StepFinished)
    assert events[-1].reason == "tool_calls"


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_the_reason_for_the_end_is_told(connect: Connect, kind: str, reason: str) -> None:
    events = await events_of(connect(kind), asking({"text": "And so", "finish": reason}))
    assert [event.reason for event in events if isinstance(event, StepFinished)] == [reason]


async def test_an_empty_answer_is_an_answer(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"text": "", "usage": {"input": 5, "output": 0}}))
    assert events == [StepFinished("stop", Usage(5, 0))]


async def test_a_provider_without_usage_is_taken_as_it_is(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"text": "Yes.", "usage": False}))
    assert events[-1] == StepFinished("stop", None)


async def test_a_finished_answer_leaves_its_connection_to_the_next(
    connect: Connect, kind: str, scripted_model: ScriptedModel
) -> None:
    provider = connect(kind)
    for _ in range(3):
        await events_of(provider, asking())
    assert len({record.connection for record in scripted_model.finished(count=3)}) == 1


async def test_many_answers_share_a_provider(connect: Connect, kind: str) -> None:
    provider = connect(kind)
    scripts = [{"tokens": 20 + number, "interval": 0.001} for number in range(20)]
    answers = await asyncio.gather(*(events_of(provider, asking(script)) for script in scripts))
    texts = [text_of(events) for events in answers]
    assert texts == [expected_text(script) for script in scripts]


async def test_closing_the_iterator_closes_the_connection(
    connect: Connect, kind: str, scripted_model: ScriptedModel
) -> None:
    async with aclosing(connect(kind).stream(asking({"tokens": 10, "silent_after": 2}))) as events:
        await anext(events)
    (record,) = await asyncio.to_thread(scripted_model.finished)
    assert record.ended == "client_closed"
    assert record.pieces == 2


@pytest.mark.parametrize("pieces", [0, 2])
async def test_cancelling_the_task_closes_the_connection(
    connect: Connect, kind: str, scripted_model: ScriptedModel, pieces: int
) -> None:
    began = asyncio.Event()

    async def consume() -> None:
        async for _ in connect(kind).stream(asking({"tokens": 10, "silent_after": pieces})):
            began.set()

    task = asyncio.create_task(consume())
    await (began.wait() if pieces else asyncio.to_thread(scripted_model.arrived))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = await asyncio.to_thread(scripted_model.finished)
    assert record.ended == "client_closed"


async def test_the_key_is_sent_and_an_unusable_one_refused(
    connect: Connect, kind: str, scripted_model: ScriptedModel
) -> None:
    await events_of(connect(kind, api_key=SECRET), asking())
    assert scripted_model.finished()[0].headers["authorization"] == "present"
    with pytest.raises(ModelError) as caught:
        connect(kind, api_key="sk-…")
    assert caught.value.code == "bad_credentials"


async def test_the_models_of_an_endpoint_are_listed(connect: Connect, kind: str, scripted_model: ScriptedModel) -> None:
    scripted_model.set_script("calm", {"text": "Calm."})
    assert await connect(kind).list_models() == ["scripted", "scripted:calm"]


async def test_text_that_cannot_be_stored_is_made_sound(connect: Connect, kind: str) -> None:
    events = await events_of(connect(kind), asking({"text": "a\x00b \ud83d c \U0001f600"}))
    assert text_of(events) == "a\ufffdb \ufffd c \U0001f600"


async def test_without_a_script_the_model_still_answers(connect: Connect, kind: str) -> None:
    events = await events_of(
        connect(kind), asking(messages=(ModelMessage("system", "Be kind."), ModelMessage("user", "Hi")))
    )
    assert text_of(events) == DEFAULT_TEXT
