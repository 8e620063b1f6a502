"""What model calls took and cost, summed by what they have in common, and in words.

Every number here is a sum over the rows of `ModelCall`, so that all of them agree: by day, model, person, conversation.
"""

import csv
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from io import StringIO
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import AbstractUser
from django.db import close_old_connections, transaction
from django.db.models import Count, F, Max, Q, QuerySet, Sum, Value
from django.db.models.functions import Concat, TruncDate
from django.http import StreamingHttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from audit.services import plain, record
from chat.models import ModelCall
from core.i18n import dollars, grouped

SUMS: Mapping[str, Any] = {
    "calls": Count("pk"),
    "input_tokens": Sum("input", default=0),
    "cached_tokens": Sum("cached_input", default=0),
    "written_tokens": Sum("cache_written", default=0),
    "output_tokens": Sum("output", default=0),
    "reasoning_tokens": Sum("reasoning", default=0),
    "money": Sum("cost"),
    "unpriced": Count("pk", filter=Q(cost=None)),
}
KINDS = ("day", "model", "conversation", "project", "persona", "person", "purpose")
# Of one call: what a table to take along has of it.
COLUMNS = (
    *("created", "person__username", "purpose", "conversation_id", "turn_id", "number", "project__name"),
    *("persona__name", "provider_name", "model_name", "input", "cached_input", "cache_written", "output", "reasoning"),
    *("counted", "cost"),
)
AT_ONCE = 2_000  # rows
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # as what begins with one is read by spreadsheets
FIRST_DAY, LAST_DAY = date(1970, 1, 1), date(9998, 12, 31)


def totals(rows: QuerySet[ModelCall]) -> dict[str, Any]:
    """The sums of all rows: tokens, `money` in US dollars (None where nothing has a price), `unpriced` calls."""
    return rows.aggregate(**SUMS)


def summed(rows: QuerySet[ModelCall], by: str, zone: tzinfo) -> QuerySet[Any, dict[str, Any]]:
    """The sums for each of one of `KINDS`, what was used last first, with `key` (None for what is gone) and `name`.

    A day is one of `zone`.
    """
    named: Mapping[str, tuple[Any, Any]] = {
        "day": (TruncDate("created", tzinfo=zone), TruncDate("created", tzinfo=zone)),
        "model": (F("model_id"), Concat("provider_name", Value(": "), "model_name")),
        "conversation": (F("conversation_id"), F("conversation__title")),
        "project": (F("project_id"), F("project__name")),
        "persona": (F("persona_id"), F("persona__name")),
        "person": (F("person_id"), F("person__username")),
        "purpose": (F("purpose"), F("purpose")),
    }
    key, name = named[by]
    sums: QuerySet[Any, Any] = rows.order_by().values(key=key, name=name).annotate(**SUMS, last=Max("created"))
    return sums.order_by("-last")


def between(rows: QuerySet[ModelCall], zone: tzinfo, first: date | None, last: date | None) -> QuerySet[ModelCall]:
    """From the first to the last day, both included; None leaves that end open."""
    if first is not None:
        rows = rows.filter(created__gte=midnight(first, zone))
    if last is not None:
        rows = rows.filter(created__lt=midnight(min(last, LAST_DAY) + timedelta(days=1), zone))
    return rows


def midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(max(day, FIRST_DAY), time.min, zone)


def in_words(sums: Mapping[str, Any]) -> str:
    """“1,234 read, 1,000 of them cached, 200 written · $0.0042”; without a price the tokens only."""
    return " · ".join(filter(None, [tokens_in_words(sums), money_in_words(sums)]))


def tokens_in_words(sums: Mapping[str, Any]) -> str:
    read = _("%(count)s read") % {"count": grouped(sums["input_tokens"])}
    cached = sums["cached_tokens"] and _("%(count)s of them cached") % {"count": grouped(sums["cached_tokens"])}
    written = _("%(count)s written") % {"count": grouped(sums["output_tokens"])}
    return ", ".join(filter(None, [read, cached, written]))


def spent(rows: QuerySet[ModelCall]) -> str:
    """All of the rows in words; empty where there are none."""
    sums = totals(rows)
    return in_words(sums) if sums["calls"] else ""


def money_in_words(sums: Mapping[str, Any]) -> str:
    """Says it when some calls have no price; empty when none has one."""
    if sums["money"] is None:
        return ""
    if not sums["unpriced"]:
        return dollars(sums["money"])
    words = ngettext(
        "%(money)s, and %(count)s call without a price",
        "%(money)s, and %(count)s calls without a price",
        sums["unpriced"],
    )
    return words % {"money": dollars(sums["money"]), "count": grouped(sums["unpriced"])}


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
        text = StringIO()
        csv.writer(text).writerows([_cell(value) for value in row[1:]] for row in page)
        yield text.getvalue()
        following = rows.filter(pk__gt=page[-1][0]) if page[-1][0] else rows
        page = list(following.order_by("pk").values_list("pk", *COLUMNS)[:AT_ONCE])


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULAS) else text
