"""Webhooks of people's programs, and the deliveries of events to them."""

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from core.crypto import EncryptedTextField, is_lost
from core.sentence_field import SentenceColumn


class WebhookQuerySet(models.QuerySet["Webhook"]):
    def visible_to(self, user: Any) -> "WebhookQuerySet":
        return self.filter(owner_id=user.pk)


class Webhook(models.Model):
    """A webhook. `events` is a list of `Event` values. `origin`: the address of this site for links in payloads.

    `failing_since`: the time of the first failure since the last success. `note`: why the product switched it off;
    empty if its owner did.
    """

    class Event(models.TextChoices):
        TURN_FINISHED = "turn.finished", _("An answer has ended: complete, stopped or failed.")
        FILE_READY = "file.ready", _("A file has been read and can be used: whole or, where it is too long, by search.")
        FILE_FAILED = "file.failed", _("A file could not be read.")
        RUN_WAITING = "run.waiting", _("A run waits for you.")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField("URL", max_length=500)
    origin = models.CharField(max_length=300)
    secret = EncryptedTextField()
    events: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    enabled = models.BooleanField(default=True)
    note = SentenceColumn(blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = WebhookQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-created"]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def secret_lost(self) -> bool:
        return is_lost(self.secret)


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    def visible_to(self, user: Any) -> "WebhookDeliveryQuerySet":
        return self.filter(webhook__owner_id=user.pk)


class WebhookDelivery(models.Model):
    """The delivery of one event to one webhook. `event` is the id of the event. Receivers use it to drop repeats.

    While it waits, `next_attempt` is the time of the next attempt. A claim moves it forward first
    (`accounts.webhooks.sending.DELIVERIES`). `log` has one object for each of the last attempts:
    at, status, detail, code, ms.
    """

    class Status(models.TextChoices):
        WAITING = "waiting", _("Waiting")
        DONE = "done", _("Delivered")
        FAILED = "failed", _("Given up")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.UUIDField()
    type = models.CharField(max_length=40)
    payload: "models.JSONField[Any, Any]" = models.JSONField()
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt = models.DateTimeField(null=True)
    response_status = models.PositiveSmallIntegerField(null=True)
    log: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    created = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = WebhookDeliveryQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]
        verbose_name_plural = "webhook deliveries"
        indexes: ClassVar = [
            models.Index(fields=["next_attempt"], condition=Q(status="waiting"), name="webhook_delivery_due"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.id}"
