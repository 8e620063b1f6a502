"""The audit table, with one row for each act. It is append-only.

Database triggers refuse updates and deletions, except for the erasure of a user and for the retention.
The table has no foreign keys, since an entry outlives the people and rows that it names.
"""

from typing import Any, ClassVar

from django.db import models
from django.utils import timezone
from uuid_utils.compat import uuid7

from core.audit.origin import How


class Entry(models.Model):
    """An act: the person, the act, the row, the time and the origin, with the names as they were at that time.

    `changes` of an act that changes fields has [before, after] by field, or null for a secret or a text: a null only
    says that the field changed. `changes` of other acts has facts by name, such as the number of deleted rows.
    `sequence`, `previous` and `hash` are the entry's place in the chain (`core.audit.chain`). The database sets them
    when the transaction is committed.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    at = models.DateTimeField(default=timezone.now)
    how = models.CharField(max_length=10, choices=[(str(how), str(how)) for how in How])
    actor_id = models.UUIDField("actor's id", null=True, blank=True)
    actor_name = models.CharField("actor", max_length=150, blank=True)
    token_id = models.UUIDField("token's id", null=True, blank=True)
    token_name = models.CharField("token", max_length=100, blank=True)
    address = models.CharField(max_length=50, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=40)
    object_type = models.CharField("kind of row", max_length=60, blank=True)
    object_id = models.CharField("row", max_length=64, blank=True)
    object_name = models.CharField("called", max_length=200, blank=True)
    changes: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    personal_digest = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)
    sequence = models.BigIntegerField(null=True, unique=True)
    previous = models.CharField(max_length=64, blank=True)
    hash = models.CharField(max_length=64, blank=True)

    class Meta:
        db_table = "audit_entry"
        ordering: ClassVar = ["-sequence"]
        verbose_name = "act"
        verbose_name_plural = "audit"
        default_permissions: ClassVar = ["view"]
        indexes: ClassVar = [
            models.Index(fields=["at"], name="audit_at"),
            models.Index(fields=["actor_id", "sequence"], name="audit_actor"),
            models.Index(fields=["actor_name", "sequence"], name="audit_actor_name"),
            models.Index(fields=["action", "sequence"], name="audit_action"),
            models.Index(fields=["object_id", "sequence"], name="audit_object"),
            models.Index(fields=["object_name"], name="audit_object_name"),
            models.Index(fields=["request_id"], name="audit_request"),
            models.Index(fields=["address"], name="audit_address"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_name or self.object_id}".strip()
