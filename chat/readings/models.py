"""A question about the whole text of files that are larger than the window (`chat.readings`)."""

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from accounts.models import asked_with
from chat.models.conversation import Conversation
from core.sentence_field import SentenceColumn
from files.models import File


class ReadingQuerySet(models.QuerySet["Reading"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ReadingQuerySet":
        """Return the user's own readings, without those in deleted conversations."""
        return self.filter(Q(conversation=None) | Q(conversation__deleted=None), person_id=user.pk)

    def listed_for(self, user: AbstractBaseUser | AnonymousUser) -> "ReadingQuerySet":
        """Return the visible readings, without those in temporary conversations."""
        return self.visible_to(user).exclude(conversation__origin=Conversation.Origin.TEMPORARY)

    def live(self) -> "ReadingQuerySet":
        return self.filter(status__in=Reading.LIVE)


class Reading(models.Model):
    """A person's question about the whole text of files. Its calls are in the ledger (`ModelCall.reading`).

    The text joins the texts of its `files` in order. `file` is the first file, `file_name` has the names of all.
    `passages` has the end of each passage, in characters and in order: the first passage begins at 0, the last ends
    with the text. An answer cites passages by number, from 1. `text_sha256` is the digest of the text.
    `calls`, `tokens` and `cost` (US dollars) are the limits that its person agreed to; `asked` counts the calls since
    then. `only_answer`: unread parts stay unread.

    `citation_check` has the number of sentences that were `checked` against their passages, the `doubts` and `places`
    in the form of the event `CITATION_CHECK`, and a `note` if the check is incomplete; None before a check. `code` and
    `detail` say why the reading ended. `attempt` counts the claims, `tries` the claims without progress.

    A reading in `CHECKING` has its answer, so any end makes it `DONE`.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", _("Waiting")
        RUNNING = "running", _("Reading")
        CHECKING = "checking", _("Checking citations")
        DONE = "done", _("Done")
        STOPPED = "stopped", _("Stopped")
        FAILED = "failed", _("Failed")

    LIVE = (Status.QUEUED, Status.RUNNING, Status.CHECKING)
    MAX_QUESTION = 10_000  # characters

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="readings")
    conversation = models.ForeignKey(Conversation, null=True, on_delete=models.CASCADE, related_name="readings")
    file = models.ForeignKey(File, null=True, on_delete=models.SET_NULL, related_name="+")
    file_name = models.CharField(max_length=255)  # the names of several files are separated by commas
    question = models.TextField()
    model = models.ForeignKey("llm.Model", null=True, on_delete=models.SET_NULL, related_name="+")
    model_name = models.CharField(max_length=200)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    passages: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    text_sha256 = models.CharField(max_length=64)
    calls = models.PositiveIntegerField()
    tokens = models.PositiveBigIntegerField()
    cost = models.DecimalField(max_digits=26, decimal_places=12, null=True)
    token = asked_with()
    asked = models.PositiveIntegerField(default=0)
    only_answer = models.BooleanField(default=False)
    answer = models.TextField(blank=True)
    citation_check: "models.JSONField[Any, Any]" = models.JSONField(null=True, default=None)
    code = models.CharField(max_length=60, blank=True)
    detail = SentenceColumn(blank=True)
    attempt = models.PositiveIntegerField(default=0)
    tries = models.PositiveIntegerField(default=0)
    heartbeat = models.DateTimeField(auto_now_add=True)
    created = models.DateTimeField(auto_now_add=True)
    finished = models.DateTimeField(null=True, blank=True)

    objects = ReadingQuerySet.as_manager()

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(
                fields=["heartbeat"],
                condition=Q(status__in=["queued", "running", "checking"]),
                name="reading_live_heartbeat",
            )
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def live(self) -> bool:
        return self.status in self.LIVE


class ReadingFile(models.Model):
    """A file of a reading. Its text is characters [start, end) of the reading's text."""

    reading = models.ForeignKey(Reading, on_delete=models.CASCADE, related_name="files")
    file = models.ForeignKey(File, null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=255)
    start = models.PositiveIntegerField(default=0)
    end = models.PositiveIntegerField()

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["start"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["reading", "start"], name="one_file_of_a_reading_from_a_place")
        ]

    def __str__(self) -> str:
        return f"{self.reading_id}: {self.name}"


class ReadingPart(models.Model):
    """Characters [start, end) of the text with the model's notes on them (`findings`).

    The parts of level 0 cover the text, each within one file, and each is read by one call. A row of a higher level is
    the fold of the lower rows within its characters. `tokens` is the size of `findings`, which are empty if the model
    found nothing. `cut_off`: the notes reached the length limit.
    """

    class State(models.TextChoices):
        WAITING = "waiting", _("Not read yet")
        DONE = "done", _("Read")
        FAILED = "failed", _("Not read")

    reading = models.ForeignKey(Reading, on_delete=models.CASCADE, related_name="parts")
    level = models.PositiveSmallIntegerField(default=0)
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    findings = models.TextField(blank=True)
    tokens = models.PositiveIntegerField(default=0)
    cut_off = models.BooleanField(default=False)
    code = models.CharField(max_length=60, blank=True)
    detail = SentenceColumn(blank=True)

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["level", "start"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["reading", "level", "start"], name="one_part_of_a_reading_from_a_place")
        ]

    def __str__(self) -> str:
        return f"{self.reading_id}: {self.start}–{self.end}"
