"""Which summary holds on a branch, and what the model is sent of it."""

import zoneinfo
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from chat.models import Summary

# Walks up from the leaf to the first message at which a summary ends. Its cost grows with what no summary covers.
_FIRST_COVERED = """
WITH RECURSIVE up AS (
    SELECT id, parent_id FROM chat_message WHERE id = %(leaf)s
    UNION ALL
    SELECT m.id, m.parent_id FROM chat_message m JOIN up ON m.id = up.parent_id WHERE up.id <> ALL(%(ends)s)
)
SELECT id FROM up WHERE id = ANY(%(ends)s)
"""


def in_force(conversation_id: UUID, leaf_id: UUID | None, *, prompt_version: int | None = None) -> Summary | None:
    """The summary that holds on the branch ending at `leaf_id`: the one that reaches furthest, of those the newest.

    A summary covers everything above its last message, so it holds exactly where that message is on the branch: a
    branch that forked before a summary's end gets an earlier one, or none. `prompt_version` asks for one written under
    that version only.
    """
    rows = Summary.objects.in_force().filter(conversation=conversation_id)
    if prompt_version is not None:
        rows = rows.filter(prompt_version=prompt_version)
    last = _end(rows, leaf_id)
    return rows.filter(last=last).select_related("last").order_by("-id").first() if last is not None else None


def _end(rows: "QuerySet[Summary]", leaf_id: UUID | None) -> UUID | None:
    ends = list(set(rows.values_list("last", flat=True))) if leaf_id else []
    if not ends:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_FIRST_COVERED, {"leaf": leaf_id, "ends": ends})
        row = cursor.fetchone()
    return row[0] if row else None


def text_of(summary: Summary) -> str:
    """What the model reads. The same as long as the row is, so “Today” is said with its date."""
    zone = zoneinfo.ZoneInfo(summary.timezone)
    end, then = summary.span_end.astimezone(zone), summary.as_of.astimezone(zone)
    frame = (
        f"Summary of this conversation up to {end:%Y-%m-%d %H:%M}, written on {then:%A, %Y-%m-%d} "
        "(“today” and “now” mean then). What came after it follows word for word."
    )
    return "\n".join([frame, *bracketed(summary.sections)])


def bracketed(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each section, as the seed writes them: `[Today: …]`."""
    return [f"[{section['name']}: {section['text']}]" for section in sections if section["text"]]
