"""A turn's events for whoever reads along, over a socket or server-sent events: what was missed, then what comes."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async

from chat.models import Turn
from chat.realtime import event_stream
from core.i18n import translated

# On a pool of threads, not on the one that Channels shares between all sockets of a process; and the connection goes
# back to its pool at once, where Django would keep it until the socket or the stream of events is closed.
on_database = partial(database_sync_to_async, thread_sensitive=False)


def _ended(turn_id: UUID) -> Turn | None:
    return Turn.objects.exclude(status__in=Turn.LIVE).filter(pk=turn_id).first()


async def events(turn_id: UUID, after_seq: int, *, idle: bool = False) -> AsyncIterator[dict[str, Any]]:
    """The turn's events as wire objects, until its end. With `idle`, an empty object after each 5 s of silence.

    When the stream has expired, or misses its last event, one SNAPSHOT sends the reader to the row, which is complete.
    """
    ended = await on_database(_ended)(turn_id)
    if ended is not None:
        stored = await event_stream.read(turn_id, after_seq)
        for event in stored:
            yield event.to_wire()
        if not (stored and stored[-1].last):
            yield _snapshot(ended)
        return
    async for event_or_none in event_stream.follow(turn_id, after_seq):
        if event_or_none is not None:
            yield event_or_none.to_wire()
            continue
        ended = await on_database(_ended)(turn_id)
        if ended is not None:
            yield _snapshot(ended)
            return
        if idle:
            yield {}


def readable(wire: dict[str, Any]) -> dict[str, Any]:
    """An event with what it says to people in the active language."""
    return {**wire, **{name: translated(wire[name]) for name in ("detail", "label") if name in wire}}


def _snapshot(ended: Turn) -> dict[str, Any]:
    return {"type": "SNAPSHOT", "turn": str(ended.pk), "message": str(ended.answer_id), "status": ended.status}
