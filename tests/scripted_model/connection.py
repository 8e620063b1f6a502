"""HTTP/1.1 on one connection: requests in, answers out, and the moment at which the client goes away."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import h11

from .records import Ending, Record, Records, without_secrets

Handler = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request and the means to answer it."""

    def __init__(self, connection: "Connection", request: h11.Request, body: bytes) -> None:
        target = urlsplit(request.target.decode())
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        self._connection = connection
        self.method = request.method.decode()
        self.path = target.path
        self.query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        self.headers = headers
        self.record = Record(self.method, target.path, without_secrets(headers), body, connection.number)

    @property
    def body(self) -> Any:
        return self.record.body

    async def answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        """The whole answer, as JSON."""
        payload = json.dumps(value).encode()
        self.start(status, {"content-type": "application/json", "content-length": str(len(payload))} | (headers or {}))
        await self.send(payload)
        self.end()

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.record.status = status
        self._connection.write(h11.Response(status_code=status, headers=list(headers.items())))

    async def send(self, data: bytes) -> None:
        """Waits while the client reads too slowly."""
        if self.record.first_byte is None:
            self.record.first_byte = self._connection.now()
        self._connection.write(h11.Data(data=data))
        await self._connection.writable.wait()

    def end(self) -> None:
        # Recorded before the last bytes leave: whoever has read the answer finds it recorded as complete.
        self._connection.ended(self.record, "complete")
        self._connection.write(h11.EndOfMessage())

    def cut(self) -> None:
        """Drops the connection in the middle of the answer."""
        self._connection.ended(self.record, "cut")
        self._connection.drop()


class Connection(asyncio.Protocol):
    def __init__(self, handler: Handler, records: Records, now: Callable[[], float], number: int) -> None:
        self._handler = handler
        self._records = records
        self.now = now
        self.number = number
        self._http = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport | None = None
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            self._read()
        except h11.RemoteProtocolError:
            self.drop()

    def _read(self) -> None:
        while self._task is None:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._request, self._body = event, []
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self._request is not None:
                self._begin(Exchange(self, self._request, b"".join(self._body)))
            else:
                return

    def _begin(self, exchange: Exchange) -> None:
        if not exchange.path.startswith("/control/"):
            self._records.add(exchange.record)
        self._exchange = exchange
        self._task = asyncio.get_running_loop().create_task(self._handle(exchange))

    async def _handle(self, exchange: Exchange) -> None:
        try:
            await self._handler(exchange)
        except Exception:
            self.drop()  # a defect of this server must not look like a silent model
            raise
        finally:
            self._task = None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._read()
        else:
            self.drop()

    def write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._transport is not None:
            self._transport.write(data)

    def ended(self, record: Record, ending: Ending) -> None:
        self._records.end(record, ending)

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abandon(self) -> None:
        if self._task is not None and self._exchange is not None:
            self._records.end(self._exchange.record, "cut")
        self.drop()

    def eof_received(self) -> bool:
        self._gone()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._gone()

    def _gone(self) -> None:
        if self._task is not None and self._exchange is not None:
            self._records.end(self._exchange.record, "client_closed")
            self._task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
