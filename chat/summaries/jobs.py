"""Run a summary job, from its claim to its end.

1. `claim_job` takes the job, unless an answer is being written or too little time is left.
2. `load_task` reads the input of the writer: the summary so far, the messages, the budget.
3. `_carry_out` summarises the messages in chunks, and stores a summary after each chunk that ends with a whole turn.
4. The end of the job opens the conversation again (`chat.summaries.ending`).

A job that fails, hangs or loses its worker changes no message. If a worker is lost, another job goes on from the
stored part. Otherwise the window's policy limits prompts until the next turn starts a job.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.access.rights import models_of
from chat.ledger.limits import require_not_used_up
from chat.models import Conversation, Message, Summary, SummaryJob, Turn
from chat.models.conversation_state import scope_of
from chat.models.summary import Marks, in_force, marks_on, text_of
from chat.models.tree import rows_between
from chat.prompts.turn_context import TurnContext, base_context
from chat.summaries import due, writing
from chat.summaries.ending import SUMMARIES, TIMEOUT, expire, fail, finish, interrupt, time_out
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
class SummaryTask:
    """The input of a job: the previous summary `before`, or None, and the `rows` to add to it, oldest first.

    `marks`: the marks of the branch when it was loaded. Messages with a mark are not among the rows.
    """

    job: SummaryJob
    brief: writing.SummaryBrief
    before: Summary | None
    rows: Sequence[Message]
    marks: Marks
    prompt_version: int
    leaf: UUID


def claim_job(job_id: UUID) -> SummaryJob | None:
    """Claim a job. Returns None if it is not queued, if too little time is left, or if an answer is being written."""
    live = Turn.objects.live().filter(conversation__in=SummaryJob.objects.filter(pk=job_id).values("conversation"))
    if live.exists():
        return None
    related = ("conversation__owner", "conversation__persona__budget_profile", "model__provider", "target")
    return SUMMARIES.claim(job_id, *related)


async def run_job(job_id: UUID) -> UUID | None:
    """Claim a job and carry it out. Returns the id of its conversation, or None if it could not be claimed."""
    job = await on_database(claim_job, job_id)
    if job is None:
        return None
    try:
        with SUMMARIES.alive(job):
            left = job.created + TIMEOUT - timezone.now()
            async with asyncio.timeout(left.total_seconds()):
                writer, allowed = await on_database(_choose_writer, job)
                await with_fallbacks(writer, partial(_carry_out, job), allowed)
    except asyncio.CancelledError:
        await asyncio.shield(on_database(interrupt, job.pk))
        raise
    except TimeoutError:
        await with_retries(lambda: time_out(job))
    except (ProductError, writing.SummaryRejected) as error:
        sentence = error.sentence if isinstance(error, ProductError) else Sentence.verbatim(str(error))
        code = error.code
        await with_retries(lambda: fail(job.pk, code, sentence))
    except Exception:
        logger.exception("summary job %s failed", job.pk)
        await with_retries(lambda: fail(job.pk, "internal_error", Sentence("An internal error occurred.")))
    return job.conversation_id


async def _carry_out(job: SummaryJob, writer: Model, patience: float | None) -> None:
    """Write the summary with this model. It continues the part that another model has stored.

    `patience`: see `writing.SummaryBrief`.
    """
    task = await on_database(load_task, job, writer, patience)
    if task is None:
        await on_database(finish, job.pk)
        return
    before = so_far = task.before
    covered: list[writing.TranscriptMessage] = []
    for chunk in writing.split_into_chunks(writing.transcript(task.rows, task.brief), task.brief.room):
        so_far = await writing.write_summary(task.brief, so_far, chunk)
        covered += chunk
        if not covered[-1].ends_turn:  # a stored summary covers whole turns
            continue
        last = covered[-1].message.pk == task.rows[-1].pk
        stored = await on_database(store_summary, replace(task, before=before), so_far, covered, last=last)
        if stored is None:
            logger.info("summary job %s ended too late; its summary is not used", job.pk)
            return
        before = so_far = stored
        covered = []


def load_task(job: SummaryJob, writer: Model, patience: float | None) -> SummaryTask | None:
    """Read the input of the job. Returns None if there are no messages to summarise.

    Raises `summary_window_too_small`.
    """
    conversation = job.conversation
    context = load_context(job)
    prompt = SummaryPrompt.objects.filter(active=True).first()
    version, instructions = (prompt.version, prompt.text) if prompt else (0, writing.DEFAULT_PROMPT)
    leaf = conversation.leaf_id
    if leaf is None:
        return None
    marks = marks_on(conversation.pk, leaf)
    if job.target is not None:
        before = None
        rows = due.find_open_rows(None, job.target.last_id, marks)
        fixed = due.add_pinned_tokens(context, marks, job.fixed)
        after = [row for row in rows_between(job.target.last_id, leaf) if row.pk not in marks.by_message]
        tail = due.total_tokens(due.measure_messages(context, after, fixed))
        budget = due.rebuild_budget(context, tail, fixed)
    else:
        branch = due.plan_branch(context, job, leaf, marks)
        if (plan := branch.plan) is None:
            return None
        fixed = branch.fixed
        tail = due.total_tokens(branch.sent[-len(plan.keep) :])
        budget = plan.summary_tokens
        last = UUID(plan.summarise[-1].partition("#")[0])
        deepest = next(row.depth for row in branch.rows if row.pk == last)
        # A summary of an older prompt version is not continued: its messages are read again.
        before = in_force(conversation.pk, leaf, marks, prompt_version=version)
        rows = [row for row in due.find_open_rows(before, leaf, marks) if row.depth <= deepest]
    if not rows:
        return None
    texts = context.texts
    tokenizer = tokens.tokenizer(writer.tokenizer or tokens.CATCH_ALL)
    brief = writing.SummaryBrief(
        conversation=conversation,
        model=writer,
        instructions=instructions,
        budget=writing.summary_budget(writer, budget),
        since=conversation.created if before else rows[0].created,
        now=timezone.now(),
        zone=conversation.owner.zone,
        measures=due.Measures(context, due.measure_messages(context, rows, fixed + tail)),
        texts=texts,
        so_far=tokenizer.count(text_of(before, texts)) if before else 0,
        patience=patience,
        token=job.token_id,
    )
    if brief.room < writing.MIN_MESSAGE_TOKENS:
        raise ProductError(
            "summary_window_too_small",
            Sentence(
                "The window of “{writer}” leaves {room} tokens for messages, besides its instructions, the "
                "last summary and the new one. Choose a larger model for summaries, or shorten the summary "
                "prompt.",
                writer=str(writer),
                room=max(brief.room, 0),
            ),
        )
    return SummaryTask(job, brief, before, rows, marks, version, leaf)


def load_context(job: SummaryJob) -> TurnContext:
    """Return the context of the conversation's next prompt."""
    scope = scope_of(job.conversation)
    owner = job.conversation.owner
    model = models_of(owner).filter(pk=job.model_id).first() if job.model_id else None
    return base_context(user=owner, model=model or model_for(scope.persona, owner), scope=scope)


def _choose_writer(job: SummaryJob) -> tuple[Model, Collection[UUID] | None]:
    """Return the model that writes the summary, and the fallbacks that are allowed; None allows any.

    If the model that an administrator chose for summaries is usable, it writes the summary. Any fallback is allowed
    then, since the workspace chose the model. Otherwise the conversation's model writes it, and the fallbacks are the
    models that its person may use. Raises `limit_reached`.
    """
    require_not_used_up(job.conversation.owner_id, job.token_id)
    context = load_context(job)
    writer_id = context.profile.summary_model_id
    writer = Model.objects.usable().filter(pk=writer_id).first() if writer_id else None
    return (writer, None) if writer is not None else (context.model, context.rights.models)


def store_summary(
    task: SummaryTask, written: Summary, covered: Sequence[writing.TranscriptMessage], *, last: bool
) -> Summary | None:
    """Store the summary `written` of these messages, and end the job after the `last` chunk.

    Returns None if the job is no longer live. A summary of some of the rows is in force, too. If the rest fails, the
    next job goes on from it.
    """
    before = task.before
    brief = task.brief
    rows = [each.message for each in covered]
    with transaction.atomic():
        Conversation.objects.select_for_update().filter(pk=task.job.conversation_id).first()
        if not SummaryJob.objects.select_for_update().live().filter(pk=task.job.pk).exists():
            return None
        if not Message.objects.filter(pk=rows[-1].pk).exists():
            fail(task.job.pk, "messages_deleted", Sentence("Messages were deleted while it was being written."))
            return None
        last_row = before.last if before is not None and before.last.depth > rows[-1].depth else rows[-1]
        summary = Summary(
            conversation_id=task.job.conversation_id,
            leaf_id=task.leaf,
            first_id=before.first_id if before else rows[0].pk,
            last=last_row,
            left_aside=_find_left_aside(task, rows, last_row),
            messages=len(rows) + (before.messages if before else 0),
            span_start=before.span_start if before else rows[0].created,
            span_end=last_row.created,
            sections=written.sections,
            shortened=[*(before.shortened if before else []), *(str(m.message.pk) for m in covered if m.shortened)],
            timezone=written.timezone,
            model_name=brief.model.name,
            prompt_version=task.prompt_version,
            as_of=written.as_of,
            tokens_in=(before.tokens_in if before else 0) + sum(each.sent for each in covered),
        )
        summary.supersedes = before or in_force(summary.conversation_id, task.leaf)
        summary.tokens_out = brief.measures.of_text(text_of(summary, brief.texts))
        summary.save(force_insert=True)
        if last:
            finish(task.job.pk)
    return summary


def _find_left_aside(task: SummaryTask, rows: Sequence[Message], last: Message) -> list[str]:
    """Return the ids of messages down to `last` that the summary does not cover.

    These are messages with a mark, and messages that the previous summary left aside and `rows` does not contain.
    """
    waiting = {*(task.before.left_aside if task.before else ())} - {str(row.pk) for row in rows}
    return sorted(waiting | {str(message.id) for message in task.marks.messages if message.depth <= last.depth})


def end_lost(lost: QuerySet[SummaryJob]) -> list[UUID]:
    """End the jobs whose time is over, and the `lost` jobs. Returns the ids of all their conversations."""
    ended = expire(SummaryJob.objects.live())
    return ended + [job.conversation_id for job in lost if interrupt(job.pk)]


def queued_in(conversation_id: UUID) -> list[UUID]:
    """Return the ids of this conversation's jobs that wait for a worker."""
    queued = SummaryJob.objects.filter(conversation=conversation_id, status=SummaryJob.Status.QUEUED)
    return list(queued.values_list("pk", flat=True))
