"""The application in the test's own process, for tests of rows, rights, statuses and bodies.

Requests and WebSockets go to the ASGI application of the product without a connection in between. Threads and the event
loop of this process do the work of a worker. Rows are committed, since each thread has its own connection to the
database.
"""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import httpx
from celery import Celery
from channels.layers import channel_layers
from django.db import connections
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response

from chat.background.tasks import take_turns
from config.celery import app as celery_app
from config.http.routing import create_application
from core import background
from tests.product import WAIT
from tests.scripted_model import ScriptedModel

QUEUE = background.TURNS.key  # of the product's workers

App = Callable[..., Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Application:
    """The product without processes: `http` and `socket` reach it, and `model` answers its turns."""

    url = "http://testserver"  # which Django lets tests use

    def __init__(self, model: ScriptedModel, directory: Path) -> None:
        self.model, self.directory = model, directory

    def http(self, path: str = "/", **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url + path, timeout=WAIT, transport=InProcess(_application()), **options)

    def socket(self, path: str, headers: Mapping[str, str]) -> "InProcessSocket":
        """Open a WebSocket, and close it at the end. Raises `InvalidStatus` if the application refuses it."""
        return InProcessSocket(_application(), _socket_scope(httpx.URL(self.url + path), headers))


@cache
def _application() -> App:
    return create_application()


@contextmanager
def working() -> Iterator[None]:
    """Run everything that is enqueued meanwhile in this process. Work that still runs at the end is cancelled."""
    worker = Worker()
    worker.begin()
    try:
        yield
        worker.settle()
    finally:
        worker.end()
        # The subscriptions of sockets would outlive the tests' Redis, and log that it is gone.
        background.submit(channel_layers["default"].flush()).result(WAIT)


class Worker(Celery):
    """A Celery application whose tasks are done by threads of this process, without a broker.

    Its turns have a queue of their own, so that no worker of a running product takes them.
    """

    def __init__(self) -> None:
        super().__init__("tests", fixups=[], set_as_current=False)
        celery_app.loader.import_default_modules()
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="worker")
        self._handed: set[Future[None]] = set()
        self._lock = threading.Lock()

    def send_task(self, name: str, args: Any = None, *_: Any, **__: Any) -> None:  # type: ignore[override]
        future = self._threads.submit(_carry_out, name, args)
        with self._lock:
            self._handed = {each for each in self._handed if not each.done()} | {future}

    def begin(self) -> None:
        self.set_default()
        self.set_current()
        background.TURNS.key = f"turns:queue:{uuid4()}"
        self._taking = background.submit(take_turns())

    def settle(self) -> None:
        """Return when nothing is under way. Work that a task or an answer enqueues at its end is awaited too."""
        self._taking.cancel()
        background.cancel_background_tasks(grace=0)
        while True:
            background.wait_for_background_tasks()
            with self._lock:
                handed = [each for each in self._handed if not each.cancel() and not each.done()]
            if not handed:
                return
            wait(handed)
            background.cancel_background_tasks(grace=0)

    def end(self) -> None:
        celery_app.set_default()
        celery_app.set_current()
        background.TURNS.key = QUEUE
        self._threads.shutdown(wait=False)


def _carry_out(name: str, args: Any) -> None:
    try:
        celery_app.tasks[name](*args)
    finally:
        connections.close_all()


class InProcess(httpx.BaseTransport):
    """Takes requests to an ASGI application on the process's event loop. Bodies come as they are made."""

    def __init__(self, application: App) -> None:
        self._application = application

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(request.read(), request.extensions["timeout"]["read"])
        background.submit(exchange.carry_out(self._application, _scope(request)))
        try:
            start = exchange.next()
        except httpx.ReadTimeout:
            exchange.close()
            raise
        return httpx.Response(start["status"], headers=start["headers"], stream=exchange)


def _scope(request: httpx.Request) -> dict[str, Any]:
    path, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 1),
        "server": (request.url.host, request.url.port or 80),
    }


class _Exchange(httpx.SyncByteStream):
    """One request and its response, whose messages come from the event loop's thread."""

    def __init__(self, body: bytes, seconds: float | None) -> None:
        self._seconds = seconds
        self._unread = [{"type": "http.request", "body": body}]
        self._messages: queue.Queue[Any] = queue.Queue()
        self._closed = asyncio.Event()

    async def carry_out(self, application: App, scope: dict[str, Any]) -> None:
        try:
            await application(scope, self._receive, self._send)
        except Exception as error:
            self._messages.put(error)

    async def _receive(self) -> dict[str, Any]:
        if self._unread:
            return self._unread.pop()
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self._messages.put(message)

    def next(self) -> Any:
        """Return the next message. Raises the application's errors and `httpx.ReadTimeout`."""
        try:
            message = self._messages.get(timeout=self._seconds)
        except queue.Empty:
            raise httpx.ReadTimeout(f"Nothing came for {self._seconds} s.") from None
        if isinstance(message, Exception):
            raise message
        return message

    def __iter__(self) -> Iterator[bytes]:
        more = True
        while more:
            message = self.next()
            more = message.get("more_body", False)
            yield message.get("body", b"")

    def close(self) -> None:
        background.loop().call_soon_threadsafe(self._closed.set)


def _socket_scope(url: httpx.URL, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the scope of an opening handshake, with daphne's members."""
    named = {"host": url.netloc.decode("ascii"), **headers}
    return {
        "type": "websocket",
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "root_path": "",
        "headers": [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in named.items()],
        "client": ["127.0.0.1", 1],
        "server": [url.host, url.port or 80],
        "subprotocols": [],
    }


class InProcessSocket:
    """A WebSocket to an ASGI application on the process's event loop.

    It has the methods, and raises the errors, of a connection of `websockets.sync.client`.
    """

    def __init__(self, application: App, scope: dict[str, Any]) -> None:
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outbox: queue.Queue[dict[str, Any] | None] = queue.Queue()  # None is the application's end
        self._closed: ConnectionClosed | None = None
        self._put({"type": "websocket.connect"})
        self._run = background.submit(_run(application, scope, self._inbox.get, self._send))
        self._run.add_done_callback(lambda _: self._outbox.put(None))
        if self._next(WAIT)["type"] != "websocket.accept":
            self.close()
            raise InvalidStatus(Response(403, "Access denied", Headers()))

    def send(self, message: str | bytes) -> None:
        """Send a frame. Until `recv` has reported that the server closed, frames to it are lost, as on a wire."""
        if self._closed is not None:
            raise self._closed
        self._put({"type": "websocket.receive", "text" if isinstance(message, str) else "bytes": message})

    def recv(self, timeout: float) -> str:
        """Return the next frame. Raises `TimeoutError`, `ConnectionClosed` and the application's errors."""
        if self._closed is not None:
            raise self._closed
        message = self._next(timeout)
        if message["type"] == "websocket.close":
            self._closed = ConnectionClosedError(Close(message.get("code") or 1000, ""), None)
            raise self._closed
        return str(message["text"])

    def close(self) -> None:
        """Return when the application has ended. Raises its errors."""
        self._put({"type": "websocket.disconnect", "code": 1000})
        self._run.result(WAIT)

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.close":
            self._inbox.put_nowait({"type": "websocket.disconnect", "code": message.get("code") or 1000})
        self._outbox.put(message)

    def _next(self, timeout: float) -> dict[str, Any]:
        try:
            message = self._outbox.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"No frame came for {timeout:g} s.") from None
        if message is None:
            self._run.result()
            self._closed = ConnectionClosedError(None, None)
            raise self._closed
        return message

    def _put(self, message: dict[str, Any]) -> None:
        background.loop().call_soon_threadsafe(self._inbox.put_nowait, message)


async def _run(application: App, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    await application(scope, receive, send)
