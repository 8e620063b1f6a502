"""Reading the audit: filtered rows, and exports as lines of JSON or as CSV."""

import csv
import json
from collections.abc import AsyncIterator, Iterator, Mapping
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
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets read a cell that begins so as a formula


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter of acts; a field that is None or empty filters nothing.

    `after`: a sequence. `actor`: an id or a user name. `action`: an act, or the kind before its dot.
    """

    since: datetime | None = None
    until: datetime | None = None
    after: int | None = None
    actor: str = ""
    action: str = ""

    def rows(self) -> QuerySet[Entry]:
        """Return the rows in the order of the chain, without those that have no place yet.

        Raises `LookupError` for an unknown act.
        """
        rows = Entry.objects.exclude(sequence=None).order_by("sequence")
        if self.since is not None:
            rows = rows.filter(at__gte=self.since)
        if self.until is not None:
            rows = rows.filter(at__lt=self.until)
        if self.after is not None:
            rows = rows.filter(sequence__gt=self.after)
        if self.actor:
            rows = rows.filter(by(self.actor))
        if self.action:
            actions = [each for each in ACTIONS if self.action in (each, each.partition(".")[0])]
            if not actions:
                raise LookupError(self.action)
            rows = rows.filter(action__in=actions)
        return rows


def by(actor: str) -> Q:
    """Return the filter for acts of a person, by an id or a user name."""
    try:
        return Q(actor_id=UUID(actor))
    except ValueError:
        return Q(actor_name=actor)


def exported(entry: Entry) -> Mapping[str, Any]:
    """Return the values of `FIELDS` as the API and every export have them: ids and times as text."""
    values = {name: getattr(entry, name) for name in FIELDS}
    ids = {name: None if values[name] is None else str(values[name]) for name in ("id", "actor_id", "token_id")}
    return {**values, **ids, "at": entry.at.isoformat()}


def json_lines(rows: QuerySet[Entry]) -> Iterator[str]:
    for page in _pages(rows):
        yield "".join(json.dumps(exported(entry), ensure_ascii=False) + "\n" for entry in page)


def csv_pages(rows: QuerySet[Entry]) -> Iterator[str]:
    yield ",".join(FIELDS) + "\r\n"
    for page in _pages(rows):
        text = StringIO()
        csv.writer(text).writerows([_cell(value) for value in exported(entry).values()] for entry in page)
        yield text.getvalue()


def _pages(rows: QuerySet[Entry]) -> Iterator[list[Entry]]:
    """Yield the rows in pages, so that few are in memory and no query is open for long."""
    after = 0
    while page := list(rows.filter(sequence__gt=after)[:AT_ONCE]):
        yield page
        after = page[-1].sequence or 0


def _cell(value: Any) -> str:
    text = "" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(FORMULAS) else text


async def streamed(pages: Iterator[str]) -> AsyncIterator[str]:
    """Yield the pages for a response that is sent while they are read."""
    while page := await sync_to_async(_next, thread_sensitive=False)(pages):
        yield page


def _next(pages: Iterator[str]) -> str:
    try:
        return next(pages, "")
    finally:
        close_old_connections()
