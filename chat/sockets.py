"""The one WebSocket of a page. It carries: frames in become calls of services, events of turns become frames out."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.utils.translation import override

from accounts.models import User
from accounts.realtime import SignedInConsumer, has_changed
from chat.conversations.branches import continue_answer
from chat.conversations.marks import mark_file, mark_turn
from chat.models import Conversation, Message, Turn
from chat.models.conversation_state import visible_message, visible_turn
from chat.realtime import event_stream
from chat.realtime.event_stream import group_of
from chat.realtime.events import (
    BAD_FRAME,
    BROKEN_OFF,
    BURST,
    FRAMES,
    LAST_SEQ,
    MAX_FRAME,
    MAX_IDS,
    NOT_YOURS,
    PER_SECOND,
    TOO_FAST,
    TOO_LARGE,
)
from chat.sending.services import send_or_queue
from chat.turns.services import stop_turn
from chat.turns.submit import Ask, check_effort, regenerate
from core import json_bodies
from core.api.idempotency import LONGEST_KEY
from core.errors import NotFound, ProductError
from core.requests import get_or_404, identifier
from core.sentences import Sentence

logger = logging.getLogger(__name__)


class ConversationConsumer(SignedInConsumer):
    async def connect(self) -> None:
        self.followers: dict[str, asyncio.Task[None]] = {}
        self.watched: set[str] = set()
        self.pace = Pace()
        await super().connect()

    async def disconnect(self, code: int) -> None:
        for task in self.followers.values():
            task.cancel()
        await asyncio.gather(*self.followers.values(), return_exceptions=True)
        for group in self.watched:
            await self.channel_layer.group_discard(group, self.channel_name)
        await super().disconnect(code)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        if not hasattr(self, "user"):
            return  # the close is on its way
        try:
            frame = _parse(text_data, self.pace)
        except Refused as refusal:
            await self.close(refusal.close_code)
            return
        except ProductError as error:
            await self._refuse(error, None)
            return
        if frame["type"] != "ping" and not await self.holds():
            return
        try:
            await getattr(self, f"on_{frame['type']}")(frame)
            await self.send_json({"type": "ACK", "id": frame.get("id")})
        except ProductError as error:
            await self._refuse(error, frame.get("id"))
            if isinstance(error, NotFound):
                await self.close(NOT_YOURS)

    async def _refuse(self, error: ProductError, frame_id: object) -> None:
        with override(self.language):
            detail = str(error.sentence)
        await self.send_json({"type": "ERROR", "id": frame_id, "code": error.code, "detail": detail})

    async def on_ping(self, frame: dict[str, Any]) -> None:
        """Answered by the acknowledgement alone."""

    async def on_watch(self, frame: dict[str, Any]) -> None:
        conversation = await event_stream.threaded(_conversation)(self.user, frame.get("conversation"))
        group = group_of(conversation.pk)
        await self.channel_layer.group_add(group, self.channel_name)
        self.watched.add(group)
        # Again, now that what changes from here on comes as a hint: else a change in between would be seen by neither.
        conversation = await event_stream.threaded(_conversation)(self.user, conversation.pk)
        state = {"conversation": str(conversation.pk), "state": conversation.state, "title": conversation.title}
        await self.send_json({"type": "STATE", **state})
        if await has_changed(group, self.since):
            await self.conversation_next({"conversation": str(conversation.pk)})
            await self.conversation_marks({"conversation": str(conversation.pk)})

    async def on_subscribe(self, frame: dict[str, Any]) -> None:
        turn = await event_stream.threaded(visible_turn)(self.user, frame.get("turn"))
        after = _sequence(frame)
        earlier = self.followers.pop(str(turn.pk), None)
        if earlier is not None:
            earlier.cancel()
        self.followers[str(turn.pk)] = asyncio.create_task(self._follow(turn, after))

    async def on_send(self, frame: dict[str, Any]) -> None:
        await event_stream.threaded(_send)(self.user, frame)

    async def on_continue(self, frame: dict[str, Any]) -> None:
        await event_stream.threaded(_go_on)(continue_answer, self.user, frame)

    async def on_regenerate(self, frame: dict[str, Any]) -> None:
        await event_stream.threaded(_go_on)(regenerate, self.user, frame)

    async def on_stop(self, frame: dict[str, Any]) -> None:
        await event_stream.threaded(_stop)(self.user, frame.get("turn"))

    async def on_mark(self, frame: dict[str, Any]) -> None:
        await event_stream.threaded(_mark)(self.user, frame)

    async def _follow(self, turn: Turn, after_seq: int) -> None:
        try:
            async for events in event_stream.events_of(turn, after_seq):
                for event in events:
                    await self.send(text_data=event_stream.text_of(event, self.language))
            self.followers.pop(str(turn.pk), None)
        except Exception:
            for task in self.followers.values():  # what has broken this one may have broken them all: one is told of
                if task is not asyncio.current_task():
                    task.cancel()
            logger.exception("a socket could not go on with the events of turn %s", turn.pk)
            await self.close(BROKEN_OFF)

    async def conversation_state(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "STATE"})

    async def conversation_title(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "TITLE"})

    async def conversation_next(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "NEXT"})

    async def conversation_marks(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "MARKS"})

    async def turn_started(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "TURN"})


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


def _parse(text: str | None, pace: Pace) -> dict[str, Any]:
    """A frame as an object with a known `type`.

    Raises `Refused` with the code to close the socket with, and `too_many_values`.
    """
    if not pace.take():
        raise Refused(TOO_FAST)
    if text is None:
        raise Refused(BAD_FRAME)
    if len(text) > MAX_FRAME:
        raise Refused(TOO_LARGE)
    try:
        frame = json_bodies.load_text(text)
    except (ValueError, RecursionError) as error:
        raise Refused(BAD_FRAME) from error
    known = isinstance(frame, dict) and isinstance(frame.get("type"), str) and frame["type"] in FRAMES
    if not known:
        raise Refused(BAD_FRAME)
    return frame  # type: ignore[no-any-return]


def _sequence(frame: dict[str, Any]) -> int:
    after = frame.get("after_seq", 0)
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= LAST_SEQ:
        raise ProductError(
            "bad_sequence", Sentence("after_seq must be a whole number from 0 to {last_seq}.", last_seq=LAST_SEQ)
        )
    return after


def _conversation(user: User, pk: object) -> Conversation:
    return get_or_404(Conversation.objects.visible_to(user), pk, "conversation")


def _send(user: User, frame: dict[str, Any]) -> None:
    """Raises `bad_text`, `bad_effort`, `bad_list` and `bad_idempotency_key`, and what `send_or_queue` raises."""
    text, effort = frame.get("text", ""), frame.get("effort")
    if not isinstance(text, str):
        raise ProductError("bad_text", "text must be a string: the message as it was written.")
    check_effort(effort if effort is None or isinstance(effort, str) else str(effort))
    files, models = _ids(frame, "files"), _ids(frame, "models")
    parent = identifier(frame["parent"], "message") if frame.get("parent") is not None else None
    found = _conversation(user, frame.get("conversation"))
    ask = Ask(text=text, files=files, models=models, key=_key(frame), parent=parent, effort=effort)
    send_or_queue(user=user, conversation=found, ask=ask)


def _ids(frame: dict[str, Any], name: str) -> list[UUID]:
    given = frame.get(name)
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > MAX_IDS:
        raise ProductError(
            "bad_list", Sentence("{name} must be a list of at most {max_ids} ids.", name=name, max_ids=MAX_IDS)
        )
    return [identifier(each, name.removesuffix("s")) for each in given]


def _go_on(how: Callable[..., Any], user: User, frame: dict[str, Any]) -> None:
    """Raises `bad_idempotency_key`, and what the service raises."""
    message = get_or_404(Message.objects.visible_to(user), frame.get("message"), "message")
    how(user=user, message=message, key=_key(frame))


def _key(frame: dict[str, Any]) -> str | None:
    key = frame.get("key") or None
    if key is not None and (not isinstance(key, str) or len(key) > LONGEST_KEY):
        raise ProductError(
            "bad_idempotency_key",
            Sentence("key must be a string of at most {longest_key} characters, a UUID.", longest_key=LONGEST_KEY),
        )
    return key


def _stop(user: User, pk: object) -> None:
    stop_turn(user=user, turn=visible_turn(user, pk))


def _mark(user: User, frame: dict[str, Any]) -> None:
    """Raises what `mark_file` raises."""
    message, mark = visible_message(user, frame.get("message")), frame.get("mark", "")
    if frame.get("file") is None:
        mark_turn(user=user, message=message, mark=mark)
    else:
        mark_file(user=user, message=message, file=identifier(frame["file"], "file"), mark=mark)
