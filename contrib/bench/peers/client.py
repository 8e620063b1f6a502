"""Clients that only read bytes, in a separate process. The caller parses the bytes when all clients have ended."""

import asyncio
import gc
import re
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

OVERLAP = 256  # bytes kept from the previous read, so that a pattern is found across two reads
OPENING = 60.0  # seconds in which a connection must open
# The ping and pong of Engine.IO, as WebSocket frames; then the ping and pong of WebSocket itself.
ENGINE_PING, ENGINE_PONG = b"\x81\x012", b"\x81\x81\0\0\0\x003"
PING, PONG = re.compile(rb"\x89\x04([\s\S]{4})"), b"\x8a\x84\0\0\0\0"


@dataclass(frozen=True)
class AnswerExchange:
    """A request for one answer. Patterns are regular expressions over the bytes of a connection.

    `opening`: messages sent before the clock runs, each with the pattern to wait for. `request` starts the answer, on a
    separate connection if `apart`. The pattern `last` matches the end of the answer, `refused` its failure.
    """

    port: int
    request: bytes
    last: bytes
    refused: bytes = rb"^HTTP/1\.1 [45]"
    opening: tuple[tuple[bytes, bytes], ...] = ()
    apart: bool = False


@dataclass(frozen=True)
class TimedAnswer:
    """The bytes of an answer. `sent` and the times of `reads` are seconds of the monotonic clock. `whole`: complete."""

    sent: float
    reads: tuple[tuple[float, bytes], ...]
    whole: bool

    def matches(self, pattern: bytes) -> list[tuple[float, re.Match[bytes]]]:
        """Return every match with the time of the read that completed it."""
        matches = list(re.finditer(pattern, self.text()))
        timed, reads, size, at = [], iter(self.reads), 0, 0.0
        for match in matches:
            while size < match.end():
                at, data = next(reads)
                size += len(data)
            timed.append((at, match))
        return timed

    def text(self) -> bytes:
        """Return all bytes that were read, with the headers of frames and chunks."""
        return b"".join(data for _, data in self.reads)


def http(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def upgrade(path: str) -> bytes:
    """Return the request that opens a WebSocket. It has no compression, so that the bytes can be searched."""
    socket = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    return http("GET", path, {**socket, "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="})


def frame(text: str) -> bytes:
    """Return a client's text frame of less than 64 kB. Its mask is zero, which leaves the text unchanged."""
    payload = text.encode()
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + payload


class _ClientConnection(asyncio.Protocol):
    """Stores the bytes it reads, and waits for a pattern in them."""

    def __init__(self) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self._tail = b""
        self._awaited: re.Pattern[bytes] | None = None
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, data: bytes, pattern: bytes) -> "asyncio.Future[re.Match[bytes]]":
        """Send data. Return a future of the match of `pattern` in the bytes after it; ConnectionError if it closes."""
        self._tail, self._awaited = b"", re.compile(pattern)
        self._come: asyncio.Future[re.Match[bytes]] = asyncio.get_running_loop().create_future()
        if self._closed:
            self._come.set_exception(ConnectionError("closed before"))
        self.transport.write(data)
        return self._come

    def data_received(self, data: bytes) -> None:
        self.reads.append((time.monotonic(), data))
        if ping := PING.search(data):
            self.transport.write(PONG + ping[1])
        if ENGINE_PING in data:
            self.transport.write(ENGINE_PONG)
        seen = self._tail + data
        self._tail = seen[-OVERLAP:]
        if self._awaited and not self._come.done() and (match := self._awaited.search(seen)):
            self._come.set_result(match)

    def close(self) -> None:
        if self._awaited:
            self._come.cancel()  # nobody waits for it any more
        self.transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        self._closed = True
        if self._awaited and not self._come.done():
            self._come.set_exception(ConnectionError("closed before the answer ended"))


async def _connected(port: int) -> _ClientConnection:
    return (await asyncio.get_running_loop().create_connection(_ClientConnection, "127.0.0.1", port))[1]


class _Client:
    def __init__(self, exchange: AnswerExchange) -> None:
        self._exchange = exchange
        self._connections: list[_ClientConnection] = []

    async def open(self) -> None:
        """Open the connections that a page has open before a person sends. The clock does not run yet."""
        async with asyncio.timeout(OPENING):
            self._connections = [await _connected(self._exchange.port) for _ in range(1 + self._exchange.apart)]
            for text, pattern in self._exchange.opening:
                await self._connections[0].send(text, pattern)

    async def answer(self, after: float, limit: float) -> TimedAnswer:
        """Send the request after `after` seconds, and read until the answer ends, is refused or exceeds `limit`."""
        exchange, listening, asking = self._exchange, self._connections[0], self._connections[-1]
        await asyncio.sleep(after)
        listening.reads.clear()
        end = b"(?P<refused>" + exchange.refused + b")|" + exchange.last
        sent, whole = time.monotonic(), False
        try:
            async with asyncio.timeout(limit):
                if exchange.apart:
                    ended = listening.send(b"", end)
                    head = await asking.send(exchange.request, rb"^HTTP/1\.1 (?P<refused>[45])?")
                    whole = not head["refused"] and not (await ended)["refused"]
                else:
                    whole = not (await asking.send(exchange.request, end))["refused"]
        except (ConnectionError, TimeoutError):
            pass  # not whole
        return TimedAnswer(sent, tuple(listening.reads), whole)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


async def _all(exchanges: list[AnswerExchange], within: float, limit: float) -> list[TimedAnswer]:
    clients = [_Client(exchange) for exchange in exchanges]
    try:
        for client in clients:
            await client.open()
        gap = within / len(clients)
        return await asyncio.gather(*(client.answer(number * gap, limit) for number, client in enumerate(clients)))
    finally:
        for client in clients:
            client.close()


def _run(exchanges: list[AnswerExchange], within: float, limit: float) -> list[TimedAnswer]:
    gc.collect()
    gc.disable()  # a pause here would count as a delay of the product
    try:
        return asyncio.run(_all(exchanges, within, limit))
    finally:
        gc.enable()


class Clients:
    """The process of the clients, as a context manager."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, exchanges: list[AnswerExchange], within: float = 0.0, limit: float = 90.0) -> list[TimedAnswer]:
        """Run all exchanges and return their answers. The requests are spread evenly over `within` seconds.

        `limit`: seconds after which an answer is given up.
        """
        return self._pool.submit(_run, exchanges, within, limit).result()
