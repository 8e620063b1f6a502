"""What the server refuses while it arrives: bytes go into the protocol, what it writes and keeps is looked at."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings
from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransport

from config.http.server import CountingFactory, LimitedServer

SIGNED_IN = b"Cookie: sessionid=x\r\n"


def connection() -> tuple[Any, Any]:
    server = LimitedServer(application=None, endpoints=["tcp:0"])
    server.connections = {}
    address: Any = IPv4Address("TCP", "127.0.0.1", 1)
    protocol: Any = CountingFactory(server).buildProtocol(address)
    transport: Any = StringTransport()  # type: ignore[no-untyped-call]  # Twisted types few of its tests' tools
    protocol.makeConnection(transport)
    return protocol, transport


def head(kind: bytes, who: bytes) -> bytes:
    return b"POST /login/ HTTP/1.1\r\nHost: localhost\r\n" + who + kind + b"\r\n\r\n"


@pytest.mark.parametrize(("who", "most"), [(b"", 1_000_000), (SIGNED_IN, 2_000_000)], ids=["stranger", "signed in"])
def test_a_chunked_body_is_refused_at_the_limit(settings: Settings, who: bytes, most: int) -> None:
    settings.MAX_UPLOAD_BYTES = 1_000_000
    protocol, transport = connection()
    protocol.dataReceived(head(b"Transfer-Encoding: chunked", who))
    chunk = b"186a0\r\n" + b"x" * 100_000 + b"\r\n"
    for _ in range(most // 100_000):
        protocol.dataReceived(chunk)
    assert transport.value() == b""
    protocol.dataReceived(chunk)
    assert transport.value().startswith(b"HTTP/1.1 413 ")
    assert b'"file_too_large"' in transport.value()
    assert transport.disconnecting


def test_a_length_over_the_limit_is_refused_before_a_byte_of_the_body(settings: Settings) -> None:
    settings.MAX_UPLOAD_BYTES = 1_000_000
    for who, length in ((b"", b"1000001"), (SIGNED_IN, b"2000001")):
        protocol, transport = connection()
        protocol.dataReceived(head(b"Content-Length: " + length, who))
        assert transport.value().startswith(b"HTTP/1.1 413 ")
        assert transport.disconnecting
