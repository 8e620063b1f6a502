"""`/metrics` for Prometheus: the load of the workspace, and its queues.

The scrape token (`METRICS_TOKEN`) may read it. Staff who may see model calls can read it with a session or a token of
scope `admin`. Tables that grow without bound are not counted in full: only turns and files of the last hour are, by the
time inside their ids. The metrics of one process are in `core.logs.metrics`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from celery import current_app
from django.db.models import BigIntegerField, Count, Min, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from kombu.exceptions import ChannelError, OperationalError
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from redis.exceptions import RedisError
from rest_framework.request import Request

from accounts.access.api_views import ScopedView
from accounts.models import WebhookDelivery
from chat.ledger.models import ModelCall
from chat.models import Turn
from core import background
from core.errors import ProductError
from core.ids import id_at
from core.logs.metrics import may_read
from core.permissions import has_right
from files.index.chunks import files_with_outdated_chunks
from files.index.indexing import files_with_outdated_words
from files.models import File

VERSION = "1"
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RECENT = timedelta(hours=1)

Sample = tuple[Mapping[str, str], float]


def metrics(request: HttpRequest) -> HttpResponseBase:
    """Return the metrics for the scrape token. `MetricsView` answers all other requests."""
    if may_read(request.headers.get("Authorization", "")):
        return _metrics()
    return _for_staff(request)


class MetricsView(ScopedView):
    scope = "admin"

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        if not has_right(self.person, "view", ModelCall):
            sentence = (
                "Only administrators with the right “chat.view_modelcall” may read the metrics. Ask a superuser for it."
            )
            raise ProductError("right_missing", sentence, status=403)
        return _metrics()


_for_staff = MetricsView.as_view()


def _metrics() -> HttpResponse:
    """Return the metrics of the workspace, which are the same at each web process, and the metrics of this process."""
    workspace_registry = CollectorRegistry()
    workspace_registry.register(_WorkspaceCollector())
    return HttpResponse(generate_latest(workspace_registry) + generate_latest(REGISTRY), content_type=MEDIA_TYPE)


class _WorkspaceCollector(Collector):
    """Reads the workspace's metrics when Prometheus scrapes them."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        now = timezone.now()
        yield _metric("info", "The version of the interfaces.", [({"version": VERSION}, 1)])
        yield from _workers()
        yield _metric("queue_length", "Turns and background tasks that wait for a worker.", _queues())
        yield from _turns(now)
        yield from _files(now)
        waiting = WebhookDelivery.objects.filter(status=WebhookDelivery.Status.WAITING).count()
        yield _metric("webhook_deliveries_waiting", "Deliveries that wait for a try.", [({}, waiting)])


def _turns(now: datetime) -> Iterator[GaugeMetricFamily]:
    live = Turn.objects.live()
    counts = dict(live.values_list("status").annotate(Count("pk")))
    oldest = live.filter(status=Turn.Status.QUEUED).aggregate(Min("created"))["created__min"]
    yield _metric("live_turns", "Answers that wait or are written, by status.", _by("status", Turn.LIVE, counts))
    yield _metric(
        "oldest_queued_turn_seconds",
        "How long the first of those that wait has waited.",
        [({}, (now - oldest).total_seconds() if oldest else 0)],
    )
    recent = Turn.objects.filter(pk__gte=id_at(now - RECENT))
    ended = dict(recent.values_list("status").annotate(Count("pk")))
    yield _metric("turns_last_hour", "Turns begun in the last hour, by status.", _by("status", Turn.Status, ended))
    tokens = recent.aggregate(
        input=_sum_of_usage("input"),
        output=_sum_of_usage("output"),
        cached_input=_sum_of_usage("cached_input"),
        reasoning=_sum_of_usage("reasoning"),
    )
    used = [({"kind": name}, number or 0) for name, number in tokens.items()]
    yield _metric("tokens_last_hour", "Tokens of these turns, as providers count them.", used)


def _sum_of_usage(name: str) -> Sum:
    return Sum(Cast(KeyTextTransform(name, "usage"), BigIntegerField()))


def _files(now: datetime) -> Iterator[GaugeMetricFamily]:
    recent = File.objects.filter(pk__gte=id_at(now - RECENT))
    counts = dict(recent.values_list("status").annotate(Count("pk")))
    size = recent.aggregate(Sum("size"))["size__sum"] or 0
    yield _metric("uploads_last_hour", "Files of the last hour, by status.", _by("status", File.Status, counts))
    yield _metric("uploaded_bytes_last_hour", "Their bytes.", [({}, size)])
    older = [
        ({"what": "chunks"}, files_with_outdated_chunks().count()),
        ({"what": "words"}, files_with_outdated_words().count()),
    ]
    yield _metric("files_to_index_again", "Files that an older version has indexed. Search uses that meanwhile.", older)


def _workers() -> Iterator[GaugeMetricFamily]:
    try:
        worker_ages = background.report_ages()
    except RedisError:
        worker_ages = {}
    limit = background.DEAD_AFTER
    up = {queue: worker_ages.get(queue, limit) < limit for queue in background.QUEUES}
    yield _metric("worker_up", "1 when workers of all queues have reported within 20 s.", [({}, all(up.values()))])
    yield _metric(
        "queue_worker_up", "1 when a worker of the queue has reported within 20 s.", _by("queue", background.QUEUES, up)
    )
    ages = [({"queue": queue}, age) for queue, age in worker_ages.items()]
    yield _metric("queue_worker_heard_seconds", "Seconds since the last report of a worker of the queue.", ages)


def _queues() -> list[Sample]:
    """Return the lengths of the queues from the broker and Redis. Returns no sample if either is unavailable."""
    connection: Any = current_app.connection_for_read()  # each kind of broker has its own type of channel
    try:
        with connection:
            connection.ensure_connection(max_retries=1, timeout=2)
            lengths = {"turns": background.TURNS.length(), "background": _length(connection, "background")}
    except (OSError, OperationalError, RedisError):
        return []
    return [({"queue": queue}, length) for queue, length in lengths.items()]


def _length(connection: Any, queue: str) -> int:
    """Return the length of a queue. It is 0 for a queue that does not exist yet, because no task was ever added."""
    try:
        return int(connection.channel().queue_declare(queue=queue, passive=True).message_count)
    except ChannelError:
        return 0


def _by(label: str, values: Iterable[str], counts: Mapping[Any, int]) -> list[Sample]:
    """Return a sample for each value.

    A value that does not occur gets 0, since series with gaps are hard to monitor.
    """
    return [({label: str(value)}, counts.get(str(value), 0)) for value in values]


def _metric(name: str, meaning: str, samples: Sequence[Sample]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"glasshouse_{name}", meaning, labels=list(samples[0][0]) if samples else ())
    for labels, value in samples:
        family.add_metric(list(labels.values()), value)
    return family
