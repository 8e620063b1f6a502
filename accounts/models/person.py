"""People, their sessions, and the API tokens of their programs."""

import zoneinfo
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.sessions.base_session import AbstractBaseSession, BaseSessionManager
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from core.faces import WithFace
from core.sentences import Sentence
from core.time_zones import find_zone, is_zone, present_name
from workspace.models import WorkspaceVersion


class TimeZoneField(models.CharField[str, str]):
    """The name of a time zone. Cleaning replaces a legacy name with the current one."""

    def to_python(self, value: Any) -> Any:
        name = super().to_python(value)
        return present_name(name) if isinstance(name, str) else name

    def deconstruct(self) -> Any:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.CharField", args, kwargs


def validate_timezone(name: str) -> None:
    if not is_zone(name):
        sentence = Sentence(
            "“{name}” is not a time zone. Choose one such as Europe/Paris or Asia/Ho_Chi_Minh.", name=name
        )
        raise ValidationError(str(sentence))


def workspace_timezone() -> str:
    return str(settings.TIME_ZONE)


def zone_or_workspaces(name: str) -> zoneinfo.ZoneInfo:
    """Return the zone of a stored name. A name that this machine does not know gets the workspace's zone."""
    return find_zone(name) or zoneinfo.ZoneInfo(workspace_timezone())


class User(AbstractUser, WithFace):
    """A person. `timezone` is an IANA name and decides what "today" is.

    An empty `language` or `theme` follows the browser. If this machine does not know the stored name (`zone_unknown`),
    `zone` is the workspace's.
    """

    class Theme(models.TextChoices):
        SYSTEM = "", _("As the system")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    class ZoneSource(models.TextChoices):
        """The source of a person's time zone."""

        WORKSPACE = "", _("The workspace's")
        BROWSER = "browser", _("The browser's, at the first sign-in")
        CHOSEN = "chosen", _("Chosen")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    timezone = TimeZoneField(max_length=64, default=workspace_timezone, validators=[validate_timezone])
    timezone_source = models.CharField(
        "time zone from",
        max_length=10,
        blank=True,
        default=ZoneSource.WORKSPACE,
        db_default=ZoneSource.WORKSPACE,
        choices=ZoneSource,
        editable=False,
    )
    language = models.CharField(max_length=10, blank=True, choices=settings.LANGUAGES)
    theme = models.CharField(max_length=10, blank=True, default=Theme.SYSTEM, choices=Theme)
    accepts_model_tasks = models.BooleanField(
        "tasks that models make count at once",
        default=False,
        db_default=False,
        help_text=(
            "Off: tasks and checklists of models are proposals. Prompts contain them after the person accepts them."
        ),
    )
    asks_before_search = models.BooleanField(
        "asks before each web search",
        default=False,
        db_default=False,
        help_text="A model's web search waits until the person allows it. The workspace can require this for everyone.",
    )
    tasks_in_prompts = models.BooleanField(
        "tasks go along with their messages",
        default=True,
        db_default=True,
        help_text="Off: no model sees their tasks beside a message. Runs and the task tools of a persona go on.",
    )
    tasks_notice_seen = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="They have read the notice that tasks go along with messages.",
    )
    legal_hold = models.BooleanField(
        "legal hold",
        default=False,
        db_default=False,
        help_text=(
            "Nothing of this person is erased. A conversation that they delete is "
            "hidden from them and kept. Their files, tasks, projects, personas and "
            "prompts cannot be deleted or given to others."
        ),
    )

    email_confirmed = models.BooleanField(
        "e-mail confirmed",
        default=True,
        db_default=True,
        editable=False,
        help_text="An administrator entered the address, or the person confirmed it by mail.",
    )

    password_once = models.BooleanField(
        "password once",
        default=False,
        db_default=False,
        editable=False,
        help_text="Someone else chose the password. The person must choose another one first.",
    )

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        return zone_or_workspaces(self.timezone)

    @property
    def zone_unknown(self) -> bool:
        return not is_zone(self.timezone)


class SessionManager(BaseSessionManager["Session"]):
    def get_queryset(self) -> "models.QuerySet[Session]":
        """Return sessions annotated with the version of the workspace, which saves each page a query."""
        version = WorkspaceVersion.objects.values("version")[:1]
        return super().get_queryset().annotate(workspace_version=models.Subquery(version))

    def visible_to(self, user: User) -> "models.QuerySet[Session]":
        return self.filter(user=user, expire_date__gt=timezone.now())


class Session(AbstractBaseSession):
    """A browser's session and its user. `accounts.access.sessions` names its contents."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="sessions")

    objects: ClassVar[SessionManager] = SessionManager()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def visible_to(self, user: User) -> "ApiTokenQuerySet":
        return self.filter(user=user)

    def usable(self) -> "ApiTokenQuerySet":
        now = timezone.now()
        return self.filter(user__is_active=True).filter(models.Q(expires=None) | models.Q(expires__gt=now))


class ApiToken(models.Model):
    """An API token. Only its SHA-256 is stored; the token is shown once. `scopes` is a list of scope names."""

    SCOPES = ("chat", "files", "projects", "tasks", "system", "admin")
    NOT_BY_DEFAULT = ("system", "admin")

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

    @property
    def ended(self) -> bool:
        return self.expires is not None and self.expires <= timezone.now()


def asked_with() -> Any:
    """Return a field for the API token of a request. The id outlives the token, as the token's usage does."""
    return models.ForeignKey(
        "accounts.ApiToken",
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
