"""Services for summaries: write one now, correct it, rebuild it, undo it."""

from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from accounts.access.rights import models_of
from accounts.models import User
from chat.context.summary import SECTION_SHARES, SummaryMessage, SummaryPlan
from chat.ledger.limits import require_within_limits
from chat.models import Conversation, Message, Summary, SummaryJob, Turn
from chat.models.summary import in_force, marks_on, text_of
from chat.summaries import due
from chat.summaries.ending import SUMMARIES
from chat.summaries.headings import SummarySection
from chat.summaries.idle import lock_idle
from chat.summaries.jobs import load_context
from core.audit.origin import current_origin
from core.errors import ProductError
from core.requests import get_or_404
from core.sentences import Sentence
from llm import tokens
from llm.models import Model
from personas.services import rules_at

MAX_SECTION = 20_000  # characters


def visible_summary(user: User, pk: UUID) -> Summary:
    """Return a summary that the user may see. Raises `NotFound`."""
    return get_or_404(Summary.objects.visible_to(user).select_related("conversation", "last"), pk, "summary")


def summarise_now(*, user: User, conversation: Conversation, model: object = None) -> SummaryJob:
    """Begin a summary of all but the newest messages, and turn automatic summaries on again.

    `model` is the id of the model whose window counts; None means the model of the newest answer. Raises `NotFound` if
    the model is unknown or switched off, `already_answering` and `summarising` (409), and `nothing_to_summarise` (409)
    if no message is old enough.
    """
    row = get_or_404(models_of(user), model, "model") if model else None
    with lock_idle(user, conversation) as locked:
        job = _build_job(locked, SummaryJob.Reason.ASKED, model=row)
        if _plan(locked, job) is None:
            raise ProductError(
                "nothing_to_summarise",
                "There is nothing to summarise yet: the newest messages are never summarised.",
                status=409,
            )
        Conversation.objects.filter(pk=locked.pk).update(automatic_summaries=True)
        _start(locked, job)
    return job


def estimate_freed_tokens(conversation: Conversation, model: Model) -> int:
    """Return the tokens that a summary written now would free in the next prompt for the model.

    Return 0 if no message can be summarised.
    """
    job = _build_job(conversation, SummaryJob.Reason.ASKED, model=model)
    planned = _plan(conversation, job)
    if planned is None:
        return 0
    sent, plan = planned
    replaced = frozenset(plan.summarise)
    freed = sum(message.tokens for message in sent if message.id in replaced)
    return max(0, freed - plan.summary_tokens)


def _plan(conversation: Conversation, job: SummaryJob) -> tuple[Sequence[SummaryMessage], SummaryPlan] | None:
    """Return the messages of the branch, and the plan that says which of them a summary would replace, or None."""
    if conversation.leaf_id is None:
        return None
    marks = marks_on(conversation.pk, conversation.leaf_id)
    branch = due.plan_branch(load_context(job), job, conversation.leaf_id, marks)
    return (branch.sent, branch.plan) if branch.plan is not None else None


def rebuild_summary(*, user: User, summary: Summary) -> SummaryJob:
    """Write a summary again from the messages themselves, with the current summary prompt.

    Raises `already_answering` and `summarising` (409), and `not_in_force` (409) if the summary is no longer active.
    """
    with lock_idle(user, summary.conversation) as locked:
        _require_in_force(locked, summary)
        job = _build_job(locked, SummaryJob.Reason.REBUILD, summary)
        _start(locked, job)
    return job


def edit_summary(*, user: User, summary: Summary, sections: Sequence[SummarySection]) -> Summary:
    """Store a corrected summary as a new row that supersedes the old one, which stays readable.

    Raises `bad_section`, `empty_summary`, `not_in_force` (409) and the errors of `lock_idle`.
    """
    texts = {each["name"]: each["text"].strip() for each in sections}
    for name, text in texts.items():
        if name not in SECTION_SHARES or len(text) > MAX_SECTION:
            names = ", ".join(SECTION_SHARES)
            raise ProductError(
                "bad_section",
                Sentence(
                    "The sections are {known}, each with a text of at most {max_section} characters.",
                    known=names,
                    max_section=MAX_SECTION,
                ),
            )
    if not any(texts.values()):
        raise ProductError("empty_summary", "The summary is empty. Write something, or undo it instead.")
    with lock_idle(user, summary.conversation) as locked:
        _require_in_force(locked, summary)
        edited = Summary.objects.get(pk=summary.pk)
        edited.pk = Summary._meta.pk.get_default()
        edited.sections = [{"name": name, "text": texts[name]} for name in SECTION_SHARES if texts.get(name)]
        edited.supersedes = summary
        edited.author = user
        edited.model_name = ""
        edited.tokens_out = tokens.count(text_of(edited, rules_at().texts))
        edited.save(force_insert=True)
    return edited


def undo_summary(*, user: User, summary: Summary) -> Summary | None:
    """Withdraw a summary, so that its messages are sent again. Return the earlier summary that is active now.

    Automatic summaries are turned off here, or the same summary would be written again at once. `summarise_now` turns
    them on.
    """
    with lock_idle(user, summary.conversation) as locked:
        _require_in_force(locked, summary)
        Summary.objects.filter(pk=summary.pk).update(withdrawn=timezone.now())
        Conversation.objects.filter(pk=locked.pk).update(automatic_summaries=False)
    return in_force(locked.pk, locked.leaf_id)


def _require_in_force(conversation: Conversation, summary: Summary) -> None:
    active = in_force(conversation.pk, conversation.leaf_id)
    if active is None or active.pk != summary.pk:
        raise ProductError(
            "not_in_force",
            ("This summary is no longer the current one on this branch. Reload the page to see the current one."),
            status=409,
        )


def _build_job(
    conversation: Conversation, reason: str, target: Summary | None = None, *, model: Model | None = None
) -> SummaryJob:
    """Return a job that is not stored yet.

    Its fixed tokens come from the report of the newest answer. So does the model if `model` is None.
    """
    leaf = Message.objects.select_related("model").get(pk=conversation.leaf_id) if conversation.leaf_id else None
    turn = Turn.objects.filter(answer=leaf).select_related("model").only("report", "model").first() if leaf else None
    calls = turn.report.get("calls", []) if turn else []
    return SummaryJob(
        conversation=conversation,
        reason=reason,
        model=model or (turn.model if turn else leaf.model if leaf else None),
        target=target,
        token_id=current_origin().token_id,
        fixed=due.fixed_tokens(calls[-1]) if calls else 0,
        heartbeat=timezone.now(),
    )


def _start(conversation: Conversation, job: SummaryJob) -> None:
    """Store a job and hand it over to a worker. Raises `limit_reached` (429)."""
    require_within_limits(conversation.owner_id, job.token_id, None)
    job.save(force_insert=True)
    conversation.state = Conversation.State.SUMMARISING
    conversation.save(update_fields=["state"])
    SUMMARIES.hand_over(job.pk)
