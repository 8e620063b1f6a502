"""Notify the open sockets of a person, on all their devices, that some of their rows have changed.

1. A service calls `notify` with the kind of news. After the commit, Redis stores the time of the hint, and the person's
   channel group gets the hint.
2. Sockets pass the hint on. It names only the kind, so pages and programs then reload their rows.
3. The socket of a page opens some time after the page was rendered. The socket joins its groups, and then looks for
   hints since the `since` of the page. So no change is missed, and a page that is up to date loads nothing.

`_CredentialWatch` closes connections whose session or token has ended.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable
from enum import StrEnum
from functools import partial
from typing import Generic, TypeVar
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

from accounts.access.authentication import Credential, valid_credentials
from accounts.access.second_factor import must_set_up
from accounts.access.sessions import PUBLISH_TIMEOUT, session_group, token_group
from accounts.models import ApiToken, User
from core import background
from core.errors import ProductError
from core.logs.metrics import STREAMS
from core.sentences import Sentence
from workspace.models.settings import workspace_at

NOT_SIGNED_IN = 4401  # a close code
TOO_MANY = 4430  # a close code
HINT_LIFETIME = 3600  # seconds; a page that is older reloads everything
MAX_CLOCK_SKEW = 1.0  # seconds by which the clocks of two machines may differ
CHECK_INTERVAL = 2.0  # seconds; with the pauses of a stream, a connection ends in less than 5
GATHER_SECONDS = 0.1  # seconds; many changes in a row become one hint, which does not delay the first token

Line = TypeVar("Line")

logger = logging.getLogger(__name__)
_gathering: "set[tuple[UUID, News]]" = set()  # used only on the event loop


class News(StrEnum):
    """The kind of rows that have changed, as the socket's frame names it."""

    CONVERSATIONS = "CONVERSATIONS"
    TASKS = "TASKS"
    INVITATIONS = "INVITATIONS"
    READINGS = "READINGS"
    SHARED = "SHARED"

    @property
    def scope(self) -> str:
        """Return the scope that a token needs for this news."""
        return {News.TASKS: "tasks", News.INVITATIONS: "projects"}.get(self, "chat")


def group_of_person(user_id: UUID) -> str:
    """Return the channel group of all open sockets of a person."""
    return f"person.{user_id}"


def notify(owner_id: UUID, news: News) -> None:
    """Send the news once the transaction is committed. The caller does not wait for it."""
    transaction.on_commit(partial(_submit, owner_id, news))


def _submit(owner_id: UUID, news: News) -> None:
    background.submit(_send(owner_id, news))


async def _send(owner_id: UUID, news: News) -> None:
    if (owner_id, news) in _gathering:
        return
    _gathering.add((owner_id, news))
    await asyncio.sleep(GATHER_SECONDS)
    _gathering.discard((owner_id, news))
    hint = {"type": "person.news", "news": str(news)}
    try:
        await tell_group(group_of_person(owner_id), hint, _subject(owner_id, news))
    except (RedisError, OSError):
        logger.warning("Redis is unavailable: open pages get no news")


def _subject(user_id: UUID, news: News) -> str:
    return f"{group_of_person(user_id)}.{news}"


async def tell_group(group: str, hint: dict[str, str], subject: str) -> None:
    """Store the time at which the subject changed, and send the hint to the group.

    Raises the errors of Redis, and TimeoutError if Redis hangs.
    """
    async with asyncio.timeout(PUBLISH_TIMEOUT):
        await background.streams_of_loop().set(_hint_key(subject), time.time(), ex=HINT_LIFETIME)
        await channel_layers["default"].group_send(group, hint)


async def has_changed(subject: str, since: float) -> bool:
    """Return whether a hint of the subject was sent after `since`, Unix time in seconds."""
    if time.time() - since > HINT_LIFETIME:
        return True
    moment = await background.streams_of_loop().get(_hint_key(subject))
    return moment is not None and float(moment) >= since - MAX_CLOCK_SKEW


def _hint_key(subject: str) -> str:
    """Return the Redis key of the time of a subject's last hint."""
    return f"changed:{subject}"


def _since(query: bytes) -> float:
    """Return the time in `since=…`; infinity without one, so that no hint is newer."""
    try:
        moment = float(parse_qs(query.decode("latin-1"))["since"][0])
    except (KeyError, ValueError):
        return math.inf
    return math.inf if math.isnan(moment) else moment


class _CredentialWatch:
    """Ends the connections of a process whose credential is no longer valid.

    One query checks all connections every `CHECK_INTERVAL` seconds.
    """

    def __init__(self) -> None:
        self._open: dict[object, tuple[Credential, Callable[[], None]]] = {}
        self.of_person: Counter[UUID] = Counter()
        self._task: asyncio.Task[None] | None = None

    def add(self, credential: Credential, ended: Callable[[], None]) -> Callable[[], None]:
        """Watch a connection. Calls `ended` once, when the credential ends. Returns a function that stops the watch."""
        key = object()
        self._open[key] = (credential, ended)
        self.of_person[credential.person] += 1
        STREAMS.inc()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._check())

        return partial(self._forget, key)

    def _forget(self, key: object) -> None:
        connection = self._open.pop(key, None)
        if connection is not None:
            person = connection[0].person
            self.of_person[person] -= 1
            STREAMS.dec()
            if not self.of_person[person]:
                del self.of_person[person]

    async def _check(self) -> None:
        while self._open:
            await asyncio.sleep(CHECK_INTERVAL)
            checked = dict(self._open)  # a copy, since connections that open during the query are not in its result
            credentials = {credential for credential, _ in checked.values()}
            try:
                valid = await database_sync_to_async(valid_credentials, thread_sensitive=False)(credentials)
            except (DatabaseError, InterfaceError):
                logger.warning("the database is unavailable: the credentials of open connections were not checked")
                continue
            for key, (credential, ended) in checked.items():
                if credential not in valid and key in self._open:
                    self._forget(key)
                    ended()


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, _CredentialWatch]" = WeakKeyDictionary()


def _watch() -> _CredentialWatch:
    """Return the watch of the running event loop."""
    return _watches.setdefault(asyncio.get_running_loop(), _CredentialWatch())


def require_connection(person: UUID) -> None:
    """Raise `too_many_connections` (429) if the person has `settings.CONNECTIONS_AT_ONCE` open in this process.

    Call it on the event loop.
    """
    limit = settings.CONNECTIONS_AT_ONCE
    if limit and _watch().of_person[person] >= limit:
        detail = Sentence("You have {most} open sockets and streams. Close some, then open this one again.", most=limit)
        raise ProductError("too_many_connections", detail, status=429, retry_after=10)


@async_to_sync
async def require_connection_of_request(person: UUID) -> None:
    """Call `require_connection` for a view that runs on a thread."""
    require_connection(person)


class WhileSignedIn(Generic[Line]):
    """The lines of a stream until its credential ends. `close` closes the source of the lines."""

    def __init__(self, credential: Credential, lines: AsyncIterable[Line]) -> None:
        self._credential = credential
        self._lines = lines

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


def _must_set_up_factor(user: User) -> bool:
    return must_set_up(user, workspace_at())


class SignedInConsumer(AsyncJsonWebsocketConsumer):
    """The base of the sockets of signed-in people. It passes on `News`.

    It closes with 4401 for anonymous clients, who get no `user`, and for people who must set up a second factor first.
    It also closes with 4401 once its session or token has ended or the token has lost a scope. It closes with 4430 if
    its person has too many connections. It reads frames of the client only while it is open.

    With `?since=…`, Unix time in seconds, it sends the news since that time at once.
    """

    user: User
    language: str  # the language in which the socket sends sentences
    _credential: Credential
    since: float
    _unwatch: Callable[[], None] | None = None

    async def connect(self) -> None:
        await self.accept()
        user = self.scope["user"]
        if not isinstance(user, User):
            await self.close(NOT_SIGNED_IN)
            return
        if self._token() is None and await database_sync_to_async(_must_set_up_factor, thread_sensitive=False)(user):
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
        """Return whether the socket's credential is still valid. Closes the socket if not."""
        valid = bool(await database_sync_to_async(valid_credentials, thread_sensitive=False)({self._credential}))
        if not valid:
            await self.close(NOT_SIGNED_IN)
        return valid

    async def session_ended(self, hint: dict[str, str]) -> None:
        await self.close(NOT_SIGNED_IN)

    async def person_news(self, hint: dict[str, str]) -> None:
        news = News(hint["news"])
        token = self._token()
        if token is None or news.scope in token.scopes:
            await self.send_json({"type": news})

    def _browsers_language(self) -> str:
        request = HttpRequest()
        header = dict(self.scope["headers"]).get(b"accept-language", b"")
        request.META["HTTP_ACCEPT_LANGUAGE"] = header.decode("latin-1")
        return get_language_from_request(request)

    def _end(self) -> None:
        self._closing = asyncio.ensure_future(self.close(NOT_SIGNED_IN))

    def _groups(self) -> tuple[str, str]:
        token = self._token()
        signed_in = token_group(token.pk) if token else session_group(self.scope["session"].session_key or "")
        return signed_in, group_of_person(self.user.pk)

    def _token(self) -> ApiToken | None:
        token = self.scope.get("token")
        return token if isinstance(token, ApiToken) else None
