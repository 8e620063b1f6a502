"""Show a task's run on pages: its steps item by item, and the reason why it waits.

The view is a fragment on the pages of tasks and conversations. Without scripts it is a separate page.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.models import Conversation
from chat.rendering import references
from chat.runs import services
from chat.runs.limits import compute_usage, get_profile
from chat.runs.transitions import NO_CHECKLIST, PROPOSED, checklist
from core.errors import NotFound, ProductError
from core.i18n import percent
from core.requests import with_row
from core.text import unix_lines
from projects.planner import drafts
from projects.planner.models import Run, RunStep, codes
from projects.planner.models.task import Task
from projects.planner.queries import visible_task

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


class StepView(NamedTuple):
    """A step for a page. `message`: the answer's id, None if it was deleted."""

    words: str
    turn: UUID | None
    message: UUID | None


class ItemView(NamedTuple):
    """An item for a page. `code` is the end of the item's code, from the dot on."""

    row: Task
    code: str
    words: str
    current: bool
    steps: list[StepView]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run for a page. `draft`: the steps that wrote the checklist."""

    row: Run
    used: str
    draft: list[StepView]
    items: list[ItemView]

    @property
    def live(self) -> bool:
        return self.row.status in Run.LIVE

    @property
    def waits(self) -> bool:
        return self.row.status == Run.Status.WAITING

    @property
    def confirms(self) -> bool:
        """Return whether the run waits at a breakpoint or a proposed item, which need no text."""
        return self.waits and self.row.code in ("breakpoint", PROPOSED)

    @property
    def answers(self) -> bool:
        """Return whether the user can send a text to the run."""
        return self.waits and self.row.code in ("breakpoint", PROPOSED, "question", "item_unfinished", NO_CHECKLIST)

    @property
    def startable(self) -> bool:
        written = self.waits and self.row.code == NO_CHECKLIST and bool(self.items)
        return self.row.status == Run.Status.READY or written

    @property
    def retryable(self) -> bool:
        ended = self.row.status in (Run.Status.FAILED, Run.Status.STOPPED)
        return ended or (self.waits and self.row.code not in ("breakpoint", PROPOSED, "question"))

    @property
    def tag(self) -> str:
        """Return a digest of everything that the page shows."""
        run = (self.row.status, self.row.code, self.row.detail, self.row.needs, self.used, self.draft)
        items = [
            (each.row.title, each.words, each.row.blocking, each.row.needs, each.current, each.steps)
            for each in self.items
        ]
        return sha256(repr((run, items)).encode()).hexdigest()[:12]


@with_row(visible_task, "GET", "POST")
def task_run(request: Request, task: Task) -> HttpResponse:
    """Show the task's newest run, or the button that starts a run. A POST starts a run."""
    if request.method == "GET":
        return _show_run(request, task)
    try:
        services.create_run(user=request.user, task=task)
    except ProductError as error:
        return _show_error(request, task, error)
    return _redirect_after(request, task)


@with_row(services.visible_run)
def act(request: Request, run: Run, what: str) -> HttpResponse:
    """Start, stop, answer or retry a run. `what` names the action."""
    try:
        if what == "answer":
            services.answer_run(user=request.user, run=run, text=unix_lines(request.POST.get("text", "")))
        else:
            actions = {"start": services.start_run, "stop": services.stop_run, "retry": services.retry_run}
            actions[what](user=request.user, run=run)
    except ProductError as error:
        return _show_error(request, run.task, error)
    return _redirect_after(request, run.task, run)


@require_GET
def by_code(request: Request, code: str) -> HttpResponse:
    """Redirect a mention to the task's page, also for its items."""
    if not codes.is_code(code.upper()):
        raise NotFound("task")
    task = visible_task(request.user, code.upper())
    return redirect("tasks:task", task.parent_id if task.level == Task.Level.ITEM and task.parent_id else task.pk)


@require_GET
def offer(request: Request) -> HttpResponse:
    """Return the tasks, files and conversations that match the text behind an @, as the options of a list."""
    matches = references.offer_mentions(user=request.user, typed=request.GET.get("q", ""))
    return render(request, "chat/_mentions.html", matches._asdict())


def _show_run(request: Request, task: Task, *, status: int = 200, problem: ProductError | None = None) -> HttpResponse:
    run = services.list_runs(request.user).filter(task=task).first()
    view = run_view(run) if run else None
    compact = "compact" in request.GET or "compact" in request.POST
    shown_state = request.GET.get("seen")
    may_start = drafts.can_be_drafted(task)
    state = (view.tag if view is not None else "startable" if may_start else "none") + task.draft
    if shown_state == state and problem is None:  # nothing new; an error on the page stays until something changes
        return HttpResponse(status=204)
    context = {
        "task": task,
        "run": view,
        "startable": may_start,
        "compact": compact,
        "problem": problem,
    }
    if not request.htmx:
        return render(request, "chat/run.html", {**context, "section": "tasks"}, status=status)
    response = render(request, "chat/_run.html", context, status=status)
    if problem is not None:  # pages show an error response only if it names its target
        response["HX-Retarget"] = f"#run-{task.pk}"
        response["HX-Reswap"] = "outerMorph"
    if shown_state or request.method == "POST":
        response["HX-Trigger"] = "taskschange"  # the page's list of items has changed, too
    return response


def _redirect_after(request: Request, task: Task, run: Run | None = None) -> HttpResponse:
    if request.htmx:
        return _show_run(request, task)
    if run is not None and "compact" in request.POST:
        return redirect("chat:conversation", run.conversation_id)
    return redirect("chat:task_run", task.pk)


def _show_error(request: Request, task: Task, error: ProductError) -> HttpResponse:
    """Show the error together with the run as it is now, since it has often just changed."""
    return _show_run(request, task, status=error.status, problem=error)


def run_of_conversation(user: User, conversation: Conversation | None) -> RunView | None:
    run = services.list_runs(user).filter(conversation=conversation).first() if conversation else None
    return run_view(run) if run else None


def run_view(run: Run) -> RunView:
    by_code: dict[str, list[StepView]] = {}
    for step in run.steps.select_related("turn").defer("turn__report").order_by("number"):
        words = str(STEP_STATUSES[RunStep.Status(step.status)])
        shown = StepView(words, step.turn_id, step.turn.answer_id if step.turn else None)
        by_code.setdefault(step.code, []).append(shown)
    items = [
        ItemView(
            row=row,
            code=row.code[len(run.task.code) :],
            words=str(ITEM_STATUSES[Task.Status(row.status)]),
            current=row.pk == run.item_id and run.status in Run.OPEN,
            steps=by_code.get(row.code, []),
        )
        for row in checklist(run.task)
    ]
    return RunView(run, _describe_usage(run), by_code.get("", []), items)


def _describe_usage(run: Run) -> str:
    usage = compute_usage(run)
    caps = get_profile(run)
    template = _("%(steps)s of %(most_steps)s steps · %(minutes)s of %(most)s min · %(percent)s of what it may read")
    return template % {
        "steps": usage.steps,
        "most_steps": caps.run_max_steps,
        "percent": percent(usage.tokens, caps.run_max_tokens),
        "minutes": int(usage.minutes),
        "most": caps.run_max_minutes,
    }
