"""When a summary is due, and how much it may say: the engine's plan on stored rows."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
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

SMALLEST_WINDOW = 4_096  # tokens; what models with less write cannot stand for a conversation
FIXED = ("system", "tasks", "persona", "project_files", "file_listing", "reminder")
# Why a message that the next prompt may have again is not in this one.
MISSING = ("no_room", "behind_gap")


def job_after(context: TurnContext, call: CallReport, turn: Turn, answer: str) -> SummaryJob | None:
    """The job that a turn asks for, from its last model call's report and its answer; None when none is due.

    What counts is the next prompt, in which the turn's tool results are stubs. Most turns are decided by the report;
    what it leaves open, by the rows down to the turn's question. The answer's row is not complete yet.
    """
    conversation, fixed, question = context.conversation, fixed_of(call), turn.user_message_id
    if conversation is None or not _wanted(context, conversation):
        return None
    written = _written(context, call, answer)
    summary = call["sections"].get("summary", 0)
    messages = (source for source in call["sources"] if source["kind"] == "message")
    whole = not call["unloaded"] and all(source.get("reason") not in MISSING for source in messages)
    sent = total([*_sent(context, call, ("file", "history", "current")), *written[-1:]])
    if whole and not is_due(bounds_of(context, fixed), fixed + summary + sent):
        return None
    marks = marks_on(conversation.pk, question)
    rows = open_rows(in_force(conversation.pk, question, marks), question, marks)
    mark = marks.by_message.get(question)
    newest = written if mark is None else []
    pinned = with_pinned(context, marks, fixed) + (total(written) if mark == Mark.Kind.PINNED else 0)
    open_messages = [*costs(context, rows, pinned + summary + total(newest)), *newest]
    used = pinned + summary + total(open_messages)
    planned = plan_summary(open_messages, bounds_of(context, pinned), used=used, fixed=pinned)
    if planned is None or not _worth_it(planned, open_messages, call):
        return None
    of_turn = {"model": context.model, "token_id": turn.token_id}
    return SummaryJob(conversation=conversation, used=used, fixed=fixed, heartbeat=timezone.now(), **of_turn)


def _worth_it(planned: SummaryPlan, messages: Sequence[SummaryMessage], call: CallReport) -> bool:
    """Whether what would be replaced takes more than the shortest summary; else every answer might be followed by one
    that frees nothing, and nobody could send meanwhile."""
    return total(messages[: len(planned.summarise)]) + call["sections"].get("summary", 0) > SHORTEST_SUMMARY


def _written(context: TurnContext, call: CallReport, answer: str) -> list[SummaryMessage]:
    """What the turn has added to its question, as the next prompt has it."""
    added = [message for message in _sent(context, call, ("current",)) if message.role != "user"]
    tokens = context.tokenizer.count(answer) + context.profile.message_overhead
    return [*added, SummaryMessage("", "assistant", tokens)]


def _sent(context: TurnContext, call: CallReport, sections: Collection[str]) -> list[SummaryMessage]:
    """The call's messages of these sections with what they cost in an older turn; whose calls are no final answers."""
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


def fixed_of(call: CallReport) -> int:
    """What every prompt has, but for the pinned turns."""
    return call["tools_tokens"] + sum(call["sections"].get(section, 0) for section in FIXED)


def bounds_of(context: TurnContext, fixed: int) -> Bounds:
    """The profile's own ceiling and floor where they fit into this model's room and `fixed`, which counts the pinned
    turns, is at most half of the floor; else its shares of what `fixed` leaves."""
    profile, limit = context.profile, context.room.input_limit + context.room.tools_tokens
    ceiling, floor = profile.ceiling, profile.floor
    if ceiling is not None and floor is not None and ceiling < limit and 2 * fixed <= floor:
        return Bounds(ceiling, floor, profile.keep_recent)
    return bounds_by_share(limit, fixed, profile.ceiling_share, profile.floor_share, profile.keep_recent)


def _wanted(context: TurnContext, conversation: Conversation) -> bool:
    profile = context.profile
    if not (profile.summaries and conversation.automatic_summaries):
        return False
    if conversation.origin == Conversation.Origin.API:  # one request, which is not gone on from
        return False
    return context.model.context_window >= SMALLEST_WINDOW or profile.summary_model_id is not None


def open_rows(holds: Summary | None, end: UUID, marks: Marks) -> list[Message]:
    """What neither the summary stands for nor a mark decides, down to the message `end`, oldest first: what `holds` has
    left aside for a mark that holds no more, and what came after it."""
    aside = Message.objects.filter(pk__in=holds.left_aside if holds is not None else ())
    earlier = aside.prefetch_related("attachments").order_by("depth")
    rows = [*earlier, *rows_between(holds.last_id if holds is not None else None, end)]
    return [row for row in rows if row.pk not in marks.by_message]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a job finds on a branch: its `open_rows`, what each message of theirs is `sent` as, and what to summarise of
    it; no plan where nothing is. `fixed` counts the pinned turns."""

    rows: Sequence[Message]
    sent: Sequence[SummaryMessage]
    plan: SummaryPlan | None
    fixed: int


def ahead_of(context: TurnContext, job: SummaryJob, leaf: UUID, marks: Marks) -> Ahead:
    """Where somebody has asked for the job, it does not matter what the next prompt would have."""
    holds, fixed = in_force(job.conversation_id, leaf, marks), with_pinned(context, marks, job.fixed)
    rows, bounds = open_rows(holds, leaf, marks), bounds_of(context, fixed)
    sent = costs(context, rows, fixed + (holds.tokens_out if holds is not None else 0))
    used = job.used if job.reason == SummaryJob.Reason.CEILING else bounds.ceiling + 1
    return Ahead(rows, sent, plan_summary(sent, bounds, used=used, fixed=fixed), fixed)


def budget_beside(context: TurnContext, tail: int, fixed: int) -> int:
    """Tokens for a summary that is written again: what the floor leaves beside the messages it does not cover, of
    `tail` tokens."""
    return max(SHORTEST_SUMMARY, bounds_of(context, fixed).floor - fixed - tail)


def with_pinned(context: TurnContext, marks: Marks, fixed: int) -> int:
    """`fixed` and what the pinned turns cost."""
    rows = Message.objects.filter(pk__in=marks.pinned).order_by("depth") if marks.pinned else ()
    return fixed + total(costs(context, list(rows), fixed)) if rows else fixed


def total(sent: Sequence[SummaryMessage]) -> int:
    return sum(message.tokens for message in sent)


def costs(context: TurnContext, rows: Sequence[Message], taken: int) -> list[SummaryMessage]:
    """What each message of the rows costs in the next prompt, overhead and files included, tool results as stubs.

    Files are only named, as they are sent, where their turn does not fit whole beside the newer ones and the `taken`
    tokens, which count the tools'.
    """
    overhead = context.profile.message_overhead
    words: Any = {"tokenizer": context.tokenizer, "texts": context.texts}
    messages = context.documents().attach(messages_of(rows, overhead=overhead, **words), rows)
    renderer = PromptRenderer(ContextRequest(context.room, messages, message_overhead=overhead, **words))
    room = context.room.input_limit + context.room.tools_tokens - taken
    found: list[SummaryMessage] = []
    for message in reversed(messages):
        sent = renderer.older_message(message)
        if cost(sent) > room and message.sent_files:
            sent[0] = renderer.file_stub(sent[0], message)
        room -= cost(sent)
        found.append(SummaryMessage(message.id, message.role, cost(sent), has_tool_calls=bool(message.tool_calls)))
    return found[::-1]


class Measures:
    """What the texts cost as the conversation's model is sent them, overhead included: what a summary replaces and what
    it takes are measured alike. `sent`: the `costs` of what may be summarised."""

    def __init__(self, context: TurnContext, sent: Sequence[SummaryMessage]) -> None:
        self._context = context
        self._rows: dict[str, int] = {}
        for message in sent:
            row = message.id.partition("#")[0]
            self._rows[row] = self._rows.get(row, 0) + message.tokens

    def of_row(self, row: Message) -> int:
        """With its files; 0 for one that is never sent."""
        return self._rows.get(str(row.pk), 0)

    def of_text(self, text: str) -> int:
        return self._context.tokenizer.count(text) + self._context.profile.message_overhead
