"""Clients that only read bytes, in a process of their own: what they read is looked into when all have ended."""

import asyncio
import gc
import re
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

OVERLAP = 256  # bytes kept of what came before, so that a pattern is found across two reads
OPENING = 60.0  # seconds in which a connection stands open
# What a socket asks of a client that is still there, and the answer: the ping of Engine.IO.
ENGINE_PING, ENGINE_PONG = b"\x81\x012", b"\x81\x81\0\0\0\x003"
PING, PONG = re.compile(rb"\x89\x04([\s\S]{4})"), b"\x8a\x84\0\0\0\0"


@dataclass(frozen=True)
class Exchange:
    """One answer. Patterns are regular expressions over the bytes of a connection.

    `opening`: what is sent before the clock runs, each with the pattern to wait for. `request` begins the answer, on a
    connection of its own where `apart` is true. `last` is the end of the answer, `refused` its failure.
    """

    port: int
    request: bytes
    last: bytes
    refused: bytes = rb"^HTTP/1\.1 [45]"
    opening: tuple[tuple[bytes, bytes], ...] = ()
    apart: bool = False


@dataclass(frozen=True)
class Answer:
    """`sent` and the time of each read are seconds of the machine's monotonic clock; `whole` where its end came."""

    sent: float
    reads: tuple[tuple[float, bytes], ...]
    whole: bool

    def found(self, pattern: bytes) -> list[tuple[float, re.Match[bytes]]]:
        """Every match, with the time of the read that completed it."""
        matches = list(re.finditer(pattern, self.text()))
        found, reads, size, at = [], iter(self.reads), 0, 0.0
        for match in matches:
            while size < match.end():
                at, data = next(reads)
                size += len(data)
            found.append((at, match))
        return found

    def text(self) -> bytes:
        """All that was read, with the heads of frames and chunks."""
        return b"".join(data for _, data in self.reads)


def http(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def upgrade(path: str) -> bytes:
    """The request that makes a WebSocket of a connection; without compression, so that its bytes can be searched."""
    socket = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    return http("GET", path, {**socket, "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="})


def frame(text: str) -> bytes:
    """A text frame of a client, of less than 64 kB; its mask is zero, which leaves the text as it is."""
    payload = text.encode()
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + payload


class _Connection(asyncio.Protocol):
    """Keeps what it reads; says when a pattern has come, and that it never will when the other side closes."""

    def __init__(self) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self._tail = b""
        self._awaited: re.Pattern[bytes] | None = None
        self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, data: bytes, pattern: bytes) -> "asyncio.Future[re.Match[bytes]]":
        """What is done once the pattern is in what comes from now on."""
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


async def _connected(port: int) -> _Connection:
    return (await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port))[1]


class _Client:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._connections: list[_Connection] = []

    async def open(self) -> None:
        """Everything that a page has behind it when a person sends: the clock does not run yet."""
        async with asyncio.timeout(OPENING):
            self._connections = [await _connected(self._exchange.port) for _ in range(1 + self._exchange.apart)]
            for text, pattern in self._exchange.opening:
                await self._connections[0].send(text, pattern)

    async def answer(self, after: float, limit: float) -> Answer:
        """Begins after so many seconds, and reads until the answer has ended, was refused or is late by the limit."""
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
        return Answer(sent, tuple(listening.reads), whole)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


async def _all(exchanges: list[Exchange], within: float, limit: float) -> list[Answer]:
    clients = [_Client(exchange) for exchange in exchanges]
    try:
        for client in clients:
            await client.open()
        gap = within / len(clients)
        return await asyncio.gather(*(client.answer(number * gap, limit) for number, client in enumerate(clients)))
    finally:
        for client in clients:
            client.close()


def _run(exchanges: list[Exchange], within: float, limit: float) -> list[Answer]:
    gc.collect()
    gc.disable()  # a pause of ours would be taken for theirs
    try:
        return asyncio.run(_all(exchanges, within, limit))
    finally:
        gc.enable()


class Clients:
    """The process; used as a context manager."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, exchanges: list[Exchange], within: float = 0.0, limit: float = 90.0) -> list[Answer]:
        """All exchanges, begun evenly within so many seconds, after every connection stands open.

        `limit`: the seconds after its beginning at which an answer is given up.
        """
        return self._pool.submit(_run, exchanges, within, limit).result()
