"""What a socket's frames mean: parsing, limits, and the events of a turn as both sockets and SSE deliver them."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async

from accounts.models import User
from chat import services, streams
from chat.asking import Ask
from chat.models import Conversation, Turn
from llm.errors import NotFound, ProductError
from llm.sentences import translated
from projects.services import identifier

BAD_FRAME, NOT_YOURS, TOO_LARGE, TOO_FAST = 4400, 4403, 4413, 4429
MAX_FRAME = 524_288  # characters; below the web server's own limit of 1 MiB, which drops the connection without a word
BURST, PER_SECOND = 60, 20.0  # frames a socket may send at once, and for ever

# On a pool of threads, not on the one that Channels shares between all sockets of a process; and the connection goes
# back to its pool at once, where Django would keep it until the socket or the stream of events is closed.
on_database = partial(database_sync_to_async, thread_sensitive=False)

FRAMES = ("ping", "watch", "subscribe", "send", "stop")


class Refused(Exception):
    def __init__(self, close_code: int) -> None:
        self.close_code = close_code


@dataclass(slots=True)
class Pace:
    """A token bucket: `BURST` frames at once, `PER_SECOND` in the long run."""

    left: float = BURST
    at: float = field(default_factory=time.monotonic)

    def take(self) -> bool:
        now = time.monotonic()
        self.left = min(BURST, self.left + (now - self.at) * PER_SECOND) - 1
        self.at = now
        return self.left >= 0


def parse(text: str | None, pace: Pace) -> dict[str, Any]:
    """A frame as an object with a known `type`; raises `Refused` with the code to close the socket with."""
    if not pace.take():
        raise Refused(TOO_FAST)
    if text is None:
        raise Refused(BAD_FRAME)
    if len(text) > MAX_FRAME:
        raise Refused(TOO_LARGE)
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(BAD_FRAME) from error
    if not isinstance(frame, dict) or frame.get("type") not in FRAMES:
        raise Refused(BAD_FRAME)
    return frame


def sequence(frame: dict[str, Any]) -> int:
    after = frame.get("after_seq", 0)
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise ProductError("bad_sequence", "after_seq must be a whole number from 0.")
    return after


def conversation(user: User, pk: object) -> Conversation:
    found = Conversation.objects.visible_to(user).filter(pk=identifier(pk, "conversation")).first()
    if found is None:
        raise NotFound("conversation")
    return found


def turn(user: User, pk: object) -> Turn:
    rows = Turn.objects.visible_to(user).select_related("conversation", "answer")
    found = rows.filter(pk=identifier(pk, "turn")).first()
    if found is None:
        raise NotFound("turn")
    return found


def send(user: User, frame: dict[str, Any]) -> None:
    key = frame.get("key")
    ask = Ask(text=str(frame.get("text", "")), key=str(key)[:100] if key else None)
    services.send_or_keep(user=user, conversation=conversation(user, frame.get("conversation")), ask=ask)


def stop(user: User, pk: object) -> None:
    services.stop_turn(user=user, turn=turn(user, pk))


def _ended(turn_id: UUID) -> Turn | None:
    return Turn.objects.exclude(status__in=Turn.LIVE).filter(pk=turn_id).first()


async def events(turn_id: UUID, after_seq: int, *, idle: bool = False) -> AsyncIterator[dict[str, Any]]:
    """The turn's events as wire objects, until its end. With `idle`, an empty object after each 5 s of silence.

    When the stream has expired, or misses its last event, one SNAPSHOT sends the reader to the row, which is complete.
    """
    ended = await on_database(_ended)(turn_id)
    if ended is not None:
        stored = await streams.read(turn_id, after_seq)
        for event in stored:
            yield event.to_wire()
        if not (stored and stored[-1].last):
            yield _snapshot(ended)
        return
    async for event_or_none in streams.follow(turn_id, after_seq):
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
