"""What comes next in a run. It is decided from the rows alone, under a lock of the run's row.

So anybody may call `advance` at any time and as often as they like: the worker at the end of a turn, the sweeper after
a restart, two of them at once. A step that was begun is never begun again, and the next one only when it has ended.
Which status may follow which, and why, is the table `chat.runs.transitions.TRANSITIONS`.
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
from chat.models.conversation_state import NOT_NOW
from chat.runs import prompts
from chat.runs.limits import exceeded
from chat.runs.transitions import NO_CHECKLIST, PROPOSED, become, checklist, end, locked, mark, save, settle, wait
from chat.turns.submit import Ask, submit
from core.errors import NotFound, ProductError
from core.sentences import Sentence
from personas.models import Persona
from personas.services import rules_at
from projects.planner.models import Run, RunStep
from projects.planner.models.task import Task
from projects.planner.queries import written_by_hand
from projects.planner.rules import Actor
from projects.planner.services import accept, clear_breakpoint, draft_begun

PATIENCE = timedelta(seconds=5)  # before the sweeper looks at a run that somebody else may be about to look at
LONG = timedelta(minutes=1)  # from when on a turn that is being written is held against the run's minutes

_TASK_ENDED = ~Q(task__status__in=Task.UNFINISHED)
_CLEARED = Q(code="breakpoint") & (Q(item=None) | Q(item__breakpoint=False) | Q(item__cleared__isnull=False))
_DECIDED = Q(code=PROPOSED) & (Q(item=None) | Q(item__proposed=False))
_TICKED = Q(started__isnull=False, item__isnull=False) & ~Q(item__status__in=Task.UNFINISHED)
_RESOLVED = Q(status=Run.Status.WAITING) & (
    _TASK_ENDED | _CLEARED | _DECIDED | _TICKED
)  # `_resolved` says it of one run


def advance(run_id: UUID) -> UUID | None:
    """Takes in what the last turn left behind and begins the next; its conversation, None when the run is gone."""
    with transaction.atomic():
        run = locked(run_id)
        if run is None:
            return None
        step = _step(run)
        if step is not None and step.turn is not None and step.turn.status in Turn.LIVE:
            _watch(run, step.turn)
        else:
            if step is not None:
                settle(run, step)
            if _resolved(run):
                _resume(run)
            if run.status in Run.LIVE:
                _go_on(run)
        save(run)
    return run.conversation_id


def begin_run(*, user: User, run_id: UUID) -> list[Turn]:
    """The first turn of a run that was just made. A checklist that is there already was written by its user."""
    with transaction.atomic():
        run = _own(user, run_id)
        if not run.unasked:
            accept(actor=Actor(user), task=run.task)
        if checklist(run.task):
            run.started = timezone.now()
        _resume(run)
        turns = _go_on(run)
        save(run)
    return turns


def take_over(*, user: User, asked: Run, persona: Persona | None) -> Run:
    """The user asks for a run of a task for which the server has begun one by itself: that one is theirs from now on,
    as they ask for it. What is being drafted at this moment is completed by the model that began it.

    Raises `run_open` (409) where the open run is the user's already.
    """
    with transaction.atomic():
        begun = Run.objects.filter(task=asked.task, status__in=Run.OPEN, unasked=True, started=None).first()
        run = locked(begun.pk) if begun else None
        if run is None or not run.unasked or run.started is not None or run.status not in Run.OPEN:
            raise run_open()
        run.unasked, run.starts_itself, run.model = False, asked.starts_itself, asked.model
        run.token_id = asked.token_id
        run.save(update_fields=["unasked", "starts_itself", "model", "token"])
        update_conversation(user=user, conversation=run.conversation, fields={"persona": persona})
        accepted = run.status == Run.Status.READY and run.starts_itself and not _unread(run)
        if accepted or written_by_hand(checklist(run.task)):
            run.started = timezone.now()
            accept(actor=Actor(user), task=run.task)
        if run.started is not None or run.status == Run.Status.WAITING:
            _let_go(run)
            _resume(run)
            _go_on(run, Ask(""))
        save(run)
    return run


def answer(*, user: User, run_id: UUID, ask: Ask) -> list[Turn]:
    """The user confirms what the run waits for, or says something to it, which becomes part of the next message.

    Raises `not_waiting` (409), `empty_answer`, and `summarising` (409) when no turn can begin now.
    """
    with transaction.atomic():
        run = _own(user, run_id)
        if run.status != Run.Status.WAITING:
            raise ProductError("not_waiting", "The run waits for nothing now. Reload to see how it stands.", status=409)
        if run.code == "question" and not ask.text.strip():
            raise ProductError("empty_answer", "The model asked something. Write an answer, then send it.")
        if run.item is not None and run.item.blocking:
            clear_breakpoint(actor=Actor(user), task=run.item)
        if run.item is not None and run.item.proposed:
            accept(actor=Actor(user), task=run.item)
        _resume(run)
        turns = _go_on(run, ask)
        save(run)
        if ask.text.strip() and not turns:  # no message follows that it could be part of, so it is one of its own
            turns = submit(user=user, conversation=run.conversation, ask=replace(ask, models=(), of_run=True))
    return turns


def start(*, user: User, run_id: UUID) -> list[Turn]:
    """The user accepts the checklist as it is now. Raises `not_ready` (409)."""
    with transaction.atomic():
        run = _own(user, run_id)
        written = run.code == NO_CHECKLIST and bool(checklist(run.task))
        if run.status != Run.Status.READY and not (run.status == Run.Status.WAITING and written):
            raise ProductError(
                "not_ready", "There is no drafted checklist to start with. Reload to see why.", status=409
            )
        run.started = timezone.now()
        accept(actor=Actor(user), task=run.task)
        _resume(run)
        turns = _go_on(run)
        save(run)
    return turns


def retry(*, user: User, run_id: UUID) -> list[Turn]:
    """Goes on where the run waits, failed or was stopped. Raises `not_stopped` and `run_open` (409)."""
    with transaction.atomic():
        run = _own(user, run_id)
        if run.status not in (Run.Status.WAITING, Run.Status.FAILED, Run.Status.STOPPED):
            raise ProductError("not_stopped", "The run goes on by itself, or is done. Reload to see it.", status=409)
        if Run.objects.filter(task=run.task, status__in=Run.OPEN).exclude(pk=run.pk).exists():
            raise run_open()
        _let_go(run)
        _resume(run)
        turns = _go_on(run, Ask(""))
        save(run)
    return turns


def due() -> list[UUID]:
    """The runs in which something comes next, should nobody else be about to see to it."""
    now = timezone.now()
    busy = RunStep.objects.filter(
        run=OuterRef("pk"), status=RunStep.Status.RUNNING, turn__status__in=Turn.LIVE
    )  # fmt: skip
    long = busy.filter(turn__started__lt=now - LONG)
    live = Q(status__in=Run.LIVE) & (~Exists(busy) | Exists(long))
    rows = Run.objects.filter(live | _RESOLVED, heartbeat__lt=now - PATIENCE)
    return list(rows.order_by("heartbeat").values_list("pk", flat=True))


def in_conversation(conversation_id: UUID) -> UUID | None:
    """The run to advance: it is live, nobody has said what became of its step, or what it waits for has happened."""
    open_step = Exists(RunStep.objects.filter(run=OuterRef("pk"), status=RunStep.Status.RUNNING))
    rows = Run.objects.filter(Q(status__in=Run.LIVE) | open_step | _RESOLVED, conversation=conversation_id)
    return rows.values_list("pk", flat=True).first()


def conversation_of(run_id: UUID) -> UUID | None:
    return Run.objects.filter(pk=run_id).values_list("conversation", flat=True).first()


def run_open() -> ProductError:
    return ProductError("run_open", "There is a run of this task already. Stop it, or go on with it.", status=409)


def _own(user: User, run_id: UUID) -> Run:
    run = locked(run_id)
    if run is None or run.owner_id != user.pk:
        raise NotFound("run")
    return run


def _step(run: Run) -> RunStep | None:
    """The running step, if there is one."""
    return run.steps.filter(status=RunStep.Status.RUNNING).select_related("turn__answer").first()


def _let_go(run: Run) -> None:
    """Releases the step of a run that was stopped. The next one begins only when its turn has ended."""
    step = _step(run)
    if step is not None and step.turn is not None and step.turn.status in Turn.LIVE:
        step.status = RunStep.Status.STOPPED
        step.save(update_fields=["status"])
    elif step is not None:
        settle(run, step)


def _resolved(run: Run) -> bool:
    """Whether what a run waits for has happened elsewhere, as `_RESOLVED` finds it: a page, the API, another run."""
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
    become(run, Run.Status.DRAFTING if run.started is None else Run.Status.RUNNING)


def _watch(run: Run, turn: Turn) -> None:
    """A turn that goes beyond the run's minutes is stopped: its worker sees that within a second."""
    cap = exceeded(run, only_minutes=True) if run.status in Run.LIVE else None
    if cap:
        end(run, Run.Status.FAILED, "run_cap_reached", cap)
        Turn.objects.live().filter(pk=turn.pk).update(stop_requested=True, stop_asked=timezone.now())


def _go_on(run: Run, ask: Ask | None = None) -> list[Turn]:
    """Begins what comes next, or ends the run, or says what it waits for. `ask`: what the user has said to it,
    be it nothing but to go on."""
    _end_if_over(run)
    if run.status not in Run.LIVE:
        return []
    task, items = run.task, checklist(run.task)
    if run.started is None and not items:
        return _begin(run, None, ask)
    unread = run.started is None and _unread(run)
    if run.started is None and (unread or not run.starts_itself):
        become(run, Run.Status.READY, *(("draft_unread", prompts.DRAFT_UNREAD) if unread else ()))
        mark(run, task, Task.Status.WAITING)
        return []
    if run.started is None:
        become(run, Run.Status.RUNNING)
        run.started = timezone.now()
        accept(actor=Actor(run.owner), task=task)  # who began the run wanted it to start by itself
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


def _unread(run: Run) -> bool:
    """Whether the checklist was drafted from a prompt that the server did not read whole."""
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
    elif cap := exceeded(run):
        end(run, Run.Status.FAILED, "run_cap_reached", cap)


def _begin(run: Run, item: Task | None, ask: Ask | None) -> list[Turn]:
    """One more turn, for an item or, without one, for the draft."""
    code = item.code if item else ""
    said = ask.text.strip() if ask else ""
    last = run.steps.filter(code=code).order_by("-attempt").first()
    again = last is not None and last.status == RunStep.Status.OPEN and not last.reminds and ask is None
    texts = rules_at(run.version).texts  # type: ignore[attr-defined]  # as `locked` annotates
    asks = prompts.item(item, texts, again=again, said=said) if item else None
    text = asks or prompts.draft(run.task, texts, again=again, said=said)
    models = [run.model_id] if run.model_id else ()
    asked = replace(ask or Ask(""), text=text, models=models, of_run=True, token=run.token_id)
    try:
        turn = submit(user=run.owner, conversation=run.conversation, ask=asked)[0]
    except ProductError as error:
        if error.code not in NOT_NOW:
            return wait(run, error.code, error.sentence)
        if said:
            raise  # what the user wrote is not kept anywhere but where it was written
        return []
    number = run.steps.count() + 1
    RunStep.objects.create(
        run=run, number=number, code=code, attempt=last.attempt + 1 if last else 1, reminds=again, turn=turn
    )
    if item is None:
        draft_begun(user=run.owner, task=run.task)
    mark(run, run.task, Task.Status.DOING)
    if item is not None:
        mark(run, item, Task.Status.DOING)
    return [turn]
