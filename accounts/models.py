"""Who uses the workspace: people, and the tokens with which their programs act for them."""

import zoneinfo
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from uuid_utils.compat import uuid7


def validate_timezone(name: str) -> None:
    if name not in zoneinfo.available_timezones():
        raise ValidationError(f"“{name}” is not a time zone. Choose one such as Europe/Paris or Asia/Ho_Chi_Minh.")


class User(AbstractUser):
    """`timezone` is an IANA name: it decides what "today" is. An empty `language` follows the browser."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    timezone = models.CharField(max_length=64, default="UTC", validators=[validate_timezone])
    language = models.CharField(max_length=10, blank=True, choices=settings.LANGUAGES)

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        return zoneinfo.ZoneInfo(self.timezone)


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self) -> "ApiTokenQuerySet":
        now = timezone.now()
        return self.filter(user__is_active=True).filter(models.Q(expires=None) | models.Q(expires__gt=now))


class ApiToken(models.Model):
    """Only the SHA-256 of the token is stored; the token itself is shown once. `scopes` is a list of scope names."""

    SCOPES = ("chat", "files", "projects", "tasks", "admin")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(default=list)
    created = models.DateTimeField(auto_now_add=True)
    expires = models.DateTimeField(null=True, blank=True)
    last_used = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-created"]
        verbose_name = "API token"

    def __str__(self) -> str:
        return self.name
