"""What calls took and cost by what they have in common, without adding up those of days that are over again and again.

A sweep sums each such day once, day after day from the first call on. What it has not come to is added up where it is
asked for, so every figure is that of the calls at any time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from functools import cached_property
from itertools import chain
from typing import Any

from django.db import models, transaction
from django.db.models import Count, Max, Min, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from accounts.models import ApiToken, PeopleGroup, User
from chat.models import Conversation, ModelCall, PersonSum, PlaceSum, UsageDay, UsageSum
from chat.usage.services import LAST_DAY, OF_CALLS, Figures, between, midnight
from core.locks import lock
from personas.models import Persona
from projects.models import Project

SETTLED = timedelta(hours=1)  # after a day's end: until then one of its calls may be on its way into the database
NAMES = ("model_id", "provider_name", "model_name", "persona_id", "purpose")
# The rows that a day is summed in, and by what.
STORED: Mapping[type[models.Model], tuple[str, ...]] = {
    UsageSum: NAMES,
    PersonSum: ("person_id",),
    PlaceSum: ("project_id", "group_id", "token_id"),
}
_CALLED_BY = ("day_id", *NAMES)
OF_SUMS: Mapping[str, Any] = {name: Sum(name) for name in OF_CALLS}
# What calls are summed by: the columns, and where what has the key has its name.
KINDS: Mapping[str, tuple[str, ...]] = {
    "day": ("day_id",),
    "model": ("model_id", "provider_name", "model_name"),
    "user": ("person_id",),
    "group": ("group_id",),
    "conversation": ("conversation_id",),
    "project": ("project_id",),
    "persona": ("persona_id",),
    "token": ("token_id",),
    "purpose": ("purpose",),
}
_NAMED: Mapping[str, tuple[type[models.Model], str]] = {
    "user": (User, "username"),
    "group": (PeopleGroup, "name"),
    "conversation": (Conversation, "title"),
    "project": (Project, "name"),
    "persona": (Persona, "name"),
    "token": (ApiToken, "name"),
}


def sum_days() -> int:
    """Adds up every day that is over and has no sums yet; says how many these were."""
    done = 0
    while _sum_next_day(timezone.get_default_timezone()):
        done += 1
    return done


@transaction.atomic
def _sum_next_day(zone: tzinfo) -> bool:
    lock("usage-days")
    # Of before the workspace was given another time zone, and of a version that summed less of it.
    UsageDay.objects.exclude(zone=str(zone), whole=True).delete()
    day = _next_day(zone)
    if day is None:
        return False
    if timezone.now() < midnight(day + timedelta(days=1), zone) + SETTLED:
        return False
    calls = between(ModelCall.objects.order_by(), zone, day, day)
    people = calls.aggregate(people=Count("person", distinct=True))["people"]
    row = UsageDay.objects.create(day=day, zone=str(zone), people=people, by_person=True, whole=True)
    for kind, names in STORED.items():
        rows = [kind(day=row, **sums) for sums in calls.values(*names).annotate(**OF_CALLS)]
        kind._default_manager.bulk_create(rows)
    return True


def _next_day(zone: tzinfo) -> date | None:
    last = _last_day(zone)
    if last is not None:
        return last + timedelta(days=1)
    first = ModelCall.objects.aggregate(first=Min("created"))["first"]
    return timezone.localdate(first, zone) if first is not None else None


def _last_day(zone: tzinfo) -> date | None:
    found: date | None = UsageDay.objects.filter(zone=str(zone), whole=True).aggregate(last=Max("day"))["last"]
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """Of a table. `key`: an id, a day, or a purpose; None for what is gone, and where there is none. `name` as it is
    now; None for what is gone."""

    key: Any
    name: str | None
    figures: Figures


class Used:
    """What was used from the day `first` to the day `last`, both included; None leaves that end open.

    Days are those of `zone`. `calls`: the ones that count, without it all of the workspace. These alone are summed by
    the sweep, and in the workspace's time zone alone.
    """

    def __init__(
        self, first: date | None, last: date | None, zone: tzinfo, calls: QuerySet[ModelCall] | None = None
    ) -> None:
        summed = _last_day(zone) if calls is None and zone == timezone.get_default_timezone() else None
        self._later = first if summed is None else max(first or date.min, summed + timedelta(days=1))
        within = {"day__lt": self._later or date.min, "day__lte": last or LAST_DAY, "day__gte": first or date.min}
        self._stored = {kind: kind._default_manager.filter(**within) for kind in STORED}
        self._days = UsageDay.objects.filter(**within)
        self._of_all = calls is None
        rows: Any = (ModelCall.objects.all() if calls is None else calls).order_by()
        every = rows.annotate(day_id=TruncDate("created", tzinfo=zone))
        self._every: QuerySet[Any, Any] = between(every, zone, first, last)
        self._calls: QuerySet[Any, Any] = between(every, zone, self._later, last)

    def by(self, *names: str) -> dict[Any, Figures]:
        """By what stands in these columns of `ModelCall`, or in its `day_id`: the value, or a tuple of several."""
        stored = next((kind for kind, columns in STORED.items() if {*names} <= {*columns, "day_id"}), None)
        if stored is None:  # as by conversation: of one person these are few
            return _together(len(names), [self._every.values_list(*names).annotate(**OF_CALLS)])
        later = self._called_by(names) if stored is UsageSum else self._calls.values_list(*names).annotate(**OF_CALLS)
        return _together(len(names), [self._stored[stored].values_list(*names).annotate(**OF_SUMS), later])

    def _called_by(self, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        places = [_CALLED_BY.index(name) for name in names]
        return ((*(row[at] for at in places), *row[len(_CALLED_BY) :]) for row in self._called)

    @cached_property
    def _called(self) -> list[tuple[Any, ...]]:
        """Several tables of one page need these calls."""
        return list(self._calls.values_list(*_CALLED_BY).annotate(**OF_CALLS))

    def lines(self, kind: str, most: int | None = None) -> list[Line]:
        """By one of `KINDS`, `most` of them: the last days first, of the others the dearest, or without prices the most
        called."""
        found = self.by(*KINDS[kind])
        if kind == "day":
            return [Line(day, f"{day}", found[day]) for day in sorted(found, reverse=True)[:most]]
        shown = sorted(found, key=lambda key: _dearest(found[key], key))[:most]
        if kind == "model":
            return [Line(pk, f"{provider}: {name}", found[pk, provider, name]) for pk, provider, name in shown]
        names = self._names(kind, shown)
        return [Line(key, names.get(key), found[key]) for key in shown]

    def _names(self, kind: str, keys: Collection[Any]) -> dict[Any, str]:
        """As they are called now, of those that are there. What a person called a persona that is theirs alone is none
        of a table of the workspace."""
        if kind not in _NAMED:
            return {key: str(key) for key in keys}
        rows, name = _NAMED[kind]
        found = rows._default_manager.filter(pk__in=[key for key in keys if key is not None])
        if kind == "persona" and self._of_all:
            found = found.filter(visibility=Persona.Visibility.WORKSPACE)
        return dict(found.values_list("pk", name))

    def total(self) -> Figures:
        return sum(self.by("day_id").values(), Figures())

    def people(self) -> dict[date, int]:
        """How many asked a model, by day."""
        later = self._calls.values_list("day_id").annotate(Count("person", distinct=True))
        return dict(self._days.values_list("day", "people")) | dict(later)


def _dearest(figures: Figures, key: Any) -> tuple[Any, ...]:
    """What sorts them; the key, so that two of a kind keep their places."""
    return (figures.cost is None, -(figures.cost or 0), -figures.calls, str(key))


def _together(size: int, rows: Iterable[Iterable[tuple[Any, ...]]]) -> dict[Any, Figures]:
    """Rows are the key, of so many values, and then figures in their order."""
    found: dict[Any, Figures] = {}
    for row in chain.from_iterable(rows):
        key = row[:size] if size > 1 else row[0]
        figures = Figures(*row[size:])
        found[key] = found[key] + figures if key in found else figures
    return found
