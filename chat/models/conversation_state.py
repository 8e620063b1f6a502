"""A conversation to those who act in it: found, its scope, and its state, which says who may begin something now.

Everybody who begins or ends a turn, a summary or a run locks the conversation first and goes through here.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Coalesce
from django.utils import timezone
from uuid_utils.compat import uuid7

from accounts.models import User
from accounts.realtime import News, tell
from chat.models import Conversation, Message, NextMessage, SummaryJob, Turn, queries
from chat.models.queries import Standing, standing
from chat.models.summary import SummaryJobQuerySet
from chat.models.tree import with_rows
from core.background import silent
from core.errors import NotFound, ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from personas.models import Persona
from projects.models import Project
from projects.planner.models import Run

# All three from a summary's beginning, with what stands in for it.
PATIENCE = timedelta(seconds=120)  # then sending works again
TIMEOUT = timedelta(seconds=110)  # then it gives up by itself
BEGUN_WITHIN = timedelta(seconds=90)  # what has less time than from then on is not begun: it would be asked for in vain

NOT_NOW = ("already_answering", "summarising", "too_many_answers")  # refusals that pass by themselves

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChatScope:
    """Where a question is asked: its conversation, if there is one yet, and the project and persona that hold there."""

    conversation: Conversation | None = None
    project: Project | None = None
    persona: Persona | None = None


def scope_of(conversation: Conversation) -> ChatScope:
    """A project or a persona that is not shared with the person any more counts no more. The persona of a project
    answers whoever is in the project."""
    project, persona = conversation.project, conversation.persona
    if project is not None and not Project.objects.visible_to(conversation.owner).filter(pk=project.pk).exists():
        project = None
    of_project = persona is not None and project is not None and project.persona_id == persona.pk
    if persona is not None and not of_project and _closed(persona, conversation.owner):
        persona = None
    return ChatScope(conversation, project, persona or (project.persona if project else None))


def _closed(persona: Persona, user: User) -> bool:
    """A query only where it is shared with some people alone."""
    borrowed = persona.visibility == Persona.Visibility.PRIVATE and persona.owner_id != user.pk
    return borrowed and not Persona.objects.visible_to(user).filter(pk=persona.pk).exists()


def require_persona(conversation: Conversation, found: Standing) -> None:
    """Raises `persona_lost` (403) where the conversation's own persona is not shared with its person any more."""
    if found.borrows and conversation.persona != scope_of(conversation).persona:
        raise ProductError(
            "persona_lost",
            "The persona of this conversation is not shared with you any more. Choose another one, or none, and send "
            "again; your text is kept.",
            status=403,
        )


def visible_conversation(user: User, pk: object) -> Conversation:
    """With `waits`: whether a next message does; and `asked`: the id of the model that was asked last."""
    related = ("persona__budget_profile", "project__persona__budget_profile", "owner", "leaf")
    rows = Conversation.objects.visible_to(user).select_related(*related).defer("leaf__parts", "leaf__tokens")
    # Asked along, since it is seldom so, and a page has few queries to spend.
    waits = Exists(NextMessage.objects.filter(conversation=OuterRef("pk")))
    asked = Coalesce("leaf__turn__model", "leaf__model")
    return get_or_404(rows.annotate(waits=waits, asked=asked), pk, "conversation")


def visible_message(user: User, pk: object) -> Message:
    related = ("conversation__persona", "conversation__project__persona", "parent")
    return get_or_404(with_rows(Message.objects.visible_to(user)).select_related(*related), pk, "message")


def visible_turn(user: User, pk: object) -> Turn:
    return get_or_404(Turn.objects.visible_to(user).select_related("conversation", "answer"), pk, "turn")


def lock(conversation: Conversation) -> Conversation:
    """The row, locked until the transaction ends: two sends at once come one after the other, whatever the conversation
    of their person."""
    locked = queries.lock(conversation.pk)
    if locked is None:
        raise NotFound("conversation")
    return locked


@contextmanager
def idle(user: User, conversation: Conversation) -> Iterator[Conversation]:
    """A transaction around a change of the person's own conversation, locked, while nothing is going on in it.

    Raises `NotFound`, and `already_answering` and `summarising` (409).
    """
    require_owner(user, conversation)
    with transaction.atomic():
        locked = lock(conversation)
        require_idle(locked)
        yield locked


class RunWaits(ProductError):
    """Whatever is sent here is an answer to this run."""

    def __init__(self, run: Run) -> None:
        self.run_id = run.pk
        super().__init__(
            "run_waits",
            Sentence("A run waits for you here. Answer it, or try again where it is shown."),
            status=409,
        )


def require_idle(conversation: Conversation, *, of_run: bool = False) -> Standing:
    """What was asked for to decide it, of a conversation that is locked.

    Raises `already_answering`, `summarising`, `run_in_progress` or `RunWaits` (409). A summary that takes too long is
    no reason to wait.
    """
    found = standing(conversation)
    if found.answering:
        raise busy()
    if found.summarising:
        expire(SummaryJob.objects.filter(conversation=conversation))
    if found.summarising and SummaryJob.objects.live().filter(conversation=conversation).exists():
        raise ProductError(
            "summarising",
            "Older messages are being summarised. Send again when that is done, at most two minutes from its start; "
            "your text is kept.",
            status=409,
        )
    if found.running and not of_run:
        require_no_run(conversation)
    return found


def require_no_run(conversation: Conversation) -> None:
    """Raises `run_in_progress` or `RunWaits` (409) where a run is at work or waits."""
    run = Run.objects.filter(conversation=conversation, status__in=Run.UNFINISHED).first()
    if run is not None:
        raise RunWaits(run) if run.status == Run.Status.WAITING else run_in_progress()


def require_room(found: Standing, wanted: int, most: int | None) -> None:
    """Raises `too_many_answers` (429) where so many more live turns are too many for one person: of `most` at once,
    None is any number, and `settings.WAITING_TURNS` more, which wait in their person's own line (`chat.turns.line`).

    Runs do not wait there, and leave one for what their person writes meanwhile; they go on when another answer is
    complete. `found` after `lock`, in the transaction that begins the turns: sends of one person at once come one after
    the other.
    """
    live = found.live
    if most is None:
        return
    if found.running and live + wanted > max(wanted, most - 1):
        raise _too_many(
            Sentence(
                "{live} answers of yours are being written, and {most} at a time are the most. Wait for one, or stop "
                "one; your text is kept.",
                live=live,
                most=most,
            )
        )
    if live + wanted > max(wanted, most) + settings.WAITING_TURNS:
        raise _too_many(
            Sentence(
                "{live} answers of yours are being written or wait, and there is no room for more. Wait for one, or "
                "stop one; your text is kept.",
                live=live,
            )
        )


def _too_many(detail: Sentence) -> ProductError:
    return ProductError("too_many_answers", detail, status=429, retry_after=5)


def run_in_progress() -> ProductError:
    return ProductError(
        "run_in_progress",
        "A run is at work in this conversation. Wait until it asks you, or stop it; your text is kept.",
        status=409,
    )


def busy() -> ProductError:
    return ProductError(
        "already_answering",
        "An answer is still being written here. Wait for it or stop it, then send again; your text is kept.",
        status=409,
    )


def require_owner(user: User, conversation: Conversation) -> None:
    if conversation.owner_id != user.pk:
        raise NotFound("conversation")


def settle(conversation_id: UUID, due: SummaryJob | None = None) -> str:
    """The conversation's state once a turn or a summary job has ended; inside their transaction.

    While an answer is live it stays answering. After the last one a summary that is `due` is queued: in the same
    transaction, so that no question comes between. Locked first: of two turns that end at once, the second must see
    that the first has ended.
    """
    held = Conversation.objects.select_for_update().filter(pk=conversation_id).values_list("state", flat=True).first()
    if held is None:
        return Conversation.State.IDLE
    if due is not None and not Turn.objects.live().filter(conversation=conversation_id).exists():
        SummaryJob.objects.bulk_create([due], ignore_conflicts=True)
    settled = queries.settle(conversation_id)
    if settled is None:
        return held
    list_changed(settled)
    return settled.state


def state_of(conversation_id: UUID) -> str:
    found = Conversation.objects.filter(pk=conversation_id).values_list("state", flat=True).first()
    return found or Conversation.State.IDLE


def finish(job_id: UUID) -> None:
    _end(job_id, SummaryJob.Status.DONE)


def fail(job_id: UUID, code: str, detail: Sentence) -> bool:
    """Ends a live job without a summary. False when it has ended already."""
    logger.warning("summary job %s failed: %s", job_id, code)
    return _end(job_id, SummaryJob.Status.FAILED, code=code, detail=detail)


def interrupt(job_id: UUID) -> bool:
    """Ends a live job whose worker is gone. Another one stands in for it with what is left of its patience, once: what
    kills its worker must not go on doing so. False when it has ended already."""
    logger.warning("the worker of summary job %s is gone", job_id)
    in_time = SummaryJob.objects.filter(created__gt=timezone.now() - BEGUN_WITHIN)
    job = in_time.filter(pk=job_id, again=False).first()
    if job is not None:
        job.pk, job.again, job.status, job.heartbeat = uuid7(), True, SummaryJob.Status.QUEUED, timezone.now()
    detail = Sentence("The server stopped while writing it.")
    return _end(job_id, SummaryJob.Status.FAILED, due=job, code="summary_interrupted", detail=detail)


def _end(job_id: UUID, status: str, due: SummaryJob | None = None, **fields: str | Sentence) -> bool:
    """`due`: see `settle`."""
    with transaction.atomic():
        # The conversation before its job, as a send and `store` lock them: else each could wait for the other.
        of_job = Conversation.objects.select_for_update(of=("self",)).filter(summary_jobs=job_id)
        conversation = of_job.values_list("pk", flat=True).first()
        live = SummaryJob.objects.live().filter(pk=job_id)
        if conversation is None or not live.update(status=status, finished=timezone.now(), **fields):
            return False
        settle(conversation, due)
    return True


def expire(jobs: SummaryJobQuerySet) -> list[UUID]:
    """Ends those that have used up their patience, or were not begun in time, so that sending works again; returns
    their conversations."""
    now = timezone.now()
    not_begun = Q(status=SummaryJob.Status.QUEUED, created__lte=now - BEGUN_WITHIN)
    late = jobs.live().filter(Q(created__lt=now - PATIENCE) | not_begun)
    gone = silent(late.filter(status=SummaryJob.Status.RUNNING))
    ended = [job.conversation_id for job in gone if interrupt(job.pk)]
    return ended + [job.conversation_id for job in late if time_out(job)]


def time_out(job: SummaryJob) -> bool:
    """Ends a live job for which there is no time left; what nobody has begun is not the model's fault. False when it
    has ended already."""
    if job.status == SummaryJob.Status.QUEUED:
        return fail(job.pk, "summary_not_begun", Sentence("No worker took it in time."))
    return fail(job.pk, "summary_timeout", Sentence("The model took too long to write it."))


def list_changed(conversation: Conversation) -> None:
    """On commit. What no list shows, see `Conversation.objects.listed_for`, changes none."""
    if conversation.origin == Conversation.Origin.WORKSPACE:
        tell(conversation.owner_id, News.CONVERSATIONS)
