"""Taking the audit along, which is an act itself."""

from collections.abc import Callable, Iterator, Mapping

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import QuerySet
from django.http import StreamingHttpResponse

from core.audit.models import Entry
from core.audit.reading import Asked, csv_pages, json_lines, sent
from core.audit.services import plain, record
from core.permissions import require_right

KINDS: Mapping[str, tuple[str, Callable[[QuerySet[Entry]], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", csv_pages),
    "jsonl": ("application/jsonl", json_lines),
}


@transaction.atomic
def export(*, user: AbstractUser, asked: Asked, kind: str) -> StreamingHttpResponse:
    """`kind` is one of `KINDS`. Raises `LookupError` for an act that there is not, and `right_missing`."""
    require_right(user, "view", Entry)
    media_type, written = KINDS[kind]
    rows = asked.rows()
    said = {"kind": kind, "since": plain(asked.since), "until": plain(asked.until), "action": asked.action}
    record(user=user, action="audit.exported", changes=said)
    response = StreamingHttpResponse(sent(written(rows)), content_type=media_type)
    response["Content-Disposition"] = f'attachment; filename="audit.{kind}"'
    response["Cache-Control"] = "private, no-store"
    return response
