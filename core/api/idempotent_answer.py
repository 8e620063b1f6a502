"""The stored answers to writes that clients may repeat; see `core.api.idempotency`."""

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.utils import timezone

from core.crypto import EncryptedTextField


class IdempotentAnswer(models.Model):
    """The answer to a write with an `Idempotency-Key`; see `core.api.idempotency`.

    `call` is the SHA-256 of key, method and path. `request` is the SHA-256 of the contents of the request. `body`
    holds no secret, see `ShownOnce`.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    call = models.CharField(max_length=64)
    request = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    headers: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    body = EncryptedTextField()
    created = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        app_label = "accounts"
        constraints: ClassVar = [models.UniqueConstraint(fields=["user", "call"], name="one_answer_per_call")]

    def __str__(self) -> str:
        return self.call
