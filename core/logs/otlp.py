"""How spans leave: in batches, by OpenTelemetry's protocol over HTTP, on a thread that nothing waits for.

A server that is away costs its spans: there is room for 2,048 of them, and what comes then is dropped. This is loaded
only where `OTEL_EXPORTER_OTLP_ENDPOINT` is set. Nothing is registered with OpenTelemetry's globals, so no library
begins spans of its own, which would say more than ours do.
"""

from django.conf import settings
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, TraceIdRatioBased

from core.logs import tracing

PATIENCE = 5.0  # seconds that the server has for a batch


def use() -> None:
    tracing.use(lambda: made(provider()))


def provider() -> TracerProvider:
    """Its spans say of the process what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say, as everywhere."""
    process = Resource.create()
    if str(process.attributes["service.name"]).startswith("unknown_service"):
        process = process.merge(Resource({"service.name": "glasshouse"}))
    made = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.OTEL_TRACES_SAMPLER_ARG)),
        resource=process,
        id_generator=_Ids(),
    )
    exporter = OTLPSpanExporter(tracing.address(), headers=tracing.credentials(), timeout=PATIENCE)
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made


def made(of: TracerProvider) -> tracing.Made:
    def sampled(trace_id: int) -> bool:
        return of.sampler.should_sample(None, trace_id, "").decision == Decision.RECORD_AND_SAMPLE

    return of.get_tracer("glasshouse"), sampled


class _Ids(RandomIdGenerator):
    """Those that a request's trace and its first span have to get, see `core.logs.tracing`."""

    def generate_trace_id(self) -> int:
        return tracing.wanted()[0] or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return tracing.wanted()[1] or super().generate_span_id()

    def is_trace_id_random(self) -> bool:
        return False
