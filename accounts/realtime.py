"""What a person has open, on all their devices: the sockets, and how they hear that something of theirs has changed.

Pages and programs hear that it has, not what, nor how, and ask again for what they show. Only services tell it.

A page is on its way from when the server begins to write it until its socket is there. What changes meanwhile reaches
it, too: each hint is noted with its time before it is sent, and the socket joins its groups before it looks at the
notes. So a page that is up to date asks for nothing.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs
from uuid import UUID
from weakref import WeakKeyDictionary

from asgiref.sync import async_to_sync
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.layers import channel_layers
from django.conf import settings
from django.db import DatabaseError, InterfaceError, transaction
from django.http import HttpRequest
from django.utils.translation import get_language_from_request
from redis.exceptions import RedisError

from accounts.access.authentication import Credential, holding
from accounts.access.second_factor import must_set_up
from accounts.access.sessions import TOLD_WITHIN, group_of, group_of_token
from accounts.models import ApiToken, User
from core import background
from core.errors import ProductError
from core.logs.metrics import STREAMS
from core.sentences import Sentence
from workspace.models.settings import workspace_at

NOT_SIGNED_IN, TOO_MANY = 4401, 4430  # close codes
NOTED_FOR = 3600  # seconds; for a page that is older everything has changed
SKEW = 1.0  # seconds between the clocks of two machines
LOOKED_FOR_EVERY = 2.0  # seconds: with the silence of a stream, less than 5 until a connection ends
GATHERED_FOR = 0.1  # seconds: many changes in a row are one piece of news, and the first token goes before it

Line = TypeVar("Line")

logger = logging.getLogger(__name__)
_gathering: "set[tuple[UUID, News]]" = set()  # touched on the loop alone


class News(StrEnum):
    """What has changed, as the socket's frame names it."""

    CONVERSATIONS = "CONVERSATIONS"
    TASKS = "TASKS"
    INVITATIONS = "INVITATIONS"
    READINGS = "READINGS"

    @property
    def scope(self) -> str:
        """What a token needs to hear it."""
        return {News.TASKS: "tasks", News.INVITATIONS: "projects"}.get(self, "chat")


def group_of_person(user_id: UUID) -> str:
    """The channel group of every socket that somebody has open."""
    return f"person.{user_id}"


def tell(owner_id: UUID, news: News) -> None:
    """Once the change is committed, and beside whoever made it: nobody waits for this."""
    transaction.on_commit(partial(_soon, owner_id, news))


def _soon(owner_id: UUID, news: News) -> None:
    background.submit(_send(owner_id, news))


async def _send(owner_id: UUID, news: News) -> None:
    if (owner_id, news) in _gathering:
        return
    _gathering.add((owner_id, news))
    await asyncio.sleep(GATHERED_FOR)
    _gathering.discard((owner_id, news))
    hint = {"type": "person.news", "news": str(news)}
    try:
        await tell_group(group_of_person(owner_id), hint, _subject(owner_id, news))
    except (RedisError, OSError):
        logger.warning("no news to open pages: Redis is away")


def _subject(user_id: UUID, news: News) -> str:
    return f"{group_of_person(user_id)}.{news}"


async def tell_group(group: str, hint: dict[str, str], subject: str) -> None:
    """Notes that the subject has changed, and sends the hint to the group. Raises the errors of Redis, and TimeoutError
    for one that hangs."""
    async with asyncio.timeout(TOLD_WITHIN):
        await background.streams_of_loop().set(_note(subject), time.time(), ex=NOTED_FOR)
        await channel_layers["default"].group_send(group, hint)


async def has_changed(subject: str, since: float) -> bool:
    """Whether a hint of the subject was told after `since`, Unix time in seconds."""
    if time.time() - since > NOTED_FOR:
        return True
    noted = await background.streams_of_loop().get(_note(subject))
    return noted is not None and float(noted) >= since - SKEW


def _note(subject: str) -> str:
    return f"changed:{subject}"


def _since(query: bytes) -> float:
    """The number of `since=…`; infinity, which nothing comes after, where there is none."""
    try:
        moment = float(parse_qs(query.decode("latin-1"))["since"][0])
    except (KeyError, ValueError):
        return math.inf
    return math.inf if math.isnan(moment) else moment


class _Watch:
    """Looks every `LOOKED_FOR_EVERY` seconds which of a process's open connections have lost what they were opened
    with, by whatever way: one look for all of them."""

    def __init__(self) -> None:
        self._open: dict[object, tuple[Credential, Callable[[], None]]] = {}
        self.of_person: Counter[UUID] = Counter()
        self._looking: asyncio.Task[None] | None = None

    def add(self, credential: Credential, ended: Callable[[], None]) -> Callable[[], None]:
        """`ended` is called once, when it has ended; what is returned takes it off again."""
        key = object()
        self._open[key] = (credential, ended)
        self.of_person[credential.person] += 1
        STREAMS.inc()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

        return partial(self._forget, key)

    def _forget(self, key: object) -> None:
        known = self._open.pop(key, None)
        if known is not None:
            person = known[0].person
            self.of_person[person] -= 1
            STREAMS.dec()
            if not self.of_person[person]:
                del self.of_person[person]

    async def _look(self) -> None:
        while self._open:
            await asyncio.sleep(LOOKED_FOR_EVERY)
            looked_at = dict(self._open)  # what opens meanwhile is not asked for, and not found missing
            try:
                held = await database_sync_to_async(holding, thread_sensitive=False)({c for c, _ in looked_at.values()})
            except (DatabaseError, InterfaceError):
                logger.warning("the database is away: open connections were not looked after")
                continue
            for key, (credential, ended) in looked_at.items():
                if credential not in held and key in self._open:
                    self._forget(key)
                    ended()


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch]" = WeakKeyDictionary()


def _watch() -> _Watch:
    """That of the running event loop."""
    return _watches.setdefault(asyncio.get_running_loop(), _Watch())


def require_connection(person: UUID) -> None:
    """Raises `too_many_connections` (429) where so many sockets and streams of one person are open at this process that
    one more is not taken. On the event loop."""
    most = settings.CONNECTIONS_AT_ONCE
    if most and _watch().of_person[person] >= most:
        detail = Sentence(
            "{most} sockets and streams of yours are open. Close some, then open this one again.", most=most
        )
        raise ProductError("too_many_connections", detail, status=429, retry_after=10)


@async_to_sync
async def require_connection_of_request(person: UUID) -> None:
    """As `require_connection`, for a view that is on a thread."""
    require_connection(person)


class WhileSignedIn(Generic[Line]):
    """A stream's lines, until what it was opened with has ended. Closing it closes what it reads from."""

    def __init__(self, credential: Credential, lines: AsyncIterable[Line]) -> None:
        self._credential, self._lines = credential, lines

    async def __aiter__(self) -> AsyncIterator[Line]:
        ended = asyncio.Event()
        forget = _watch().add(self._credential, ended.set)
        try:
            async for line in self._lines:
                if ended.is_set():
                    return
                yield line
        finally:
            forget()

    def close(self) -> None:
        getattr(self._lines, "close", lambda: None)()


def _held_up(user: User) -> bool:
    return must_set_up(user, workspace_at())


class SignedInConsumer(AsyncJsonWebsocketConsumer):
    """Closes with 4401 for strangers, who get no `user`, for whoever must set up a second factor first, and once the
    session or token it was opened with has ended, or the token has lost a scope, by whatever way; with 4430 where its
    person has too many open. What a client sends is looked at only while that holds.

    With `?since=…`, Unix time in seconds, it tells at once what there was to tell since then.
    """

    user: User
    language: str  # of what the socket says to them
    _credential: Credential
    since: float
    _unwatch: Callable[[], None] | None = None

    async def connect(self) -> None:
        await self.accept()
        user = self.scope["user"]
        if not isinstance(user, User):
            await self.close(NOT_SIGNED_IN)
            return
        if self._token() is None and await database_sync_to_async(_held_up, thread_sensitive=False)(user):
            await self.close(NOT_SIGNED_IN)
            return
        try:
            require_connection(user.pk)
        except ProductError:
            await self.close(TOO_MANY)
            return
        self.user = user
        self.language = user.language or self._browsers_language()
        token = self._token()
        session = self.scope.get("session")
        self._credential = (
            Credential(user.pk, token.digest, scopes=frozenset(token.scopes))
            if token
            else Credential.of_session(session, user)
        )
        self._unwatch = _watch().add(self._credential, self._end)
        for group in self._groups():
            await self.channel_layer.group_add(group, self.channel_name)
        self.since = _since(self.scope["query_string"])
        for news in News:
            if await has_changed(_subject(user.pk, news), self.since):
                await self.person_news({"news": news})

    async def disconnect(self, code: int) -> None:
        if self._unwatch is not None:
            self._unwatch()
        if hasattr(self, "user"):
            for group in self._groups():
                await self.channel_layer.group_discard(group, self.channel_name)

    async def holds(self) -> bool:
        """Whether what it was opened with still signs its person in; it closes otherwise."""
        held = bool(await database_sync_to_async(holding, thread_sensitive=False)({self._credential}))
        if not held:
            await self.close(NOT_SIGNED_IN)
        return held

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

    def _end(self) -> None:
        self._closing = asyncio.ensure_future(self.close(NOT_SIGNED_IN))

    def _groups(self) -> tuple[str, str]:
        token = self._token()
        signed_in = group_of_token(token.pk) if token else group_of(self.scope["session"].session_key or "")
        return signed_in, group_of_person(self.user.pk)

    def _token(self) -> ApiToken | None:
        token = self.scope.get("token")
        return token if isinstance(token, ApiToken) else None
