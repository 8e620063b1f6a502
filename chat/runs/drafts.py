"""Let a model draft checklists for new tasks. `projects.planner.drafts` chooses the tasks.

A draft begins in a single transaction, which clears the task's mark and stores the run and its first turn. If a worker
dies during it, nothing is stored, and the sweeper offers the task again. If two workers begin the same draft, only one
finds the mark. From then on the run handles a model that is silent or fails. A run has no tool that makes tasks, so a
draft cannot cause another draft.
"""

import logging
from datetime import timedelta
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from chat.models import Turn
from chat.runs.services import create_run
from core import background
from core.errors import ProductError
from projects.planner import drafts
from projects.planner.models import Run
from projects.planner.models.task import Task, TaskChange
from projects.planner.services import lock_tasks

MAX_DRAFTS = 2  # drafts per person, so that many new tasks do not use up places for turns or a provider's limit
MODEL_DRAFT_TIME = timedelta(minutes=2)  # time for a model that makes a task in an answer to write the checklist itself
# Errors after which no draft is needed: somebody already works on the task, or nobody should any more.
OUTDATED_DRAFT = ("run_open", "for_the_user", "finished", "was_moved", "right_missing")

logger = logging.getLogger(__name__)


def begin_draft(task_id: UUID) -> None:
    """Begin a draft that is due, if it can begin now. An error is stored with the task for its owner to see."""
    try:
        with transaction.atomic():
            task = drafts.due_drafts().select_related("owner").filter(pk=task_id).first()
            if task is None:
                return
            lock_tasks(task.owner)
            if not _must_wait(task) and drafts.claim_draft(task_id):
                create_run(user=task.owner, task=task, unasked=True)
    except ProductError as error:
        _store_refusal(task_id, error)
    except (OperationalError, InterfaceError):
        logger.warning("task %s: its draft starts when the database is available", task_id)
    except Exception:
        logger.exception("the draft for task %s could not start", task_id)
        _store_refusal(task_id, ProductError("internal_error", "An internal error occurred."))


def find_unclaimed() -> list[UUID]:
    """Return the tasks with a due draft that no worker has begun."""
    return background.take_unclaimed(drafts.due_drafts())


def find_due_for_owner(conversation_id: UUID) -> list[UUID]:
    """Return the first due drafts of a conversation's owner. They may have waited for an answer to end."""
    owned = drafts.due_drafts().filter(owner__conversations=conversation_id)
    return list(owned.values_list("pk", flat=True)[:MAX_DRAFTS])


def _must_wait(task: Task) -> bool:
    """Return whether a draft must wait for other drafts of the task's owner, or for the answer that made the task."""
    drafting = Run.objects.filter(owner=task.owner, unasked=True, status=Run.Status.DRAFTING)
    if drafting.count() >= MAX_DRAFTS:
        return True
    by_model = TaskChange.objects.filter(owner=task.owner, code=task.code, field="created").exclude(model="")
    live_turns = Turn.objects.live().filter(conversation__owner=task.owner, created__lt=task.created)
    return task.created > timezone.now() - MODEL_DRAFT_TIME and by_model.exists() and live_turns.exists()


@transaction.atomic
def _store_refusal(task_id: UUID, error: ProductError) -> None:
    task = drafts.due_drafts().select_related("owner").filter(pk=task_id).first()
    if task is None:
        return
    lock_tasks(task.owner)
    if not drafts.claim_draft(task_id):
        return
    if error.code in OUTDATED_DRAFT:
        drafts.set_draft(task)
    else:
        drafts.set_draft(task, Task.Draft.REFUSED, error.code, error.sentence)
