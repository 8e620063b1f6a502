"""The sums of days that are over, so that nobody adds up their calls again.

A sweep makes them, day after day from the first call on. What it has not come to is added up where it is asked for, so
every figure is that of the calls at any time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from decimal import Decimal
from functools import cached_property
from itertools import chain
from typing import Any, Self
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from chat.models import ModelCall, PersonSum, UsageDay, UsageSum
from chat.usage.services import between, midnight
from core.locks import lock

SETTLED = timedelta(hours=1)  # after a day's end: until then one of its calls may be on its way into the database
NAMES = ("model_id", "provider_name", "model_name", "persona_id")
OF_CALLS: Mapping[str, Any] = {
    "calls": Count("pk"),
    "answers": Count("pk", filter=Q(number=1, purpose__in=[ModelCall.Purpose.ANSWER, ModelCall.Purpose.RUN])),
    "input": Sum("input"),
    "output": Sum("output"),
    "cost": Sum("cost"),
}
OF_SUMS: Mapping[str, Any] = {name: Sum(name) for name in OF_CALLS}


@dataclass(frozen=True, slots=True)
class Figures:
    """`input` and `output` are tokens; `cost` is in US dollars, None where no call had a price."""

    calls: int = 0
    answers: int = 0
    input: int = 0
    output: int = 0
    cost: Decimal | None = None

    def __add__(self, other: Self) -> Self:
        priced = [each for each in (self.cost, other.cost) if each is not None]
        return type(self)(
            self.calls + other.calls,
            self.answers + other.answers,
            self.input + other.input,
            self.output + other.output,
            sum(priced, Decimal(0)) if priced else None,
        )


def sum_days() -> int:
    """Adds up every day that is over and has no sums yet; says how many these were."""
    done = 0
    while _sum_next_day(timezone.get_default_timezone()):
        done += 1
    return done


@transaction.atomic
def _sum_next_day(zone: tzinfo) -> bool:
    lock("usage-days")
    # Of before the workspace was given another time zone, and of before sums of people were kept.
    UsageDay.objects.exclude(zone=str(zone), by_person=True).delete()
    day = _next_day(zone)
    if day is None:
        return False
    if timezone.now() < midnight(day + timedelta(days=1), zone) + SETTLED:
        return False
    calls = between(ModelCall.objects.order_by(), zone, day, day)
    people = calls.aggregate(people=Count("person", distinct=True))["people"]
    row = UsageDay.objects.create(day=day, zone=str(zone), people=people, by_person=True)
    UsageSum.objects.bulk_create(UsageSum(day=row, **sums) for sums in calls.values(*NAMES).annotate(**OF_CALLS))
    PersonSum.objects.bulk_create(PersonSum(day=row, **sums) for sums in calls.values("person_id").annotate(**OF_CALLS))
    return True


def _next_day(zone: tzinfo) -> date | None:
    last = _last_day(zone)
    if last is not None:
        return last + timedelta(days=1)
    first = ModelCall.objects.aggregate(first=Min("created"))["first"]
    return timezone.localdate(first, zone) if first is not None else None


def _last_day(zone: tzinfo) -> date | None:
    found: date | None = UsageDay.objects.filter(zone=str(zone), by_person=True).aggregate(last=Max("day"))["last"]
    return found


class Used:
    """What was used from `first`, a day of `zone`, until now."""

    def __init__(self, first: date, zone: tzinfo) -> None:
        last = _last_day(zone)
        self._later = first if last is None else max(first, last + timedelta(days=1))  # the first day without sums
        summed = {"day__gte": first, "day__lt": self._later}
        self._sums = UsageSum.objects.filter(**summed)
        self._sums_of_people = PersonSum.objects.filter(**summed)
        self._days = UsageDay.objects.filter(**summed)
        self._zone = zone

    @cached_property
    def _calls(self) -> QuerySet[Any, Any]:
        calls = between(ModelCall.objects.order_by(), self._zone, self._later, None)
        return calls.annotate(day_id=TruncDate("created", tzinfo=self._zone))

    @cached_property
    def _called(self) -> list[dict[str, Any]]:
        return list(self._calls.values("day_id", *NAMES).annotate(**OF_CALLS))

    def by(self, *names: str) -> dict[Any, Figures]:
        """By what stands in these columns of `UsageSum`, the value or a tuple of several."""
        return _together(names, self._sums.values(*names).annotate(**OF_SUMS), self._called)

    def by_person(self) -> dict[UUID | None, Figures]:
        """By key; None is everybody who is gone."""
        names = ["person_id"]
        stored, later = (rows.values(*names) for rows in (self._sums_of_people, self._calls))
        return _together(names, stored.annotate(**OF_SUMS), later.annotate(**OF_CALLS))

    def people(self) -> dict[date, int]:
        """How many asked a model, by day."""
        later = self._calls.values_list("day_id").annotate(Count("person", distinct=True))
        return dict(self._days.values_list("day", "people")) | dict(later)


def _together(names: Sequence[str], *rows: Iterable[dict[str, Any]]) -> dict[Any, Figures]:
    found: defaultdict[Any, Figures] = defaultdict(Figures)
    for row in chain.from_iterable(rows):
        key = tuple(row[name] for name in names)
        found[key if len(key) > 1 else key[0]] += Figures(**{name: row[name] for name in OF_CALLS})
    return dict(found)
