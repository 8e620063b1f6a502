"""daphne, with a limit to a body that holds while it arrives: what is over it is refused and never kept.

An ASGI application learns of a request when daphne has all of it, so it cannot do this itself.
"""

import json
from typing import Any

from daphne.cli import CommandLineInterface  # type: ignore[import-untyped]
from daphne.http_protocol import HTTPFactory, WebRequest  # type: ignore[import-untyped]
from daphne.server import Server  # type: ignore[import-untyped]
from django.conf import settings
from django.http import HttpRequest
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol

from config.http import problems
from config.http.middleware import ROOM_FOR_FORM

MOST_OF_A_STRANGER = 1_000_000  # bytes; a request without cookie or token has no file to upload


class CountedRequest(WebRequest):  # type: ignore[misc]
    """Counts its body while that arrives, chunked or not. Over the limit: 413, and the connection ends."""

    refused = False
    received = 0

    def gotLength(self, length: int | None) -> None:
        super().gotLength(length)
        self._refuse_over(length or 0)

    def handleContentChunk(self, data: bytes) -> None:
        self.received += len(data)
        self._refuse_over(self.received)
        if not self.refused:
            super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if not self.refused:
            super().requestReceived(command, path, version)

    def _refuse_over(self, size: int) -> None:
        known = self.requestHeaders.hasHeader(b"cookie") or self.requestHeaders.hasHeader(b"authorization")
        most = settings.MAX_UPLOAD_BYTES + ROOM_FOR_FORM if known else MOST_OF_A_STRANGER
        if size <= most or self.refused:
            return
        self.refused = True
        self.channel.transport.write(_too_large(settings.MAX_UPLOAD_BYTES if known else most))
        self.channel.loseConnection()


class CountingFactory(HTTPFactory):  # type: ignore[misc]
    def buildProtocol(self, addr: IAddress) -> Protocol:
        protocol: Any = super().buildProtocol(addr)
        protocol.requestFactory = CountedRequest
        return protocol  # type: ignore[no-any-return]


class LimitedServer(Server):  # type: ignore[misc]
    """`Server.run` makes its own factory; what it listens with is ours."""

    @property
    def http_factory(self) -> HTTPFactory:
        return self._factory

    @http_factory.setter
    def http_factory(self, _given: HTTPFactory) -> None:
        self._factory = CountingFactory(self)


class CommandLine(CommandLineInterface):  # type: ignore[misc]
    server_class = LimitedServer


def _too_large(most: int) -> bytes:
    allowed = f"{most / 1_000_000:,.0f} MB"
    detail = f"This is larger than {allowed}, the most that can be uploaded. Split it and upload the parts."
    body = json.dumps(problems.problem(HttpRequest(), 413, "file_too_large", detail)).encode()
    head = f"HTTP/1.1 413 Too Large\r\nContent-Type: {problems.MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
