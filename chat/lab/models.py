"""The prompt lab: it plans stored turns again under other settings (`chat.lab`)."""

from typing import Any, ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from core.sentence_field import SentenceColumn
from personas.models import BudgetProfile


class ReplayQuerySet(models.QuerySet["Replay"]):
    def live(self) -> "ReplayQuerySet":
        return self.filter(status__in=Replay.LIVE)


AS_IN_THE_PROFILE = "Empty: the profile's value, or the value at that time."


def _choice(verbose_name: str, choices: type[models.TextChoices]) -> Any:
    return models.CharField(
        verbose_name, max_length=20, choices=choices, blank=True, default="", db_default="", help_text=AS_IN_THE_PROFILE
    )


def _instead(to: str, help_text: str, verbose_name: str | None = None) -> Any:
    # A replay is deleted with this row, since its figures mean nothing without the row.
    return models.ForeignKey(
        to,
        verbose_name=verbose_name,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text=help_text,
    )


class Replay(models.Model):
    """A job that plans stored turns again under other settings.

    With a `turn_id` that turn alone is planned. Without a `conversation` the turns are a sample of all turns. `total`
    is the number of turns; `planned` is the number of turns that are done. `totals` is a
    `chat.lab.services.TotalsJson`, empty before the first turn is done.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", _("Waiting")
        RUNNING = "running", _("Running")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")

    class CitationReminder(models.TextChoices):
        SEARCHED = "searched", _("Only after a search")
        ALWAYS = "always", _("Whenever documents are in the prompt")

    LIVE = (Status.QUEUED, Status.RUNNING)
    MAX_COUNT = 1_000  # turns in one replay
    MAX_ASKED = 20  # turns in a replay that asks the model

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    conversation = models.ForeignKey(
        "chat.Conversation", null=True, blank=True, on_delete=models.CASCADE, related_name="replays"
    )
    turn_id = models.UUIDField(null=True, editable=False)  # no key: the replay goes with the turn's conversation
    most = models.PositiveIntegerField(
        "turns at most", default=100, validators=[MinValueValidator(1), MaxValueValidator(MAX_COUNT)]
    )
    model = _instead("llm.Model", "Empty: the one that was asked.")
    profile = _instead("personas.BudgetProfile", "Empty: with the numbers of that time.", "budget profile")
    system_prompt = _instead("personas.SystemPrompt", "Empty: the version that was sent.")
    layout = _choice("order of the prompt", BudgetProfile.Layout)
    policy = _choice("what stays when not everything fits", BudgetProfile.Policy)
    note_form = _choice("mark of reminders, instructions and lists of files", BudgetProfile.NoteForm)
    reminder_place = _choice("place of the reminders", BudgetProfile.ReminderPlace)
    citation_reminder = _choice("reminder of citations", CitationReminder)
    asks = models.BooleanField("ask the model", default=False)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=0, editable=False)
    total = models.PositiveIntegerField(default=0)
    planned = models.PositiveIntegerField(default=0)
    totals: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    code = models.CharField(max_length=60, blank=True)
    detail = SentenceColumn(blank=True)
    heartbeat = models.DateTimeField(auto_now_add=True)
    created = models.DateTimeField(auto_now_add=True)
    finished = models.DateTimeField(null=True, blank=True)

    objects = ReplayQuerySet.as_manager()

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["-id"]
        verbose_name_plural = "prompt lab"
        indexes: ClassVar = [
            models.Index(
                fields=["heartbeat"], condition=Q(status__in=["queued", "running"]), name="replay_live_heartbeat"
            )
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def live(self) -> bool:
        return self.status in self.LIVE


class ReplayedTurn(models.Model):
    """One turn of a replay. It is deleted with the turn, since `answer` is a model's answer to the turn's question.

    `sent` and `planned` are `chat.lab.planning.FiguresJson`. They are empty if the turn cannot be compared; then
    `problems` has the reasons, each with a `code` and a `detail`. `changes` are the sources of the last call that
    differ between both prompts, without titles.
    """

    replay = models.ForeignKey(Replay, on_delete=models.CASCADE, related_name="turns")
    turn = models.ForeignKey("chat.Turn", on_delete=models.CASCADE, related_name="+")
    sent: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    planned: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    problems: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    changes: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    answer = models.TextField(blank=True)

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["replay", "turn"], name="turn_replayed_once")]

    def __str__(self) -> str:
        return str(self.turn_id)
