"""Measure the CPU time of the spans of one turn (its request, answer and call), with traces on and off.

    DJANGO_SETTINGS_MODULE=config.settings python -m contrib.bench.with_django.traces

A server on loopback receives the spans and drops them. Prints JSON.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import django

django.setup()

from django.conf import settings
from opentelemetry.trace import SpanKind

from core.logs import otlp, tracing
from core.logs.context import log_context

TURNS = 2_000
LIMIT, LIMIT_OFF = 1_000.0, 50.0  # µs


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def turn() -> None:
    request_id = uuid4().hex
    with log_context({"request_id": request_id}):
        with tracing.of_request("POST", request_id, ""):
            pass
        with tracing.span("answer", SpanKind.CONSUMER, turn_id=request_id):
            call = tracing.begin("chat model", SpanKind.CLIENT, gen_ai__request__model="model")
            with tracing.inside(call):
                tracing.headers()
            tracing.end(call)


def microseconds() -> float:
    """Return the CPU time of one turn in microseconds, including the threads that send."""
    began = time.process_time()
    for _ in range(TURNS):
        turn()
    return (time.process_time() - began) / TURNS * 1_000_000


def row(name: str, value: float, limit: float) -> dict[str, Any]:
    return {"name": name, "value": round(value, 1), "unit": "µs", "limit": limit, "ratio": round(value / limit, 3)}


def rows() -> list[dict[str, Any]]:
    tracing.use(None)
    off = microseconds()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = f"http://127.0.0.1:{server.server_port}"
    otlp.use()
    on = microseconds()
    return [row("spans of one turn, sent", on, LIMIT), row("spans of one turn, traces off", off, LIMIT_OFF)]


if __name__ == "__main__":
    json.dump(rows(), sys.stdout)
