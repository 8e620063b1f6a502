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
        """Return failed imports whose upload is still stored, so that they can be tried again."""
        return self.filter(status=Import.Status.FAILED).exclude(blob="")


class Import(models.Model):
    """One uploaded export and its progress. The row, not the broker, decides which worker has it.

    `results`, filled at the end, has one object for each conversation of the export: `title`, `outcome` (imported,
    known or skipped), `why` (a sentence, empty for an imported one) and `conversation` (its id here, or None).
    """

    class Status(models.TextChoices):
        QUEUED = "queued", _("Waiting")
        RUNNING = "running", _("Being imported")
        DONE = "done", _("Imported")
        FAILED = "failed", _("Failed")

    LIVE = (Status.QUEUED, Status.RUNNING)
    KEPT_FOR = timedelta(days=30)  # how long the upload of a failed import is stored

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="imports")
    name = models.CharField(max_length=255, help_text="The name of the uploaded file.")
    blob = models.CharField(max_length=200, blank=True, editable=False, help_text="Stored until it is imported.")
    size = models.PositiveBigIntegerField(
        default=0, db_default=0, editable=False, help_text="Stored bytes of the upload; 0 after its deletion."
    )
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0, editable=False)
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
    def kept_until(self) -> datetime | None:
        """Time until which a failed import can be tried again, None if it cannot."""
        if self.status != self.Status.FAILED or not self.blob or self.finished is None:
            return None
        return self.finished + self.KEPT_FOR
