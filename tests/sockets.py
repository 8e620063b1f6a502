"""WebSockets for tests: of pages, signed in by the session cookie as a browser is, and of programs."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Protocol

from django.conf import settings
from django.test import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from accounts.realtime import News
from tests.application import Application
from tests.conftest import Person
from tests.product import WAIT, Server


class Connection(Protocol):
    """The methods that `websockets.sync.client` and `InProcessSocket` have in common."""

    def send(self, message: str | bytes) -> None: ...

    def recv(self, timeout: float) -> str | bytes: ...


class Socket:
    """A WebSocket of a person. `news`: keep the news of other acts, which come at any moment between other frames."""

    def __init__(self, connection: Connection, *, news: bool = False) -> None:
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
        """Return all frames up to the first of these types, that one included."""
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
    """Return the session cookie of a browser in which the person is signed in."""
    client = Client()
    client.force_login(person.user)
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@contextmanager
def socket_of(
    server: Server,
    person: Person | None,
    origin: str | None = None,
    headers: dict[str, str] | None = None,
    since: str = "",
) -> Iterator[Socket]:
    """`since`: when the server began to write the page, as it stands in it."""
    headers = dict(headers or {})
    if person is not None:
        headers["Cookie"] = cookie_of(person)
    path = f"/ws/?since={since}" if since else "/ws/"
    with open_socket(server, {**headers, "Origin": origin or server.url}, path) as socket:
        yield socket


@contextmanager
def open_socket(server: Server, headers: dict[str, str], path: str = "/ws/") -> Iterator[Socket]:
    """Open a socket with these headers alone: programs send no origin."""
    with _connection(server, headers, path) as connection:
        yield Socket(connection)


def _connection(server: Server, headers: dict[str, str], path: str) -> AbstractContextManager[Connection]:
    if isinstance(server, Application):
        return closing(server.socket(path, headers))
    return connect(server.url.replace("http", "ws", 1) + path, additional_headers=headers)
