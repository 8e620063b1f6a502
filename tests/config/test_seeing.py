"""Data sent to Sentry and to a collector of traces: it shares one id, and has no text of a person or a model."""

import gzip
import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import brotli
import pytest
import sentry_sdk
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pytest_django.fixtures import Settings

from config import service_urls
from config.embedded.paths import StartError
from config.management.commands import doctor
from core import background
from core.logs import otlp, tracing
from core.logs.context import log_context, trace_of
from core.logs.lines import JsonFormatter
from core.logs.sentry import handler
from tests.application import Application
from tests.conftest import Person

WROTE = "what-somebody-wrote"
CHECKS = (doctor._errors, doctor._traces)
MEMBERS = {  # of an event: what this client has it say
    *("event_id", "timestamp", "level", "logger", "logentry", "tags", "user", "contexts", "exception"),
    *("platform", "server_name", "environment", "release", "sdk", "_meta"),
}
ATTRIBUTES = {
    *("http.request.method", "http.response.status_code", "request_id", "turn_id", "status", "code", "error.type"),
    *("gen_ai.operation.name", "gen_ai.request.model", "server.address"),
}


class Receiver(ThreadingHTTPServer):
    """A server that stores the requests it gets. `bodies` unpacks those of a path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def bodies(self, where: str) -> list[bytes]:
        return [body for path, _, body in self.received if path == where]


class _Post(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        unpack = {"br": brotli.decompress, "gzip": gzip.decompress}.get(self.headers.get("Content-Encoding", ""), bytes)
        self.server.received.append((self.path, dict(self.headers), unpack(body)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        yield server
        server.shutdown()


@contextmanager
def sent(receiver: Receiver, settings: Settings) -> Iterator[io.StringIO]:
    """Send errors and traces to the receiver before the block ends. Yields the lines that are logged meanwhile."""
    port, lines = receiver.server_port, io.StringIO()
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = f"http://127.0.0.1:{port}/"
    settings.OTEL_EXPORTER_OTLP_HEADERS = "x-key=of%20the%20collector"
    provider, errors, log = (
        otlp.provider(),
        handler(f"http://of-sentry@127.0.0.1:{port}/4"),
        logging.StreamHandler(lines),
    )
    log.setFormatter(JsonFormatter())
    tracing.use(lambda: otlp.sampled_tracer(provider))
    loggers = [logging.getLogger(name) for name in ("", "django")]
    for logger in loggers:
        logger.addHandler(errors)
        logger.addHandler(log)
    try:
        yield lines
    finally:
        tracing.use(None)
        for logger in loggers:
            logger.removeHandler(errors)
            logger.removeHandler(log)
        provider.shutdown()
        sentry_sdk.flush()
        sentry_sdk.init()  # without a DSN, so nothing leaves any more


def events(receiver: Receiver) -> list[dict[str, Any]]:
    """Of Sentry's envelopes (https://develop.sentry.dev/sdk/data-model/envelopes/)."""
    errors = []
    for body in receiver.bodies("/api/4/envelope/"):
        head, item, payload, *rest = body.split(b"\n")
        assert json.loads(item)["type"] == "event" and json.loads(item)["length"] == len(payload) and not any(rest)
        errors.append(json.loads(payload))
        assert json.loads(head)["event_id"] == errors[-1]["event_id"]
    return errors


def spans(receiver: Receiver) -> list[Any]:
    requests = [ExportTraceServiceRequest.FromString(body) for body in receiver.bodies(tracing.PATH)]
    resources = [each for request in requests for each in request.resource_spans]
    names = {
        each.value.string_value for of in resources for each in of.resource.attributes if each.key == "service.name"
    }
    assert names == {"glasshouse"}
    return [span for of in resources for scope in of.scope_spans for span in scope.spans]


def fails(request: HttpRequest, word: str) -> HttpResponse:
    raise ValueError(f"{word} of {request.body!r}")


handler500 = "config.http.health.server_error"
urlpatterns = [path("fails/<str:word>/", fails), path("", include("config.urls"))]


def test_one_id_ties_errors_lines_and_traces_and_nothing_that_was_written_leaves(
    application: Application, person: Person, receiver: Receiver, settings: Settings
) -> None:
    settings.ROOT_URLCONF = __name__
    request_id, failed, traceparent = uuid4().hex, uuid4().hex, f"00-{uuid4().hex}-{'a' * 16}-01"
    caller = person.caller
    place = caller.conversation()
    with sent(receiver, settings) as lines:
        question = f"{WROTE}\nscript: {json.dumps({'text': f'An answer of {WROTE}.'})}"
        turn = caller.post(
            f"conversations/{place}/turns/",
            {"text": question},
            202,
            traceparent=traceparent,
            **{"X-Request-ID": request_id},
        )["turns"][0]
        assert WROTE in str(caller.ended(turn["id"]))
        caller.get(f"search/?q={WROTE}")
        other = application.http(headers={"X-Request-ID": failed, "Cookie": f"sessionid={WROTE}"})
        page = other.get(f"/fails/{WROTE}/?q={WROTE}")
        assert (page.status_code, page.headers["X-Request-ID"]) == (500, failed) and failed in page.text
        part = other.get(f"/fails/{WROTE}/", headers={"HX-Request": "true"})
        assert (part.status_code, part.headers["HX-Retarget"]) == (500, "#problem") and failed in part.text

        async def lost(text: str) -> None:
            raise RuntimeError(text)

        with log_context({"request_id": request_id, "turn_id": turn["id"]}):
            background.run_in_background(lost(f"{WROTE} {caller.token}"))
        background.wait_for_background_tasks()
        logging.getLogger("somebody.elses").error(f"{WROTE} put together", extra={"body": WROTE}, stack_info=True)
        sentry_sdk.capture_message(WROTE)

    whole = b"".join(body for _, _, body in receiver.received)
    for secret in (WROTE, caller.token, "secret-of-the-scripted-provider", settings.SECRET_KEY):
        assert secret.encode() not in whole
    assert {head["x-key"] for where, head, _ in receiver.received if where == tracing.PATH} == {"of the collector"}

    trace, first = (f"{each:0{size}x}" for each, size in zip(trace_of(request_id), (32, 16), strict=True))
    assert trace == request_id
    mine = [span for span in spans(receiver) if span.trace_id.hex() == trace]
    assert {each.key for span in spans(receiver) for each in span.attributes} <= ATTRIBUTES
    [request] = [span for span in mine if span.name == "POST conversation-turns"]
    [answer] = [span for span in mine if span.name == "answer"]
    [call] = [span for span in mine if span.parent_span_id == answer.span_id]
    assert (request.span_id.hex(), request.parent_span_id, answer.parent_span_id) == (first, b"", request.span_id)
    assert [link.trace_id.hex() for link in request.links] == [traceparent[3:35]]
    assert (call.name, [event.name for event in call.events]) == ("chat scripted", ["answers"])
    [model_request] = [record for record in application.model.requests(WROTE) if "traceparent" in record.headers][:1]
    assert model_request.headers["traceparent"] == f"00-{trace}-{call.span_id.hex()}-01"
    logged = [line for line in map(json.loads, lines.getvalue().splitlines()) if line.get("request_id") == request_id]
    assert {"llm.providers.streaming", "core.background"} <= {line["logger"] for line in logged}

    errors = {event["logger"]: event for event in events(receiver)}
    assert set(errors) == {"django.request", "core.background", "somebody.elses"}
    assert errors["django.request"]["tags"]["request_id"] == failed
    assert all(set(event) <= MEMBERS for event in errors.values())
    worker = errors["core.background"]
    assert worker["tags"] == {"request_id": request_id, "turn_id": turn["id"]}
    assert worker["contexts"]["trace"]["trace_id"] == trace and worker["logentry"]["message"] == "%r failed"
    [value] = worker["exception"]["values"]
    assert (value["type"], value["value"], value["stacktrace"]["frames"][-1]["function"]) == (
        "RuntimeError",
        "",
        "lost",
    )
    assert not any("vars" in frame for frame in value["stacktrace"]["frames"])
    assert errors["somebody.elses"]["logentry"]["message"] == "An error of somebody.elses"


def test_without_an_address_nothing_is_begun() -> None:
    with tracing.of_request("GET", "id", "") as span, tracing.span("answer"):
        tracing.note(status="done")
        assert not span.is_recording() and tracing.headers() == {}


def test_doctor_tries_both_addresses(receiver: Receiver, settings: Settings) -> None:
    port = receiver.server_port
    settings.SENTRY_DSN = f"http://of-sentry@127.0.0.1:{port}/4"
    settings.OTEL_EXPORTER_OTLP_ENDPOINT, settings.OTEL_EXPORTER_OTLP_HEADERS = f"http://127.0.0.1:{port}", "x-key=k"
    assert [str(each.detail) for check in CHECKS for each in check()] == [f"127.0.0.1:{port} accepts them"] * 2
    assert [where for where, _, _ in receiver.received] == [
        "/api/4/envelope/?sentry_version=7&sentry_key=of-sentry",
        tracing.PATH,
    ]
    settings.SENTRY_DSN, settings.OTEL_EXPORTER_OTLP_ENDPOINT = "http://of-sentry@127.0.0.1:1/4", "http://127.0.0.1:1"
    assert {each.state for check in CHECKS for each in check()} == {"fail"}


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (service_urls.sentry, "https://sentry.example.org/4"),
        (service_urls.sentry, "key@sentry.example.org/4"),
        (service_urls.otlp, "collector:4318"),
    ],
)
def test_an_address_that_is_none_is_refused_at_the_start(check: Any, wrong: str) -> None:
    assert (check(""), check("https://key@example.org/4")) == ("", "https://key@example.org/4")
    with pytest.raises(StartError, match="as in http"):
        check(wrong)
