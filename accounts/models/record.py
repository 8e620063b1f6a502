"""Records of what deleted administrators changed in the admin."""

from typing import ClassVar

from django.contrib.admin.models import ACTION_FLAG_CHOICES, LogEntry
from django.db import models
from django.utils.translation import override
from uuid_utils.compat import uuid7


class AdminRecord(models.Model):
    """A copy of an entry in the admin's log, kept because Django deletes the entry with the administrator.

    `what`: the kind of the changed row; `row`: its name at that time; `message`: the change.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    username = models.CharField(max_length=150)
    at = models.DateTimeField()
    action = models.PositiveSmallIntegerField(choices=ACTION_FLAG_CHOICES)
    what = models.CharField(max_length=200)
    row = models.CharField(max_length=200)
    row_id = models.TextField(blank=True)
    message = models.TextField(blank=True)

    class Meta:
        ordering: ClassVar = ["-at", "-id"]
        verbose_name = "record of a deleted administrator"
        verbose_name_plural = "records of deleted administrators"
        indexes: ClassVar = [models.Index(fields=["-at", "-id"], name="admin_record_newest")]

    def __str__(self) -> str:
        return f"{self.username}: {self.get_action_display()} {self.what} “{self.row}”"

    @classmethod
    def of(cls, entry: LogEntry, username: str) -> "AdminRecord":
        """Return the record of an entry. The caller has read the entry with its content type."""
        with override("en"):  # readers of the record may use another language than the person who deletes
            what = entry.content_type.name if entry.content_type is not None else ""
            message = entry.get_change_message()
        return cls(
            username=username,
            at=entry.action_time,
            action=entry.action_flag,
            what=what,
            row=entry.object_repr,
            row_id=entry.object_id or "",
            message=message,
        )
