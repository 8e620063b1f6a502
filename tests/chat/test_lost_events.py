"""Readers get events that Redis has lost from the row: each ends with the whole answer, whatever was lost.

The tests play the worker with its own emitter, stream and rows, so that Redis can lose events between any two acts.
"""

import asyncio
from functools import partial
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from accounts.models import User
from chat.conversations.services import create_conversation
from chat.models import Turn
from chat.models.parts import MessagePart
from chat.models.queries import claim
from chat.openai_api.answer import AnswerHead
from chat.openai_api.serialize import Completion
from chat.realtime import event_stream, turn_stream
from chat.realtime.events import Approval, EventType, WireEvent, fold
from chat.turns import store
from chat.turns.emitter import Answer, load_answer
from chat.turns.store import INTERRUPTED, Ending, TurnOutcome, TurnProgress, last_event
from chat.turns.submit import Ask
from chat.turns.submit import submit as begin
from contrib.ag_ui.translation import RunContext, Translation
from core.background import TURNS, on_database, streams_of_loop, submit
from core.sentences import Sentence
from llm.types.model_call import (
    LoopEvent,
    ReasoningDelta,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolRunFinished,
    ToolRunStarted,
    Usage,
)
from tests.contrib.ag_ui.client import messages, problems
from tests.product import WAIT

LOOK = ToolCall("c", "look", '{"at": "sea"}')
SOURCE = {"number": 1, "title": "Sea", "url": "https://sea.example/"}
SAYS: list[LoopEvent] = [
    StepStarted(1),
    *(ReasoningDelta(f"Thought {number}. ") for number in range(5)),
    *(TextDelta(f"Word {number}, ") for number in range(10)),
    ToolCallStarted(0, "c", "look"),
    *(ToolCallDelta(0, piece) for piece in ('{"at"', ': "s', 'ea"}')),
    StepFinished("tool_calls", Usage(5, 2)),
    ToolRunStarted(LOOK, Sentence("Looking at the sea")),
    ToolRunFinished(LOOK, "Waves.", False, {"documents": [SOURCE]}),
    StepStarted(2),
    *(TextDelta(f"Wave {number} of the sea, ") for number in range(10)),
    TextDelta("and more [1]."),
    StepFinished("stop", Usage(9, 4)),
]
DONE = Ending(Turn.Status.DONE)


@pytest.fixture
def turn(committed: None, workspace: None, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """One that a worker has begun."""
    monkeypatch.setattr(TURNS, "key", f"turns:queue:{uuid4()}")  # that nobody takes from
    monkeypatch.setattr(turn_stream, "BLOCK_MILLISECONDS", 100)
    monkeypatch.setattr(event_stream, "POLL_INTERVAL", 0.01)
    monkeypatch.setattr(event_stream, "LAST_EVENTS_DELAY", 0.1)
    user = User.objects.create_user(f"reads-{uuid4()}")
    return begin_turn(user)


def begin_turn(user: User) -> Turn:
    waits = begin(user=user, conversation=create_conversation(user=user), ask=Ask("Hello."))[0]
    TURNS.remove(waits.pk)
    claimed = claim(waits.pk)
    assert claimed is not None
    return claimed.turn


async def lose(turn: UUID) -> None:
    """Delete the turn's stream, as FLUSHALL would."""
    await streams_of_loop().delete(f"turn:{turn}:wire")


async def checkpoint(turn: Turn, answer: Answer) -> None:
    await on_database(store.checkpoint, [TurnProgress(turn, store.dump_parts(answer.parts), answer.seq)])


async def work(turn: Turn, dice: Random) -> Answer:
    """Write the whole answer. Appends, checkpoints and losses come in any order."""
    answer = Answer(str(turn.pk))
    answer.emit(EventType.RUN_STARTED, conversation=str(turn.conversation_id), message=str(turn.answer_id), model="m")
    for event in SAYS:
        answer.add(event)
        if dice.random() < 0.5:
            if events := answer.drain():
                await turn_stream.append(turn.pk, events)
            await asyncio.sleep(dice.choice((0, 0.001, 0.004)))
        if dice.random() < 0.2:
            await lose(turn.pk)
        if dice.random() < 0.2:
            await checkpoint(turn, answer)
    answer.close()
    type_, payload = last_event(DONE, answer.usage_row())
    answer.emit_payload(type_, payload)
    events = answer.drain()
    outcome = TurnOutcome(answer.parts, answer.seq, answer.usage_row(), finish_reason="stop")
    assert await on_database(store.end_turn, turn, DONE, outcome) is not None
    await turn_stream.append(turn.pk, events)
    if dice.random() < 0.3:
        await lose(turn.pk)
    return answer


async def read(turn: Turn, after: int = 0) -> list[WireEvent]:
    return [event.wire() async for events in event_stream.follow_turn(turn, after) for event in events]


def folded(wires: list[WireEvent]) -> list[MessagePart]:
    parts: list[MessagePart] = []
    for wire in wires:
        fold(parts, EventType(wire["type"]), wire)
    return parts


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_lost_every_reader_ends_with_what_the_row_holds(turn: Turn, seed: int) -> None:
    dice = Random(seed)

    async def run() -> list[list[WireEvent]]:
        async def late() -> list[WireEvent]:
            await asyncio.sleep(dice.random() * 0.05)
            return await read(turn)

        working = asyncio.create_task(work(turn, dice))
        read_ = await asyncio.gather(read(turn), late(), late())
        await working
        return list(read_)

    readers = submit(run()).result(WAIT)
    row = Turn.objects.select_related("answer__model").get(pk=turn.pk)
    text, parts = row.answer.text, row.answer.parts
    for wires in readers:
        assert folded(wires) == parts
        numbers = [wire["seq"] for wire in wires]
        assert numbers == sorted(numbers) and len(set(numbers[:-1])) == len(numbers[:-1])
        assert said_by_openai(wires, row) == (text, ["Sea"])
        assert said_by_ag_ui(wires, row) == [
            {"role": "reasoning", "text": parts[0]["text"]},
            {
                "role": "assistant",
                "text": parts[1]["text"],
                "calls": [{"id": "a:c", "name": "look", "arguments": LOOK.arguments}],
            },
            {"role": "tool", "text": "Waves.", "call": "a:c"},
            {"role": "assistant", "text": parts[-1]["text"], "calls": []},
        ]


def said_by_openai(wires: list[WireEvent], row: Turn) -> tuple[str, list[str]]:
    completion = Completion(AnswerHead("t", "m", (), str))
    for wire in wires:
        completion.feed(wire)
    if not completion.ended:
        completion.end(row)
    [choice] = completion.whole()["choices"]
    cited = [each["url_citation"]["title"] for each in choice["message"].get("annotations", ())]
    return choice["message"]["content"] or "", cited


def said_by_ag_ui(wires: list[WireEvent], row: Turn) -> list[dict[str, Any]]:
    translation = Translation(RunContext("thread", "run", str(row.pk), "a", "m", (), str))
    events = [translation.begin(), *(event for wire in wires for event in translation.feed(wire))]
    events += translation.end(row)
    assert not problems(events)
    return messages(events)


def test_a_question_that_was_lost_while_nothing_more_comes_reaches_its_reader(turn: Turn) -> None:
    """Otherwise the answer and its person would wait for each other."""

    async def run() -> tuple[list[WireEvent], int]:
        answer = Answer(str(turn.pk))
        for event in SAYS[: SAYS.index(ToolRunFinished(LOOK, "Waves.", False, {"documents": [SOURCE]}))]:
            answer.add(event)
        await turn_stream.append(turn.pk, answer.drain())
        answer.emit(EventType.TOOL_CALL_APPROVAL, part=2, call="c", state=Approval.WAITING, until="")
        question = answer.drain()
        events = event_stream.follow_turn(turn)
        wires = [event.wire() for event in await anext(events)]
        await turn_stream.append(turn.pk, question)
        await lose(turn.pk)
        await checkpoint(turn, answer)
        while not (news := await anext(events)):
            pass
        return [*wires, *(event.wire() for event in news)], answer.seq

    wires, seq = submit(run()).result(WAIT)
    assert (wires[-1]["type"], wires[-1]["seq"], wires[-1]["status"]) == ("SNAPSHOT", seq, "running")
    assert folded(wires)[2]["approval"] == Approval.WAITING


def test_what_follows_a_loss_is_not_added_to_an_answer_that_lacks_what_was_lost(turn: Turn) -> None:
    """The worker dies after the loss: the rest is missing, but the stored text makes sense."""

    async def run() -> Answer:
        answer = Answer(str(turn.pk))
        for words in ("One ", "two "):
            answer.add(TextDelta(words))
            await turn_stream.append(turn.pk, answer.drain())
        await checkpoint(turn, answer)
        for words in ("three ", "four "):
            await lose(turn.pk)
            answer.add(TextDelta(words))
            await turn_stream.append(turn.pk, answer.drain())
        row = Turn.objects.select_related("answer")
        return await load_answer(await on_database(row.get, pk=turn.pk))

    assert submit(run()).result(WAIT).parts == [{"type": "text", "text": "One two "}]


def test_a_reader_of_a_turn_that_is_deleted_hears_no_more(turn: Turn) -> None:
    async def run() -> list[WireEvent]:
        reading = asyncio.create_task(read(turn))
        await on_database(partial(store.end_turn, turn, INTERRUPTED, TurnOutcome([], 0)))
        await on_database(Turn.objects.filter(pk=turn.pk).delete)
        return await reading

    assert submit(run()).result(WAIT) == []


def test_a_reader_waits_for_the_last_event_of_a_turn_whose_row_has_just_ended(
    turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy worker appends it seconds after it has stored the end; it was sent to the row, and had half of a text."""
    monkeypatch.setattr(event_stream, "LAST_EVENTS_DELAY", WAIT)

    async def run() -> list[str]:
        answer = Answer(str(turn.pk))
        answer.add(TextDelta("Half, "))
        await turn_stream.append(turn.pk, answer.drain())
        answer.add(TextDelta("and all."))
        answer.close()
        type_, payload = last_event(DONE, {})
        answer.emit_payload(type_, payload)
        events = answer.drain()
        await on_database(store.end_turn, turn, DONE, TurnOutcome(answer.parts, answer.seq))
        types, late = list[str](), 0
        async for several in event_stream.follow_turn(turn):
            types += [event.type for event in several]
            late += not several
            if late == 3:
                await turn_stream.append(turn.pk, events)
        return types

    text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert submit(run()).result(WAIT) == [*text, "RUN_FINISHED"]
