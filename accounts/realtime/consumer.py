"""What every socket of a page or program begins with: somebody who is signed in, for as long as they are."""

import asyncio
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import get_language_from_request

from accounts.access.sessions import group_of, group_of_token
from accounts.models import ApiToken, User
from accounts.realtime import missed
from accounts.realtime.user_channel import News, group_of_person, subject_of

NOT_SIGNED_IN = 4401


class SignedInConsumer(AsyncJsonWebsocketConsumer):
    """Closes with 4401 for strangers, who get no `user`, and once the session or token it was opened with is ended.

    Tells what `accounts.realtime.user_channel` has for its person, and at once what it had since `?since=…`, Unix time
    in seconds.
    """

    user: User
    language: str  # of what the socket says to them
    since: float
    _expiry: asyncio.TimerHandle | None = None

    async def connect(self) -> None:
        await self.accept()
        user = self.scope["user"]
        if not isinstance(user, User):
            await self.close(NOT_SIGNED_IN)
            return
        self.user = user
        self.language = user.language or self._browsers_language()
        for group in self._groups():
            await self.channel_layer.group_add(group, self.channel_name)
        self.since = missed.since_of(self.scope["query_string"])
        for news in News:
            if await missed.has_changed(subject_of(user.pk, news), self.since):
                await self.person_news({"news": news})
        token = self._token()
        if token is not None and token.expires is not None:
            left = (token.expires - timezone.now()).total_seconds()
            self._expiry = asyncio.get_running_loop().call_later(left, self._expire)

    async def disconnect(self, code: int) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if hasattr(self, "user"):
            for group in self._groups():
                await self.channel_layer.group_discard(group, self.channel_name)

    async def session_ended(self, hint: dict[str, Any]) -> None:
        await self.close(NOT_SIGNED_IN)

    async def person_news(self, hint: dict[str, str]) -> None:
        news, token = News(hint["news"]), self._token()
        if token is None or news.scope in token.scopes:
            await self.send_json({"type": news})

    def _browsers_language(self) -> str:
        request = HttpRequest()
        asked = dict(self.scope["headers"]).get(b"accept-language", b"")
        request.META["HTTP_ACCEPT_LANGUAGE"] = asked.decode("latin-1")
        return get_language_from_request(request)

    def _expire(self) -> None:
        self._closing = asyncio.ensure_future(self.close(NOT_SIGNED_IN))

    def _groups(self) -> tuple[str, str]:
        token = self._token()
        signed_in = group_of_token(token.pk) if token else group_of(self.scope["session"].session_key or "")
        return signed_in, group_of_person(self.user.pk)

    def _token(self) -> ApiToken | None:
        token = self.scope.get("token")
        return token if isinstance(token, ApiToken) else None
