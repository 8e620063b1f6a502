"""Decide the next step of a run.

The decision depends only on the database, and the run's row is locked meanwhile. So any process may call `advance` at
any time: the worker at the end of a turn, the sweeper after a restart, or two of them at once. Each step begins once,
after the previous one has ended.

1. `advance` settles the last step (`chat.runs.transitions.settle`) and resumes a run whose reason to wait is gone.
2. `_continue` ends the run, sets what it waits for, or begins a turn for the draft or the next item (`_begin`).
3. `begin_run`, `take_over`, `answer`, `start` and `retry` are actions of a user. They call `_continue`, too.

The table `chat.runs.transitions.TRANSITIONS` lists which status may follow which, and why.
"""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts.models import User
from chat.conversations.services import update_conversation
from chat.models import Turn
from chat.models.conversation_state import PASSING_REFUSALS
from chat.runs import prompts
from chat.runs.limits import describe_exceeded_cap
from chat.runs.transitions import (
    NO_CHECKLIST,
    PROPOSED,
    change_status,
    checklist,
    end,
    lock_run,
    mark,
    save,
    settle,
    wait,
)
from chat.turns.submit import Ask, submit
from core.errors import NotFound, ProductError
from core.sentences import Sentence
from personas.models import Persona
from personas.services import rules_at
from projects.planner.models import Run, RunStep
from projects.planner.models.task import Task
from projects.planner.queries import are_written_by_user
from projects.planner.rules import Actor
from projects.planner.services import accept, clear_breakpoint, mark_draft_begun

SWEEP_AFTER = timedelta(seconds=5)  # the sweeper waits so long, since another process may be about to advance the run
LONG_TURN = timedelta(minutes=1)  # a turn that takes longer is checked against the run's limit of minutes

_TASK_ENDED = ~Q(task__status__in=Task.UNFINISHED)
_CLEARED = Q(code="breakpoint") & (Q(item=None) | Q(item__breakpoint=False) | Q(item__cleared__isnull=False))
_DECIDED = Q(code=PROPOSED) & (Q(item=None) | Q(item__proposed=False))
_TICKED = Q(started__isnull=False, item__isnull=False) & ~Q(item__status__in=Task.UNFINISHED)
# The same rule as `_is_resolved`, as a query.
_RESOLVED = Q(status=Run.Status.WAITING) & (_TASK_ENDED | _CLEARED | _DECIDED | _TICKED)


def advance(run_id: UUID) -> UUID | None:
    """Settle the last turn and begin the next one. Return the id of the run's conversation, None if the run is gone."""
    with transaction.atomic():
        run = lock_run(run_id)
        if run is None:
            return None
        step = _step(run)
        if step is not None and step.turn is not None and step.turn.status in Turn.LIVE:
            _enforce_minutes(run, step.turn)
        else:
            if step is not None:
                settle(run, step)
            if _is_resolved(run):
                _resume(run)
            if run.status in Run.LIVE:
                _continue(run)
        save(run)
    return run.conversation_id


def begin_run(*, user: User, run_id: UUID) -> list[Turn]:
    """Begin the first turn of a new run. If the task has a checklist, its user wrote it, and the run uses it."""
    with transaction.atomic():
        run = _lock_own(user, run_id)
        if not run.unasked:
            accept(actor=Actor(user), task=run.task)
        if checklist(run.task):
            run.started = timezone.now()
        _resume(run)
        turns = _continue(run)
        save(run)
    return turns


def take_over(*, user: User, requested: Run, persona: Persona | None) -> Run:
    """Turn a run that the server has begun by itself into the run that the user requests for the same task.

    The run gets the model and the options of the `requested` run. If a model is writing the draft at this moment, that
    model completes it. Raises `run_open` (409) if the open run was requested by the user, or has started its items.
    """
    with transaction.atomic():
        unasked_run = Run.objects.filter(task=requested.task, status__in=Run.OPEN, unasked=True, started=None).first()
        run = lock_run(unasked_run.pk) if unasked_run else None
        if run is None or not run.unasked or run.started is not None or run.status not in Run.OPEN:
            raise run_open_error()
        run.unasked = False
        run.starts_itself = requested.starts_itself
        run.model = requested.model
        run.token_id = requested.token_id
        run.save(update_fields=["unasked", "starts_itself", "model", "token"])
        update_conversation(user=user, conversation=run.conversation, fields={"persona": persona})
        accepted = run.status == Run.Status.READY and run.starts_itself and not _draft_was_truncated(run)
        if accepted or are_written_by_user(checklist(run.task)):
            run.started = timezone.now()
            accept(actor=Actor(user), task=run.task)
        if run.started is not None or run.status == Run.Status.WAITING:
            _close_step(run)
            _resume(run)
            _continue(run, Ask(""))
        save(run)
    return run


def answer(*, user: User, run_id: UUID, ask: Ask) -> list[Turn]:
    """Confirm the item or breakpoint that the run waits for. The text of `ask` becomes part of the next message.

    Raises `not_waiting` (409), `empty_answer`, and `summarising` (409) when no turn can begin now.
    """
    with transaction.atomic():
        run = _lock_own(user, run_id)
        if run.status != Run.Status.WAITING:
            raise ProductError("not_waiting", ("The run is not waiting. Reload the page to see its state."), status=409)
        if run.code == "question" and not ask.text.strip():
            raise ProductError("empty_answer", "The model asked a question. Write an answer, then send it.")
        if run.item is not None and run.item.blocking:
            clear_breakpoint(actor=Actor(user), task=run.item)
        if run.item is not None and run.item.proposed:
            accept(actor=Actor(user), task=run.item)
        _resume(run)
        turns = _continue(run, ask)
        save(run)
        if (ask.text.strip() or ask.files) and not turns:  # the run sends no message, so this one is sent by itself
            turns = submit(user=user, conversation=run.conversation, ask=replace(ask, models=(), of_run=True))
    return turns


def start(*, user: User, run_id: UUID) -> list[Turn]:
    """Accept the checklist as it is now, and begin with its items. Raises `not_ready` (409)."""
    with transaction.atomic():
        run = _lock_own(user, run_id)
        written = run.code == NO_CHECKLIST and bool(checklist(run.task))
        if run.status != Run.Status.READY and not (run.status == Run.Status.WAITING and written):
            raise ProductError(
                "not_ready", "There is no drafted checklist to start. Reload the page to see why.", status=409
            )
        run.started = timezone.now()
        accept(actor=Actor(user), task=run.task)
        _resume(run)
        turns = _continue(run)
        save(run)
    return turns


def retry(*, user: User, run_id: UUID) -> list[Turn]:
    """Resume a run that waits, has failed or was stopped. Raises `not_stopped` and `run_open` (409)."""
    with transaction.atomic():
        run = _lock_own(user, run_id)
        if run.status not in (Run.Status.WAITING, Run.Status.FAILED, Run.Status.STOPPED):
            raise ProductError("not_stopped", "The run is running or done. Reload the page to see it.", status=409)
        if Run.objects.filter(task=run.task, status__in=Run.OPEN).exclude(pk=run.pk).exists():
            raise run_open_error()
        _close_step(run)
        _resume(run)
        turns = _continue(run, Ask(""))
        save(run)
    return turns


def find_due() -> list[UUID]:
    """Return the runs that can be advanced and that no other process is about to advance."""
    now = timezone.now()
    busy = RunStep.objects.filter(run=OuterRef("pk"), status=RunStep.Status.RUNNING, turn__status__in=Turn.LIVE)
    long = busy.filter(turn__started__lt=now - LONG_TURN)
    live = Q(status__in=Run.LIVE) & (~Exists(busy) | Exists(long))
    rows = Run.objects.filter(live | _RESOLVED, heartbeat__lt=now - SWEEP_AFTER)
    return list(rows.order_by("heartbeat").values_list("pk", flat=True))


def find_in_conversation(conversation_id: UUID) -> UUID | None:
    """Return the conversation's run if it can advance: it is live, its step is not settled, or it need not wait."""
    open_step = Exists(RunStep.objects.filter(run=OuterRef("pk"), status=RunStep.Status.RUNNING))
    rows = Run.objects.filter(Q(status__in=Run.LIVE) | open_step | _RESOLVED, conversation=conversation_id)
    return rows.values_list("pk", flat=True).first()


def get_conversation_id(run_id: UUID) -> UUID | None:
    return Run.objects.filter(pk=run_id).values_list("conversation", flat=True).first()


def run_open_error() -> ProductError:
    return ProductError("run_open", "This task already has a run. Stop it, or continue it.", status=409)


def _lock_own(user: User, run_id: UUID) -> Run:
    run = lock_run(run_id)
    if run is None or run.owner_id != user.pk:
        raise NotFound("run")
    return run


def _step(run: Run) -> RunStep | None:
    """Return the running step, if there is one."""
    return run.steps.filter(status=RunStep.Status.RUNNING).select_related("turn__answer").first()


def _close_step(run: Run) -> None:
    """Close the running step before the run resumes. If its turn is live, the next step begins after that turn."""
    step = _step(run)
    if step is not None and step.turn is not None and step.turn.status in Turn.LIVE:
        step.status = RunStep.Status.STOPPED
        step.save(update_fields=["status"])
    elif step is not None:
        settle(run, step)


def _is_resolved(run: Run) -> bool:
    """Return whether the run's reason to wait is gone: through a page, the API or another run."""
    if run.status != Run.Status.WAITING:
        return False
    if run.task.status not in Task.UNFINISHED:
        return True
    if run.code == "breakpoint":
        return run.item is None or not run.item.blocking
    if run.code == PROPOSED and (run.item is None or not run.item.proposed):
        return True
    return run.started is not None and run.item is not None and run.item.status not in Task.UNFINISHED


def _resume(run: Run) -> None:
    change_status(run, Run.Status.DRAFTING if run.started is None else Run.Status.RUNNING)


def _enforce_minutes(run: Run, turn: Turn) -> None:
    """Fail the run and stop its turn if the run exceeds its minutes. The turn's worker notices within a second."""
    cap = describe_exceeded_cap(run, only_minutes=True) if run.status in Run.LIVE else None
    if cap:
        end(run, Run.Status.FAILED, "run_cap_reached", cap)
        Turn.objects.live().filter(pk=turn.pk).update(stop_requested=True, stop_asked=timezone.now())


def _continue(run: Run, ask: Ask | None = None) -> list[Turn]:
    """Begin the next turn, end the run, or let it wait for its user.

    `ask` is the user's message to the run. An empty text only means that the run shall go on.
    """
    _end_if_over(run)
    if run.status not in Run.LIVE:
        return []
    task = run.task
    items = checklist(task)
    if run.started is None and not items:
        return _begin(run, None, ask)
    unread = run.started is None and _draft_was_truncated(run)
    if run.started is None and (unread or not run.starts_itself):
        change_status(run, Run.Status.READY, *(("draft_unread", prompts.DRAFT_UNREAD) if unread else ()))
        mark(run, task, Task.Status.WAITING)
        return []
    if run.started is None:
        change_status(run, Run.Status.RUNNING)
        run.started = timezone.now()
        accept(actor=Actor(run.owner), task=task)  # the user chose that the run starts by itself
        items = checklist(task)
    if not items:
        return wait(run, NO_CHECKLIST, Sentence(prompts.NO_CHECKLIST))
    run.item = next((each for each in items if each.status in Task.UNFINISHED), None)
    if run.item is None:
        mark(run, task, Task.Status.DONE)
        return end(run, Run.Status.DONE)
    if run.item.blocking:
        return wait(run, "breakpoint", Sentence.verbatim(f"{run.item.code}: {run.item.title}"), needs=run.item.needs)
    if run.item.proposed:
        return wait(run, PROPOSED, Sentence.verbatim(f"{run.item.code}: {run.item.title}"), needs=prompts.PROPOSED)
    return _begin(run, run.item, ask)


def _draft_was_truncated(run: Run) -> bool:
    """Return whether the checklist was drafted from a prompt that the model's server read only in part."""
    return run.steps.filter(code="", turn__context_unread__gt=0).exists()


def _end_if_over(run: Run) -> None:
    task = run.task
    if run.conversation.deleted is not None:
        end(run, Run.Status.STOPPED, "conversation_deleted", Sentence(prompts.CONVERSATION_DELETED))
    elif task.status not in Task.UNFINISHED:
        status = Run.Status.DONE if task.status == Task.Status.DONE else Run.Status.STOPPED
        ended = Sentence(prompts.TASK_ENDED, code=task.code, status=Task.STATUS_WORDS[task.status])
        end(run, status, "task_ended", ended)
    elif task.archetype == Task.Archetype.USER:
        end(run, Run.Status.STOPPED, "for_the_user", Sentence(prompts.TAKEN_OVER, code=task.code))
    elif cap := describe_exceeded_cap(run):
        end(run, Run.Status.FAILED, "run_cap_reached", cap)


def _begin(run: Run, item: Task | None, ask: Ask | None) -> list[Turn]:
    """Begin a turn for the item, or for the draft if `item` is None."""
    code = item.code if item else ""
    reply = ask.text.strip() if ask else ""
    last_step = run.steps.filter(code=code).order_by("-attempt").first()
    again = last_step is not None and last_step.status == RunStep.Status.OPEN and not last_step.reminds and ask is None
    texts = rules_at(run.version).texts  # type: ignore[attr-defined]  # as `lock_run` annotates
    request = prompts.item_message(item, texts, again=again, reply=reply) if item else None
    text = request or prompts.draft_message(run.task, texts, again=again, reply=reply)
    models = [run.model_id] if run.model_id else ()
    message = replace(ask or Ask(""), text=text, models=models, of_run=True, token=run.token_id)
    try:
        turn = submit(user=run.owner, conversation=run.conversation, ask=message)[0]
    except ProductError as error:
        if error.code not in PASSING_REFUSALS:
            return wait(run, error.code, error.sentence)
        if reply:
            raise  # only the page keeps the user's text
        return []
    number = run.steps.count() + 1
    RunStep.objects.create(
        run=run, number=number, code=code, attempt=last_step.attempt + 1 if last_step else 1, reminds=again, turn=turn
    )
    if item is None:
        mark_draft_begun(user=run.owner, task=run.task)
    mark(run, run.task, Task.Status.DOING)
    if item is not None:
        mark(run, item, Task.Status.DOING)
    return [turn]
