"""What model calls took and cost: figures of any calls, in words, and as tables to take along.

Every number here is a sum over the rows of `ModelCall`, so that all of them agree. By what calls have in common:
`chat.ledger.sums`.
"""

import csv
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from io import StringIO
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.contrib.auth.models import AbstractUser
from django.db import close_old_connections, transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.http import StreamingHttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from audit.services import plain, record
from chat.ledger.models import ModelCall
from core.i18n import dollars, grouped

# By the names of `Figures`. What is counted without a price stands first: later `cost` is the sum.
OF_CALLS: Mapping[str, Any] = {
    "calls": Count("pk"),
    "answers": Count("pk", filter=Q(number=1, purpose__in=[ModelCall.Purpose.ANSWER, ModelCall.Purpose.RUN])),
    "unpriced": Count("pk", filter=Q(cost=None)),
    "input": Sum("input", default=0),
    "cached_input": Sum("cached_input", default=0),
    "cache_written": Sum("cache_written", default=0),
    "output": Sum("output", default=0),
    "reasoning": Sum("reasoning", default=0),
    "cost": Sum("cost"),
}
# Of one call: what a table to take along has of it.
COLUMNS = (
    *(
        "created",
        "person__username",
        "group__name",
        "token__name",
        "purpose",
        "conversation_id",
        "turn_id",
        "number",
        "project__name",
    ),
    *("project__name", "persona__name", "provider_name", "model_name", "input", "cached_input", "cache_written"),
    *("output", "reasoning", "counted", "cost"),
)
AT_ONCE = 2_000  # rows
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # as what begins with one is read by spreadsheets
FIRST_DAY, LAST_DAY = date(1970, 1, 1), date(9998, 12, 31)


@dataclass(frozen=True, slots=True)
class Figures:
    """`answers` are turns, by their first calls; what follows `unpriced`, the calls without a price, is in tokens, and
    `cost` in US dollars: None where no call had a price."""

    calls: int = 0
    answers: int = 0
    unpriced: int = 0
    input: int = 0
    cached_input: int = 0
    cache_written: int = 0
    output: int = 0
    reasoning: int = 0
    cost: Decimal | None = None

    def __add__(self, other: Self) -> Self:
        priced = [each for each in (self.cost, other.cost) if each is not None]
        return type(self)(
            self.calls + other.calls,
            self.answers + other.answers,
            self.unpriced + other.unpriced,
            self.input + other.input,
            self.cached_input + other.cached_input,
            self.cache_written + other.cache_written,
            self.output + other.output,
            self.reasoning + other.reasoning,
            sum(priced, Decimal(0)) if priced else None,
        )


def totals(rows: QuerySet[ModelCall]) -> Figures:
    """Of all rows together."""
    return Figures(**rows.aggregate(**OF_CALLS))


def between(rows: QuerySet[ModelCall], zone: tzinfo, first: date | None, last: date | None) -> QuerySet[ModelCall]:
    """From the first to the last day, both included; None leaves that end open."""
    if first is not None:
        rows = rows.filter(created__gte=midnight(first, zone))
    if last is not None:
        rows = rows.filter(created__lt=midnight(min(last, LAST_DAY) + timedelta(days=1), zone))
    return rows


def midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(max(day, FIRST_DAY), time.min, zone)


def in_words(sums: Figures) -> str:
    """“1,234 read, 1,000 of them cached, 200 written · $0.0042”; without a price the tokens only."""
    return " · ".join(filter(None, [tokens_in_words(sums), money_in_words(sums)]))


def tokens_in_words(sums: Figures) -> str:
    read = _("%(count)s read") % {"count": grouped(sums.input)}
    cached = "" if not sums.cached_input else _("%(count)s of them cached") % {"count": grouped(sums.cached_input)}
    written = _("%(count)s written") % {"count": grouped(sums.output)}
    return ", ".join(filter(None, [read, cached, written]))


def spent(rows: QuerySet[ModelCall]) -> str:
    """All of the rows in words; empty where there are none."""
    sums = totals(rows)
    return in_words(sums) if sums.calls else ""


def money_in_words(sums: Figures) -> str:
    """Says it when some calls have no price; empty when none has one."""
    if sums.cost is None:
        return ""
    if not sums.unpriced:
        return dollars(sums.cost)
    words = ngettext(
        "%(money)s, and %(count)s call without a price",
        "%(money)s, and %(count)s calls without a price",
        sums.unpriced,
    )
    return words % {"money": dollars(sums.cost), "count": grouped(sums.unpriced)}


@transaction.atomic
def record_export(*, user: AbstractUser, first: date | None, last: date | None) -> None:
    """That somebody takes model calls of these days along."""
    record(user=user, action="usage.exported", changes={"first": plain(first), "last": plain(last)})


def as_csv(rows: QuerySet[ModelCall], name: str) -> StreamingHttpResponse:
    """A row a call, as a download that is read while it is sent."""
    response = StreamingHttpResponse(_sent(csv_pages(rows)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def _sent(pages: Iterator[str]) -> AsyncIterator[str]:
    while page := await sync_to_async(_next_page)(pages):
        yield page


def _next_page(pages: Iterator[str]) -> str:
    try:
        return next(pages, "")
    finally:
        close_old_connections()


def csv_pages(rows: QuerySet[ModelCall]) -> Iterator[str]:
    """The lines of a table with a row a call, in the order in which they were made; some thousands at a time."""
    page: list[tuple[Any, ...]] = [
        ("", *(column.replace("__username", "").replace("__name", "") for column in COLUMNS))
    ]
    while page:
        yield table(row[1:] for row in page)
        following = rows.filter(pk__gt=page[-1][0]) if page[-1][0] else rows
        page = list(following.order_by("pk").values_list("pk", *COLUMNS)[:AT_ONCE])


def table(rows: Iterable[Sequence[Any]]) -> str:
    """The lines of a CSV, of which no cell is a formula."""
    text = StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULAS) else text
