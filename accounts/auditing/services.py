"""Export the audit. The export itself is recorded in the audit."""

from collections.abc import Callable, Iterator, Mapping

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import QuerySet
from django.http import StreamingHttpResponse

from core.audit.models import Entry
from core.audit.reading import AuditFilter, csv_pages, json_lines, stream_pages
from core.audit.services import record, to_json_value
from core.permissions import require_right

KINDS: Mapping[str, tuple[str, Callable[[QuerySet[Entry]], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", csv_pages),
    "jsonl": ("application/jsonl", json_lines),
}


@transaction.atomic
def export(*, user: AbstractUser, chosen: AuditFilter, kind: str) -> StreamingHttpResponse:
    """Export the entries that the filter selects, in one of `KINDS`.

    Raises `LookupError` for an unknown act, and `right_missing`.
    """
    require_right(user, "view", Entry)
    media_type, write = KINDS[kind]
    rows = chosen.rows()
    changes = {
        "kind": kind,
        "since": to_json_value(chosen.since),
        "until": to_json_value(chosen.until),
        "action": chosen.action,
    }
    record(user=user, action="audit.exported", changes=changes)
    response = StreamingHttpResponse(stream_pages(write(rows)), content_type=media_type)
    response["Content-Disposition"] = f'attachment; filename="audit.{kind}"'
    response["Cache-Control"] = "private, no-store"
    return response
