"""What the workspace did in the last days and does now, for the start page of the admin.

Each is a few queries over the sums of these days (`chat.ledger.sums`), or over the newest rows of theirs. Turns are
found by the time inside their ids.
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
from chat.ledger.services import Figures, midnight
from chat.ledger.sums import Used
from chat.models import Message, Turn
from core.ids import id_at
from core.sentences import NO_SENTENCE, Sentence

SHOWN = 8  # rows of a table
NEWEST = 500  # turns that are looked at
ASKING = [{"approval": "waiting"}]  # is among the parts of an answer whose person is asked for leave
LONGEST = 1000  # characters of a failure's sentence


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
        return (self.first + timedelta(days=each) for each in range(self.number))

    @property
    def calls(self) -> QuerySet[ModelCall]:
        return ModelCall.objects.filter(created__gte=self.since)

    @cached_property
    def used(self) -> Used:
        return Used(self.first, None, self.zone)

    @property
    def turns(self) -> QuerySet[Turn]:
        return Turn.objects.filter(pk__gte=id_at(self.since))


@dataclass(frozen=True, slots=True)
class Day:
    """`people`: how many asked a model."""

    day: date
    people: int
    figures: Figures


def by_day(days: Days) -> list[Day]:
    """Every day, also those without a call. Answers are counted by their first calls, runs' included."""
    figures, people = days.used.by("day_id"), days.used.people()
    return [Day(day, people.get(day, 0), figures.get(day, Figures())) for day in days]


def active_people(days: Days) -> int:
    """How many of those who are there have asked a model. Of each the index has the newest call first."""
    calls = ModelCall.objects.filter(person=OuterRef("pk")).order_by("-created")
    people = get_user_model().objects.alias(asked=Subquery(calls.values("created")[:1]))
    return people.filter(asked__gte=days.since).count()


@dataclass(frozen=True, slots=True)
class Failure:
    """Turns that failed alike; `sentence` is that of the newest."""

    provider: str
    model: str
    model_id: UUID | None
    code: str
    count: int
    sentence: Sentence


def failures(days: Days) -> list[Failure]:
    """Most frequent first, of the newest `NEWEST`; interrupted answers are among them."""
    rows = days.turns.filter(status__in=Turn.BROKEN).order_by("-pk")
    named = rows.values_list("model__provider__name", "model__name", "model_id", "answer__error_code", "answer_id")
    counts: Counter[tuple[Any, ...]] = Counter()
    newest: dict[tuple[Any, ...], UUID] = {}
    for *alike, answer in named[:NEWEST]:
        counts[tuple(alike)] += 1
        newest.setdefault(tuple(alike), answer)
    shown = counts.most_common(SHOWN)
    answers = Message.objects.filter(pk__in=[newest[alike] for alike, _ in shown])
    said = {answer.pk: answer.error_detail.shortened(LONGEST) for answer in answers.only("pk", "error_detail")}
    return [
        Failure(provider or "", model or "", pk, code, count, said.get(newest[provider, model, pk, code], NO_SENTENCE))
        for (provider, model, pk, code), count in shown
    ]


@dataclass(frozen=True, slots=True)
class Waits:
    """Of `turns`, in seconds: what half of them and what 19 of 20 took at most; None where there are none."""

    name: str
    turns: int
    half: float | None
    most: float | None
    model_id: UUID | None = None


def _waits(name: str, seconds: Iterable[float], model_id: UUID | None = None) -> Waits:
    found = sorted(seconds)
    if not found:
        return Waits(name, 0, None, None)
    return Waits(name, len(found), found[(len(found) - 1) // 2], found[(len(found) * 19 - 1) // 20], model_id)


def waits(days: Days) -> tuple[list[Waits], Waits]:
    """From asking to the first token by model, and from asking to stop to its end: of the newest `NEWEST` turns."""
    rows = days.turns.order_by("-pk")
    timed = rows.values_list("model_id", "model__name", "first_token_ms", "stop_asked", "finished")
    first: dict[tuple[UUID | None, str], list[float]] = {}
    stopped = []
    for model_id, model, milliseconds, asked, finished in timed[:NEWEST]:
        if milliseconds is not None:
            first.setdefault((model_id, model or ""), []).append(milliseconds / 1_000)
        if asked is not None and finished is not None:
            stopped.append(max(0.0, (finished - asked).total_seconds()))
    by_model = sorted(first.items(), key=lambda item: -len(item[1]))[:SHOWN]
    return [_waits(model, seconds, pk) for (pk, model), seconds in by_model], _waits("", stopped)


@dataclass(frozen=True, slots=True)
class Now:
    """Answers that wait, are written, and ask their person; `oldest`: since when the first of those that wait does."""

    queued: int
    running: int
    asking: int
    oldest: datetime | None


def now() -> Now:
    live = Turn.objects.live()
    asking = Q(answer__parts__contains=ASKING)
    counts: Mapping[str, Any] = live.aggregate(
        queued=Count("pk", filter=Q(status=Turn.Status.QUEUED)),
        running=Count("pk", filter=Q(status=Turn.Status.RUNNING)),
        asking=Count("pk", filter=asking),
        oldest=Min("created", filter=Q(status=Turn.Status.QUEUED)),
    )
    return Now(**counts)
