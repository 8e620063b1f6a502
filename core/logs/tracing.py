"""OpenTelemetry spans for requests, for the jobs and answers that a request starts, and for each model call.

All spans of a request form one trace, whose id is derived from the request id. So the id that a page shows with an
error finds both the trace and the log lines, and jobs and turns need no other id. A trace of the caller is linked and
not continued, since outsiders must not choose the ids of this site. Model servers receive the product's trace id
(`traceparent`, https://www.w3.org/TR/trace-context/).

Without `OTEL_EXPORTER_OTLP_ENDPOINT` a span costs one check. A span has only the attributes that its code sets: names
of views and models, codes, and ids. A failure is recorded by its type or code, without its message.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.trace.status import StatusCode
from opentelemetry.util.re import parse_env_headers

from core.logs.context import log_fields, trace_of


class SampledTracer(NamedTuple):
    """A tracer, and a function that returns whether the trace with this id is exported."""

    tracer: Tracer
    is_sampled: Callable[[int], bool]


PATH = "/v1/traces"
_W3C = TraceContextTextMapPropagator()
_lock = threading.Lock()
_make: Callable[[], SampledTracer] | None = None
_sampled: SampledTracer | None = None
_preset_ids: ContextVar[tuple[int, int]] = ContextVar("the ids of the span that begins", default=(0, 0))


def use(make: Callable[[], SampledTracer] | None) -> None:
    """Set the tracer. It is made with the first span, since it starts a thread and the process may still be forked."""
    global _make, _sampled
    _make = make
    _sampled = None


def address() -> str:
    return f"{settings.OTEL_EXPORTER_OTLP_ENDPOINT.rstrip('/')}{PATH}"


def credentials() -> dict[str, str]:
    """Return the headers for the collector, from one variable in OpenTelemetry's format."""
    return dict(parse_env_headers(settings.OTEL_EXPORTER_OTLP_HEADERS, liberal=True))


def _tracer() -> SampledTracer | None:
    global _sampled
    if _sampled is None and _make is not None:
        with _lock:
            _sampled = _sampled or _make()
    return _sampled


def preset_ids() -> tuple[int, int]:
    """Return the trace id and span id for the span that begins; 0 means a random id."""
    return _preset_ids.get()


@contextmanager
def of_request(method: str, request_id: str, traceparent: str) -> Iterator[Span]:
    """Begin the first span of a trace, which ends with the block. `traceparent`: the caller's header, or empty."""
    sampled = _tracer()
    if sampled is None:
        yield INVALID_SPAN
        return
    caller = trace.get_current_span(_W3C.extract({"traceparent": traceparent})).get_span_context()
    token = _preset_ids.set(trace_of(request_id))
    try:
        span = sampled.tracer.start_span(
            method,
            Context(),
            SpanKind.SERVER,
            {"http.request.method": method, "request_id": request_id},
            [Link(caller)] if caller.is_valid else None,
        )
    finally:
        _preset_ids.reset(token)
    with _current(span):
        yield span


def begin(name: str, kind: SpanKind, **attributes: str) -> Span:
    """Begin a child of the current span, else of the first span of the request in the log fields. The caller ends it.

    Attribute names follow OpenTelemetry's conventions, with `__` for a dot.
    """
    sampled = _tracer()
    if sampled is None:
        return INVALID_SPAN
    renamed = {key.replace("__", "."): value for key, value in attributes.items() if value}
    return sampled.tracer.start_span(name, _parent(sampled), kind, renamed)


def _parent(sampled: SampledTracer) -> Context | None:
    """Return the context of the parent; None means the current span."""
    request_id = log_fields().get("request_id", "")
    if trace.get_current_span().get_span_context().is_valid:
        return None
    if not request_id:
        return Context()
    trace_id, span_id = trace_of(request_id)
    flags = TraceFlags(TraceFlags.SAMPLED if sampled.is_sampled(trace_id) else TraceFlags.DEFAULT)
    return trace.set_span_in_context(NonRecordingSpan(SpanContext(trace_id, span_id, True, flags)), Context())


def inside(span: Span) -> AbstractContextManager[object]:
    """Make the spans of the block children of `span`, which does not end with the block."""
    if span is INVALID_SPAN:
        return nullcontext()
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


def end(span: Span, failure: str = "") -> None:
    """End a span. `failure`: the type or code of the error, if it failed."""
    if failure:
        fail(span, failure)
    span.end()


def fail(span: Span, failure: str) -> None:
    span.set_attribute("error.type", failure)
    span.set_status(StatusCode.ERROR)


@contextmanager
def _current(span: Span) -> Iterator[None]:
    failure = ""
    try:
        with inside(span):
            yield
    except BaseException as error:
        failure = type(error).__name__
        raise
    finally:
        end(span, failure)


@contextmanager
def span(name: str, kind: SpanKind = SpanKind.INTERNAL, **attributes: str) -> Iterator[None]:
    """Begin a span as `begin` does. It ends with the block."""
    with _current(begin(name, kind, **attributes)):
        yield


def job(name: str) -> AbstractContextManager[None]:
    """Begin a span for a job that a request has started. Scheduled tasks, which run every few seconds, have no span."""
    return span(name, SpanKind.CONSUMER) if "request_id" in log_fields() else nullcontext()


def note(**attributes: str | int | float) -> None:
    """Set attributes on the current span, named as in `begin`."""
    current = trace.get_current_span()
    for key, value in attributes.items():
        current.set_attribute(key.replace("__", "."), value)


def headers() -> dict[str, str]:
    """Return the tracing headers for an outgoing request. They are empty while tracing is off."""
    carrier: dict[str, str] = {}
    if _sampled is not None:
        _W3C.inject(carrier)
    return carrier
