"""User actions on runs, for pages, the API and the admin. `state_machine` decides the next step."""

from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet
from django.utils import timezone

from accounts.access.rights import require
from accounts.models import Right, User
from chat.conversations.services import MAX_TITLE, create_conversation
from chat.ledger.limits import require_within_limits
from chat.models import Turn
from chat.realtime.event_stream import notify_pages
from chat.runs import prompts
from chat.runs import state_machine as runs
from chat.runs.transitions import end, lock_run, save
from chat.turns.services import stop_turn
from chat.turns.submit import Ask
from core.audit.origin import current_origin
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.permissions import has_right
from core.requests import get_or_404
from core.sentences import Sentence
from llm.models import Model
from personas.models import Persona
from personas.services import model_for
from projects.planner.models import Run, RunStep
from projects.planner.models.task import Task
from projects.planner.queries import visible_task
from projects.planner.rules import check_not_moved
from projects.planner.services import lock_tasks


def list_runs(user: User) -> QuerySet[Run]:
    """Return a person's runs, newest first, with the rows that a page or a program needs."""
    related = ("task", "item", "conversation__owner", "conversation__project", "conversation__persona__budget_profile")
    return Run.objects.visible_to(user).select_related(*related).order_by("-id")


def visible_run(user: User, pk: object) -> Run:
    """Return a run of the user. Raises `NotFound`."""
    return get_or_404(list_runs(user), pk, "run")


def create_run(
    *,
    user: User,
    task: Task,
    persona: Persona | None = None,
    model: Model | None = None,
    starts_itself: bool = False,
    unasked: bool = False,
) -> Run:
    """Create a run in a new conversation. The run drafts the task's checklist, or works through the existing checklist.

    `starts_itself`: the run starts the drafted checklist without a person's approval. `unasked`: the server creates the
    run. A person who then creates a run for the task takes over this run. Raises `not_a_day_task`, `right_missing`
    (403), and with 409 `for_the_user`, `finished`, `was_moved`, `run_open` and `model_without_tools`; `limit_reached`
    (429).
    """
    require(user, Right.RUN_TASKS)
    task = visible_task(user, task.pk)
    _check_task(task)
    if persona is None and task.project is not None:
        persona = task.project.persona
    chosen = model or model_for(persona, user)
    if not chosen.tools:
        raise ProductError(
            "model_without_tools",
            Sentence(
                "A run needs a model that can call tools, and {name} cannot. Choose a persona whose model can, for "
                "the run or for the task's project.",
                name=chosen.name,
            ),
            status=409,
        )
    token = current_origin().token_id
    require_within_limits(user.pk, token, None)  # without a lock: each turn of the run checks again
    run = Run(owner=user, task=task, model=chosen, starts_itself=starts_itself, unasked=unasked, token_id=token)
    try:
        _begin(run, persona)
    except ProductError as error:
        if unasked or error.code != "run_open":
            raise
        run = runs.take_over(user=user, requested=run, persona=persona)
    return _with_notice(user, run)


def _begin(run: Run, persona: Persona | None) -> None:
    task = run.task
    try:
        with transaction.atomic():
            lock_tasks(run.owner)
            if Run.objects.filter(task=task, status__in=Run.OPEN).exists():
                raise runs.run_open_error()
            title = task.title[:MAX_TITLE]
            run.conversation = create_conversation(user=run.owner, title=title, persona=persona, project=task.project)
            run.heartbeat = timezone.now()
            run.save(force_insert=True)
            runs.begin_run(user=run.owner, run_id=run.pk)
    except IntegrityError as error:
        raise runs.run_open_error() from error


def start_run(*, user: User, run: Run) -> Run:
    """Accept the drafted checklist as it is now, and start it."""
    require(user, Right.RUN_TASKS)
    runs.start(user=user, run_id=run.pk)
    return _with_notice(user, run)


def retry_run(*, user: User, run: Run) -> Run:
    """Resume a run that waits, has failed or was stopped."""
    require(user, Right.RUN_TASKS)
    runs.retry(user=user, run_id=run.pk)
    return _with_notice(user, run)


def answer_run(*, user: User, run: Run, text: str = "") -> Run:
    """Confirm a breakpoint, or answer the run's question."""
    require(user, Right.RUN_TASKS)
    runs.answer(user=user, run_id=run.pk, ask=Ask(text))
    return _with_notice(user, run)


def stop_run(*, user: User, run: Run) -> Run:
    """Stop a run and the answer that is being written. A run that has ended does not change. Staff may stop any run."""
    if run.owner_id != user.pk and not has_right(user, "change", run):
        raise NotFound("run")
    with transaction.atomic():
        current = lock_run(run.pk)
        if current is None:
            raise NotFound("run")
        if current.status in Run.OPEN:
            end(current, Run.Status.STOPPED, "stopped", Sentence(prompts.STOPPED))
            save(current)
            if run.owner_id != user.pk:
                record(user=user, action="run.stopped_by_admin", row=run)
            notify_pages(current.conversation)
    steps = RunStep.objects.filter(run=current, status=RunStep.Status.RUNNING)
    turn = Turn.objects.live().filter(step__in=steps).select_related("conversation__owner").first()
    if turn is not None:
        stop_turn(user=turn.conversation.owner, turn=turn)
    current.refresh_from_db()
    return current


def _check_task(task: Task) -> None:
    if (task.level, task.horizon) != (Task.Level.TASK, Task.Horizon.DAY):
        raise ProductError("not_a_day_task", "Only day tasks can be run. Create one for today, and run it.")
    check_not_moved(task)
    if task.archetype == Task.Archetype.USER:
        raise ProductError(
            "for_the_user",
            Sentence("{code} is your own. Make it a model or hybrid task, then run it.", code=task.code),
            status=409,
        )
    if task.status not in Task.UNFINISHED:
        raise ProductError(
            "finished",
            Sentence(
                "{code} is {status}. Reopen it, then run it.", code=task.code, status=Task.STATUS_WORDS[task.status]
            ),
            status=409,
        )


def _with_notice(user: User, run: Run) -> Run:
    notify_pages(run.conversation)
    return visible_run(user, run.pk)


def open_runs() -> dict[str, int]:
    """Return how many runs are open, by their status."""
    return dict(Run.objects.filter(status__in=Run.OPEN).order_by().values_list("status").annotate(Count("pk")))
