"""WebSockets for tests: of pages, signed in by the session cookie as a browser is, and of programs."""

import asyncio
import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.layers import channel_layers
from django.conf import settings
from django.test import Client
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.frames import Close
from websockets.sync.client import connect
from websockets.typing import Origin

from accounts.access.authentication import SameOrigin, TokenOrSession
from accounts.realtime import News
from chat.sockets import ConversationConsumer
from core import background
from tests.conftest import Person
from tests.product import WAIT, Product


class Socket:
    """`news`: with what is told of the person's other doings, which otherwise comes at any moment between the rest."""

    def __init__(self, connection: Any, *, news: bool = False) -> None:
        self.connection = connection
        self.news = news

    def send(self, type_: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"type": type_, **fields}))

    def receive(self) -> Any:
        while True:
            frame = json.loads(self.connection.recv(WAIT))
            if self.news or frame["type"] not in set(News):
                return frame

    def until(self, *types: str) -> list[Any]:
        """Everything up to the first frame of one of the types, that frame included."""
        frames = [self.receive()]
        while frames[-1]["type"] not in types:
            frames.append(self.receive())
        return frames

    def close_code(self) -> int:
        """Reads on until the server closes."""
        try:
            while True:
                self.connection.recv(WAIT)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006


def cookie_of(person: Person) -> str:
    """Of a browser in which the person is signed in."""
    client = Client()
    client.force_login(person.user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@contextmanager
def socket_of(
    product: Product,
    person: Person | None,
    origin: str | None = None,
    headers: dict[str, str] | None = None,
    since: str = "",
) -> Iterator[Socket]:
    """`since`: when the server began to write the page, as it stands in it."""
    headers = dict(headers or {})
    if person is not None:
        headers["Cookie"] = cookie_of(person)
    with opened(product, headers, origin or product.url, f"?since={since}" if since else "") as socket:
        yield socket


@contextmanager
def opened(product: Product, headers: dict[str, str], origin: str | None = None, query: str = "") -> Iterator[Socket]:
    """Programs send no origin."""
    url = product.url.replace("http", "ws") + "/ws/" + query
    with connect(url, additional_headers=headers, origin=Origin(origin) if origin else None) as connection:
        yield Socket(connection)


class _InProcess:
    """A connection to the consumer on this process's event loop; it closes as one of `websockets` does."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._out: queue.Queue[dict[str, Any]] = queue.Queue()
        self._in: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        consumer = ConversationConsumer.as_asgi()
        handler = TokenOrSession(consumer, SameOrigin(AuthMiddlewareStack(consumer)))
        scope = {"type": "websocket", "scheme": "ws", "path": "/ws/", "raw_path": b"/ws/", "query_string": b""}
        scope |= {"headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()]}
        self._put({"type": "websocket.connect"})
        self._task = background.submit(handler({**scope, "server": ("testserver", 80)}, self._in.get, self._said))

    async def _said(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.close":
            self._put({"type": "websocket.disconnect", "code": message["code"]})
        self._out.put(message)

    def _put(self, message: dict[str, Any]) -> None:
        background.loop().call_soon_threadsafe(self._in.put_nowait, message)

    def send(self, message: str) -> None:
        self._put({"type": "websocket.receive", "text": message})

    def recv(self, timeout: float) -> str:
        while True:
            message = self._out.get(timeout=timeout)
            if message["type"] == "websocket.close":
                raise ConnectionClosedError(Close(message["code"], ""), None)
            if message["type"] == "websocket.send":
                return str(message["text"])

    def close(self) -> None:
        self._put({"type": "websocket.disconnect", "code": 1001})
        self._task.result(WAIT)
        # What listens for hints would outlive the tests' Redis and complain.
        background.submit(channel_layers["default"].flush()).result(WAIT)


@contextmanager
def opened_here(headers: dict[str, str]) -> Iterator[Socket]:
    """In this process, of an `application`."""
    connection = _InProcess(headers)
    try:
        yield Socket(connection)
    finally:
        connection.close()
