"""Readers of turns in one process share one read of Redis. Each gets every event of its turn once, in order.

The request that begins a turn can answer with the events."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
import redis
from django.conf import settings as product
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.models import User
from chat.conversations.services import create_conversation
from chat.models import Conversation, Message, Turn
from chat.models.queries import ClaimedTurn
from chat.realtime.event_stream import event_text, follow_turn
from chat.realtime.events import EncodedEvent, Event, EventType, WireEvent, encode
from chat.realtime.turn_stream import BATCH_EVENTS, _reader, append, next_events
from chat.turns import runner
from chat.turns.emitter import Answer
from chat.turns.services import stop_turn
from chat.turns.store import UNEXPECTED
from chat.turns.submit import Ask
from chat.turns.submit import submit as begin
from core.background import TURNS, streams_of_loop, submit
from llm.types.model_call import TextDelta
from tests.application import Application
from tests.conftest import Person
from tests.contrib.ag_ui.client import run_input
from tests.product import WAIT, free_port


def events_between(turn: str, first: int, last: int) -> list[Event]:
    return [
        Event(EventType.TEXT_MESSAGE_CONTENT, turn, seq, {"part": 0, "delta": f"{seq} "})
        for seq in range(first, last + 1)
    ]


def end(turn: str, seq: int) -> Event:
    return Event(EventType.RUN_STOPPED, turn, seq, {})


async def follow(turn: str, after: int = 0) -> AsyncIterator[list[EncodedEvent]]:
    """Yield batches of events to the last one of the turn. A batch is empty after a silence."""
    seq = after
    while True:
        events = await next_events(turn, seq)
        yield events
        if events:
            seq = events[-1].seq
            if events[-1].last:
                return


async def numbers(turn: str, after: int = 0) -> list[int]:
    """The events of a turn to its end, by number."""
    return [event.seq for events in [batch async for batch in follow(turn, after)] for event in events]


async def first(events: AsyncIterator[list[EncodedEvent]]) -> list[EncodedEvent]:
    """Return the first batch that is not empty."""
    async for batch in events:
        if batch:
            return batch
    raise AssertionError("the turn has ended")


async def waits(turn: str, after: int = 0) -> None:
    """Return when a read waits for the events after this one."""
    async with asyncio.timeout(WAIT):
        for _ in count():
            if _reader()._read_after.get(f"turn:{turn}:wire") == after:
                return
            await asyncio.sleep(0)


def test_many_turns_and_several_readers_of_one_are_asked_for_in_one_read() -> None:
    turns = [str(uuid4()) for _ in range(30)]

    async def write(turn: str) -> None:
        for start in range(1, 200, 7):
            await append(turn, events_between(turn, start, min(start + 6, 199)))
        await append(turn, [end(turn, 200)])

    async def run() -> tuple[list[list[int]], set[str]]:
        tasks = [asyncio.create_task(numbers(turn, after)) for turn in turns for after in (0, 150)]
        await waits(turns[-1])
        streams = set(_reader()._read_after)
        await asyncio.gather(*map(write, turns))
        return await asyncio.gather(*tasks), streams

    read, streams = submit(run()).result(60)
    assert read == [list(range(after + 1, 201)) for _ in turns for after in (0, 150)]
    assert {f"turn:{turn}:wire" for turn in turns} <= streams


def test_who_comes_while_a_read_blocks_is_heard_and_who_has_all_hears_of_silence() -> None:
    silent, turn = str(uuid4()), str(uuid4())

    async def run() -> tuple[list[EncodedEvent], list[EncodedEvent]]:
        await append(turn, events_between(turn, 1, 3))
        waiting = asyncio.ensure_future(anext(follow(silent)))
        await waits(silent)
        return await anext(follow(turn, 1)), await waiting

    news, nothing = submit(run()).result(60)
    assert [event.seq for event in news] == [2, 3] and nothing == []


def test_who_comes_while_news_are_on_their_way_gets_the_beginning_too() -> None:
    turn = str(uuid4())

    async def run() -> tuple[list[int], list[int]]:
        await append(turn, events_between(turn, 1, 4))
        early = asyncio.create_task(numbers(turn, 4))
        await waits(turn, 4)
        late = asyncio.create_task(numbers(turn))
        with redis.Redis.from_url(product.STREAMS_URL) as other:  # the loop stands still: the late one comes in between
            last = end(turn, 5)
            other.xadd(f"turn:{turn}:wire", {"type": last.type, "wire": encode(last.to_wire())}, id="5-0")
        return await early, await late

    assert submit(run()).result(60) == ([5], [1, 2, 3, 4, 5])


def test_a_reader_that_is_slow_gets_what_it_has_not_read_when_it_asks() -> None:
    turn, last = str(uuid4()), 3 * BATCH_EVENTS

    async def run() -> list[list[EncodedEvent]]:
        await append(turn, events_between(turn, 1, 5))
        events = follow(turn)
        got = [await first(events)]
        await append(turn, [*events_between(turn, 6, last - 1), end(turn, last)])
        assert not _reader()._waiting  # nothing is read for who does not ask
        return got + [batch async for batch in events]

    got = submit(run()).result(60)
    assert [event.seq for batch in got for event in batch] == list(range(1, last + 1))
    assert max(map(len, got)) == BATCH_EVENTS


def test_a_redis_that_cuts_everybody_off_is_read_on_from_the_same_event() -> None:
    turn = str(uuid4())

    async def run() -> list[int]:
        await append(turn, events_between(turn, 1, 2))
        reading = asyncio.create_task(numbers(turn))
        await waits(turn, 2)
        with redis.Redis.from_url(product.STREAMS_URL) as other:
            other.client_kill_filter(_type="normal", skipme=True)
        await append(turn, [*events_between(turn, 3, 4), end(turn, 5)])
        return await reading

    assert submit(run()).result(60) == [1, 2, 3, 4, 5]


def test_a_reader_of_a_turn_that_ended_without_its_last_event_is_sent_to_the_row(
    application: Application, person: Person
) -> None:
    started = person.caller.ask("Hello.")
    assert list(person.caller.events(started["id"]))[-1]["type"] == "RUN_FINISHED"
    with redis.Redis.from_url(product.STREAMS_URL) as stream:
        stream.delete(f"turn:{started['id']}:wire")
    row = Turn.objects.get(pk=started["id"])
    Turn.objects.filter(pk=row.pk).update(finished=timezone.now() - timedelta(hours=1))

    async def run(turn: Turn) -> list[str]:
        return [event.type for events in [batch async for batch in follow_turn(turn)] for event in events]

    assert submit(run(row)).result(WAIT) == ["SNAPSHOT"]
    row.status = Turn.Status.RUNNING  # as somebody has read it who came before its end
    assert submit(run(row)).result(WAIT) == ["SNAPSHOT"]


def test_a_reader_who_was_late_gets_all_events_of_a_turn_that_has_ended(
    application: Application, person: Person
) -> None:
    turn = person.caller.ask("Hello.")
    types = [event["type"] for event in person.caller.events(turn["id"])]
    row = Turn.objects.get(pk=turn["id"])
    row.status = Turn.Status.RUNNING  # as somebody has read it who came before its end

    async def run() -> list[str]:
        reader = _reader()
        reader._reading = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]  # reads nothing
        try:
            return [event.type for events in [batch async for batch in follow_turn(row)] for event in events]
        finally:
            reader._reading.cancel()
            reader._reading = None

    assert submit(run()).result(WAIT) == types


@pytest.mark.usefixtures("committed", "workspace")
def test_who_reads_a_turn_that_no_worker_has_room_for_is_told_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TURNS, "key", f"turns:queue:{uuid4()}")  # that nobody takes from
    user = User.objects.create_user(f"waits-{uuid4()}")
    before, waits = (
        begin(user=user, conversation=create_conversation(user=user), ask=Ask("Hello."))[0] for _ in range(2)
    )

    async def run() -> list[list[WireEvent]]:
        events = follow_turn(waits)
        first = await anext(events)
        await asyncio.to_thread(stop_turn, user=user, turn=before)
        batches = [first, await anext(events)]
        await asyncio.to_thread(stop_turn, user=user, turn=waits)
        batches += [batch async for batch in events]
        return [[event.wire() for event in batch] for batch in batches]

    first, second, last = submit(run()).result(WAIT)
    assert first == [{"type": "QUEUED", "turn": str(waits.pk), "position": 2}]
    assert second == [{"type": "QUEUED", "turn": str(waits.pk), "position": 1}]
    assert [event["type"] for event in last] == ["RUN_STOPPED"]


def test_what_cannot_be_appended_is_the_error_of_its_turn_alone_and_a_repeat_is_none() -> None:
    fine, wrong, other = (str(uuid4()) for _ in range(3))

    async def run() -> tuple[list[Any], list[int]]:
        await streams_of_loop().set(f"turn:{wrong}:wire", "no stream")
        half = Event(EventType.TEXT_MESSAGE_CONTENT, other, 1, {"delta": "\ud800"})
        first = events_between(fine, 1, 3)
        several = (
            append(fine, first),
            append(wrong, events_between(wrong, 1, 1)),
            append(other, [half]),
            append(fine, first),
        )
        results = await asyncio.gather(*several, return_exceptions=True)
        await append(fine, [end(fine, 4)])
        return list(results), await numbers(fine)

    results, read = submit(run()).result(WAIT)
    assert [type(each) for each in results] == [type(None), redis.ResponseError, UnicodeEncodeError, type(None)]
    assert read == [1, 2, 3, 4]


def test_an_event_goes_out_as_it_was_written_but_for_what_it_says_to_people() -> None:
    wire: WireEvent = {"type": "TEXT_MESSAGE_CONTENT", "turn": "t", "seq": 3, "ts": 1.5, "part": 0, "delta": "né"}
    odd = EncodedEvent("TEXT_MESSAGE_CONTENT", 3, " " + encode(wire))  # to the letter
    assert event_text(odd, "vi") is odd.text
    detail = UNEXPECTED.detail.dump()
    error = EncodedEvent("RUN_ERROR", 4, encode({"type": "RUN_ERROR", "seq": 4, "detail": detail}))
    assert detail in event_text(error, "en")
    assert detail not in event_text(error, "vi") and '"seq":4' in event_text(error, "vi")


EVENTS = {"Accept": "text/event-stream"}


def events_in(response: httpx.Response) -> list[dict[str, Any]]:
    assert (response.status_code, response.headers["Content-Type"]) == (200, "text/event-stream"), response.text
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data]


def test_the_request_that_begins_a_turn_answers_with_its_events(application: Application, person: Person) -> None:
    http, place = person.caller.http, person.caller.conversation()
    sent = http.post(f"conversations/{place}/turns/", json={"text": "Hello."}, headers=EVENTS)
    [turn] = Turn.objects.filter(conversation_id=place)
    assert urlsplit(sent.headers["Location"]).path == f"/api/v1/turns/{turn.pk}/"
    assert events_in(sent) == list(person.caller.events(str(turn.pk)))
    assert (events_in(sent)[0]["type"], events_in(sent)[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
    answer = f"messages/{turn.answer_id}"
    again = events_in(http.post(f"{answer}/regenerate/", json={}, headers=EVENTS))
    edited = events_in(http.post(f"messages/{turn.user_message_id}/edit/", json={"text": "Good day."}, headers=EVENTS))
    assert len({events[0]["turn"] for events in (events_in(sent), again, edited)}) == 3
    assert {events[-1]["type"] for events in (again, edited)} == {"RUN_FINISHED"}
    both = {"Accept": "text/event-stream, application/json"}
    assert http.post(f"{answer}/regenerate/", json={}, headers=both).status_code == 202


@pytest.mark.parametrize("accept", ["eje", "jee", "ejje"], ids=["events first", "json first", "in turns"])
def test_a_repeated_key_gets_what_it_asks_for_of_the_turn_that_it_began(
    application: Application, person: Person, accept: str
) -> None:
    place = person.caller.conversation()

    def sent(kind: str, text: str = "Hello.") -> httpx.Response:
        headers = {"Idempotency-Key": "once-only", **(EVENTS if kind == "e" else {})}
        return person.caller.http.post(f"conversations/{place}/turns/", json={"text": text}, headers=headers)

    seen = [events_in(answer)[0]["turn"] if kind == "e" else answer.json()["turns"][0]["id"]
            for kind in accept for answer in [sent(kind)]]  # fmt: skip
    assert set(seen) == {str(Turn.objects.get(conversation_id=place).pk)}
    for kind in "ej":
        assert (sent(kind, "Another.").status_code, sent(kind, "Another.").json()["code"]) == (
            422,
            "idempotency_key_reused",
        )


def test_what_keeps_a_turn_from_beginning_is_an_error_as_ever(
    application: Application, person: Person, stranger: Person, settings: Settings
) -> None:
    place = person.caller.conversation()

    def refused(who: Person, body: dict[str, Any]) -> tuple[int, str]:
        answer = who.caller.http.post(f"conversations/{place}/turns/", json=body, headers=EVENTS)
        assert answer.headers["Content-Type"] == "application/problem+json"
        return answer.status_code, answer.json()["code"]

    assert refused(stranger, {"text": "Hello."}) == (404, "not_found")
    assert refused(person, {"text": " "}) == (400, "empty_message")
    assert refused(person, {"text": 5, "files": "all"}) == (400, "invalid")
    assert refused(person, {"text": "Hello.", "models": [str(uuid4()), str(uuid4())]}) == (400, "several_answers")
    settings.CONNECTIONS_AT_ONCE = 1
    turn = person.caller.ask("Long.", {"tokens": 5_000, "interval": 0.02})
    with person.caller.http.stream("GET", f"turns/{turn['id']}/events/") as opened:
        assert next(opened.iter_lines())
        assert refused(person, {"text": "Hello."}) == (429, "too_many_connections")
        run = run_input({"id": "1", "role": "user", "content": "Hello."}, thread=place)
        answer = person.caller.http.post("ag-ui/", json=run, headers=EVENTS)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_connections")
    stop_turn(user=person.user, turn=Turn.objects.get(pk=turn["id"]))
    assert not Turn.objects.filter(conversation_id=place).exists()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def relayed(port: int, target: str) -> asyncio.Server:
    """Opens the way to Redis at this port."""
    parts = urlsplit(target)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far = asyncio.open_unix_connection(parts.path) if parts.scheme == "unix" else asyncio.open_connection(
            parts.hostname, parts.port
        )  # fmt: skip
        far_reader, far_writer = await far
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    return await asyncio.start_server(connect, "127.0.0.1", port)


def test_an_answer_goes_on_while_redis_is_away_and_its_events_follow(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage may last long. The row gets the text meanwhile."""
    monkeypatch.setattr(runner, "RESEND_INTERVAL", 0.01)
    redis_url, port, turn = settings.STREAMS_URL, free_port(), Turn(conversation=Conversation())
    claimed = ClaimedTurn(
        turn=turn,
        leaf=Message(),
        version=None,
        reminders=[],
        mentions=[],
        earlier_prompts=[],
        prompted=False,
        has_summary=False,
        has_marks=False,
        has_tasks=False,
        has_memory=False,
        run_step=None,
        scope_above={},
    )
    settings.STREAMS_URL = f"redis://127.0.0.1:{port}/0"

    async def work() -> list[int]:
        run = runner._Run(claimed, None, None)
        publisher = asyncio.create_task(run._publish())
        for word in ("one", "two"):
            run.answer.add(TextDelta(word))
            run._news.set()
            while word not in str(run.answer.parts):  # noqa: ASYNC110 - the publisher drains it
                await asyncio.sleep(0.01)
        assert not publisher.done()
        server = await relayed(port, redis_url)
        run._closed.set()
        run._news.set()
        await asyncio.gather(publisher, return_exceptions=True)
        events = [*run._unpublished, *run.answer.drain(), end(str(turn.pk), run.answer.seq + 1)]
        await append(turn.pk, events)
        sequence = await numbers(str(turn.pk))
        await streams_of_loop().aclose()
        server.close()
        return sequence

    sequence = asyncio.run(work())
    assert len(sequence) >= 3 and sequence == list(range(1, len(sequence) + 1))


def test_an_answer_of_a_process_with_too_much_to_do_is_said_in_fewer_pieces() -> None:
    answer = Answer(str(uuid4()))
    in_time = answer.interval(streams=10)
    assert answer.interval(streams=10, late=0.2) == pytest.approx(in_time + 0.2)
    assert answer.interval(streams=300, late=60) < 1
