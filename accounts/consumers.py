"""What every socket of a page begins with: somebody who is signed in, for as long as they are."""

from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from accounts.models import User
from accounts.sessions import group_of

NOT_SIGNED_IN = 4401


class SignedInConsumer(AsyncJsonWebsocketConsumer):
    """Closes with 4401 for strangers, who get no `user`, and once the session it was opened with is ended."""

    user: User

    async def connect(self) -> None:
        await self.accept()
        user = self.scope["user"]
        if not isinstance(user, User):
            await self.close(NOT_SIGNED_IN)
            return
        self.user = user
        await self.channel_layer.group_add(self._session_group(), self.channel_name)

    async def disconnect(self, code: int) -> None:
        if hasattr(self, "user"):
            await self.channel_layer.group_discard(self._session_group(), self.channel_name)

    async def session_ended(self, hint: dict[str, Any]) -> None:
        await self.close(NOT_SIGNED_IN)

    def _session_group(self) -> str:
        return group_of(self.scope["session"].session_key or "")
