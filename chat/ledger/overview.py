"""Compute usage figures of the last days and of the present, for the start page of the admin.

Each function makes a few queries over the sums of these days (`chat.ledger.sums`) or over their newest rows. Turns are
selected by the time in their ids.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Count, Min, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from chat.ledger.models import ModelCall
from chat.ledger.services import UsageFigures, midnight
from chat.ledger.sums import UsageReport
from chat.models import Message, Turn
from core.ids import id_at
from core.sentences import NO_SENTENCE, Sentence

ROWS_PER_TABLE = 8  # rows of a table
NEWEST = 500  # most recent turns that are read
ASKING = [{"approval": "waiting"}]  # a part of an answer that waits for the user's permission to call a tool
MAX_LENGTH = 1000  # characters of a failure's sentence


@dataclass(frozen=True)
class Days:
    """The last `number` days of `zone`, today included."""

    number: int
    zone: tzinfo

    @property
    def first(self) -> date:
        return timezone.localdate(timezone=self.zone) - timedelta(days=self.number - 1)

    @property
    def since(self) -> datetime:
        return midnight(self.first, self.zone)

    def __iter__(self) -> Iterator[date]:
        return (self.first + timedelta(days=offset) for offset in range(self.number))

    @property
    def calls(self) -> QuerySet[ModelCall]:
        return ModelCall.objects.filter(created__gte=self.since)

    @cached_property
    def usage(self) -> UsageReport:
        return UsageReport(self.first, None, self.zone)

    @property
    def turns(self) -> QuerySet[Turn]:
        return Turn.objects.filter(pk__gte=id_at(self.since))


@dataclass(frozen=True, slots=True)
class Day:
    """Usage of one day. `people`: number of users who asked a model."""

    day: date
    people: int
    figures: UsageFigures


def by_day(days: Days) -> list[Day]:
    """Return every day, also days without a call. Answers, also those of runs, are counted by their first calls."""
    figures = days.usage.by("day_id")
    people = days.usage.people()
    return [Day(day, people.get(day, 0), figures.get(day, UsageFigures())) for day in days]


def active_people(days: Days) -> int:
    """Return the number of users who asked a model in these days.

    The subquery reads one entry of the index for each user: the newest call.
    """
    calls = ModelCall.objects.filter(person=OuterRef("pk")).order_by("-created")
    people = get_user_model().objects.alias(asked=Subquery(calls.values("created")[:1]))
    return people.filter(asked__gte=days.since).count()


@dataclass(frozen=True, slots=True)
class Failure:
    """Turns that failed with the same model and error code. `sentence` is the error of the newest one."""

    provider: str
    model: str
    model_id: UUID | None
    code: str
    count: int
    sentence: Sentence


def failures(days: Days) -> list[Failure]:
    """Return the failures among the newest `NEWEST` broken turns, most frequent first. Interruptions are included."""
    rows = days.turns.filter(status__in=Turn.BROKEN).order_by("-pk")
    named = rows.values_list("model__provider__name", "model__name", "model_id", "answer__error_code", "answer_id")
    counts: Counter[tuple[Any, ...]] = Counter()
    newest: dict[tuple[Any, ...], UUID] = {}
    for *key, answer in named[:NEWEST]:
        counts[tuple(key)] += 1
        newest.setdefault(tuple(key), answer)
    shown = counts.most_common(ROWS_PER_TABLE)
    answers = Message.objects.filter(pk__in=[newest[key] for key, _ in shown])
    details = {answer.pk: answer.error_detail.shortened(MAX_LENGTH) for answer in answers.only("pk", "error_detail")}
    return [
        Failure(
            provider or "", model or "", pk, code, count, details.get(newest[provider, model, pk, code], NO_SENTENCE)
        )
        for (provider, model, pk, code), count in shown
    ]


@dataclass(frozen=True, slots=True)
class Waits:
    """Median (`half`) and 95th percentile (`most`) of a wait of `turns` turns, in seconds; None without turns."""

    name: str
    turns: int
    half: float | None
    most: float | None
    model_id: UUID | None = None


def _waits(name: str, seconds: Iterable[float], model_id: UUID | None = None) -> Waits:
    times = sorted(seconds)
    if not times:
        return Waits(name, 0, None, None)
    return Waits(name, len(times), times[(len(times) - 1) // 2], times[(len(times) * 19 - 1) // 20], model_id)


def waits(days: Days) -> tuple[list[Waits], Waits]:
    """Return the times to the first token by model, and the times that a stop took, of the newest `NEWEST` turns."""
    rows = days.turns.order_by("-pk")
    timed = rows.values_list("model_id", "model__name", "first_token_ms", "stop_asked", "finished")
    first: dict[tuple[UUID | None, str], list[float]] = {}
    stopped = []
    for model_id, model, milliseconds, stop_requested, finished in timed[:NEWEST]:
        if milliseconds is not None:
            first.setdefault((model_id, model or ""), []).append(milliseconds / 1_000)
        if stop_requested is not None and finished is not None:
            stopped.append(max(0.0, (finished - stop_requested).total_seconds()))
    by_model = sorted(first.items(), key=lambda item: -len(item[1]))[:ROWS_PER_TABLE]
    return [_waits(model, seconds, pk) for (pk, model), seconds in by_model], _waits("", stopped)


@dataclass(frozen=True, slots=True)
class LiveTurns:
    """Numbers of live turns: queued, running, and waiting for a decision of their user.

    `oldest`: creation time of the oldest queued turn.
    """

    queued: int
    running: int
    asking: int
    oldest: datetime | None


def live_turns() -> LiveTurns:
    live = Turn.objects.live()
    asking = Q(answer__parts__contains=ASKING)
    counts: Mapping[str, Any] = live.aggregate(
        queued=Count("pk", filter=Q(status=Turn.Status.QUEUED)),
        running=Count("pk", filter=Q(status=Turn.Status.RUNNING)),
        asking=Count("pk", filter=asking),
        oldest=Min("created", filter=Q(status=Turn.Status.QUEUED)),
    )
    return LiveTurns(counts["queued"], counts["running"], counts["asking"], counts["oldest"])
