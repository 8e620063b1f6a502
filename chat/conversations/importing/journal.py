"""The journal of an import: the rows that it has made (`ImportedRow`).

With it an import that starts again knows its own conversations, and can be undone.
"""

from uuid import UUID

from django.utils import timezone

from chat.models import Import, ImportedRow
from core.sentences import Sentence


class ImportJournal:
    """Notes the rows that an import makes."""

    def __init__(self, job: Import) -> None:
        self.job = job

    def add(self, kind: ImportedRow.Kind, row: UUID, why: Sentence | None = None) -> None:
        """Note a row. Call it in the transaction that makes the row, or right after it."""
        ImportedRow.objects.update_or_create(
            job=self.job, kind=kind, row=row, defaults={"why": why or Sentence(""), "created": timezone.now()}
        )

    def conversation(self, pk: UUID) -> ImportedRow | None:
        """Return the note about a conversation, None if this import has not made it."""
        return self.job.rows.filter(kind=ImportedRow.Kind.CONVERSATION, row=pk).first()
