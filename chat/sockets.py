"""The one WebSocket of a page. Incoming frames call services. Events of turns become outgoing frames.

To add a frame: 1. describe it in `chat.realtime.events.FRAMES` and `MEANINGS`; 2. add a method `on_<type>` here, which
checks its members and calls a service.
"""

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
from chat.realtime.event_stream import channel_group
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
from core.api.idempotency import MAX_KEY_LENGTH
from core.errors import NotFound, ProductError
from core.json_types import JsonObject
from core.requests import get_or_404, identifier
from core.sentences import Sentence, shortened

logger = logging.getLogger(__name__)


class ConversationConsumer(SignedInConsumer):
    async def connect(self) -> None:
        self.followers: dict[str, asyncio.Task[None]] = {}
        self.watched: set[str] = set()
        self.pace = FramePace()
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
            return  # the socket is being closed
        try:
            frame = _parse(text_data, self.pace)
        except FrameRefused as refusal:
            await self.close(refusal.close_code)
            return
        except ProductError as error:
            await self._refuse(error, None)
            return
        if frame["type"] != "ping" and not await self.holds():
            return
        try:
            _require_known(frame)
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

    async def on_ping(self, frame: JsonObject) -> None:
        """Do nothing: `receive` sends the acknowledgement."""

    async def on_watch(self, frame: JsonObject) -> None:
        conversation = await event_stream.threaded(_conversation)(self.user, frame.get("conversation"))
        group = channel_group(conversation.pk)
        await self.channel_layer.group_add(group, self.channel_name)
        self.watched.add(group)
        # Read the row again, now that hints arrive. A change since the first reading would be lost otherwise.
        conversation = await event_stream.threaded(_conversation)(self.user, conversation.pk)
        state = {"conversation": str(conversation.pk), "state": conversation.state, "title": conversation.title}
        await self.send_json({"type": "STATE", **state})
        if await has_changed(group, self.since):
            await self.conversation_next({"conversation": str(conversation.pk)})
            await self.conversation_marks({"conversation": str(conversation.pk)})

    async def on_subscribe(self, frame: JsonObject) -> None:
        turn = await event_stream.threaded(visible_turn)(self.user, frame.get("turn"))
        after = _sequence(frame)
        earlier = self.followers.pop(str(turn.pk), None)
        if earlier is not None:
            earlier.cancel()
        self.followers[str(turn.pk)] = asyncio.create_task(self._follow(turn, after))

    async def on_send(self, frame: JsonObject) -> None:
        await event_stream.threaded(_send)(self.user, frame)

    async def on_continue(self, frame: JsonObject) -> None:
        await event_stream.threaded(_answer_again)(continue_answer, self.user, frame)

    async def on_regenerate(self, frame: JsonObject) -> None:
        await event_stream.threaded(_answer_again)(regenerate, self.user, frame)

    async def on_stop(self, frame: JsonObject) -> None:
        await event_stream.threaded(_stop)(self.user, frame.get("turn"))

    async def on_mark(self, frame: JsonObject) -> None:
        await event_stream.threaded(_mark)(self.user, frame)

    async def _follow(self, turn: Turn, after_seq: int) -> None:
        try:
            async for events in event_stream.follow_turn(turn, after_seq):
                for event in events:
                    await self.send(text_data=event_stream.event_text(event, self.language))
            self.followers.pop(str(turn.pk), None)
        except Exception:
            for task in self.followers.values():  # the cause may affect all of them, so only one is logged
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


class FrameRefused(Exception):
    """Raised for a frame after which the socket is closed with `close_code`."""

    def __init__(self, close_code: int) -> None:
        self.close_code = close_code


@dataclass(slots=True)
class FramePace:
    """A token bucket: `BURST` frames at once, `PER_SECOND` in the long run."""

    tokens: float = BURST
    refilled: float = field(default_factory=time.monotonic)

    def take(self) -> bool:
        """Take a token for a frame. Return False when there is none."""
        now = time.monotonic()
        self.tokens = min(BURST, self.tokens + (now - self.refilled) * PER_SECOND) - 1
        self.refilled = now
        return self.tokens >= 0


def _parse(text: str | None, pace: FramePace) -> JsonObject:
    """Return a frame: a JSON object with a known `type`.

    Raises `FrameRefused` with the code to close the socket with, and `too_many_values`.
    """
    if not pace.take():
        raise FrameRefused(TOO_FAST)
    if text is None:
        raise FrameRefused(BAD_FRAME)
    if len(text) > MAX_FRAME:
        raise FrameRefused(TOO_LARGE)
    try:
        frame = json_bodies.load_text(text)
    except (ValueError, RecursionError) as error:
        raise FrameRefused(BAD_FRAME) from error
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str) or frame["type"] not in FRAMES:
        raise FrameRefused(BAD_FRAME)
    return frame


def _require_known(frame: JsonObject) -> None:
    """Raise `unknown_member` if the frame has a member that frames of its type do not have."""
    members = ["id", *FRAMES[frame["type"]]]
    for name in frame:
        if name != "type" and name not in members:
            sentence = Sentence(
                "Frames of the type “{type}” have no “{name}”. They have: {members}.",
                type=frame["type"],
                name=shortened(name, 100),
                members=", ".join(members),
            )
            raise ProductError("unknown_member", sentence)


def _sequence(frame: JsonObject) -> int:
    """Return the number of the last event that the client has. Raises `bad_sequence`."""
    after = frame.get("after_seq", 0)
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= LAST_SEQ:
        raise ProductError(
            "bad_sequence", Sentence("after_seq must be a whole number from 0 to {last_seq}.", last_seq=LAST_SEQ)
        )
    return after


def _conversation(user: User, pk: object) -> Conversation:
    return get_or_404(Conversation.objects.visible_to(user), pk, "conversation")


def _send(user: User, frame: JsonObject) -> None:
    """Send or queue a message.

    Raises `bad_text`, `bad_effort`, `bad_list` and `bad_idempotency_key`, and the errors of `send_or_queue`.
    """
    text = frame.get("text", "")
    effort = frame.get("effort")
    if not isinstance(text, str):
        raise ProductError("bad_text", "text must be a string: the message as it was written.")
    check_effort(effort if effort is None or isinstance(effort, str) else str(effort))
    files = _ids(frame, "files")
    models = _ids(frame, "models")
    parent = identifier(frame["parent"], "message") if frame.get("parent") is not None else None
    conversation = _conversation(user, frame.get("conversation"))
    ask = Ask(text=text, files=files, models=models, key=_key(frame), parent=parent, effort=effort)
    send_or_queue(user=user, conversation=conversation, ask=ask)


def _ids(frame: JsonObject, name: str) -> list[UUID]:
    """Return a list of ids in a frame, empty by default. Raises `bad_list`."""
    ids = frame.get(name)
    if ids is None:
        return []
    if not isinstance(ids, list) or len(ids) > MAX_IDS:
        raise ProductError(
            "bad_list", Sentence("{name} must be a list of at most {max_ids} ids.", name=name, max_ids=MAX_IDS)
        )
    return [identifier(each, name.removesuffix("s")) for each in ids]


def _answer_again(service: Callable[..., list[Turn]], user: User, frame: JsonObject) -> None:
    """Call a service that continues or regenerates an answer. Raises `bad_idempotency_key` and the service's errors."""
    message = get_or_404(Message.objects.visible_to(user), frame.get("message"), "message")
    service(user=user, message=message, key=_key(frame))


def _key(frame: JsonObject) -> str | None:
    """Return the idempotency key. Raises `bad_idempotency_key`."""
    key = frame.get("key") or None
    if key is not None and (not isinstance(key, str) or len(key) > MAX_KEY_LENGTH):
        raise ProductError(
            "bad_idempotency_key",
            Sentence("key must be a string of at most {longest_key} characters, a UUID.", longest_key=MAX_KEY_LENGTH),
        )
    return key


def _stop(user: User, pk: object) -> None:
    stop_turn(user=user, turn=visible_turn(user, pk))


def _mark(user: User, frame: JsonObject) -> None:
    """Mark a turn, or one of its files. Raises the errors of `mark_turn` and `mark_file`."""
    message = visible_message(user, frame.get("message"))
    mark = frame.get("mark", "")
    if frame.get("file") is None:
        mark_turn(user=user, message=message, mark=mark)
    else:
        mark_file(user=user, message=message, file=identifier(frame["file"], "file"), mark=mark)
