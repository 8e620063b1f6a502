"""The journal of an import: the rows that it created (`ImportedRow`).

A restarted import recognises its own conversations by the journal, and an import can be undone.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.core.files.base import File as Content
from django.db import transaction
from django.utils import timezone

from accounts.models import User
from chat.conversations.importing.fingerprints import fingerprints
from chat.models import Import, ImportedRow
from core.sentences import Sentence
from files.models import File
from files.services import store

BATCH_ROWS = 500  # rows per statement


class ImportJournal:
    """Records the rows that an import creates. `added` counts them, without those of earlier workers."""

    def __init__(self, job: Import) -> None:
        self.job = job
        self.added = 0

    def add(self, kind: ImportedRow.Kind, row: UUID, why: Sentence | None = None) -> None:
        """Record a row. Call it in the transaction that creates the row, or right after it."""
        _, is_new = ImportedRow.objects.update_or_create(
            job=self.job,
            kind=kind,
            row=row,
            defaults={
                "why": why or Sentence(""),
                "fingerprint": fingerprints(kind, [row]).get(row, ""),
                "created": timezone.now(),
            },
        )
        self.added += is_new

    def add_several(self, kind: ImportedRow.Kind, rows: Sequence[UUID]) -> None:
        """Note rows that were made together. Call it in the transaction that makes them."""
        now = timezone.now()
        for start in range(0, len(rows), BATCH_ROWS):
            batch = rows[start : start + BATCH_ROWS]
            marks = fingerprints(kind, batch)
            ImportedRow.objects.bulk_create(
                [
                    ImportedRow(job=self.job, kind=kind, row=row, fingerprint=marks.get(row, ""), created=now)
                    for row in batch
                ],
                ignore_conflicts=True,
            )
        self.added += len(rows)

    def store_file(self, owner: User, name: str, content: "Content[Any]") -> File:
        """Store a file for the owner and note it if this import has made it. Raises as `files.services.store`.

        Row and note have one transaction: after an interruption, a file without its note would be taken for one that a
        person has uploaded. If the import brings a file once more, the note gets the new time.
        """
        with transaction.atomic():
            file = store(user=owner, name=name, content=content)
            if not file.repeated or self.job.rows.filter(kind=ImportedRow.Kind.FILE, row=file.pk).exists():
                self.add(ImportedRow.Kind.FILE, file.pk)
        return file

    def conversation(self, pk: UUID) -> ImportedRow | None:
        """Return the entry of a conversation; None if this import did not create it."""
        return self.job.rows.filter(kind=ImportedRow.Kind.CONVERSATION, row=pk).first()
