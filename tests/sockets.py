"""A page's WebSocket for tests, signed in by the session cookie as a browser is."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.test import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from accounts.realtime import News
from tests.conftest import Person
from tests.product import WAIT, Product


class Socket:
    """`news`: with what is told of the person's other doings, which otherwise comes at any moment between the rest."""

    def __init__(self, connection: ClientConnection, *, news: bool = False) -> None:
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
