"""Usage by day, model, user and other keys, from stored sums of past days and the calls since then.

1. A periodic task (`sum_days`) stores the sums of each past day once, starting with the day of the first call.
2. `UsageReport` adds the stored sums and the calls of later days. So its figures always cover all calls.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from itertools import chain
from types import MappingProxyType
from typing import Any

from django.db import models, transaction
from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from accounts.models import ApiToken, PeopleGroup, User
from chat.ledger.models import ModelCall, PersonSum, PlaceSum, UsageDay, UsageSum
from chat.ledger.services import CALL_AGGREGATES, LAST_DAY, UsageFigures, calls_between, midnight, with_figures
from chat.models import Conversation
from core.locks import lock
from personas.models import Persona
from projects.models import Project

SETTLING_TIME = timedelta(hours=1)  # wait after the end of a day, since its last calls may be stored late
NAME_COLUMNS = ("model_id", "provider_name", "model_name", "persona_id", "purpose")
# The models of stored sums, each with the columns that it is grouped by.
SUM_MODELS: Mapping[type[models.Model], tuple[str, ...]] = {
    UsageSum: NAME_COLUMNS,
    PersonSum: ("person_id",),
    PlaceSum: ("project_id", "group_id", "token_id"),
}
# Column sets for grouping calls without stored sums. One query per set serves several tables of a page.
_GROUPINGS = (("day_id", *NAME_COLUMNS), ("person_id", "project_id", "group_id", "token_id"))
SUM_AGGREGATES: Mapping[str, Any] = {name: Sum(name) for name in CALL_AGGREGATES}
# Kinds of tables, each with its grouping columns.
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
    """Store the sums of every past day that has none. Return the number of these days."""
    done = 0
    while _sum_next_day(timezone.get_default_timezone()):
        done += 1
    return done


@transaction.atomic
def _sum_next_day(zone: tzinfo) -> bool:
    lock("usage-days")
    # Delete sums of an earlier time zone, and of versions of Glasshouse that stored fewer sums.
    UsageDay.objects.exclude(zone=str(zone), whole=True).delete()
    day = _next_day(zone)
    if day is None:
        return False
    if timezone.now() < midnight(day + timedelta(days=1), zone) + SETTLING_TIME:
        return False
    calls = calls_between(ModelCall.objects.order_by(), zone, day, day)
    people = calls.aggregate(people=Count("person", distinct=True))["people"]
    row = UsageDay.objects.create(day=day, zone=str(zone), people=people, by_person=True, whole=True)
    for kind, names in SUM_MODELS.items():
        rows = [kind(day=row, **sums) for sums in with_figures(calls.values(*names))]
        kind._default_manager.bulk_create(rows)
    return True


def _next_day(zone: tzinfo) -> date | None:
    last = _last_day(zone)
    if last is not None:
        return last + timedelta(days=1)
    first = ModelCall.objects.aggregate(first=Min("created"))["first"]
    return timezone.localdate(first, zone) if first is not None else None


def _last_day(zone: tzinfo) -> date | None:
    last: date | None = UsageDay.objects.filter(zone=str(zone), whole=True).aggregate(last=Max("day"))["last"]
    return last


@dataclass(frozen=True, slots=True)
class UsageLine:
    """Row of a usage table.

    `key`: an id, a day, or a purpose. None for deleted rows and for calls without a key. `name`: the current name, but
    for a model its name at the time of the calls. None for deleted rows, and for private personas in a table of the
    workspace.
    """

    key: Any
    name: str | None
    figures: UsageFigures


class UsageReport:
    """Usage from the day `first` to the day `last`, both included. None leaves that end open.

    Days are those of `zone`. Only days of the workspace's time zone have stored sums. `filters`: lookups that
    select calls, such as `person_id` or `person__username`. They begin with columns of `ModelCall`. Without them the
    report covers all calls of the workspace. If stored sums lack one of these columns, the calls themselves are summed.
    """

    def __init__(
        self, first: date | None, last: date | None, zone: tzinfo, filters: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        summed = _last_day(zone) if zone == timezone.get_default_timezone() else None
        later = first if summed is None else max(first or date.min, summed + timedelta(days=1))
        self._within = Q(day__lt=later or date.min, day__lte=last or LAST_DAY, day__gte=first or date.min)
        self._only = Q(*filters.items())
        self._only_columns = {_column(lookup) for lookup in filters}
        rows: Any = ModelCall.objects.filter(self._only).order_by()
        dated = rows.annotate(day_id=TruncDate("created", tzinfo=zone))
        # `_all_calls`: all calls. `_unsummed_calls`: calls of days without stored sums.
        self._all_calls: QuerySet[Any, Any] = calls_between(dated, zone, first, last)
        self._unsummed_calls: QuerySet[Any, Any] = calls_between(dated, zone, later, last)
        self._added_up: dict[tuple[tuple[str, ...], bool], list[tuple[Any, ...]]] = {}

    def by(self, *names: str) -> dict[Any, UsageFigures]:
        """Return the usage by these columns, or `day_id`. Keys are values, or tuples for several columns."""
        needed = {*names, *self._only_columns}
        kind = next((kind for kind, columns in SUM_MODELS.items() if needed <= {*columns, "day_id"}), None)
        rows: list[Iterable[tuple[Any, ...]]] = [self._sum_calls(names, every=kind is None)]
        if kind is not None:
            sums = kind._default_manager.filter(self._within, self._only)
            rows.append(sums.values_list(*names).annotate(**SUM_AGGREGATES))
        return _merge(len(names), rows)

    def _sum_calls(self, names: tuple[str, ...], *, every: bool) -> Iterable[tuple[Any, ...]]:
        """Return the sums of calls by these columns: of all calls with `every`, else of days without stored sums.

        The results for the column sets of `_GROUPINGS` are cached.
        """
        columns = next((each for each in _GROUPINGS if {*names} <= {*each}), names)
        if (columns, every) not in self._added_up:
            calls = self._all_calls if every else self._unsummed_calls
            self._added_up[columns, every] = list(with_figures(calls.values_list(*columns)))
        places = [columns.index(name) for name in names]
        return ((*(row[at] for at in places), *row[len(columns) :]) for row in self._added_up[columns, every])

    def lines(self, kind: str, most: int | None = None) -> list[UsageLine]:
        """Return at most `most` rows of the table `kind` of `KINDS`.

        Days are sorted newest first, other keys by cost, then by number of calls.
        """
        usage = self.by(*KINDS[kind])
        if kind == "day":
            return [UsageLine(day, f"{day}", usage[day]) for day in sorted(usage, reverse=True)[:most]]
        keys = sorted(usage, key=lambda key: _cost_sort_key(usage[key], key))[:most]
        if kind == "model":
            return [UsageLine(pk, f"{provider}: {name}", usage[pk, provider, name]) for pk, provider, name in keys]
        names = self._names(kind, keys)
        return [UsageLine(key, names.get(key), usage[key]) for key in keys]

    def _names(self, kind: str, keys: Collection[Any]) -> dict[Any, str]:
        """Return the current names of the keys that still exist.

        A table of the workspace does not show the names of private personas.
        """
        if kind not in _NAMED:
            return {key: str(key) for key in keys}
        model, name = _NAMED[kind]
        rows = model._default_manager.filter(pk__in=[key for key in keys if key is not None])
        if kind == "persona" and not self._only_columns:
            rows = rows.filter(visibility=Persona.Visibility.WORKSPACE)
        return dict(rows.values_list("pk", name))

    def total(self) -> UsageFigures:
        return sum(self.by("day_id").values(), UsageFigures())

    def people(self) -> dict[date, int]:
        """Return the number of users with calls, by day. Only correct for a report without `filters`."""
        later = self._unsummed_calls.values_list("day_id").annotate(Count("person", distinct=True))
        return dict(UsageDay.objects.filter(self._within).values_list("day", "people")) | dict(later)


def _column(lookup: str) -> str:
    """Return the column of `ModelCall` that a lookup begins with."""
    field: Any = ModelCall._meta.get_field(lookup.partition("__")[0])
    return str(field.attname)


def _cost_sort_key(figures: UsageFigures, key: Any) -> tuple[Any, ...]:
    """Return the sort key of a line, highest cost first. The line's own key makes the order of ties stable."""
    return (figures.cost is None, -(figures.cost or 0), -figures.calls, str(key))


def _merge(size: int, rows: Iterable[Iterable[tuple[Any, ...]]]) -> dict[Any, UsageFigures]:
    """Return the sums of rows by key. A row has the `size` values of its key, then the figures in their order."""
    usage: dict[Any, UsageFigures] = {}
    for row in chain.from_iterable(rows):
        key = row[:size] if size > 1 else row[0]
        figures = UsageFigures(*row[size:])
        usage[key] = usage[key] + figures if key in usage else figures
    return usage
