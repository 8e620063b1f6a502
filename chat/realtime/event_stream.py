"""What reaches those who look at a conversation.

The events of a turn come to its readers in order and without gaps: where Redis has lost some, a SNAPSHOT brings what
the row holds instead, and they go on from there. Open pages get hints that something has changed and ask for what they
show; a lost hint costs nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.db import database_sync_to_async
from django.db import transaction
from django.http import StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import override

from accounts.access.authentication import Credential
from accounts.realtime import WhileSignedIn, tell_group
from chat.models import Conversation, Turn
from chat.models.conversation_state import place_in_line
from chat.realtime import turn_stream
from chat.realtime.events import IN_WORDS, SENTENCES, Event, EventType, Written, readable_parts, written
from chat.realtime.turn_stream import CONNECTION_ERRORS
from core.background import TURNS
from core.sentences import Sentence

QUEUED = "QUEUED"  # the type of what is said of a turn that no worker has room for
DELETED = "deleted"  # the status of a turn that has no row any more
LAST_WITHIN = 10.0  # seconds after the end of a turn in which its last events reach its stream, be it ever so busy
LOOK_AGAIN = 0.5  # seconds; a row is behind its events for about one

# On a pool of threads, not on the one that Channels shares between all sockets of a process; and the connection goes
# back to its pool at once, where Django would keep it until the socket or the stream of events is closed.
threaded = partial(database_sync_to_async, thread_sensitive=False)

logger = logging.getLogger(__name__)


def _stands(turn_id: UUID) -> tuple[str, int]:
    """Its status, and up to which event its row holds the answer; of one that is deleted by now DELETED."""
    return Turn.objects.values_list("status", "seq").filter(pk=turn_id).first() or (DELETED, 0)


async def _position(turn_id: UUID) -> int | None:
    """In the queue of all, else in its person's own line; None when a worker has it."""
    return await TURNS.position(turn_id) or await threaded(place_in_line)(turn_id)


async def events_of(turn: Turn, after_seq: int = 0) -> AsyncIterator[list[Written]]:
    """The turn's events to its end, as they come; none after each 2.5 s of silence. Give it the row as it is now.

    Instead of none, QUEUED tells at which position the turn waits for a worker. What Redis has lost comes as a SNAPSHOT
    of the row, after which the events go on; it is the last where the turn has ended and its last event is not kept.
    """
    reading = _Reading(turn.pk, turn.status, after_seq)
    while reading.status in Turn.LIVE:
        events = await reading.more()
        yield events
        if events and events[-1].last:
            return
    while reading.status != DELETED:
        events = await reading.rest()
        yield events
        if events and (events[-1].last or events[-1].type == EventType.SNAPSHOT):
            return


@dataclass(slots=True)
class _Reading:
    """One reader on the way through a turn, who has its events up to `seq`. What is before `needed` is lost: they go on
    once the row has come so far."""

    turn: UUID
    status: str
    seq: int
    needed: int = 0

    async def more(self) -> list[Written]:
        if self.needed > self.seq:
            return await self._from_row()
        events = await turn_stream.news(self.turn, self.seq)
        return self._without_gap(events) if events else await self._after_silence()

    async def rest(self) -> list[Written]:
        """Of a turn that has ended. Its row has before its stream has the end, and both processes may be busy: of one
        that has just ended, the last events are on their way."""
        try:
            events = await turn_stream.read(self.turn, self.seq)
        except CONNECTION_ERRORS:  # the row has everything
            return [_snapshot(await row_of(self.turn))]
        if events := self._without_gap(events):
            return events
        row = await row_of(self.turn)
        ended = abs((timezone.now() - row.finished).total_seconds()) if row.finished else LAST_WITHIN  # clocks differ
        if self.seq < row.seq and self.needed <= self.seq and ended < LAST_WITHIN:
            return self._without_gap(await turn_stream.news(self.turn, self.seq))
        return [_snapshot(row)]

    def _without_gap(self, events: Sequence[Written]) -> list[Written]:
        told = [event for number, event in enumerate(events, self.seq + 1) if event.seq == number]
        if len(told) < len(events):
            self.needed = events[len(told)].seq - 1
        self.seq += len(told)
        return told

    async def _after_silence(self) -> list[Written]:
        self.status, held = await threaded(_stands)(self.turn)
        if self.status in Turn.LIVE and held > self.seq:
            with suppress(*CONNECTION_ERRORS):  # a Redis that is away may have it when it is back
                if events := await turn_stream.read(self.turn, self.seq):
                    return self._without_gap(events)
                self.needed = held
        elif self.status in Turn.LIVE and (position := await _position(self.turn)) is not None:
            return [_queued(self.turn, position)]
        return []

    async def _from_row(self) -> list[Written]:
        self.status, held = await threaded(_stands)(self.turn)
        if self.status not in Turn.LIVE:
            return []
        if held < self.needed:
            await asyncio.sleep(LOOK_AGAIN)
            return []
        row = await row_of(self.turn)
        self.status = row.status
        if row.status not in Turn.LIVE:
            return []
        self.seq = row.seq
        return [_snapshot(row)]


async def wire_events(turn: Turn, after_seq: int = 0) -> AsyncIterator[dict[str, Any]]:
    """`events_of` as wire objects, one by one; an empty one after each 2.5 s of silence, also while it is queued."""
    async for events in events_of(turn, after_seq):
        for event in events:
            yield event.wire() if event.type != QUEUED else {}
        if not events:
            yield {}


async def row_of(turn_id: UUID | str) -> Turn:
    """The turn with its answer, as they are in the same moment."""
    return await threaded(Turn.objects.select_related("answer__model").get)(pk=turn_id)


def response(credential: Credential, lines: AsyncIterable[str | bytes]) -> StreamingHttpResponse:
    """Server-sent events, for as long as the credential holds."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would hold events back
    told = WhileSignedIn(credential, lines)
    return StreamingHttpResponse(told, content_type="text/event-stream", headers=headers)


async def lines(turn: Turn, after_seq: int, language: str) -> AsyncIterator[bytes]:
    """The turn's events after `after_seq` as server-sent ones, for somebody of this language."""
    yield b": open\n\n"
    async for events in events_of(turn, after_seq):
        yield "".join(_line(event, language) for event in events).encode() or b": waiting\n\n"


def _line(event: Written, language: str) -> str:
    number = f"id: {event.seq}\n" if event.seq else ""
    return f"{number}event: {event.type}\ndata: {text_of(event, language)}\n\n"


def readable(wire: dict[str, Any]) -> dict[str, Any]:
    """An event with what it says to people in the active language."""
    sentences = {name: str(Sentence.load(wire[name])) for name in SENTENCES if name in wire}
    parts = {"parts": readable_parts(wire["parts"])} if "parts" in wire else {}
    return {**wire, **sentences, **parts}


def text_of(event: Written, language: str) -> str:
    """The JSON of an event for somebody of this language: as it was written, but for what it says to people."""
    if event.type not in IN_WORDS:
        return event.text
    with override(language):  # a stream is read when the middleware that chose it has ended
        return written(readable(event.wire()))


def _queued(turn_id: UUID, position: int) -> Written:
    return Written(QUEUED, 0, written({"type": QUEUED, "turn": str(turn_id), "position": position}))


def _snapshot(row: Turn) -> Written:
    payload = {
        "message": str(row.answer_id),
        "status": row.status,
        "model": row.answer.model.name if row.answer.model is not None else "",
        "fallback": row.fallback_reason,
        "parts": row.answer.parts,
    }
    event = Event(EventType.SNAPSHOT, str(row.pk), row.seq, payload)
    return Written(event.type, event.seq, written(event.to_wire()))


def group_of(conversation_id: UUID) -> str:
    """The channel group of everyone who looks at a conversation."""
    return f"conversation.{conversation_id}"


async def announce_state(conversation_id: UUID, state: str, **more: str) -> None:
    hint = {"type": "conversation.state", "conversation": str(conversation_id), "state": state}
    await announce(conversation_id, {**hint, **more})


async def announce(conversation_id: UUID, hint: dict[str, str]) -> None:
    """A hint to open pages; a page that misses it sees the same at its next request."""
    group = group_of(conversation_id)
    try:
        await tell_group(group, hint, group)
    except CONNECTION_ERRORS:
        logger.warning("no hint to open pages: Redis is away")


def tell_pages(conversation: Conversation) -> None:
    """Once the change is committed, open pages look again at what waits."""
    transaction.on_commit(partial(async_to_sync(announce), conversation.pk, hint(conversation.pk)))


def hint(conversation_id: UUID) -> dict[str, str]:
    return {"type": "conversation.next", "conversation": str(conversation_id)}


def tell_marks(conversation_id: UUID, question: UUID) -> None:
    """Once the change is committed, open pages look again at the turn of this question and at the plan."""
    changed = {"type": "conversation.marks", "conversation": str(conversation_id), "message": str(question)}
    transaction.on_commit(partial(async_to_sync(announce), conversation_id, changed))
