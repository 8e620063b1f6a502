"""A server on loopback that answers whatever bytes a test wants, in a thread of its own."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from typing import Self

# Given the request's head and the connection, writes the answer; the connection is closed afterwards.
Play = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """`heads` are the requests' heads in the order they came; `hung_up` is set when a client leaves early."""

    def __init__(self, play: Play, *, host: str = "127.0.0.2", tls: ssl.SSLContext | None = None) -> None:
        self.heads: list[str] = []
        self.hung_up = threading.Event()
        self.port = 0
        self._play, self._host, self._tls = play, host, tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *failure: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._answer, self._host, 0, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            await self._play(head, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()


def answer(body: bytes | str, *headers: str, status: str = "200 OK", media_type: str = "text/html") -> bytes:
    """A whole HTTP answer; an empty media type leaves its header out."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers]
    if media_type:
        lines.append(f"Content-Type: {media_type}")
    return "\r\n".join([*lines, "", ""]).encode() + content


def always(whole: bytes) -> Play:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)

    return play
