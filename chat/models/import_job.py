"""Imports of conversations from another product."""

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from core.sentence_field import SentenceColumn


class ImportQuerySet(models.QuerySet["Import"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ImportQuerySet":
        return self.filter(owner_id=user.pk)

    def live(self) -> "ImportQuerySet":
        return self.filter(status__in=Import.LIVE)

    def kept(self) -> "ImportQuerySet":
        """Return failed and paused imports whose upload is still stored, so that they can go on."""
        return self.filter(status__in=Import.RESUMABLE).exclude(blob="")


class Import(models.Model):
    """One uploaded export and its progress. The row, not the broker, decides which worker has it.

    `results`, filled at the end, has one object for each conversation of the export: `title`, `outcome` (imported,
    known or skipped), `why` (a sentence, empty if all came) and `conversation` (its id here, or None). `rows` are the
    rows that it has made, so that it can be undone and knows its own conversations if it starts again.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", _("Waiting")
        RUNNING = "running", _("Being imported")
        DONE = "done", _("Imported")
        FAILED = "failed", _("Failed")
        PAUSED = "paused", _("Paused")
        UNDOING = "undoing", _("Being undone")
        UNDONE = "undone", _("Undone")

    LIVE = (Status.QUEUED, Status.RUNNING, Status.UNDOING)
    PAUSABLE = (Status.QUEUED, Status.RUNNING)
    RESUMABLE = (Status.FAILED, Status.PAUSED)
    UNDOABLE = (Status.DONE, Status.FAILED, Status.PAUSED)
    KEPT_FOR = timedelta(days=30)  # how long the upload of a failed or paused import is stored

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="imports")
    name = models.CharField(max_length=255, help_text="The name of the uploaded file.")
    blob = models.CharField(max_length=200, blank=True, editable=False, help_text="Stored until it is imported.")
    size = models.PositiveBigIntegerField(
        default=0, db_default=0, editable=False, help_text="Stored bytes of the upload; 0 after its deletion."
    )
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0, editable=False)
    tries = models.PositiveSmallIntegerField(
        default=0, db_default=0, editable=False, help_text="How often a worker has begun since the last progress."
    )
    progress = models.PositiveSmallIntegerField(default=0, help_text="Percent of the export that was read.")
    imported = models.PositiveIntegerField(default=0)
    known = models.PositiveIntegerField(default=0, help_text="Conversations that were imported before.")
    skipped = models.PositiveIntegerField(default=0)
    results: "models.JSONField[Any, Any]" = models.JSONField(default=list, editable=False)
    error_code = models.CharField(max_length=60, blank=True)
    error_detail = SentenceColumn(blank=True)
    counting = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=("The tokens of the imported messages are not counted yet."),
    )
    heartbeat = models.DateTimeField(auto_now_add=True)
    created = models.DateTimeField(auto_now_add=True)
    finished = models.DateTimeField(null=True, blank=True)

    objects = ImportQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(
                fields=["heartbeat"], condition=Q(status__in=["queued", "running"]), name="import_live_heartbeat"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def live(self) -> bool:
        return self.status in self.LIVE

    @property
    def pausable(self) -> bool:
        return self.status in self.PAUSABLE

    @property
    def undoable(self) -> bool:
        """Return whether the import has ended and has made rows that it could remove."""
        return self.status in self.UNDOABLE and self.rows.exists()

    @property
    def kept_until(self) -> datetime | None:
        """Time until which a failed or paused import can go on, None if it cannot."""
        if self.status not in self.RESUMABLE or not self.blob or self.finished is None:
            return None
        return self.finished + self.KEPT_FOR


class ImportedRow(models.Model):
    """A row that an import has made. It outlives the row.

    `why` is the sentence about the parts of a conversation that could not be kept. `created` is the time at which the
    row was complete, so a conversation with a newer message was continued here. `fingerprint` is the row's at that
    time (`importing.fingerprints`), empty for files.
    """

    class Kind(models.TextChoices):
        CONVERSATION = "conversation", "Conversation"
        FILE = "file", "File"
        PERSONA = "persona", "Persona"
        PROJECT = "project", "Project"
        PROMPT = "prompt", "Saved prompt"
        FACT = "fact", "Remembered fact"
        TASK = "task", "Task"

    job = models.ForeignKey(Import, on_delete=models.CASCADE, related_name="rows")
    kind = models.CharField(max_length=20, choices=Kind)
    row = models.UUIDField()
    why = SentenceColumn(blank=True)
    fingerprint = models.CharField(max_length=64, blank=True, default="", db_default="", editable=False)
    created = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "kind", "row"], name="one_imported_row"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.row}"
