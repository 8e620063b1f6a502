"""Spans of OpenTelemetry: of a request, of the jobs and the answers that it leads to, and of each call of a model.

All of them are one trace, whose id is made of the request's: the id that a page says of an error finds the trace as it
finds the lines of the log, and neither a job nor the row of a turn carries anything more along. A trace that a caller
has begun is linked to and not joined, since whoever is outside does not choose our ids. A model's server is told ours
(`traceparent`, https://www.w3.org/TR/trace-context/).

Off, at the cost of one look, while `OTEL_EXPORTER_OTLP_ENDPOINT` is not set. Only what is named by whoever begins a
span is sent: names of views, models and codes, and ids. A failure is told by its kind, without its sentence.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.trace.status import StatusCode
from opentelemetry.util.re import parse_env_headers

from core.logs.context import known, trace_of

Sampled = Callable[[int], bool]  # whether the trace of this id is sent
Made = tuple[Tracer, Sampled]

PATH = "/v1/traces"
_W3C = TraceContextTextMapPropagator()
_lock = threading.Lock()
_make: Callable[[], Made] | None = None
_made: Made | None = None
_wanted: ContextVar[tuple[int, int]] = ContextVar("the ids of the span that begins", default=(0, 0))


def use(make: Callable[[], Made] | None) -> None:
    """From now on spans are made by it, called at the first: it begins a thread, and a process may yet be forked."""
    global _make, _made
    _make, _made = make, None


def address() -> str:
    return f"{settings.OTEL_EXPORTER_OTLP_ENDPOINT.rstrip('/')}{PATH}"


def credentials() -> dict[str, str]:
    """The headers that the collector wants, which one variable has as OpenTelemetry writes them there."""
    return dict(parse_env_headers(settings.OTEL_EXPORTER_OTLP_HEADERS, liberal=True))


def _tracer() -> Made | None:
    global _made
    if _made is None and _make is not None:
        with _lock:
            _made = _made or _make()
    return _made


def wanted() -> tuple[int, int]:
    """The ids of trace and span that the span has to get which begins; 0 leaves it to chance."""
    return _wanted.get()


@contextmanager
def of_request(method: str, request_id: str, traceparent: str) -> Iterator[Span]:
    """The first span of a trace. `traceparent` is the caller's, "" without."""
    made = _tracer()
    if made is None:
        yield INVALID_SPAN
        return
    outside = trace.get_current_span(_W3C.extract({"traceparent": traceparent})).get_span_context()
    token = _wanted.set(trace_of(request_id))
    try:
        span = made[0].start_span(
            method,
            Context(),
            SpanKind.SERVER,
            {"http.request.method": method, "request_id": request_id},
            [Link(outside)] if outside.is_valid else None,
        )
    finally:
        _wanted.reset(token)
    with _current(span):
        yield span


def begin(name: str, kind: SpanKind, **attributes: str) -> Span:
    """Below the span at hand, else below that of the request that is known. Whoever begins it calls `end`. Attributes
    are named by OpenTelemetry's conventions, with `__` for a dot."""
    made = _tracer()
    if made is None:
        return INVALID_SPAN
    named = {key.replace("__", "."): value for key, value in attributes.items() if value}
    return made[0].start_span(name, _above(made[1]), kind, named)


def _above(sampled: Sampled) -> Context | None:
    """None stands for the span at hand."""
    request_id = known().get("request_id", "")
    if trace.get_current_span().get_span_context().is_valid:
        return None
    if not request_id:
        return Context()
    trace_id, span_id = trace_of(request_id)
    flags = TraceFlags(TraceFlags.SAMPLED if sampled(trace_id) else TraceFlags.DEFAULT)
    return trace.set_span_in_context(NonRecordingSpan(SpanContext(trace_id, span_id, True, flags)), Context())


def inside(span: Span) -> AbstractContextManager[object]:
    """What is begun inside is below `span`, which goes on afterwards."""
    if span is INVALID_SPAN:
        return nullcontext()
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


def end(span: Span, failure: str = "") -> None:
    """`failure`: the kind of an error, or its code."""
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
    """`begin`, and `end` with what is inside."""
    with _current(begin(name, kind, **attributes)):
        yield


def job(name: str) -> AbstractContextManager[None]:
    """Of one that a request has led to. What a schedule does every few seconds is no trace."""
    return span(name, SpanKind.CONSUMER) if "request_id" in known() else nullcontext()


def note(**attributes: str | int | float) -> None:
    """Of the span at hand."""
    at_hand = trace.get_current_span()
    for key, value in attributes.items():
        at_hand.set_attribute(key.replace("__", "."), value)


def headers() -> dict[str, str]:
    """What a server is told that is asked now; nothing while there are no traces."""
    told: dict[str, str] = {}
    if _made is not None:
        _W3C.inject(told)
    return told
