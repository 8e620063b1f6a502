"""Reading the audit: the rows that were asked for, and all of them as lines of JSON or as CSV."""

import csv
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.db.models import Q, QuerySet

from core.audit.actions import ACTIONS
from core.audit.models import Entry

FIELDS = (
    *("sequence", "id", "at", "how", "actor_id", "actor_name", "token_id", "token_name", "address", "request_id"),
    *("action", "object_type", "object_id", "object_name", "changes", "hash"),
)
AT_ONCE = 2_000  # rows
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # as what begins with one is read by spreadsheets


@dataclass(frozen=True, slots=True)
class Asked:
    """`after` is a sequence, `actor` an id or a name, `action` an act or all before its dot; None or empty asks all."""

    since: datetime | None = None
    until: datetime | None = None
    after: int | None = None
    actor: str = ""
    action: str = ""

    def rows(self) -> QuerySet[Entry]:
        """Those that have their place, in the order of the chain. Raises `LookupError` for an act that there is not."""
        found = Entry.objects.exclude(sequence=None).order_by("sequence")
        if self.since is not None:
            found = found.filter(at__gte=self.since)
        if self.until is not None:
            found = found.filter(at__lt=self.until)
        if self.after is not None:
            found = found.filter(sequence__gt=self.after)
        if self.actor:
            found = found.filter(by(self.actor))
        if self.action:
            meant = [each for each in ACTIONS if self.action in (each, each.partition(".")[0])]
            if not meant:
                raise LookupError(self.action)
            found = found.filter(action__in=meant)
        return found


def by(actor: str) -> Q:
    try:
        return Q(actor_id=UUID(actor))
    except ValueError:
        return Q(actor_name=actor)


def as_dict(entry: Entry) -> dict[str, Any]:
    """As the API and every export have it: ids and times as text."""
    values = {name: getattr(entry, name) for name in FIELDS}
    ids = {name: None if values[name] is None else str(values[name]) for name in ("id", "actor_id", "token_id")}
    return {**values, **ids, "at": entry.at.isoformat()}


def json_lines(rows: QuerySet[Entry]) -> Iterator[str]:
    for page in _pages(rows):
        yield "".join(json.dumps(as_dict(entry), ensure_ascii=False) + "\n" for entry in page)


def csv_pages(rows: QuerySet[Entry]) -> Iterator[str]:
    yield ",".join(FIELDS) + "\r\n"
    for page in _pages(rows):
        text = StringIO()
        csv.writer(text).writerows([_cell(value) for value in as_dict(entry).values()] for entry in page)
        yield text.getvalue()


def _pages(rows: QuerySet[Entry]) -> Iterator[list[Entry]]:
    """Whatever the number of rows, few are in memory, and no query is open for long."""
    after = 0
    while page := list(rows.filter(sequence__gt=after)[:AT_ONCE]):
        yield page
        after = page[-1].sequence or 0


def _cell(value: Any) -> str:
    text = "" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(FORMULAS) else text


async def sent(pages: Iterator[str]) -> AsyncIterator[str]:
    """For an answer that is sent while it is read."""
    while page := await sync_to_async(_next, thread_sensitive=False)(pages):
        yield page


def _next(pages: Iterator[str]) -> str:
    try:
        return next(pages, "")
    finally:
        close_old_connections()
