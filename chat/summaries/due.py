"""Decide when a summary is due and how long it may be: apply the plan of `chat.context.summary` to stored rows."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils import timezone

from chat.context.rendering import PromptRenderer, cost
from chat.context.summary import (
    SHORTEST_SUMMARY,
    Bounds,
    SummaryMessage,
    SummaryPlan,
    bounds_by_share,
    is_due,
    plan_summary,
)
from chat.context.types import ContextRequest
from chat.models import Conversation, Message, Summary, SummaryJob, Turn
from chat.models.summary import Mark, Marks, in_force, marks_on
from chat.models.tree import rows_between
from chat.prompts.history import messages_of
from chat.prompts.report import CallReport
from chat.prompts.turn_context import TurnContext

SMALLEST_WINDOW = 4_096  # tokens; models with less write summaries that are too poor to replace messages
FIXED_SECTIONS = ("system", "tasks", "persona", "project_files", "file_listing", "reminder")
# Reasons why a message is missing in one prompt although it may be in the next.
TEMPORARY_REASONS = ("no_room", "behind_gap")


def plan_job_after(context: TurnContext, call: CallReport, turn: Turn, answer: str) -> SummaryJob | None:
    """Return an unsaved job for the summary that is due after a turn, or None if no summary is due.

    `call` is the report of the turn's last model call and `answer` its text, since the row of the answer is not
    complete yet. The size of the next prompt decides. In that prompt the turn's tool results are stubs. For most turns
    the report is enough. For the others the rows down to the turn's question are read.
    """
    conversation = context.conversation
    fixed = fixed_tokens(call)
    question = turn.user_message_id
    if conversation is None or not _is_enabled(context, conversation):
        return None
    written = _new_messages(context, call, answer)
    summary = call["sections"].get("summary", 0)
    messages = (source for source in call["sources"] if source["kind"] == "message")
    whole = not call["unloaded"] and all(source.get("reason") not in TEMPORARY_REASONS for source in messages)
    sent = total_tokens([*_call_messages(context, call, ("file", "history", "current")), *written[-1:]])
    if whole and not is_due(prompt_bounds(context, fixed), fixed + summary + sent):
        return None
    marks = marks_on(conversation.pk, question)
    rows = find_open_rows(in_force(conversation.pk, question, marks), question, marks)
    mark = marks.by_message.get(question)
    newest = written if mark is None else []
    pinned = add_pinned_tokens(context, marks, fixed) + (total_tokens(written) if mark == Mark.Kind.PINNED else 0)
    open_messages = [*measure_messages(context, rows, pinned + summary + total_tokens(newest)), *newest]
    used = pinned + summary + total_tokens(open_messages)
    planned = plan_summary(open_messages, prompt_bounds(context, pinned), used=used, fixed=pinned)
    if planned is None or not _is_worthwhile(planned, open_messages, call):
        return None
    return SummaryJob(
        conversation=conversation,
        used=used,
        fixed=fixed,
        heartbeat=timezone.now(),
        model=context.model,
        token_id=turn.token_id,
    )


def _is_worthwhile(planned: SummaryPlan, messages: Sequence[SummaryMessage], call: CallReport) -> bool:
    """Return whether the replaced messages take more tokens than the shortest summary.

    Otherwise every answer might lead to a summary that frees nothing, and users could not send messages meanwhile.
    """
    return total_tokens(messages[: len(planned.summarise)]) + call["sections"].get("summary", 0) > SHORTEST_SUMMARY


def _new_messages(context: TurnContext, call: CallReport, answer: str) -> list[SummaryMessage]:
    """Return the messages that the turn has added to its question, as the next prompt will contain them."""
    added = [message for message in _call_messages(context, call, ("current",)) if message.role != "user"]
    tokens = context.tokenizer.count(answer) + context.profile.message_overhead
    return [*added, SummaryMessage("", "assistant", tokens)]


def _call_messages(context: TurnContext, call: CallReport, sections: Collection[str]) -> list[SummaryMessage]:
    """Return the call's messages in these sections, with the tokens that they take once the turn is an older one.

    In an older turn a tool result is a stub. An assistant message in the current section has tool calls.
    """
    stub = context.tokenizer.count(context.texts["tool_result_stub"]) + context.profile.message_overhead
    return [
        SummaryMessage(
            sent["source"] or "",
            sent["role"],
            stub if sent["role"] == "tool" else sent["tokens"],
            has_tool_calls=sent["role"] == "assistant" and sent["section"] == "current",
        )
        for sent in call["messages"]
        if sent["section"] in sections
    ]


def fixed_tokens(call: CallReport) -> int:
    """Return the tokens of the parts that every prompt has, without the pinned turns."""
    return call["tools_tokens"] + sum(call["sections"].get(section, 0) for section in FIXED_SECTIONS)


def prompt_bounds(context: TurnContext, fixed: int) -> Bounds:
    """Return the ceiling and floor of the conversation's prompts.

    The profile's own numbers apply if the ceiling is below the model's limit and `fixed`, which includes the pinned
    turns, is at most half of the floor. Otherwise the profile's shares apply to the room that `fixed` leaves.
    """
    profile = context.profile
    limit = context.room.input_limit + context.room.tools_tokens
    ceiling = profile.ceiling
    floor = profile.floor
    if ceiling is not None and floor is not None and ceiling < limit and 2 * fixed <= floor:
        return Bounds(ceiling, floor, profile.keep_recent)
    return bounds_by_share(limit, fixed, profile.ceiling_share, profile.floor_share, profile.keep_recent)


def _is_enabled(context: TurnContext, conversation: Conversation) -> bool:
    """Return whether summaries are on here and a model can write them."""
    profile = context.profile
    if not (profile.summaries and conversation.automatic_summaries):
        return False
    if conversation.origin == Conversation.Origin.API:  # one request without a next prompt
        return False
    return context.model.context_window >= SMALLEST_WINDOW or profile.summary_model_id is not None


def find_open_rows(holds: Summary | None, end: UUID, marks: Marks) -> list[Message]:
    """Return the messages down to `end` that a summary may cover, oldest first.

    These are the messages after the summary in force (`holds`), and those that it left aside for a mark that was
    removed since. Messages that have a mark now are left out.
    """
    aside = Message.objects.filter(pk__in=holds.left_aside if holds is not None else ())
    earlier = aside.prefetch_related("attachments").order_by("depth")
    rows = [*earlier, *rows_between(holds.last_id if holds is not None else None, end)]
    return [row for row in rows if row.pk not in marks.by_message]


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """The plan of a job on a branch. `rows` are its `find_open_rows`, and `sent` their messages with tokens.

    `plan` says which messages to summarise; None if there are none. `fixed` includes the pinned turns.
    """

    rows: Sequence[Message]
    sent: Sequence[SummaryMessage]
    plan: SummaryPlan | None
    fixed: int


def plan_branch(context: TurnContext, job: SummaryJob, leaf: UUID, marks: Marks) -> BranchPlan:
    """Plan a job on the branch that ends at `leaf`. A job that a user asked for is also planned below the ceiling."""
    holds = in_force(job.conversation_id, leaf, marks)
    fixed = add_pinned_tokens(context, marks, job.fixed)
    rows = find_open_rows(holds, leaf, marks)
    bounds = prompt_bounds(context, fixed)
    sent = measure_messages(context, rows, fixed + (holds.tokens_out if holds is not None else 0))
    used = job.used if job.reason == SummaryJob.Reason.CEILING else bounds.ceiling + 1
    return BranchPlan(rows, sent, plan_summary(sent, bounds, used=used, fixed=fixed), fixed)


def rebuild_budget(context: TurnContext, tail: int, fixed: int) -> int:
    """Return the token budget of a rebuilt summary: the floor minus `fixed` and the `tail` tokens after it.

    It is at least `SHORTEST_SUMMARY`.
    """
    return max(SHORTEST_SUMMARY, prompt_bounds(context, fixed).floor - fixed - tail)


def add_pinned_tokens(context: TurnContext, marks: Marks, fixed: int) -> int:
    """Return `fixed` with the tokens of the pinned turns."""
    rows = Message.objects.filter(pk__in=marks.pinned).order_by("depth") if marks.pinned else ()
    return fixed + total_tokens(measure_messages(context, list(rows), fixed)) if rows else fixed


def total_tokens(sent: Sequence[SummaryMessage]) -> int:
    """Return the sum of the messages' tokens."""
    return sum(message.tokens for message in sent)


def measure_messages(context: TurnContext, rows: Sequence[Message], reserved: int) -> list[SummaryMessage]:
    """Return the tokens that each message takes in the next prompt, with overhead and files. Tool results are stubs.

    A file counts only as its name if its whole message does not fit in addition to the newer messages and `reserved`
    tokens, which include the tokens of the tools.
    """
    tokenizer = context.tokenizer
    texts = context.texts
    overhead = context.profile.message_overhead
    history = messages_of(rows, overhead=overhead, tokenizer=tokenizer, texts=texts)
    messages = context.documents().attach(history, rows)
    renderer = PromptRenderer(
        ContextRequest(context.room, messages, message_overhead=overhead, tokenizer=tokenizer, texts=texts)
    )
    room = context.room.input_limit + context.room.tools_tokens - reserved
    newest_first: list[SummaryMessage] = []
    for message in reversed(messages):
        sent = renderer.older_message(message)
        if cost(sent) > room and message.sent_files:
            sent[0] = renderer.file_stub(sent[0], message)
        room -= cost(sent)
        has_tool_calls = bool(message.tool_calls)
        newest_first.append(SummaryMessage(message.id, message.role, cost(sent), has_tool_calls=has_tool_calls))
    return newest_first[::-1]


class Measures:
    """Tokens of messages and summaries as the conversation's model gets them, with overhead.

    A summary and the messages that it replaces are measured in the same way. `sent`: from `measure_messages`.
    """

    def __init__(self, context: TurnContext, sent: Sequence[SummaryMessage]) -> None:
        self._context = context
        self._rows: dict[str, int] = {}
        for message in sent:
            row = message.id.partition("#")[0]
            self._rows[row] = self._rows.get(row, 0) + message.tokens

    def of_row(self, row: Message) -> int:
        """Return the tokens of a message with its files; 0 for one that is never sent."""
        return self._rows.get(str(row.pk), 0)

    def of_text(self, text: str) -> int:
        """Return the tokens of a text that is sent as one message."""
        return self._context.tokenizer.count(text) + self._context.profile.message_overhead
