"""The journal of an import: the rows that it created (`ImportedRow`).

A restarted import recognises its own conversations by the journal, and an import can be undone.
"""

from uuid import UUID

from django.utils import timezone

from chat.models import Import, ImportedRow
from core.sentences import Sentence


class ImportJournal:
    """Records the rows that an import creates."""

    def __init__(self, job: Import) -> None:
        self.job = job

    def add(self, kind: ImportedRow.Kind, row: UUID, why: Sentence | None = None) -> None:
        """Record a row. Call it in the transaction that creates the row, or right after it."""
        ImportedRow.objects.update_or_create(
            job=self.job, kind=kind, row=row, defaults={"why": why or Sentence(""), "created": timezone.now()}
        )

    def conversation(self, pk: UUID) -> ImportedRow | None:
        """Return the entry of a conversation; None if this import did not create it."""
        return self.job.rows.filter(kind=ImportedRow.Kind.CONVERSATION, row=pk).first()
