"""Events of turns for their readers, and hints for the pages of a conversation.

The events of a turn reach its readers in order and without gaps:

1. While the turn is live, a reader waits for new events in its Redis stream (`turn_stream.next_events`).
2. If Redis has lost events, the reader waits until the row holds them. A SNAPSHOT of the row then replaces them.
3. After the end of the turn, the remaining events come from the stream, or else from the row.

Open pages get a hint after a change and then request their content. A lost hint does no harm.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from chat.realtime.events import (
    TRANSLATED_TYPES,
    EncodedEvent,
    Event,
    EventPayload,
    EventType,
    WireEvent,
    encode,
    translate_parts,
)
from chat.realtime.turn_stream import CONNECTION_ERRORS
from core.background import TURNS
from core.sentences import Sentence

QUEUED = "QUEUED"  # event type: the turn waits for a worker
DELETED = "deleted"  # status of a turn whose row is gone
LAST_EVENTS_DELAY = 10.0  # seconds from the end of a turn until its last events are in its stream, on a busy machine
POLL_INTERVAL = 0.5  # seconds; a row is about one second behind its events

# Runs on a pool of threads, not on the single thread that Channels shares between all sockets of a process. The
# database connection returns to its pool at once. Django would keep it until the socket or event stream is closed.
threaded = partial(database_sync_to_async, thread_sensitive=False)

logger = logging.getLogger(__name__)


def _status_and_seq(turn_id: UUID) -> tuple[str, int]:
    """Return the status of a turn (DELETED without a row) and the number of the last event in its row."""
    return Turn.objects.values_list("status", "seq").filter(pk=turn_id).first() or (DELETED, 0)


async def _queue_position(turn_id: UUID) -> int | None:
    """Return the position in the shared queue, else in the person's own queue. None if a worker has the turn."""
    return await TURNS.position(turn_id) or await threaded(place_in_line)(turn_id)


async def follow_turn(turn: Turn, after_seq: int = 0) -> AsyncIterator[list[EncodedEvent]]:
    """Yield the turn's events until its end, and an empty list after each 2.5 s without events.

    `turn` must be fresh from the database. While the turn waits for a worker, QUEUED with its position replaces
    the empty list. A SNAPSHOT of the row replaces events that Redis has lost. It is the final event if the turn has
    ended and its last event is lost.
    """
    reader = _TurnReader(turn.pk, turn.status, after_seq)
    while reader.status in Turn.LIVE:
        events = await reader.more()
        yield events
        if events and events[-1].last:
            return
    while reader.status != DELETED:
        events = await reader.rest()
        yield events
        if events and (events[-1].last or events[-1].type == EventType.SNAPSHOT):
            return


@dataclass(slots=True)
class _TurnReader:
    """A reader of one turn that has received its events up to `seq`.

    Redis has lost the events up to `needed`: the reader continues once the row has them.
    """

    turn: UUID
    status: str
    seq: int
    needed: int = 0

    async def more(self) -> list[EncodedEvent]:
        if self.needed > self.seq:
            return await self._from_row()
        events = await turn_stream.next_events(self.turn, self.seq)
        return self._without_gap(events) if events else await self._after_silence()

    async def rest(self) -> list[EncodedEvent]:
        """Return the remaining events of a turn that has ended.

        The row has the end before the stream does. So the last events of a turn that has just ended may still be on
        their way.
        """
        try:
            events = await turn_stream.read_events(self.turn, self.seq)
        except CONNECTION_ERRORS:  # the row has everything
            return [_snapshot(await load_turn(self.turn))]
        if events := self._without_gap(events):
            return events
        row = await load_turn(self.turn)
        ended = (
            abs((timezone.now() - row.finished).total_seconds()) if row.finished else LAST_EVENTS_DELAY
        )  # clocks differ
        if self.seq < row.seq and self.needed <= self.seq and ended < LAST_EVENTS_DELAY:
            return self._without_gap(await turn_stream.next_events(self.turn, self.seq))
        return [_snapshot(row)]

    def _without_gap(self, events: Sequence[EncodedEvent]) -> list[EncodedEvent]:
        following = [event for number, event in enumerate(events, self.seq + 1) if event.seq == number]
        if len(following) < len(events):
            self.needed = events[len(following)].seq - 1
        self.seq += len(following)
        return following

    async def _after_silence(self) -> list[EncodedEvent]:
        self.status, stored_seq = await threaded(_status_and_seq)(self.turn)
        if self.status in Turn.LIVE and stored_seq > self.seq:
            with suppress(*CONNECTION_ERRORS):  # Redis may have the events when it is back
                if events := await turn_stream.read_events(self.turn, self.seq):
                    return self._without_gap(events)
                self.needed = stored_seq
        elif self.status in Turn.LIVE and (position := await _queue_position(self.turn)) is not None:
            return [_queued(self.turn, position)]
        return []

    async def _from_row(self) -> list[EncodedEvent]:
        self.status, stored_seq = await threaded(_status_and_seq)(self.turn)
        if self.status not in Turn.LIVE:
            return []
        if stored_seq < self.needed:
            await asyncio.sleep(POLL_INTERVAL)
            return []
        row = await load_turn(self.turn)
        self.status = row.status
        if row.status not in Turn.LIVE:
            return []
        self.seq = row.seq
        return [_snapshot(row)]


async def wire_events(turn: Turn, after_seq: int = 0) -> AsyncIterator[WireEvent | None]:
    """Yield the events of `follow_turn` one by one as wire objects. None stands for silence and QUEUED."""
    async for events in follow_turn(turn, after_seq):
        for event in events:
            yield event.wire() if event.type != QUEUED else None
        if not events:
            yield None


async def load_turn(turn_id: UUID | str) -> Turn:
    """Return the turn with its answer, read at the same moment."""
    return await threaded(Turn.objects.select_related("answer__model").get)(pk=turn_id)


def stream_response(credential: Credential, lines: AsyncIterable[str | bytes]) -> StreamingHttpResponse:
    """Return server-sent events for as long as the credential holds."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # without it nginx buffers events
    body = WhileSignedIn(credential, lines)
    return StreamingHttpResponse(body, content_type="text/event-stream", headers=headers)


async def stream_lines(turn: Turn, after_seq: int, language: str) -> AsyncIterator[bytes]:
    """Yield the turn's events after `after_seq` as server-sent events in a language."""
    yield b": open\n\n"
    async for events in follow_turn(turn, after_seq):
        yield "".join(_stream_line(event, language) for event in events).encode() or b": waiting\n\n"


def _stream_line(event: EncodedEvent, language: str) -> str:
    number = f"id: {event.seq}\n" if event.seq else ""
    return f"{number}event: {event.type}\ndata: {event_text(event, language)}\n\n"


def translate_event(wire: WireEvent) -> WireEvent:
    """Return an event with its sentences in the active language."""
    translated = wire.copy()
    if "detail" in wire:
        translated["detail"] = str(Sentence.load(wire["detail"]))
    if "label" in wire:
        translated["label"] = str(Sentence.load(wire["label"]))
    if "refused" in wire:
        translated["refused"] = str(Sentence.load(wire["refused"]))
    if "parts" in wire:
        translated["parts"] = translate_parts(wire["parts"])
    return translated


def event_text(event: EncodedEvent, language: str) -> str:
    """Return the JSON of an event with its sentences in a language."""
    if event.type not in TRANSLATED_TYPES:
        return event.text
    with override(language):  # the language middleware ends before the stream is read
        return encode(translate_event(event.wire()))


def _queued(turn_id: UUID, position: int) -> EncodedEvent:
    return EncodedEvent(QUEUED, 0, encode({"type": QUEUED, "turn": str(turn_id), "position": position}))


def _snapshot(row: Turn) -> EncodedEvent:
    payload: EventPayload = {
        "message": str(row.answer_id),
        "status": row.status,
        "model": row.answer.model.name if row.answer.model is not None else "",
        "fallback": row.fallback_reason,
        "parts": row.answer.parts,
    }
    event = Event(EventType.SNAPSHOT, str(row.pk), row.seq, payload)
    return EncodedEvent(event.type, event.seq, encode(event.to_wire()))


def channel_group(conversation_id: UUID) -> str:
    """Return the channel group of the open pages of a conversation."""
    return f"conversation.{conversation_id}"


async def announce_state(conversation_id: UUID, state: str, **more: str) -> None:
    """Send the state of the conversation to open pages. `more`: further members of the notice STATE."""
    hint = {"type": "conversation.state", "conversation": str(conversation_id), "state": state}
    await announce(conversation_id, {**hint, **more})


async def announce(conversation_id: UUID, hint: dict[str, str]) -> None:
    """Send a hint to open pages. A page that misses it sees the change at its next request."""
    group = channel_group(conversation_id)
    try:
        await tell_group(group, hint, group)
    except CONNECTION_ERRORS:
        logger.warning("open pages got no hint: Redis is unavailable")


def notify_pages(conversation: Conversation) -> None:
    """Make open pages reload the waiting message after the commit."""
    transaction.on_commit(partial(async_to_sync(announce), conversation.pk, state_hint(conversation.pk)))


def state_hint(conversation_id: UUID) -> dict[str, str]:
    return {"type": "conversation.next", "conversation": str(conversation_id)}


def notify_marks(conversation_id: UUID, question: UUID | None = None) -> None:
    """Make open pages reload this question, or all turns without one, and the plan after the commit."""
    changed = {"type": "conversation.marks", "conversation": str(conversation_id)}
    changed |= {"message": str(question)} if question is not None else {}
    transaction.on_commit(partial(async_to_sync(announce), conversation_id, changed))
