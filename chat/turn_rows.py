"""The rows of a running turn: claimed, checkpointed and ended by conditional updates, so that no worker can win twice.

Synchronous; the event loop calls these through `on_database`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction
from django.db.models import DateField, Exists, F, OuterRef, Subquery
from django.db.models.functions import Cast, JSONObject
from django.urls import reverse
from django.utils import timezone

from accounts.webhooks.services import emit
from chat.endings import Ending
from chat.models import Conversation, Mention, Message, RunStep, Summary, SummaryJob, Turn
from chat.side.changes import list_changed
from projects.tasks.models import Task

STALE_AFTER = timedelta(seconds=30)  # without a heartbeat a running turn is interrupted
UNCLAIMED_AFTER = timedelta(seconds=10)  # a queued turn whose task the broker lost is enqueued again

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# Few threads on purpose: they bound the database connections of a worker, whatever the number of turns.
_executor = ThreadPoolExecutor(6, thread_name_prefix="database")


async def on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Runs ORM code off the event loop; its connection goes back to the pool afterwards."""

    def call() -> Result:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return await asyncio.get_running_loop().run_in_executor(_executor, call)


async def persistently(work: Callable[[], Result], *, seconds: float = 60.0) -> Result:
    """`on_database`, tried again while the database is away, for example restarting."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await on_database(work)
        except (DatabaseError, InterfaceError):
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.5)


def claim(turn_id: UUID) -> Turn | None:
    """The turn with what its run needs, now ours; None when it is not queued any more."""
    now = timezone.now()
    claimed = Turn.objects.filter(pk=turn_id, status=Turn.Status.QUEUED).update(
        status=Turn.Status.RUNNING, attempt=F("attempt") + 1, started=now, heartbeat=now
    )
    if not claimed:
        return None
    # A project is fetched only where there is one: every further join delays every first token.
    related = ("conversation__persona__budget_profile", "conversation__owner", "user_message", "model__provider")
    rows = Turn.objects.select_related(*related)
    return rows.defer(*_UNREAD).annotate(**_ALONG).get(pk=turn_id)


# What a summary and `task_prompts` go by. A day is the user's, so mentions of the days around are fetched with theirs.
_ASKED, _DAY = OuterRef("user_message__created"), timedelta(days=1)
_MENTIONS = Mention.objects.filter(
    user=OuterRef("conversation__owner"),
    day__range=(Cast(_ASKED - _DAY, DateField()), Cast(_ASKED + _DAY, DateField())),
)
_ALONG: Mapping[str, Any] = {
    "has_summary": Exists(Summary.objects.in_force().filter(conversation=OuterRef("conversation"))),
    "has_tasks": Exists(Task.objects.filter(owner=OuterRef("conversation__owner"))),
    "mentions": ArraySubquery(_MENTIONS.values(pair=JSONObject(day="day", code="code"))),
    "run_step": Subquery(RunStep.objects.filter(turn=OuterRef("pk")).values("pk")),
}

# What a run does not look at; building and sending a wide statement is most of what claiming costs.
_UNREAD = (
    "report", "usage", "heartbeat", "created", "started", "finished", "idempotency_key",
    "user_message__parts", "user_message__tokens", "user_message__error_detail", "user_message__error_code",
    "conversation__owner__password", "conversation__owner__email", "conversation__owner__first_name",
    "conversation__owner__last_name", "conversation__owner__last_login", "conversation__owner__date_joined",
    "conversation__persona__description", "conversation__persona__starter_messages", "conversation__persona__created",
    "model__provider__created", "model__created", "model__input_price", "model__output_price",
)  # fmt: skip


def last_given(turn: Turn) -> Message:
    """The message that the answer stands below: the question, or what a program's own tools have said to it since."""
    if turn.conversation.origin != Conversation.Origin.API:
        return turn.user_message
    return Message.objects.get(children=turn.answer_id)


_CHECKPOINT = """
WITH beat AS (
    UPDATE chat_turn SET heartbeat = now(), seq = %s
    WHERE id = %s AND attempt = %s AND status = 'running' RETURNING answer_id, stop_requested
), written AS (
    UPDATE chat_message SET parts = %s FROM beat WHERE id = beat.answer_id
)
SELECT stop_requested FROM beat
"""


def checkpoint(turn: Turn, parts: str, seq: int) -> bool | None:
    """Writes the answer so far (`parts` as JSON) and the heartbeat, in one statement.

    Returns whether a stop was asked for, or None when the turn is not ours any more.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CHECKPOINT, [seq, turn.pk, turn.attempt, parts])
        row = cursor.fetchone()
    return None if row is None else bool(row[0])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a turn leaves behind: the answer's parts up to event `seq`, token usage, and a report of each model call.

    `summary` is a job that is due now, not stored yet.
    """

    parts: list[dict[str, Any]]
    seq: int
    usage: dict[str, int] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    summary: SummaryJob | None = None


def end(turn: Turn, ending: Ending, outcome: Outcome) -> bool:
    """Ends the turn and completes its answer, once: False when somebody else has ended it already."""
    with transaction.atomic():
        ours = Turn.objects.live().filter(pk=turn.pk, attempt=turn.attempt)
        changed = ours.update(
            status=ending.status,
            seq=outcome.seq,
            usage=outcome.usage,
            **_context(outcome.calls),
            finished=timezone.now(),
            attempt=F("attempt") + 1,
        )
        if not changed:
            return False
        # A NUL cannot be stored in PostgreSQL's text; a model that writes one must not lose its answer.
        clean = json.loads(json.dumps(outcome.parts).replace("\\u0000", ""))
        Message.objects.filter(pk=turn.answer_id).update(
            parts=clean, status=ending.status, error_code=ending.code, error_detail=ending.detail
        )
        settle(turn.conversation_id, outcome.summary)
        _tell(turn, ending)
    return True


def _tell(turn: Turn, ending: Ending) -> None:
    place = turn.conversation
    ids = {"turn": str(turn.pk), "conversation": str(place.pk), "message": str(turn.answer_id)}
    paths = {"url": reverse("turn-detail", args=[turn.pk]), "page": reverse("chat:conversation", args=[place.pk])}
    emit(owner_id=place.owner_id, event="turn.finished", ids={**ids, "status": str(ending.status)}, paths=paths)


def store_report(turn: Turn, calls: list[dict[str, Any]]) -> None:
    Turn.objects.filter(pk=turn.pk).update(**_context(calls))


def _context(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of a turn that tell what its model calls saw; none before the first call."""
    if not calls:
        return {}
    last = calls[-1]
    return {
        "report": {"calls": calls},
        "context_limit": max(0, last["limit"]),
        "context_used": last["used"],
        "context_left_out": len(last["dropped"]) + last["unloaded"],
    }


def settle(conversation_id: UUID, due: SummaryJob | None = None) -> str:
    """The conversation's state once a turn or a summary job has ended; inside their transaction.

    While an answer is live it stays answering. After the last one a summary that is `due` is queued: in the same
    transaction, so that no question comes between. Locked first: of two turns that end at once, the second must see
    that the first has ended.
    """
    conversation = Conversation.objects.select_for_update().filter(pk=conversation_id).first()
    if conversation is None:
        return Conversation.State.IDLE
    if Turn.objects.live().filter(conversation=conversation).exists():
        return conversation.state
    if due is not None:
        SummaryJob.objects.bulk_create([due], ignore_conflicts=True)
    summarising = SummaryJob.objects.live().filter(conversation=conversation).exists()
    conversation.state = Conversation.State.SUMMARISING if summarising else Conversation.State.IDLE
    conversation.updated = timezone.now()
    conversation.save(update_fields=["state", "updated"])
    list_changed(conversation)
    return conversation.state


def state_of(conversation_id: UUID) -> str:
    found = Conversation.objects.filter(pk=conversation_id).values_list("state", flat=True).first()
    return found or Conversation.State.IDLE


@dataclass(frozen=True, slots=True)
class Stale:
    interrupted: list[UUID]
    unclaimed: list[UUID]


def stale() -> Stale:
    """Running turns without a heartbeat; queued ones no worker has claimed (bumped: each is told once in 10 s)."""
    now = timezone.now()
    running = Turn.objects.filter(status=Turn.Status.RUNNING, heartbeat__lt=now - STALE_AFTER)
    queued = Turn.objects.filter(status=Turn.Status.QUEUED, heartbeat__lt=now - UNCLAIMED_AFTER)
    unclaimed = list(queued.values_list("pk", flat=True))
    Turn.objects.filter(pk__in=unclaimed, status=Turn.Status.QUEUED).update(heartbeat=now)
    return Stale(list(running.values_list("pk", flat=True)), unclaimed)


def stale_turn(turn_id: UUID) -> Turn | None:
    cutoff = timezone.now() - STALE_AFTER
    rows = Turn.objects.filter(pk=turn_id, status=Turn.Status.RUNNING, heartbeat__lt=cutoff)
    return rows.select_related("answer", "conversation").first()


def end_queued(turn: Turn, ending: Ending) -> bool:
    """Ends a turn that no worker has claimed yet."""
    with transaction.atomic():
        queued = Turn.objects.select_for_update().filter(pk=turn.pk, status=Turn.Status.QUEUED).first()
        return queued is not None and end(queued, ending, Outcome([], 0))


dump = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
