"""A summary job from claim to end. The row is the truth: whoever changes it from queued to running does the work.

A job that fails, hangs or loses its worker leaves every message where it was. Where the worker was lost another job
goes on from what is stored; else the window's policy keeps prompts in bounds until the next turn asks again.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from accounts.access.rights import models_of
from chat.ledger.limits import require_unused
from chat.models import Conversation, Message, Summary, SummaryJob, Turn
from chat.models.conversation_state import scope_of
from chat.models.summary import Marks, in_force, marks_on, text_of
from chat.models.tree import rows_between
from chat.prompts.turn_context import TurnContext, base_context
from chat.summaries import due, writing
from chat.summaries.ending import BEGUN_WITHIN, TIMEOUT, expire, fail, finish, interrupt, time_out
from core import background
from core.background import on_database, with_retries
from core.errors import ProductError
from core.sentences import Sentence
from llm import tokens
from llm.models import Model
from llm.services import with_fallbacks
from personas.models import SummaryPrompt
from personas.services import model_for

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What a job has to do: from the summary `before` (None: from the beginning) over `rows`, the oldest first.

    `marks` are those of the branch at its beginning: what has one is not among the rows.
    """

    job: SummaryJob
    brief: writing.Brief
    before: Summary | None
    rows: Sequence[Message]
    marks: Marks
    prompt_version: int
    leaf: UUID


def claim(job_id: UUID) -> SummaryJob | None:
    """The job, now ours; None when it is not queued any more, has too little time left, or an answer is being
    written."""
    live = Turn.objects.live().filter(conversation__in=SummaryJob.objects.filter(pk=job_id).values("conversation"))
    if live.exists():
        return None
    in_time = SummaryJob.objects.filter(created__gt=timezone.now() - BEGUN_WITHIN)
    queued = in_time.filter(status=SummaryJob.Status.QUEUED)
    if not background.claim(queued, job_id, status=SummaryJob.Status.RUNNING):
        return None
    related = ("conversation__owner", "conversation__persona__budget_profile", "model__provider", "target")
    return SummaryJob.objects.select_related(*related).get(pk=job_id)


async def run(job_id: UUID) -> UUID | None:
    """Carries a queued job out; its conversation, or None when another worker has it."""
    job = await on_database(claim, job_id)
    if job is None:
        return None
    try:
        with background.heartbeat(SummaryJob.objects.live().filter(pk=job.pk)):
            left = job.created + TIMEOUT - timezone.now()
            async with asyncio.timeout(left.total_seconds()):
                writer, allowed = await on_database(_writer, job)
                await with_fallbacks(writer, partial(_carry_out, job), allowed)
    except asyncio.CancelledError:
        await asyncio.shield(on_database(interrupt, job.pk))
        raise
    except TimeoutError:
        await with_retries(lambda: time_out(job))
    except (ProductError, writing.Rejected) as error:
        sentence = error.sentence if isinstance(error, ProductError) else Sentence.verbatim(str(error))
        code = error.code
        await with_retries(lambda: fail(job.pk, code, sentence))
    except Exception:
        logger.exception("summary job %s failed", job.pk)
        await with_retries(lambda: fail(job.pk, "internal_error", Sentence("Something went wrong on the server.")))
    return job.conversation_id


async def _carry_out(job: SummaryJob, writer: Model, patience: float | None) -> None:
    """A part that another model has stored holds; this one goes on from it. `patience`: see `writing.Brief`."""
    work = await on_database(load, job, writer, patience)
    if work is None:
        await on_database(finish, job.pk)
        return
    before = so_far = work.before
    told: list[writing.Piece] = []
    for chunk in writing.chunked(writing.pieces(work.rows, work.brief), work.brief.room):
        so_far = await writing.write(work.brief, so_far, chunk)
        told += chunk
        if not told[-1].ends_turn:  # too long for one call; what is stored tells of whole turns
            continue
        last = told[-1].message.pk == work.rows[-1].pk
        stored = await on_database(store, replace(work, before=before), so_far, told, last=last)
        if stored is None:
            logger.info("summary job %s came too late; what it wrote is not used", job.pk)
            return
        before, so_far, told = stored, stored, []


def load(job: SummaryJob, writer: Model, patience: float | None) -> Work | None:
    """Everything the job needs, read at once; None when there is nothing to summarise.

    Raises `summary_window_too_small`.
    """
    conversation, decided = job.conversation, decided_for(job)
    prompt = SummaryPrompt.objects.filter(active=True).first()
    version, instructions = (prompt.version, prompt.text) if prompt else (0, writing.DEFAULT_PROMPT)
    leaf = conversation.leaf_id
    if leaf is None:
        return None
    marks = marks_on(conversation.pk, leaf)
    if job.target is not None:
        before, rows = None, due.open_rows(None, job.target.last_id, marks)
        fixed = due.with_pinned(decided, marks, job.fixed)
        after = [row for row in rows_between(job.target.last_id, leaf) if row.pk not in marks.by_message]
        tail = due.total(due.costs(decided, after, fixed))
        budget = due.budget_beside(decided, tail, fixed)
    else:
        ahead = due.ahead_of(decided, job, leaf, marks)
        if (plan := ahead.plan) is None:
            return None
        fixed, tail, budget = ahead.fixed, due.total(ahead.sent[-len(plan.keep) :]), plan.summary_tokens
        last = UUID(plan.summarise[-1].partition("#")[0])
        deepest = next(row.depth for row in ahead.rows if row.pk == last)
        # A summary of an older prompt version is not gone on from: what it stands for is read again.
        before = in_force(conversation.pk, leaf, marks, prompt_version=version)
        rows = [row for row in due.open_rows(before, leaf, marks) if row.depth <= deepest]
    if not rows:
        return None
    now, zone = timezone.now(), conversation.owner.zone
    measures = due.Measures(decided, due.costs(decided, rows, fixed + tail))
    texts, counting = decided.texts, tokens.tokenizer(writer.tokenizer or tokens.CATCH_ALL)
    so_far = counting.count(text_of(before, texts)) if before else 0
    budget = writing.budget_for(writer, budget)
    since = conversation.created if before else rows[0].created
    brief = writing.Brief(
        conversation, writer, instructions, budget, since, now, zone, measures, texts, so_far, patience, job.token_id
    )
    if brief.room < writing.LEAST_READ:
        raise ProductError(
            "summary_window_too_small",
            Sentence(
                "The window of “{writer}” leaves {room} tokens to read messages in, beside its "
                "instructions, the last summary and the new one. Choose a larger model for summaries, or shorten the "
                "summary prompt.",
                writer=str(writer),
                room=max(brief.room, 0),
            ),
        )
    return Work(job, brief, before, rows, marks, version, leaf)


def decided_for(job: SummaryJob) -> TurnContext:
    """What holds for the conversation's next prompt."""
    scope = scope_of(job.conversation)
    owner = job.conversation.owner
    model = models_of(owner).filter(pk=job.model_id).first() if job.model_id else None
    return base_context(user=owner, model=model or model_for(scope.persona, owner), scope=scope)


def _writer(job: SummaryJob) -> tuple[Model, Collection[UUID] | None]:
    """The model that an administrator named for summaries while it is usable, with any fallback, since it is the
    workspace's choice; else the conversation's, with those that its person may use. Raises `limit_reached`."""
    require_unused(job.conversation.owner_id, job.token_id)
    decided = decided_for(job)
    chosen = decided.profile.summary_model_id
    named = Model.objects.usable().filter(pk=chosen).first() if chosen else None
    return (named, None) if named is not None else (decided.model, decided.rights.models)


def store(work: Work, written: Summary, told: Sequence[writing.Piece], *, last: bool) -> Summary | None:
    """The next summary, `written` of the messages `told`, and after the last chunk the job's end; None when the job is
    not live any more.

    A summary of a part of what was to be summarised holds too: should the rest fail, the next job goes on from it.
    """
    before, rows, brief = work.before, [piece.message for piece in told], work.brief
    with transaction.atomic():
        Conversation.objects.select_for_update().filter(pk=work.job.conversation_id).first()
        if not SummaryJob.objects.select_for_update().live().filter(pk=work.job.pk).exists():
            return None
        if not Message.objects.filter(pk=rows[-1].pk).exists():
            fail(work.job.pk, "messages_deleted", Sentence("Messages were deleted while it was being written."))
            return None
        last_row = before.last if before is not None and before.last.depth > rows[-1].depth else rows[-1]
        summary = Summary(
            conversation_id=work.job.conversation_id,
            leaf_id=work.leaf,
            first_id=before.first_id if before else rows[0].pk,
            last=last_row,
            left_aside=_left_aside(work, rows, last_row),
            messages=len(rows) + (before.messages if before else 0),
            span_start=before.span_start if before else rows[0].created,
            span_end=last_row.created,
            sections=written.sections,
            shortened=[*(before.shortened if before else []), *(str(p.message.pk) for p in told if p.shortened)],
            timezone=written.timezone,
            model_name=brief.model.name,
            prompt_version=work.prompt_version,
            as_of=written.as_of,
            tokens_in=(before.tokens_in if before else 0) + sum(piece.sent for piece in told),
        )
        summary.supersedes = before or in_force(summary.conversation_id, work.leaf)
        summary.tokens_out = brief.measures.of_text(text_of(summary, brief.texts))
        summary.save(force_insert=True)
        if last:
            finish(work.job.pk)
    return summary


def _left_aside(work: Work, rows: Sequence[Message], last: Message) -> list[str]:
    """What the summary down to `last` does not tell of: what is marked, and what was and is not in it yet."""
    waiting = {*(work.before.left_aside if work.before else ())} - {str(row.pk) for row in rows}
    return sorted(waiting | {str(message.id) for message in work.marks.messages if message.depth <= last.depth})


@dataclass(frozen=True, slots=True)
class Stale:
    ended: list[UUID]
    unclaimed: list[UUID]


def stale() -> Stale:
    """Ends what takes too long, and the jobs whose worker is gone; returns their conversations, and jobs to enqueue."""
    live = SummaryJob.objects.live()
    ended = expire(live)
    gone = background.stale_rows(live.filter(status=SummaryJob.Status.RUNNING))
    ended += [job.conversation_id for job in gone if interrupt(job.pk)]
    return Stale(ended, background.unclaimed(live.filter(status=SummaryJob.Status.QUEUED)))


def queued_in(conversation_id: UUID) -> list[UUID]:
    """The jobs of this conversation that wait for a worker."""
    queued = SummaryJob.objects.filter(conversation=conversation_id, status=SummaryJob.Status.QUEUED)
    return list(queued.values_list("pk", flat=True))
