"""Lock, settle and save the rows of a run, inside the transaction that holds the run's lock."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from django.db.models import Subquery
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from accounts.realtime import News, notify
from accounts.webhooks.services import emit
from chat.models import Turn
from chat.runs import prompts
from core.errors import ProductError
from core.sentences import NO_SENTENCE, Sentence
from projects.planner.models import Run, RunStep
from projects.planner.models.task import Task
from projects.planner.rules import Actor
from projects.planner.services import mark_draft_begun, set_status
from workspace.models import WorkspaceVersion

# The allowed transitions: from a status to the statuses that may follow it, with the reasons. “done” is final.
_ENDS: Mapping[str, str] = {
    Run.Status.STOPPED: "its person stops it, takes the task over, or deletes the conversation",
    Run.Status.FAILED: "it has used up its steps, tokens or minutes",
    Run.Status.DONE: "the task is done",
}
_AGAIN: Mapping[str, str] = {
    Run.Status.DRAFTING: "it goes on with the draft",
    Run.Status.RUNNING: "it goes on with the items",
}
TRANSITIONS: Mapping[str, Mapping[str, str]] = {
    Run.Status.DRAFTING: {
        Run.Status.DRAFTING: "the model is asked for the checklist, or reminded",
        Run.Status.READY: "the checklist is drafted and its person is to look at it, also where its prompt was cut",
        Run.Status.RUNNING: "the checklist is there and the run starts by itself",
        Run.Status.WAITING: "the model asks, has drafted nothing, or cannot be asked",
        **_ENDS,
    },
    Run.Status.READY: {Run.Status.RUNNING: "its person accepts the checklist", **_ENDS},
    Run.Status.RUNNING: {
        Run.Status.RUNNING: "the next item is begun, or the same once more",
        Run.Status.WAITING: "a breakpoint, a question, an unfinished item, or a turn that failed",
        **_ENDS,
    },
    Run.Status.WAITING: {
        Run.Status.WAITING: "it goes on and waits for something else",
        **_AGAIN,  # its person answers, or the event that it waits for has happened
        **_ENDS,
    },
    Run.Status.STOPPED: _AGAIN,  # its person tries again
    Run.Status.FAILED: _AGAIN,
    Run.Status.DONE: {},
}
MAX_INTERRUPTED_TURNS = 3  # interrupted turns of one item in a row, after which the run asks its person
NO_CHECKLIST = "no_checklist"
PROPOSED = "proposed"  # a model outside the run has written the next item, and nobody has accepted it


def lock_run(run_id: UUID) -> Run | None:
    """Lock a run. Locks its person's tasks first (`projects.planner.services.lock_tasks`).

    The steps of a run change tasks and begin turns, which lock the conversation and the person's queue. All code takes
    the locks in this order.
    """
    owner = Run.objects.filter(pk=run_id).values("owner")
    User.objects.select_for_update(no_key=True).filter(pk__in=owner).first()
    rows = Run.objects.select_for_update(of=("self",)).filter(pk=run_id)
    related = ("owner", "model", "item", "task", "conversation__persona__budget_profile", "conversation__project")
    version = Subquery(WorkspaceVersion.objects.values("version"))
    return rows.select_related(*related).annotate(version=version).first()


def save(run: Run) -> None:
    """Store the run, and notify its person's pages and webhooks."""
    _notify_if_waiting(run)
    run.heartbeat = timezone.now()
    run.save(update_fields=["status", "item", "needs", "code", "detail", "started", "finished", "heartbeat"])
    notify(run.owner_id, News.TASKS)


def _notify_if_waiting(run: Run) -> None:
    """Emit run.waiting if the run enters that status, or if the reason for waiting has changed."""
    unchanged = Run.objects.filter(pk=run.pk, status=run.status, code=run.code, item=run.item_id)
    if run.status != Run.Status.WAITING or unchanged.exists():
        return
    ids = {"run": str(run.pk), "task": str(run.task_id), "conversation": str(run.conversation_id), "code": run.code}
    paths = {
        "url": reverse("run-detail", args=[run.pk]),
        "page": reverse("chat:conversation", args=[run.conversation_id]),
    }
    emit(owner_id=run.owner_id, event="run.waiting", ids=ids, paths=paths)


def change_status(run: Run, status: str, code: str = "", detail: Sentence = NO_SENTENCE, *, needs: str = "") -> None:
    """Change the status of the run. Raises `ValueError` if `TRANSITIONS` does not allow the change."""
    if status not in TRANSITIONS[run.status]:
        raise ValueError(run.status, status)
    run.status = status
    run.code = code
    run.detail = detail
    run.needs = needs
    run.finished = timezone.now() if status in _ENDS else None


def actor(run: Run) -> Actor:
    return Actor(run.owner, run.model.name if run.model else "a model that was removed")


def checklist(task: Task) -> Sequence[Task]:
    items = Task.objects.filter(parent=task, level=Task.Level.ITEM).select_related("parent", "moved_to")
    return list(items.order_by("position", "code"))


def settle(run: Run, step: RunStep) -> None:
    """Set the status of a step whose turn has ended. If the run is live, also make it wait or end as required."""
    step.status = _outcome(run, step)
    step.save(update_fields=["status"])
    if run.status not in Run.LIVE:
        return
    label = f"@{step.code}" if step.code else f"the draft for @{run.task.code}"
    if step.question:
        wait(run, "question", Sentence.verbatim(step.question), needs=step.question)
    elif step.status == RunStep.Status.OPEN and step.reminds:
        if step.code:
            wait(run, "item_unfinished", Sentence(prompts.UNFINISHED, code=label))
        else:
            wait(run, NO_CHECKLIST, Sentence(prompts.NO_CHECKLIST))
    elif step.status == RunStep.Status.STOPPED:
        end(run, Run.Status.STOPPED, "stopped", Sentence(prompts.ANSWER_STOPPED))
    elif step.status == RunStep.Status.FAILED:
        answer = step.turn.answer if step.turn else None
        if answer is None:
            wait(run, "step_gone", Sentence(prompts.MESSAGES_DELETED))
        else:
            wait(run, answer.error_code, answer.error_detail)
    elif step.status == RunStep.Status.INTERRUPTED and _is_interrupted_repeatedly(run, step):
        wait(run, "interrupted", Sentence(prompts.INTERRUPTED, tries=MAX_INTERRUPTED_TURNS, code=label))


def wait(run: Run, code: str, detail: Sentence, *, needs: str = "") -> list[Turn]:
    """Make the run wait for its person. Return an empty list, since this begins no turns."""
    change_status(run, Run.Status.WAITING, code, detail, needs=needs)
    mark(run, run.task, Task.Status.WAITING)
    if run.item is not None:
        mark(run, run.item, Task.Status.WAITING)
    return []


def end(run: Run, status: str, code: str = "", detail: Sentence = NO_SENTENCE) -> list[Turn]:
    """End the run and reopen tasks in progress. Return an empty list, since this begins no turns."""
    change_status(run, status, code, detail)
    mark_draft_begun(user=run.owner, task=run.task, ended=True)
    for row in (run.task, run.item):
        if row is not None:
            mark(run, row, Task.Status.OPEN, only=(Task.Status.DOING, Task.Status.WAITING))
    return []


def mark(run: Run, row: Task, status: str, *, only: Sequence[str] = Task.UNFINISHED) -> None:
    """Set the status of a task or item, unless its user has changed it to a status that is not in `only`."""
    current = Task.objects.filter(pk=row.pk).values_list("status", flat=True).first()
    if current not in only or current == status:
        return
    with suppress(ProductError):
        row.status = set_status(actor=actor(run), task=row, status=status).status


def _outcome(run: Run, step: RunStep) -> str:
    if _has_reached_goal(run, step):
        return RunStep.Status.DONE
    if step.turn is None:
        return RunStep.Status.FAILED
    if step.turn.status == Turn.Status.DONE:
        return RunStep.Status.ASKED if step.question else RunStep.Status.OPEN
    return str(step.turn.status)  # stopped, failed and interrupted are the same words


def _has_reached_goal(run: Run, step: RunStep) -> bool:
    """Return whether the step has reached its goal, however its turn ended. A deleted item counts as done."""
    if not step.code:
        return bool(checklist(run.task))
    status = Task.objects.filter(owner=run.owner_id, code=step.code).values_list("status", flat=True).first()
    return status not in Task.UNFINISHED


def _is_interrupted_repeatedly(run: Run, step: RunStep) -> bool:
    last = (
        run.steps.filter(code=step.code).order_by("-attempt").values_list("status", flat=True)[:MAX_INTERRUPTED_TURNS]
    )
    return list(last) == [RunStep.Status.INTERRUPTED] * MAX_INTERRUPTED_TURNS
