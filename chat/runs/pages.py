"""What a page shows of a task's newest run: item by item what the model did, and what it waits for."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import User
from chat.models import Conversation, Run, RunStep
from chat.runs.limits import profile_of, used
from chat.runs.transitions import NO_CHECKLIST, checklist
from core.i18n import grouped
from projects.models.task import Task

STATUSES = {
    Run.Status.DRAFTING: gettext_lazy("Drafting the checklist"),
    Run.Status.READY: gettext_lazy("Ready to start"),
    Run.Status.RUNNING: gettext_lazy("Running"),
    Run.Status.WAITING: gettext_lazy("Waiting for you"),
    Run.Status.STOPPED: gettext_lazy("Stopped"),
    Run.Status.FAILED: gettext_lazy("Failed"),
    Run.Status.DONE: gettext_lazy("Done"),
}
ITEM_STATUSES = {
    Task.Status.OPEN: gettext_lazy("open"),
    Task.Status.DOING: gettext_lazy("in progress"),
    Task.Status.WAITING: gettext_lazy("waiting"),
    Task.Status.DONE: gettext_lazy("done"),
    Task.Status.DROPPED: gettext_lazy("dropped"),
    Task.Status.MOVED: gettext_lazy("moved"),
}
STEP_STATUSES = {
    RunStep.Status.RUNNING: gettext_lazy("being written"),
    RunStep.Status.DONE: gettext_lazy("answer"),
    RunStep.Status.OPEN: gettext_lazy("left it open"),
    RunStep.Status.ASKED: gettext_lazy("asked you"),
    RunStep.Status.STOPPED: gettext_lazy("stopped"),
    RunStep.Status.FAILED: gettext_lazy("failed"),
    RunStep.Status.INTERRUPTED: gettext_lazy("interrupted"),
}


@dataclass(frozen=True, slots=True)
class StepView:
    """`message` is the answer's, None when it was deleted."""

    words: str
    turn: UUID | None
    message: UUID | None


@dataclass(frozen=True, slots=True)
class ItemView:
    """`code` begins with the dot; `needs` is what a breakpoint that stands asks for."""

    code: str
    title: str
    status: str
    words: str
    current: bool
    stops: bool
    needs: str
    steps: list[StepView]


@dataclass(frozen=True, slots=True)
class RunView:
    """`tag` changes with what is shown. `answers`: a text can be given; `confirms`: none is needed."""

    id: UUID
    task: Task
    conversation: UUID
    status: str
    words: str
    detail: str
    needs: str
    used: str
    draft: list[StepView]
    items: list[ItemView]
    live: bool
    waits: bool
    confirms: bool
    answers: bool
    startable: bool
    retryable: bool
    tag: str


def newest(user: User, task: Task) -> Run | None:
    return _rows(user).filter(task=task).first()


def of_conversation(user: User, conversation: Conversation | None) -> RunView | None:
    run = _rows(user).filter(conversation=conversation).first() if conversation else None
    return run_view(run) if run else None


def startable(task: Task) -> bool:
    """Whether a run of it could be begun."""
    is_days = (task.level, task.horizon) == (Task.Level.TASK, Task.Horizon.DAY)
    return is_days and task.archetype != Task.Archetype.USER and task.status in Task.UNFINISHED


def run_view(run: Run) -> RunView:
    by_code: dict[str, list[StepView]] = {}
    for step in run.steps.select_related("turn").defer("turn__report").order_by("number"):
        by_code.setdefault(step.code, []).append(_step(step))
    rows = checklist(run.task)
    waits = run.status == Run.Status.WAITING
    standing = waits and run.code == "breakpoint"
    shown: dict[str, Any] = {
        "status": run.status,
        "words": str(STATUSES[Run.Status(run.status)]),
        "detail": run.detail,
        "needs": run.needs or (_("your word that it may go on") if standing else ""),
        "used": _used(run),
        "draft": by_code.get("", []),
        "items": [_item(row, run, by_code.get(row.code, [])) for row in rows],
        "live": run.status in Run.LIVE,
        "waits": waits,
        "confirms": standing,
        "answers": waits and run.code in ("breakpoint", "question", "item_unfinished", NO_CHECKLIST),
        "startable": run.status == Run.Status.READY or (waits and run.code == NO_CHECKLIST and bool(rows)),
        "retryable": run.status in (Run.Status.FAILED, Run.Status.STOPPED)
        or (waits and run.code not in ("breakpoint", "question")),
    }
    tag = sha256(repr(sorted(shown.items())).encode()).hexdigest()[:12]
    return RunView(id=run.pk, task=run.task, conversation=run.conversation_id, tag=tag, **shown)


def _rows(user: User) -> QuerySet[Run]:
    related = ("task", "item", "conversation__owner", "conversation__project", "conversation__persona__budget_profile")
    return Run.objects.visible_to(user).select_related(*related).order_by("-id")


def _step(step: RunStep) -> StepView:
    message = step.turn.answer_id if step.turn else None
    return StepView(str(STEP_STATUSES[RunStep.Status(step.status)]), step.turn_id, message)


def _item(row: Task, run: Run, steps: list[StepView]) -> ItemView:
    return ItemView(
        code=row.code[len(run.task.code) :],
        title=row.title,
        status=row.status,
        words=str(ITEM_STATUSES[Task.Status(row.status)]),
        current=row.pk == run.item_id and run.status in Run.OPEN,
        stops=row.blocking,
        needs=row.needs,
        steps=steps,
    )


def _used(run: Run) -> str:
    so_far, caps = used(run), profile_of(run)
    words = _("%(steps)s of %(most_steps)s steps · %(tokens)s of %(most_tokens)s tokens · %(minutes)s of %(most)s min")
    return words % {
        "steps": so_far.steps,
        "most_steps": caps.run_max_steps,
        "tokens": grouped(so_far.tokens),
        "most_tokens": grouped(caps.run_max_tokens),
        "minutes": int(so_far.minutes),
        "most": caps.run_max_minutes,
    }
