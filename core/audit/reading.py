"""Read the audit: filter its rows, and export them as JSON lines or as CSV."""

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
BATCH_ROWS = 2_000  # rows per query
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets treat a cell that begins with one of these as a formula


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter for audit entries. A field that is None or empty does not filter.

    `after`: a sequence number. `actor`: an id or a user name. `action`: an action, or its prefix before the dot.
    """

    since: datetime | None = None
    until: datetime | None = None
    after: int | None = None
    actor: str = ""
    action: str = ""

    def rows(self) -> QuerySet[Entry]:
        """Return the rows in the order of the chain, without rows that have no sequence number yet.

        Raises `LookupError` for an unknown action.
        """
        rows = Entry.objects.exclude(sequence=None).order_by("sequence")
        if self.since is not None:
            rows = rows.filter(at__gte=self.since)
        if self.until is not None:
            rows = rows.filter(at__lt=self.until)
        if self.after is not None:
            rows = rows.filter(sequence__gt=self.after)
        if self.actor:
            rows = rows.filter(actor_filter(self.actor))
        if self.action:
            actions = [each for each in ACTIONS if self.action in (each, each.partition(".")[0])]
            if not actions:
                raise LookupError(self.action)
            rows = rows.filter(action__in=actions)
        return rows


def actor_filter(actor: str) -> Q:
    """Return the filter for a person's entries, by an id or a user name."""
    try:
        return Q(actor_id=UUID(actor))
    except ValueError:
        return Q(actor_name=actor)


def export_values(entry: Entry) -> Mapping[str, Any]:
    """Return the values of `FIELDS`, with ids and times as text, for the API and every export."""
    values = {name: getattr(entry, name) for name in FIELDS}
    ids = {name: None if values[name] is None else str(values[name]) for name in ("id", "actor_id", "token_id")}
    return {**values, **ids, "at": entry.at.isoformat()}


def json_lines(rows: QuerySet[Entry]) -> Iterator[str]:
    for page in _pages(rows):
        yield "".join(json.dumps(export_values(entry), ensure_ascii=False) + "\n" for entry in page)


def csv_pages(rows: QuerySet[Entry]) -> Iterator[str]:
    yield ",".join(FIELDS) + "\r\n"
    for page in _pages(rows):
        text = StringIO()
        csv.writer(text).writerows([_cell(value) for value in export_values(entry).values()] for entry in page)
        yield text.getvalue()


def _pages(rows: QuerySet[Entry]) -> Iterator[list[Entry]]:
    """Yield the rows in pages, so that memory stays small and no query is open for long."""
    after = 0
    while page := list(rows.filter(sequence__gt=after)[:BATCH_ROWS]):
        yield page
        after = page[-1].sequence or 0


def _cell(value: Any) -> str:
    text = "" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(FORMULAS) else text


async def stream_pages(pages: Iterator[str]) -> AsyncIterator[str]:
    """Yield the pages for a streamed response. Each is read on a thread when the response sends it."""
    while page := await sync_to_async(_next, thread_sensitive=False)(pages):
        yield page


def _next(pages: Iterator[str]) -> str:
    try:
        return next(pages, "")
    finally:
        close_old_connections()
