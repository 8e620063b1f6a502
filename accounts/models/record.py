"""What remains of an administrator who is deleted."""

from typing import Any, ClassVar

from django.contrib.admin.models import ACTION_FLAG_CHOICES, LogEntry
from django.db import models
from django.utils.translation import override
from uuid_utils.compat import uuid7


class AdminRecord(models.Model):
    """One entry of the admin's log whose author is deleted: Django's own entries go with the person.

    `what` names the kind of row that was changed, `row` that row as it was called then, `message` what was changed.
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
        """For an entry read with its content type."""
        fields: dict[str, Any] = {"row": entry.object_repr, "row_id": entry.object_id or ""}
        with override("en"):  # whoever deletes may read another language than who looks it up
            what = entry.content_type.name if entry.content_type is not None else ""
            message = entry.get_change_message()
        at = entry.action_time
        return cls(username=username, at=at, action=entry.action_flag, what=what, message=message, **fields)
