"""A server that receives webhooks. It stores the requests and answers as a test says."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

from accounts.webhooks import sending
from tests.product import until


def deliver(delivery_id: object) -> None:
    """Deliver once in this thread, and so in the test's transaction. A worker would deliver on its event loop."""
    delivery = sending.DELIVERIES.claim(UUID(str(delivery_id)), "webhook")
    if delivery is not None:
        sending.report(delivery, asyncio.run(sending.attempt(delivery)))


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def payload(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers` are the statuses of the next calls, then 204."""

    url: str
    answers: list[int] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)

    def of(self, type_: str) -> list[Received]:
        return [each for each in self.received if each.payload["type"] == type_]

    def wait_for(self, type_: str, count: int = 1) -> list[Received]:
        until(lambda: len(self.of(type_)) >= count, f"{type_} arrives")
        return self.of(type_)


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.answers.pop(0) if receiver.answers else 204
            receiver.received.append(Received({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", receiver.url + "elsewhere/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: `received` has the calls."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/hook/")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
