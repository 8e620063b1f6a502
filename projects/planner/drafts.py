"""Manage the draft mark of a task. The mark means that a model is to write the task's checklist in the background.

1. `request_draft` sets the mark of a day task to “due” if its archetype is model or hybrid. Services call it when such
   a task is created or accepted, when a user's own task becomes such a task, and when it moves to another day without a
   checklist.
2. A worker claims the draft (`claim_draft`, called by `chat.runs.drafts`) and starts a run. The mark becomes “begun”,
   and the run has the further state. The mark becomes “refused” if there are too many due drafts or no run can start.
3. The mark is removed as soon as the checklist has an item, when the run ends without a checklist, and when the task
   becomes the user's own or is finished.

Callers hold the lock of the user's tasks (`projects.planner.services.lock_tasks`).
"""

from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.realtime import News, notify
from core.background import claim, enqueue
from core.sentences import NO_SENTENCE, Sentence
from projects.planner.models.task import Task
from projects.planner.rules import Actor

MAX_DUE_DRAFTS = 20  # due drafts per user, which limit the cost of a loop that creates tasks
TOO_MANY_DRAFTS = Sentence(
    "{most} of your checklists already wait for a draft, which is the maximum. Ask for this one later.",
    most=MAX_DUE_DRAFTS,
)


def due_drafts() -> QuerySet[Task]:
    """Return the tasks with a due draft, oldest first."""
    return Task.objects.filter(draft=Task.Draft.DUE, owner__is_active=True).order_by("id")


def can_be_drafted(row: Task) -> bool:
    """Return whether a model may draft a checklist for the task."""
    is_day_task = (row.level, row.horizon) == (Task.Level.TASK, Task.Horizon.DAY)
    return is_day_task and row.archetype != Task.Archetype.USER and row.status in Task.UNFINISHED and not row.proposed


def request_draft(actor: Actor, row: Task) -> None:
    """Set the draft of a task to due if a model may draft it, or to refused at `MAX_DUE_DRAFTS` due drafts.

    The caller has checked that the task has no items. For a user's change the draft starts on commit. For a model's
    change it starts after the model's answer, which may contain the checklist.
    """
    if not can_be_drafted(row):
        return
    if Task.objects.filter(owner=row.owner_id, draft=Task.Draft.DUE).count() >= MAX_DUE_DRAFTS:
        set_draft(row, Task.Draft.REFUSED, "too_many_drafts", TOO_MANY_DRAFTS)
        return
    set_draft(row, Task.Draft.DUE)
    if not actor.model:
        transaction.on_commit(partial(enqueue, "chat.tasks.draft_checklist", row.pk))


def set_draft(row: Task, draft: str = "", code: str = "", detail: Sentence = NO_SENTENCE) -> None:
    """Set the mark, or remove it. The history of the task does not record the mark."""
    if (row.draft, row.draft_code, row.draft_detail) == (draft, code, detail):
        return
    row.draft = draft
    row.draft_code = code
    row.draft_detail = detail
    Task.objects.filter(pk=row.pk).update(draft=draft, draft_code=code, draft_detail=detail, heartbeat=timezone.now())
    notify(row.owner_id, News.TASKS)


def claim_draft(task_id: UUID) -> bool:
    """Claim a due draft. Return whether the caller has it and must start the run."""
    return claim(due_drafts(), task_id, draft=Task.Draft.BEGUN)
