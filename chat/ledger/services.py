"""Sum up the usage of model calls, describe it in words, and write it as CSV.

Every figure is a sum over rows of `ModelCall`, so all figures agree. `chat.ledger.sums` groups them by day, model, user
and more.
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

from chat.ledger.models import ModelCall
from core.audit.services import record, to_json_value
from core.i18n import dollars, grouped

# One aggregate for each field of `UsageFigures`. `unpriced` must come before `cost`: from then on `cost` means the sum.
CALL_AGGREGATES: Mapping[str, Any] = {
    "calls": Count("pk"),
    "answers": Count("pk", filter=Q(number=1, purpose__in=[ModelCall.Purpose.ANSWER, ModelCall.Purpose.RUN])),
    "unpriced": Count("pk", filter=Q(cost=None)),
    "input": Sum("input", default=0),
    "cached_input": Sum("cached_input", default=0),
    "cache_written": Sum("cache_written", default=0),
    "output": Sum("output", default=0),
    "reasoning": Sum("reasoning", default=0),
    "seconds": Sum("seconds", default=0),
    "cost": Sum("cost"),
}
# The columns of the CSV, one row for each call.
COLUMNS = (
    "created",
    "person__username",
    "group__name",
    "token__name",
    "purpose",
    "conversation_id",
    "turn_id",
    "number",
    "project__name",
    "persona__name",
    "provider_name",
    "model_name",
    "input",
    "cached_input",
    "cache_written",
    "output",
    "reasoning",
    "seconds",
    "counted",
    "failed",
    "cost",
)
BATCH_ROWS = 2_000  # rows per query for the CSV
FORMULA_STARTS = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
)  # spreadsheets read a cell as a formula if it begins with one of these
FIRST_DAY = date(1970, 1, 1)
LAST_DAY = date(9998, 12, 31)


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """Sums over model calls.

    `answers`: number of turns, counted by their first calls. `unpriced`: number of calls without a price. `input` to
    `reasoning` are tokens, `seconds` those of sound. `cost` is in US dollars; None where no call had a price.
    """

    calls: int = 0
    answers: int = 0
    unpriced: int = 0
    input: int = 0
    cached_input: int = 0
    cache_written: int = 0
    output: int = 0
    reasoning: int = 0
    seconds: int = 0
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
            self.seconds + other.seconds,
            sum(priced, Decimal(0)) if priced else None,
        )


def with_figures(rows: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """Annotate grouped calls with the fields of `UsageFigures`, in their order."""
    grouped_rows: QuerySet[Any, Any] = rows.annotate(**CALL_AGGREGATES)
    return grouped_rows


def sum_usage(rows: QuerySet[ModelCall]) -> UsageFigures:
    return UsageFigures(**rows.aggregate(**CALL_AGGREGATES))


def calls_between(
    rows: QuerySet[ModelCall], zone: tzinfo, first: date | None, last: date | None
) -> QuerySet[ModelCall]:
    """Return the calls from the first to the last day, both included. None means no limit at that end."""
    if first is not None:
        rows = rows.filter(created__gte=midnight(first, zone))
    if last is not None:
        rows = rows.filter(created__lt=midnight(min(last, LAST_DAY) + timedelta(days=1), zone))
    return rows


def midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(max(day, FIRST_DAY), time.min, zone)


def describe_usage(sums: UsageFigures) -> str:
    """Return “1,234 read, 1,000 of them cached, 200 written · $0.0042”; without a price only the tokens."""
    return " · ".join(filter(None, [describe_tokens(sums), describe_sound(sums), describe_cost(sums)]))


def describe_sound(sums: UsageFigures) -> str:
    """Return the minutes of sound, rounded up; empty if there were none."""
    minutes = -(-sums.seconds // 60)
    words = ngettext("%(count)s minute of speech", "%(count)s minutes of speech", minutes)
    return words % {"count": grouped(minutes)} if minutes else ""


def describe_tokens(sums: UsageFigures) -> str:
    read = _("%(count)s read") % {"count": grouped(sums.input)}
    cached = "" if not sums.cached_input else _("%(count)s of them cached") % {"count": grouped(sums.cached_input)}
    written = _("%(count)s written") % {"count": grouped(sums.output)}
    return ", ".join(filter(None, [read, cached, written]))


def describe_total(rows: QuerySet[ModelCall]) -> str:
    """Return the totals of the calls in words; empty without calls."""
    sums = sum_usage(rows)
    return describe_usage(sums) if sums.calls else ""


def describe_cost(sums: UsageFigures) -> str:
    """Return the cost and the number of calls without a price; empty if no call has a price."""
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
    """Record in the audit log that a user downloads the model calls of these days."""
    record(user=user, action="usage.exported", changes={"first": to_json_value(first), "last": to_json_value(last)})


def csv_response(rows: QuerySet[ModelCall], name: str) -> StreamingHttpResponse:
    """Return a download with one row for each call. The rows are read while the response is sent."""
    response = StreamingHttpResponse(_stream(csv_pages(rows)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def _stream(pages: Iterator[str]) -> AsyncIterator[str]:
    while page := await sync_to_async(_next_page)(pages):
        yield page


def _next_page(pages: Iterator[str]) -> str:
    try:
        return next(pages, "")
    finally:
        close_old_connections()


def csv_pages(rows: QuerySet[ModelCall]) -> Iterator[str]:
    """Yield the CSV of the calls, oldest first, in pieces of at most `BATCH_ROWS` rows."""
    page: list[tuple[Any, ...]] = [
        ("", *(column.replace("__username", "").replace("__name", "") for column in COLUMNS))
    ]
    while page:
        yield to_csv(row[1:] for row in page)
        following = rows.filter(pk__gt=page[-1][0]) if page[-1][0] else rows
        page = list(following.order_by("pk").values_list("pk", *COLUMNS)[:BATCH_ROWS])


def to_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV. An apostrophe before `FORMULA_STARTS` keeps spreadsheets from computing a cell."""
    text = StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
