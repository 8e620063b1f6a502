"""The one WebSocket of a page. It carries: frames in become calls of services, events of turns become frames out."""

import asyncio
from contextlib import suppress
from typing import Any

from django.utils.translation import override

from accounts.realtime import missed
from accounts.realtime.consumer import SignedInConsumer
from chat.models.lookups import visible_turn
from chat.realtime import follow
from chat.realtime.event_schema import NOT_YOURS
from chat.realtime.hints import group_of
from chat.sockets import frames
from core.errors import NotFound, ProductError


class ConversationConsumer(SignedInConsumer):
    async def connect(self) -> None:
        self.followers: dict[str, asyncio.Task[None]] = {}
        self.watched: set[str] = set()
        self.pace = frames.Pace()
        await super().connect()

    async def disconnect(self, code: int) -> None:
        for task in self.followers.values():
            task.cancel()
        await asyncio.gather(*self.followers.values(), return_exceptions=True)
        for group in self.watched:
            await self.channel_layer.group_discard(group, self.channel_name)
        await super().disconnect(code)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        try:
            frame = frames.parse(text_data, self.pace)
        except frames.Refused as refusal:
            await self.close(refusal.close_code)
            return
        if not hasattr(self, "user"):
            return  # the close is on its way
        try:
            await getattr(self, f"on_{frame['type']}")(frame)
            await self.send_json({"type": "ACK", "id": frame.get("id")})
        except ProductError as error:
            answer = {"type": "ERROR", "id": frame.get("id"), "code": error.code, "detail": error.detail}
            await self._tell(answer)
            if isinstance(error, NotFound):
                await self.close(NOT_YOURS)

    async def on_ping(self, frame: dict[str, Any]) -> None:
        """Answered by the acknowledgement alone."""

    async def on_watch(self, frame: dict[str, Any]) -> None:
        conversation = await follow.on_database(frames.conversation)(self.user, frame.get("conversation"))
        group = group_of(conversation.pk)
        await self.channel_layer.group_add(group, self.channel_name)
        self.watched.add(group)
        state = {"conversation": str(conversation.pk), "state": conversation.state, "title": conversation.title}
        await self.send_json({"type": "STATE", **state})
        if await missed.has_changed(group, self.since):
            await self.conversation_next({"conversation": str(conversation.pk)})

    async def on_subscribe(self, frame: dict[str, Any]) -> None:
        turn = await follow.on_database(visible_turn)(self.user, frame.get("turn"))
        after = frames.sequence(frame)
        earlier = self.followers.pop(str(turn.pk), None)
        if earlier is not None:
            earlier.cancel()
        self.followers[str(turn.pk)] = asyncio.create_task(self._follow(turn.pk, after))

    async def on_send(self, frame: dict[str, Any]) -> None:
        await follow.on_database(frames.send)(self.user, frame)

    async def on_stop(self, frame: dict[str, Any]) -> None:
        await follow.on_database(frames.stop)(self.user, frame.get("turn"))

    async def _follow(self, turn_id: Any, after_seq: int) -> None:
        with suppress(asyncio.CancelledError):
            async for wire in follow.events(turn_id, after_seq):
                await self._tell(wire)
            self.followers.pop(str(turn_id), None)

    async def _tell(self, wire: dict[str, Any]) -> None:
        with override(self.language):
            said = follow.readable(wire)
        await self.send_json(said)

    async def conversation_state(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "STATE"})

    async def conversation_title(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "TITLE"})

    async def conversation_next(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "NEXT"})

    async def turn_started(self, hint: dict[str, str]) -> None:
        await self.send_json({**hint, "type": "TURN"})
