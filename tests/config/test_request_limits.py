"""Requests that the server refuses while they arrive.

The tests write bytes into the protocol or the product's socket, and check the answer and the stored rows."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from daphne.ws_protocol import WebSocketFactory  # type: ignore[import-untyped]
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from config.http.server import (
    BODY_BYTES,
    BODY_SECONDS,
    HEAD_SECONDS,
    LINGER_SECONDS,
    MAX_ANONYMOUS_BYTES,
    UNREAD_SECONDS,
    LimitedFactory,
    LimitedServer,
)
from tests.conftest import Person
from tests.product import WAIT, Product, until


class Connection:
    """One connection to the server, without a network; `clock` is its time."""

    def __init__(self) -> None:
        server = self.server = LimitedServer(application=None, endpoints=["tcp:0"])
        server.connections = {}
        address: Any = IPv4Address("TCP", "127.0.0.1", 1)
        self.clock: Any = Clock()
        self.protocol = cast("Any", LimitedFactory(server).buildProtocol(address))
        self.protocol.callLater = self.clock.callLater
        self.transport: Any = StringTransport()  # type: ignore[no-untyped-call]  # Twisted types few of its tests' tools
        self.protocol.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    @property
    def answer(self) -> bytes:
        return bytes(self.transport.value())


@pytest.fixture
def connection() -> Connection:
    return Connection()


def head(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def test_a_strangers_chunked_body_is_refused_at_the_limit_and_none_of_it_is_kept(connection: Connection) -> None:
    connection.send(head("/login/", "Transfer-Encoding: chunked"))
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    for _ in range(MAX_ANONYMOUS_BYTES // 10_000):
        connection.send(chunk)
    assert connection.answer == b""
    connection.send(chunk * 20)
    assert connection.answer.startswith(b"HTTP/1.1 413 ")
    assert b"at most 0.1 MB" in connection.answer
    assert connection.protocol.requests[0].content.getvalue() == b""
    assert not connection.transport.disconnected  # it may go on sending, so that it reads the answer
    connection.clock.advance(LINGER_SECONDS)
    assert connection.transport.disconnected


def test_a_length_over_the_limit_is_refused_before_a_byte_of_the_body(connection: Connection) -> None:
    connection.send(head("/login/", "Expect: 100-continue", f"Content-Length: {MAX_ANONYMOUS_BYTES + 1}"))
    assert connection.answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in connection.answer


@pytest.mark.parametrize(
    ("path", "code"), [("/api/v1/files/", '"code": "too_large"'), ("/v1/chat/completions", '{"error": {')]
)
def test_a_refusal_has_the_shape_of_its_interface(connection: Connection, path: str, code: str) -> None:
    connection.send(head(path, "Content-Length: 5000000"))
    assert code in connection.answer.decode()


def test_a_head_that_does_not_end_ends_the_connection_though_bytes_keep_coming(connection: Connection) -> None:
    connection.send(b"GET / HTTP/1.1\r\nX-Slow: ")
    for _ in range(HEAD_SECONDS - 1):
        connection.clock.advance(1)
        connection.send(b"a")
    assert connection.answer == b""
    connection.clock.advance(1)
    assert connection.answer.startswith(b"HTTP/1.1 408 ")
    assert connection.transport.disconnecting


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /login/?" + b"a" * 20_000, 414, "address_too_long"),
        (b"GET /login/?" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "address_too_long"),
        (
            b"GET /login/?" + b"a" * 16_000 + b" HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 900,
            414,
            "address_too_long",
        ),
        (b"a" * 20_000, 414, "address_too_long"),
        (b"GET /login/ HTTP/1.1\r\nCookie: " + b"a" * 20_000, 431, "headers_too_long"),
        (b"GET /login/ HTTP/1.1\r\n" + b"X: a\r\n" * 600, 431, "headers_too_long"),
        (b"GET /login/ HTTP/1.1\r\n" + (b"X: " + b"a" * 1_000 + b"\r\n") * 20, 431, "headers_too_long"),
        (b"nonsense\r\n\r\n", 400, "bad_request"),
        (b"GET /login/ HTTP/1.1\r\nno header\r\n\r\n", 400, "bad_request"),
        (b"POST /login/ HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400, "bad_request"),
        (b"POST /login/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnothing\r\n", 400, "bad_request"),
    ],
)
def test_a_head_that_cannot_be_taken_is_answered_with_a_sentence(
    connection: Connection, sent: bytes, status: int, code: str
) -> None:
    connection.send(sent)
    connection.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")  # not taken for a request of its own
    assert connection.answer.startswith(b"HTTP/1.1 %d " % status)
    assert connection.answer.count(b"HTTP/1.1") == 1 and code in connection.answer.decode()
    connection.clock.advance(LINGER_SECONDS)
    assert connection.transport.disconnecting or connection.transport.aborting


@pytest.mark.parametrize("prefix", ["/api/v1/me/", "/v1/models"])
def test_a_program_gets_the_refusal_of_its_head_as_json(connection: Connection, prefix: str) -> None:
    connection.send(f"GET {prefix}?{'a' * 20_000}".encode())
    body = json.loads(connection.answer.partition(b"\r\n\r\n")[2])
    assert "The address is too long" in (body.get("detail") or body["error"]["message"])


def test_a_body_has_to_get_on(connection: Connection) -> None:
    connection.send(head("/login/", "Content-Length: 60000"))
    connection.clock.advance(BODY_SECONDS - 1)
    connection.send(b"x" * BODY_BYTES)
    connection.clock.advance(BODY_SECONDS - 1)  # enough came, so its time began anew
    connection.send(b"x" * 10)
    assert connection.answer == b""
    connection.clock.advance(1)
    assert connection.answer.startswith(b"HTTP/1.1 408 ")


def test_what_is_said_to_a_socket_that_is_closing_is_for_nobody(connection: Connection) -> None:
    opened: Any = WebSocketFactory(connection.server).buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
    opened.state, opened.client_addr = opened.STATE_CLOSING, None
    connection.server.connections[opened] = {}
    asyncio.run(connection.server.handle_reply(opened, {"type": "websocket.send", "text": "too late"}))


@pytest.mark.parametrize("path", [b"/elsewhere", b"\xff"])
def test_nobody_says_where_the_product_is_mounted(connection: Connection, path: bytes) -> None:
    scopes: list[Any] = []

    async def application(scope: Any, **_: Any) -> None:
        scopes.append(scope)

    async def send_request() -> None:
        connection.server.application = application
        connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nDaphne-Root-Path: " + path + b"\r\n\r\n")
        [details] = connection.server.connections.values()
        await asyncio.wait([details["application_instance"]])

    asyncio.run(send_request())
    assert [scope["root_path"] for scope in scopes] == [""]


def test_an_answer_that_fails_after_it_began_is_broken_off_and_others_are_looked_after(connection: Connection) -> None:
    async def fails(send: Any, **_: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise LookupError("half of it was written")

    async def answered() -> None:
        connection.server.application = fails
        connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        [details] = connection.server.connections.values()
        await asyncio.wait([details["application_instance"]])
        connection.server.application_checker()
        assert "application_instance" not in details

    asyncio.run(answered())
    assert connection.transport.disconnected


@contextmanager
def arriving(product: Product, path: str, token: str, length: int) -> Iterator[socket.socket]:
    """Yield the connection of a request whose head has been sent, and nothing of its body."""
    address = urlsplit(product.url)
    with socket.create_connection((address.hostname, address.port), timeout=WAIT) as opened:
        kind = "Content-Type: multipart/form-data; boundary=b"
        length_of_it = f"Content-Length: {length}"
        opened.sendall(head(path, f"Authorization: Bearer {token}", length_of_it, kind, "Expect: 100-continue"))
        yield opened


def refusal(opened: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Return the status, headers and body of an answer that comes before the request's body was sent."""
    received = b""
    while b"\r\n\r\n" not in received or not received.endswith(b"}"):
        piece = opened.recv(65_536)
        assert piece, received
        received += piece
    lines, _, body = received.decode().partition("\r\n\r\n")
    first, *headers = lines.split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in headers), json.loads(body)


def test_a_made_up_token_opens_no_larger_limit(product: Product) -> None:
    with arriving(product, "/api/v1/files/", "gh_made_up", 50_000_000) as opened:
        status, _, body = refusal(opened)
    assert (status, body["code"]) == (401, "not_authenticated")


@pytest.mark.parametrize(
    ("path", "length", "code"),
    [("/api/v1/conversations/", 9_000_000, "too_large"), ("/api/v1/files/", 102_000_000, "file_too_large")],
)
def test_only_uploads_may_be_as_large_as_an_upload(
    product: Product, person: Person, path: str, length: int, code: str
) -> None:
    with arriving(product, path, person.token, length) as opened:
        status, _, body = refusal(opened)
    assert (status, body["code"]) == (413, code)


def test_a_persons_uploads_at_once_are_counted(product: Product, person: Person) -> None:
    with ExitStack() as stack:
        first = [stack.enter_context(arriving(product, "/api/v1/files/", person.token, 200_000)) for _ in range(5)]
        for opened in first:
            assert opened.recv(1000).startswith(b"HTTP/1.1 100 ")  # it has been admitted
        with arriving(product, "/api/v1/files/", person.token, 200_000) as opened:
            status, headers, body = refusal(opened)
        assert (status, body["code"], headers["Retry-After"]) == (429, "too_many_uploads", "10")
    with product.http() as http:
        what = {"file": ("a.txt", b"words " * 50_000)}
        headers = {"Authorization": f"Bearer {person.token}"}

        def uploaded() -> bool:
            return http.post("/api/v1/files/", files=what, headers=headers).status_code == 201

        until(uploaded, "the others are no longer counted")


def test_what_was_read_with_the_first_piece_waits_for_the_look_up_too(product: Product, person: Person) -> None:
    """The body of a program with a token is chunked, and longer than that of a stranger may be."""
    body = b'{"title": "Chunked"' + b" " * 400_000 + b"}"

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 5_000):
            yield body[start : start + 5_000]

    headers = {"Authorization": f"Bearer {person.token}", "Content-Type": "application/json"}
    with product.http() as http:
        answer = http.post("/api/v1/conversations/", content=pieces(), headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (201, "Chunked")


def test_a_chunked_body_is_read(product: Product, person: Person) -> None:
    headers = {"Authorization": f"Bearer {person.token}", "Content-Type": "application/json"}
    with product.http() as http:
        answer = http.post("/api/v1/conversations/", content=iter([b'{"title": ', b'"Chunked"}']), headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (201, "Chunked")


async def test_what_a_client_does_not_read_is_not_written_on(connection: Connection) -> None:
    connection.protocol.setTimeout(None)  # as while a request is answered
    connection.protocol.pauseProducing()  # as the transport says when its buffer is full
    waiting = asyncio.create_task(connection.protocol.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    connection.protocol.resumeProducing()
    await waiting
    connection.clock.advance(UNREAD_SECONDS)
    assert not connection.transport.disconnected
    connection.protocol.pauseProducing()
    connection.clock.advance(UNREAD_SECONDS)
    assert connection.transport.disconnected
