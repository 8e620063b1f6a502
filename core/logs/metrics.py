"""The metrics of one process. Prometheus adds up the processes.

A web process serves them at `/metrics`, a worker at its own port (`METRICS_PORT`). Processes share no state, so no
file outlives a process, as with the multiprocess mode of Prometheus's client, and no token costs a request to Redis.
Labels are names of views, models, servers and codes, never a text, a person or an address.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from hmac import compare_digest
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from django.conf import settings
from django.db import connection
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, disable_created_metrics, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from core.net.bearer import bearer_token

disable_created_metrics()  # type: ignore[no-untyped-call]  # has no annotations
SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)

REQUESTS = Histogram(
    "glasshouse_request_seconds",
    "Requests, and how long until each was answered, or its stream began.",
    ["view", "method", "status"],
    buckets=SHORT,
)
STREAMS = Gauge("glasshouse_open_streams", "Sockets and streams of events that are open at this process.")
WRITTEN = Gauge("glasshouse_turns_written", "Answers that this process is writing now.")
TURNS = Counter("glasshouse_turns_ended", "Answers that have ended here, by status.", ["status"])
FIRST_TOKEN = Histogram(
    "glasshouse_first_token_seconds", "From asking to the first token, by model.", ["model"], buckets=LONG
)
STOPS = Histogram("glasshouse_stop_seconds", "From asking to stop to the end of the answer.", buckets=SHORT)
TOKENS = Counter("glasshouse_tokens", "Tokens of answers as providers count them.", ["model", "kind"])
CALLS = Counter(
    "glasshouse_model_calls",
    "Calls of models, by server, model and outcome: answered, or the code of the error.",
    ["server", "model", "outcome"],
)

MAX_WORKERS = 10  # per machine, each with its own port

logger = logging.getLogger(__name__)


class _Pool(Collector):
    """The process's pool of connections to the database."""

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()  # otherwise the client collects while this module loads, and opens the pool too early

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "glasshouse_database_connections",
            "Connections of this process, and who waits for one.",
            labels=["state"],
        )
        pool = connection.pool  # type: ignore[attr-defined]  # the stubs know no pool
        stats = pool.get_stats() if pool is not None else {}
        for state in ("pool_size", "pool_available", "requests_waiting"):
            family.add_metric([state], stats.get(state, 0))
        yield family


REGISTRY.register(_Pool())


def may_read(authorization: str) -> bool:
    """Return whether the header has the scrape token (`METRICS_TOKEN`). False if no token is set."""
    token = bearer_token(authorization)
    expected = settings.METRICS_TOKEN
    return bool(expected) and token is not None and compare_digest(token.encode(), expected.encode())


def serve() -> None:
    """Serve the metrics of a worker on a thread, behind the scrape token, at `METRICS_PORT`.

    If another worker on the machine uses the port, the worker takes the next free one.
    """
    if not settings.METRICS_PORT:
        return
    for port in range(settings.METRICS_PORT, settings.METRICS_PORT + MAX_WORKERS):
        try:
            server = make_server("", port, _guarded, handler_class=_Quiet)
        except OSError as error:
            last_error = error
        else:
            threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
            return
    logger.error("METRICS_PORT %s and the next ports cannot be opened: %s", settings.METRICS_PORT, last_error)


_metrics_app: Callable[..., Iterable[bytes]] = make_wsgi_app()


def _guarded(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if may_read(environ.get("HTTP_AUTHORIZATION", "")):
        return _metrics_app(environ, start_response)
    start_response("401 Unauthorized", [("Content-Type", "text/plain"), ("WWW-Authenticate", "Bearer")])
    return iter([b"Send the scrape token, METRICS_TOKEN, as a bearer token.\n"])


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, since Prometheus sends a request every few seconds."""
