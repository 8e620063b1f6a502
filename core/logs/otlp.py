"""Export spans in batches, by OpenTelemetry's protocol over HTTP, on a background thread. No request waits for it.

While the collector is unavailable, 2,048 spans are kept and further ones are dropped. This module is loaded only if
`OTEL_EXPORTER_OTLP_ENDPOINT` is set. It registers nothing with OpenTelemetry's globals, so libraries add no spans of
their own, which would reveal more than ours.
"""

from django.conf import settings
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, TraceIdRatioBased

from core.logs import tracing

EXPORT_SECONDS = 5.0  # the collector's time limit for a batch


def use() -> None:
    """Export the spans of `core.logs.tracing`."""
    tracing.use(lambda: sampled_tracer(provider()))


def provider() -> TracerProvider:
    """Return a provider whose spans have OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, as the standard requires."""
    process = Resource.create()
    if str(process.attributes["service.name"]).startswith("unknown_service"):
        process = process.merge(Resource({"service.name": "glasshouse"}))
    tracers = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.OTEL_TRACES_SAMPLER_ARG)),
        resource=process,
        id_generator=_RequestIdGenerator(),
    )
    exporter = OTLPSpanExporter(tracing.address(), headers=tracing.credentials(), timeout=EXPORT_SECONDS)
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    return tracers


def sampled_tracer(tracers: TracerProvider) -> tracing.SampledTracer:
    """Return the tracer of a provider with its sampling rule."""

    def is_sampled(trace_id: int) -> bool:
        return tracers.sampler.should_sample(None, trace_id, "").decision == Decision.RECORD_AND_SAMPLE

    return tracing.SampledTracer(tracers.get_tracer("glasshouse"), is_sampled)


class _RequestIdGenerator(RandomIdGenerator):
    """Gives a request's trace and its first span the ids of `core.logs.tracing.preset_ids`, other spans random ones."""

    def generate_trace_id(self) -> int:
        return tracing.preset_ids()[0] or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return tracing.preset_ids()[1] or super().generate_span_id()

    def is_trace_id_random(self) -> bool:
        return False
