"""The mark on a task whose checklist the server is to draft: who sets it, who takes it away.

It is due when a model's or hybrid task of a day is made, when one that a model has proposed is accepted, when the
user's own becomes one, and on the day to which one goes on without a checklist. A worker begins it
(`chat.runs.drafts`); what then becomes of it, its run says. A mark goes as soon as there is an item, whoever wrote it,
and with a task that is the user's own or finished.
Nothing here is called without the lock on the person's tasks (`projects.planner.services.lock_tasks`).
"""

from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.realtime import News, tell
from core.background import claim, enqueue
from core.sentences import NO_SENTENCE, Sentence
from projects.planner.models.task import Task
from projects.planner.rules import Actor

MOST = 20  # of one person that are due at a time; a loop that makes tasks must not cost without end
MANY = Sentence(
    "{most} other checklists of yours wait to be drafted, the most there may be. Ask for this one when they are done.",
    most=MOST,
)


def waiting() -> QuerySet[Task]:
    """What workers are to begin, the oldest first."""
    return Task.objects.filter(draft=Task.Draft.DUE, owner__is_active=True).order_by("id")


def fits(row: Task) -> bool:
    """Whether a model may draft a checklist for it."""
    is_days = (row.level, row.horizon) == (Task.Level.TASK, Task.Horizon.DAY)
    return is_days and row.archetype != Task.Archetype.USER and row.status in Task.UNFINISHED and not row.proposed


def ask(actor: Actor, row: Task) -> None:
    """Makes the draft of a task that has no items due.

    What a model has made waits for the end of its answer, in which it may write the checklist itself.
    """
    if not fits(row):
        return
    if Task.objects.filter(owner=row.owner_id, draft=Task.Draft.DUE).count() >= MOST:
        put(row, Task.Draft.REFUSED, "too_many_drafts", MANY)
        return
    put(row, Task.Draft.DUE)
    if not actor.model:
        transaction.on_commit(partial(enqueue, "chat.tasks.draft_checklist", row.pk))


def put(row: Task, draft: str = "", code: str = "", detail: Sentence = NO_SENTENCE) -> None:
    """Sets the mark, or takes it away. It is no change that the task's history tells of."""
    changes: dict[str, str | Sentence] = {"draft": draft, "draft_code": code, "draft_detail": detail}
    if changes == {name: getattr(row, name) for name in changes}:
        return
    for name, value in changes.items():
        setattr(row, name, value)
    Task.objects.filter(pk=row.pk).update(**changes, heartbeat=timezone.now())
    tell(row.owner_id, News.TASKS)


def take(task_id: UUID) -> bool:
    """Whether the draft was due, and is the caller's to begin."""
    return claim(waiting(), task_id, draft=Task.Draft.BEGUN)
