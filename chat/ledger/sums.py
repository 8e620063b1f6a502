"""What calls took and cost by what they have in common, without adding up those of days that are over again and again.

A sweep sums each such day once, day after day from the first call on. What it has not come to is added up where it is
asked for, so every figure is that of the calls at any time.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from itertools import chain
from types import MappingProxyType
from typing import Any

from django.db import models, transaction
from django.db.models import Count, Max, Min, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from accounts.models import ApiToken, PeopleGroup, User
from chat.ledger.models import ModelCall, PersonSum, PlaceSum, UsageDay, UsageSum
from chat.ledger.services import LAST_DAY, OF_CALLS, Figures, between, midnight
from chat.models import Conversation
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
# Calls that no sums hold are added up by these at once: a page shows several tables of them.
_TOGETHER = (("day_id", *NAMES), ("person_id", "project_id", "group_id", "token_id"))
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

    Days are those of `zone`; those of the workspace's time zone alone are summed by the sweep. `only`: look-ups of
    the calls that count, which begin with columns of `ModelCall` (`person_id`, `person__username`); without it all of
    the workspace. Sums that do not know one of these columns say nothing of them, and then calls are added up.
    """

    def __init__(
        self, first: date | None, last: date | None, zone: tzinfo, only: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        summed = _last_day(zone) if zone == timezone.get_default_timezone() else None
        later = first if summed is None else max(first or date.min, summed + timedelta(days=1))
        self._within = {"day__lt": later or date.min, "day__lte": last or LAST_DAY, "day__gte": first or date.min}
        self._only = only
        rows: Any = ModelCall.objects.filter(**only).order_by()
        dated = rows.annotate(day_id=TruncDate("created", tzinfo=zone))
        # All of them, and those of days that are not summed.
        self._every: QuerySet[Any, Any] = between(dated, zone, first, last)
        self._later: QuerySet[Any, Any] = between(dated, zone, later, last)
        self._added_up: dict[tuple[tuple[str, ...], bool], list[tuple[Any, ...]]] = {}

    def by(self, *names: str) -> dict[Any, Figures]:
        """By what stands in these columns of `ModelCall`, or in its `day_id`: the value, or a tuple of several."""
        known = {*names, *map(_column, self._only)}
        kind = next((kind for kind, columns in STORED.items() if known <= {*columns, "day_id"}), None)
        rows: list[Iterable[tuple[Any, ...]]] = [self._called(names, every=kind is None)]
        if kind is not None:
            sums = kind._default_manager.filter(**self._within, **self._only)
            rows.append(sums.values_list(*names).annotate(**OF_SUMS))
        return _together(len(names), rows)

    def _called(self, names: tuple[str, ...], *, every: bool) -> Iterable[tuple[Any, ...]]:
        """Calls added up, all or those of days that are not summed; once for the tables that need the same ones."""
        columns = next((each for each in _TOGETHER if {*names} <= {*each}), names)
        if (columns, every) not in self._added_up:
            calls = self._every if every else self._later
            self._added_up[columns, every] = list(calls.values_list(*columns).annotate(**OF_CALLS))
        places = [columns.index(name) for name in names]
        return ((*(row[at] for at in places), *row[len(columns) :]) for row in self._added_up[columns, every])

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
        if kind == "persona" and not self._only:
            found = found.filter(visibility=Persona.Visibility.WORKSPACE)
        return dict(found.values_list("pk", name))

    def total(self) -> Figures:
        return sum(self.by("day_id").values(), Figures())

    def people(self) -> dict[date, int]:
        """How many asked a model, by day; of all calls alone."""
        later = self._later.values_list("day_id").annotate(Count("person", distinct=True))
        return dict(UsageDay.objects.filter(**self._within).values_list("day", "people")) | dict(later)


def _column(lookup: str) -> str:
    """Of `ModelCall`: the one that a look-up begins with."""
    field: Any = ModelCall._meta.get_field(lookup.partition("__")[0])
    return str(field.attname)


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
