"""Runs, in which a model works through the checklist of a task. `chat.runs` executes them."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from accounts.models import asked_with
from core.sentence_field import SentenceColumn
from projects.planner.models.codes import MAX_LENGTH


class RunQuerySet(models.QuerySet["Run"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "RunQuerySet":
        return self.filter(owner_id=user.pk)

    def live(self) -> "RunQuerySet":
        return self.filter(status__in=Run.LIVE)


class Run(models.Model):
    """A model's work on the checklist of a task, item by item. Each item is a turn of the run's conversation.

    The rows determine the next step (`chat.runs.state_machine`). `started`: the time when the checklist was accepted;
    before that it is being drafted. `item`: the current item. For a run that waits or has failed, `code` is the reason
    for programs, `detail` the reason in a sentence, and `needs` the request to the user.
    """

    class Status(models.TextChoices):
        DRAFTING = "drafting", _("Drafting the checklist")
        READY = "ready", _("Ready to start")
        RUNNING = "running", _("Running")
        WAITING = "waiting", _("Waiting for you")
        STOPPED = "stopped", _("Stopped")
        FAILED = "failed", _("Failed")
        DONE = "done", _("Done")

    LIVE = (Status.DRAFTING, Status.RUNNING)
    UNFINISHED = (*LIVE, Status.WAITING)
    OPEN = (*LIVE, Status.READY, Status.WAITING)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="runs")
    task = models.ForeignKey("projects.Task", on_delete=models.CASCADE, related_name="runs")
    conversation = models.OneToOneField("chat.Conversation", on_delete=models.CASCADE, related_name="run")
    model = models.ForeignKey(
        "llm.Model", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="None: the usual."
    )
    token = asked_with()
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFTING)
    starts_itself = models.BooleanField(default=False, help_text="Its draft starts without being accepted.")
    unasked = models.BooleanField(
        default=False, db_default=False, help_text="The server started it. A person's request for a run takes it over."
    )
    item = models.ForeignKey("projects.Task", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    needs = models.TextField(blank=True)
    code = models.CharField(max_length=60, blank=True)
    detail = SentenceColumn(blank=True)
    created = models.DateTimeField(auto_now_add=True)
    started = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)
    heartbeat = models.DateTimeField(help_text="When the next step was last determined.")

    objects = RunQuerySet.as_manager()

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["task"],
                condition=Q(status__in=["drafting", "ready", "running", "waiting"]),
                name="one_open_run_per_task",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["heartbeat"], condition=Q(status__in=["drafting", "running", "waiting"]), name="run_heartbeat"
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class RunStep(models.Model):
    """A turn of a run.

    `code`: the code of its item; empty for a drafting turn. Codes are never reused. `number` counts from 1 in the
    run, `attempt` from 1 for the item. `reminds`: the turn only reminds the model of an item that it left open.
    `question`: the model's question to the user.
    """

    class Status(models.TextChoices):
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        OPEN = "open", "Left open"
        ASKED = "asked", "Asked you"
        STOPPED = "stopped", "Stopped"
        FAILED = "failed", "Failed"
        INTERRUPTED = "interrupted", "Interrupted"

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="steps")
    number = models.PositiveSmallIntegerField()
    code = models.CharField(max_length=MAX_LENGTH, blank=True)
    attempt = models.PositiveSmallIntegerField()
    reminds = models.BooleanField(default=False)
    turn = models.OneToOneField("chat.Turn", null=True, on_delete=models.SET_NULL, related_name="step")
    status = models.CharField(max_length=12, choices=Status, default=Status.RUNNING)
    question = models.TextField(blank=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["run", "number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "number"], name="run_steps_in_order"),
            models.UniqueConstraint(fields=["run", "code", "attempt"], name="one_step_per_attempt"),
            models.UniqueConstraint(fields=["run"], condition=Q(status="running"), name="one_step_at_a_time"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.number}"
