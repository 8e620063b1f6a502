"""When a summary is due, and how much it may say: the engine's plan on stored rows."""

from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from chat.context.rendering import Renderer
from chat.context.summary import (
    SHORTEST_SUMMARY,
    Bounds,
    SummaryMessage,
    SummaryPlan,
    bounds_by_share,
    is_due,
    plan_summary,
)
from chat.context.types import ContextMessage, ContextRequest
from chat.models import Conversation, Message, Summary, SummaryJob
from chat.models.summary import Marks
from chat.models.tree import rows_between
from chat.prompts.history import messages_of
from chat.prompts.report import CallReport
from chat.prompts.turn_context import TurnContext
from llm.types.model_call import Usage
from personas.models import BudgetProfile

SMALLEST_WINDOW = 4_096  # tokens; what models with less write cannot stand for a conversation
FIXED = ("system", "tasks", "persona", "project_files", "file_listing", "reminder")


def job_after(context: TurnContext, call: CallReport, usage: Usage | None, answer: str) -> SummaryJob | None:
    """The job that a turn asks for, from its last model call's report and usage; None when none is due.

    The turn's tokens are the provider's, or ours where those are more: by ours it is decided what fits, and a message
    must not be left out because the provider counts less.
    """
    counted = call["used"] + call["tools_tokens"] + context.tokenizer.count(answer)
    used = max(counted, usage.input + usage.output if usage is not None else 0)
    if not (_wanted(context, used) and _worth_it(call)):
        return None
    return SummaryJob(
        conversation=context.conversation,
        model=context.model,
        used=used,
        fixed=fixed_of(call),
        heartbeat=timezone.now(),
    )


def _worth_it(call: CallReport) -> bool:
    """Whether older turns take more than the shortest summary of them would.

    Where large project files alone keep a prompt above the ceiling, every answer would else be followed by a summary
    that frees nothing, and nobody could send meanwhile.
    """
    older = sum(call["sections"].get(section, 0) for section in ("history", "file"))
    return older > SHORTEST_SUMMARY or bool(call["dropped"]) or bool(call["unloaded"])


def fixed_of(call: CallReport) -> int:
    return call["tools_tokens"] + sum(call["sections"].get(section, 0) for section in FIXED)


def bounds_of(profile: BudgetProfile, input_limit: int) -> Bounds:
    """The profile's own ceiling and floor where they fit into the room of this model, else its shares of that room."""
    if profile.ceiling is not None and profile.floor is not None and profile.ceiling < input_limit:
        return Bounds(profile.ceiling, profile.floor, profile.keep_recent)
    shares = (profile.ceiling_share, profile.floor_share)
    return bounds_by_share(max(0, input_limit), *shares, keep_recent=profile.keep_recent)


def _wanted(context: TurnContext, used: int) -> bool:
    conversation, profile = context.conversation, context.profile
    if conversation is None or not (profile.summaries and conversation.automatic_summaries):
        return False
    if conversation.origin == Conversation.Origin.API:  # one request, which is not gone on from
        return False
    if context.model.context_window < SMALLEST_WINDOW and profile.summary_model_id is None:
        return False
    return is_due(bounds_of(profile, context.room.input_limit), used)


def open_rows(holds: Summary | None, end: UUID, marks: Marks) -> list[Message]:
    """What neither the summary stands for nor a mark decides, down to the message `end`, oldest first: what `holds` has
    left aside for a mark that holds no more, and what came after it."""
    aside = Message.objects.filter(pk__in=holds.left_aside if holds is not None else ())
    earlier = aside.prefetch_related("attachments").order_by("depth")
    rows = [*earlier, *rows_between(holds.last_id if holds is not None else None, end)]
    return [row for row in rows if row.pk not in marks.by_message]


def plan_of(context: TurnContext, rows: Sequence[Message], job: SummaryJob, marks: Marks) -> SummaryPlan | None:
    """What to summarise of `rows`, the `open_rows` of the branch; None when nothing is.

    Where somebody has asked for it, it does not matter what the last turn spent.
    """
    bounds = bounds_of(context.profile, context.room.input_limit)
    used = job.used if job.reason == SummaryJob.Reason.CEILING else bounds.ceiling + 1
    pinned = Message.objects.filter(pk__in=marks.pinned).order_by("depth")
    fixed = job.fixed + sum(cost.tokens for cost in costs(context, list(pinned)))
    return plan_summary(costs(context, rows), bounds, used=used, fixed=fixed)


def budget_beside(context: TurnContext, tail: Sequence[Message], fixed: int) -> int:
    """Tokens for a summary that is written again: what the floor leaves beside the messages it does not cover."""
    bounds = bounds_of(context.profile, context.room.input_limit)
    return max(SHORTEST_SUMMARY, bounds.floor - fixed - sum(cost.tokens for cost in costs(context, tail)))


def costs(context: TurnContext, rows: Sequence[Message]) -> list[SummaryMessage]:
    """What each message of the rows costs in the next prompt, overhead and files included, tool results as stubs."""
    overhead = context.profile.message_overhead
    messages = context.documents().attach(messages_of(rows, tokenizer=context.tokenizer, overhead=overhead))
    request = ContextRequest(context.room, messages, context.tokenizer, message_overhead=overhead)
    renderer = Renderer(request)
    return [_cost(renderer, message) for message in messages]


def _cost(renderer: Renderer, message: ContextMessage) -> SummaryMessage:
    tokens = sum(sent.tokens for sent in renderer.older_message(message))
    return SummaryMessage(message.id, message.role, tokens, has_tool_calls=bool(message.tool_calls))
