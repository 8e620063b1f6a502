"""Objectives, tasks and checklist items, in one table, and the history of their changes.

docs/decisions/0005-one-table-for-tasks.md gives the reasons for one table. `projects.planner.rules` has the rules.
"""

from typing import ClassVar, NamedTuple

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from core.sentence_field import SentenceColumn
from core.sentences import Sentence
from projects.planner.models.codes import HORIZONS, MAX_LENGTH, MAX_NUMBER

MAX_TITLE = 200
MAX_NEEDS = 500
MAX_MODEL = 200


class TaskProgress(NamedTuple):
    done: int
    total: int


class TaskQuerySet(models.QuerySet["Task"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "TaskQuerySet":
        """Return the user's own tasks. Sharing a project does not share its tasks."""
        return self.filter(owner_id=user.pk)

    def in_list_of(self, task: "Task") -> "TaskQuerySet":
        """Return the rows of the list that contains `task`: its checklist, or all rows of its level and period."""
        if task.level == Task.Level.ITEM:
            return self.filter(parent_id=task.parent_id, level=task.level)
        return self.filter(owner_id=task.owner_id, level=task.level, horizon=task.horizon, date=task.date)


class Task(models.Model):
    """Objective, task or checklist item, by its `level`.

    `code`: its ID (`codes`), which never changes. `date`: the first day of its year or month, or its day. `position`:
    its position in its list (`TaskQuerySet.in_list_of`).

    Statuses, with their names in iCalendar (RFC 5545, STATUS of VTODO): open NEEDS-ACTION, doing IN-PROCESS, done
    COMPLETED, dropped CANCELLED. A waiting row needs the user (input-required in A2A). A moved row is a day task that
    continues under another code, `moved_to`.

    `breakpoint`, of an item: a model stops before it and says what it `needs`, until the user has `cleared` it.

    `model`: the name of the model that created it; empty for users. `proposed`: the user has not accepted it. No model
    works on a proposed row, and only prompts of the conversation `proposed_in`, in which it was created, contain it. A
    declined row is dropped and stays proposed.

    `draft`, for a model's day task without a checklist: the state of the draft (`projects.planner.drafts`).
    `draft_code` and `draft_detail` are the reason for a refusal. `heartbeat` is the time when a worker was last offered
    the draft.
    """

    class Level(models.TextChoices):
        OBJECTIVE = "objective", _("Objective")
        TASK = "task", _("Task")
        ITEM = "item", _("Checklist item")

    class Horizon(models.TextChoices):
        YEAR = "year", _("Year")
        MONTH = "month", _("Month")
        DAY = "day", _("Day")

    class Archetype(models.TextChoices):
        USER = "user", _("The user's")
        MODEL = "model", _("The model's")
        HYBRID = "hybrid", _("Both")

    class Status(models.TextChoices):
        OPEN = "open", _("Open")
        DOING = "doing", _("In progress")
        WAITING = "waiting", _("Waiting for you")
        DONE = "done", _("Done")
        DROPPED = "dropped", _("Dropped")
        MOVED = "moved", _("Moved")

    # Statuses inside a sentence, as in “M2026-11-T03 is done”.
    STATUS_WORDS: ClassVar[dict[str, Sentence]] = {
        "open": Sentence("open"),
        "doing": Sentence("doing"),
        "waiting": Sentence("waiting"),
        "done": Sentence("done"),
        "dropped": Sentence("dropped"),
        "moved": Sentence("moved"),
    }

    class Draft(models.TextChoices):
        DUE = "due", "Due"
        BEGUN = "begun", "Begun"
        REFUSED = "refused", "Refused"

    UNFINISHED = (Status.OPEN, Status.DOING, Status.WAITING)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tasks")
    level = models.CharField(max_length=10, choices=Level)
    horizon = models.CharField(max_length=10, choices=Horizon)
    code = models.CharField(max_length=MAX_LENGTH, editable=False)
    date = models.DateField()
    title = models.CharField(max_length=MAX_TITLE)
    notes = models.TextField(blank=True)
    archetype = models.CharField(max_length=10, choices=Archetype, blank=True, help_text="Only for tasks.")
    status = models.CharField(max_length=10, choices=Status, default=Status.OPEN)
    breakpoint = models.BooleanField(default=False)
    needs = models.CharField(max_length=MAX_NEEDS, blank=True)
    cleared = models.DateTimeField(null=True, blank=True)
    project = models.ForeignKey(
        "projects.Project", null=True, blank=True, on_delete=models.SET_NULL, related_name="tasks"
    )
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE, related_name="children")
    position = models.PositiveIntegerField(default=0)
    moved_to = models.OneToOneField("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="moved_from")
    model = models.CharField(max_length=MAX_MODEL, blank=True, default="", db_default="", editable=False)
    proposed = models.BooleanField(default=False, db_default=False, editable=False)
    proposed_in = models.UUIDField(null=True, blank=True, editable=False)
    created = models.DateTimeField(auto_now_add=True)
    updated = models.DateTimeField(auto_now=True)
    finished = models.DateTimeField(null=True, blank=True)
    draft = models.CharField(max_length=10, choices=Draft, blank=True, default="", db_default="")
    draft_code = models.CharField(max_length=60, blank=True, default="", db_default="")
    draft_detail = SentenceColumn(blank=True, default="", db_default="")
    heartbeat = models.DateTimeField(null=True, blank=True)

    objects = TaskQuerySet.as_manager()

    # Not columns; set by `with_progress` and `with_checklists` of `projects.planner.queries`.
    progress: TaskProgress | None = None
    checklist: list["Task"]

    class Meta:
        app_label = "projects"
        ordering: ClassVar = ["date", "position", "code"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "code"], name="one_task_per_code"),
            models.CheckConstraint(
                condition=Q(level="objective", horizon__in=HORIZONS["objective"])
                | Q(level="task", horizon__in=HORIZONS["task"])
                | Q(level="item", horizon__in=HORIZONS["item"]),
                name="task_level_has_horizon",
            ),
            models.CheckConstraint(
                condition=Q(level="task", archetype__in=["user", "model", "hybrid"])
                | (~Q(level="task") & Q(archetype="")),
                name="tasks_alone_have_an_archetype",
            ),
            models.CheckConstraint(
                condition=~Q(level="item") | Q(parent__isnull=False, project=None), name="an_item_is_of_a_task"
            ),
            models.CheckConstraint(
                condition=Q(breakpoint=False, needs="", cleared=None) | Q(breakpoint=True, level="item"),
                name="items_alone_have_breakpoints",
            ),
            models.CheckConstraint(
                condition=Q(finished=None, status__in=["open", "doing", "waiting"])
                | Q(finished__isnull=False, status__in=["done", "dropped", "moved"]),
                name="a_finished_task_says_when",
            ),
            models.CheckConstraint(condition=Q(proposed=False) | ~Q(model=""), name="models_alone_propose"),
            models.CheckConstraint(
                condition=Q(draft="") | Q(level="task", horizon="day"),
                name="drafts_are_for_day_tasks",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["owner", "date", "position", "code"], name="task_list"),
            models.Index(fields=["heartbeat"], condition=Q(draft="due"), name="task_draft_due"),
        ]

    def __str__(self) -> str:
        return self.code

    @property
    def to_decide(self) -> bool:
        """Return whether the user still has to accept or decline the row."""
        return self.proposed and self.status in self.UNFINISHED

    @property
    def declined(self) -> bool:
        """Return whether the user has declined the proposal, or the model has withdrawn it."""
        return self.proposed and self.status == self.Status.DROPPED

    @property
    def blocking(self) -> bool:
        """Return whether the row is an active breakpoint: it is unfinished, and the user has not cleared it."""
        return self.breakpoint and self.cleared is None and self.status in self.UNFINISHED


class CodeSeries(models.Model):
    """The last number used in a series of codes. It stays when rows are deleted, so that no number is reused."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    series = models.CharField(max_length=MAX_LENGTH)
    last = models.PositiveSmallIntegerField(default=0)

    class Meta:
        app_label = "projects"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "series"], name="one_counter_per_series"),
            models.CheckConstraint(condition=Q(last__lte=MAX_NUMBER), name="codes_have_two_digits"),
        ]

    def __str__(self) -> str:
        return self.series


class TaskChangeQuerySet(models.QuerySet["TaskChange"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "TaskChangeQuerySet":
        return self.filter(owner_id=user.pk)

    def of(self, task: Task) -> "TaskChangeQuerySet":
        """Return the changes of a task and its checklist, including changes of deleted items."""
        rows = self.filter(owner_id=task.owner_id)
        return rows.filter(Q(code=task.code) | Q(code__startswith=f"{task.code}."))


class TaskChange(models.Model):
    """A change of a task's field, with both values as text. The row outlives the task, since codes are never reused.

    `field`: a field of `Task`, or “created” (`after` is the title), or “deleted” (`before` is the title). `user`: the
    user who made the change, or for whom a model made it. `model`: the name of this model; empty if the user did it.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="task_changes")
    code = models.CharField(max_length=MAX_LENGTH)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    model = models.CharField(max_length=200, blank=True)
    field = models.CharField(max_length=20)
    before = models.TextField(blank=True)
    after = models.TextField(blank=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = TaskChangeQuerySet.as_manager()

    class Meta:
        app_label = "projects"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["owner", "code", "-id"], name="changes_of_a_task")]

    def __str__(self) -> str:
        return self.code
