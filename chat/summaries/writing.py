"""Ask a model for a summary, and decide whether its text is good enough to replace the messages."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from itertools import zip_longest
from uuid import UUID
from zoneinfo import ZoneInfo

from chat.context.rendering import cut_middle
from chat.context.summary import SECTION_SHARES
from chat.ledger.asking import Billing, OwnAnswer, ask
from chat.ledger.models import ModelCall
from chat.models import Attachment, Conversation, Summary
from chat.models import Message as Row
from chat.models.summary import text_of
from chat.prompts.history import expand
from chat.summaries.due import Measures
from chat.summaries.headings import has_heading, parse_sections
from core.errors import ModelError
from llm import tokens
from llm.models import Model
from llm.types.model_call import ModelMessage, ModelRequest
from personas.texts import Texts

# The prompt of a new workspace; an administrator's versions are rows. `summary_form` is added to it.
DEFAULT_PROMPT = """\
Summarise the conversation below. The summary replaces the messages: the assistant will read it instead of them.

You get the summary so far, if there is one, and the messages after it. Write one new summary of both.

Keep these things, in the order in which they happened:
- facts, names, numbers and dates
- decisions and their reasons
- promises, and what the person prefers
- open questions and work in progress

Write the newest events in detail and old events in a few words. Say who said or wanted what. Add nothing, judge \
nothing, and answer no question of the conversation.\
"""
MEANINGS = {
    "Earlier": "summary_earlier",
    "This month": "summary_month",
    "Today": "summary_today",
    "Now": "summary_now",
}  # names of texts
BUDGET_DIVISOR = 8  # a summary takes at most an eighth of its writer's window, so that the messages have room
MIN_MESSAGE_TOKENS = 256  # tokens of messages that one call must be able to read
THINKING_TOKENS = 1_024  # output tokens in addition to the summary, for models that reason first
REJECTED_LENGTH_FACTOR = Decimal(
    "1.5"
)  # times the budget; a longer first attempt is rejected, a longer second one is accepted
WORDS_PER_TOKEN = Decimal("0.7")
MAX_READ_LENGTH = 200_000  # characters of an answer; a model that does not stop is cut off
_ERROR = re.compile(
    r"^\W*(?:error\b|internal server error|traceback|\{\s*\"error\"|i(?:['’]| a)m sorry|sorry,|i can(?:no|['’])t"
    r"|as an ai\b)",
    re.I,
)


class SummaryRejected(Exception):
    """The model's text cannot replace the messages. `code` is for programs, the sentence for people and the model."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def summary_budget(writer: Model, planned: int) -> int:
    """Return the tokens of a summary: at most `planned`, so that the messages have room in the writer's window and the
    summary is not cut off at its longest output."""
    longest = planned if writer.max_output is None else int(writer.max_output / REJECTED_LENGTH_FACTOR)
    return min(planned, longest, writer.window // BUDGET_DIVISOR)


@dataclass(frozen=True)
class SummaryBrief:
    """The instructions for a summary of at most `budget` tokens, with its writer and its time.

    `since` is the time of the oldest message that it covers. `so_far` is the size of the summary to continue, in
    tokens. `measures` counts messages and summary as the conversation's model gets them. `patience`: seconds of silence
    after which another model is asked; None if there is no other. `token`: see `chat.ledger.asking.Billing`.
    """

    conversation: Conversation
    model: Model
    instructions: str
    budget: int
    since: datetime
    now: datetime
    zone: ZoneInfo
    measures: Measures
    texts: Texts
    so_far: int = 0
    patience: float | None = None
    token: UUID | None = None

    @property
    def tokenizer(self) -> tokens.NamedTokenizer:
        return tokens.tokenizer(self.model.tokenizer or tokens.CATCH_ALL)

    @property
    def max_output(self) -> int:
        most = 2 * self.budget + THINKING_TOKENS
        return min(most, self.model.max_output or most, max(1, self.model.window // 2))

    @cached_property
    def room(self) -> int:
        """Return how many tokens of messages one call can take. A twentieth of the window is reserved, since counts may
        be wrong."""
        reserved = self.max_output + self.tokenizer.count(self.system) + max(self.so_far, 2 * self.budget)
        return self.model.window * 19 // 20 - reserved

    @property
    def system(self) -> str:
        return f"{self.instructions}\n\n{summary_form(self.budget, *self.moments, self.texts)}"

    @property
    def moments(self) -> tuple[datetime, datetime]:
        """Return `since` and `now` in the person's zone."""
        return self.since.astimezone(self.zone), self.now.astimezone(self.zone)


def requested_sections(budget: int, since: datetime, now: datetime) -> dict[str, int]:
    """Return the sections to request in a summary of `budget` tokens, in order, with the tokens of each.

    `since` is the time of the oldest message, in the zone of `now`. A section for an earlier time is not requested, and
    the others share the budget: small models fill an empty section with inventions.
    """
    unneeded = set()
    if since.date() >= now.date():
        unneeded.add("This month")
    if (since.year, since.month) >= (now.year, now.month):
        unneeded.add("Earlier")
    shares = {name: share for name, share in SECTION_SHARES.items() if name not in unneeded}
    whole = sum(shares.values())
    return {name: size for name, share in shares.items() if (size := int(budget * share / whole))}


def summary_form(budget: int, since: datetime, now: datetime, texts: Texts) -> str:
    """Return the form below the summary prompt: the person's time, and the sections with their lengths, together at
    most `budget` tokens."""
    sections = [
        texts.fill(
            "summary_section",
            name=name,
            meaning=texts[MEANINGS[name]],
            tokens=size,
            words=int(size * WORDS_PER_TOKEN),
        )
        for name, size in requested_sections(budget, since, now).items()
    ]
    return texts.fill(
        "summary_form",
        sections="\n".join(sections),
        weekday=f"{now:%A}",
        date=f"{now:%Y-%m-%d}",
        time=f"{now:%H:%M}",
        zone=str(now.tzinfo),
    )


def conversation_text(so_far: str, messages: Sequence[str], texts: Texts) -> str:
    """Return the user message of a summary: the summary so far if there is one, the messages in tags, the request."""
    before = [f"{texts['summary_so_far']}\n{so_far}"] if so_far else []
    tagged = "\n\n".join(["<conversation>", *messages, "</conversation>"])
    return "\n\n".join(filter(None, [*before, texts["summary_messages"], tagged, texts["summary_order"]]))


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """A message as the writer of the summary reads it. `sent`: its tokens in a prompt of the conversation.

    `shortened`: it alone was too long for the writer. `ends_turn`: the next message is a question, or there is none.
    """

    message: Row
    text: str
    tokens: int
    sent: int
    ends_turn: bool
    shortened: bool = False


def transcript(rows: Sequence[Row], brief: SummaryBrief) -> list[TranscriptMessage]:
    """Return the rows as text, tool results as stubs, each short enough for one call."""
    messages = []
    for row, following in zip_longest(rows, rows[1:]):
        text = _text(row, brief)
        size = brief.tokenizer.count(text)
        shortened = size > brief.room
        if shortened:
            text = cut_middle(text, brief.room, 1, brief.tokenizer, brief.texts)
            size = brief.tokenizer.count(text)
        ends_turn = following is None or following.role == Row.Role.USER
        messages.append(TranscriptMessage(row, text, size, brief.measures.of_row(row), ends_turn, shortened))
    return messages


def split_into_chunks(messages: Sequence[TranscriptMessage], room: int) -> Iterator[list[TranscriptMessage]]:
    """Yield the messages in chunks for one call each, in order. Only a turn too long for one call is divided."""
    chunk: list[TranscriptMessage] = []
    size = 0
    for turn in _turns(messages):
        whole = sum(message.tokens for message in turn)
        for message in turn:
            if chunk and size + (whole if message is turn[0] else message.tokens) > room:
                yield chunk
                chunk = []
                size = 0
            chunk.append(message)
            size += message.tokens
    if chunk:
        yield chunk


def _turns(messages: Sequence[TranscriptMessage]) -> Iterator[list[TranscriptMessage]]:
    turn: list[TranscriptMessage] = []
    for message in messages:
        turn.append(message)
        if message.ends_turn:
            yield turn
            turn = []


def _text(row: Row, brief: SummaryBrief) -> str:
    when = f"{row.created.astimezone(brief.zone):%Y-%m-%d %H:%M}"
    lines = [f"[{when}] {'Person' if row.role == Row.Role.USER else 'Assistant'}:"]
    lines += [_describe_file(attachment) for attachment in row.attachments.all()]
    for message in expand(row, brief.texts):
        if message.role == "tool":
            lines.append(f"({brief.texts['tool_result_stub']})")
            continue
        lines += [message.text] if message.text else []
        lines += [f"(called {call.name} with {call.arguments})" for call in message.tool_calls]
    return "\n".join(lines)


def _describe_file(attachment: Attachment) -> str:
    """Return a line about a file. `attachment` comes from `chat.models.tree.rows_between`."""
    file = attachment.file
    beginning = " ".join((getattr(attachment, "beginning", None) or "").split())
    if file is None:
        return f"(attached the file {attachment.name}, which was deleted since)"
    if file.is_image or not beginning:
        return f"(attached the {'image' if file.is_image else 'file'} {attachment.name})"
    return f"(attached the file {attachment.name} of {file.token_count or 0} tokens, which begins: “{beginning}”)"


async def write_summary(brief: SummaryBrief, before: Summary | None, chunk: Sequence[TranscriptMessage]) -> Summary:
    """Return a summary, not stored, that replaces `before` (the summary so far) and the chunk's messages.

    There are two attempts, the second with the reason for the rejection. If the provider is unavailable and another
    model can be asked, there is no second attempt. Raises `SummaryRejected` and `core.errors.ProductError`.
    """
    texts = brief.texts
    text = conversation_text(text_of(before, texts) if before else "", [message.text for message in chunk], texts)
    messages = (ModelMessage("system", brief.system), ModelMessage("user", text))
    try:
        return check_summary(await _ask(brief, messages), brief, before, chunk)
    except ModelError as error:
        if not error.retryable or (error.unavailable and brief.patience is not None):
            raise
    except SummaryRejected as problem:
        again = f"{brief.system}\n\n{texts.fill('summary_again', problem=problem)}"
        messages = (replace(messages[0], text=again), messages[1])
    return check_summary(await _ask(brief, messages), brief, before, chunk, last=True)


async def _ask(brief: SummaryBrief, messages: tuple[ModelMessage, ...]) -> OwnAnswer:
    model = brief.model
    request = ModelRequest(model=model.name, messages=messages, max_output=brief.max_output, window=model.window)
    charge = Billing(brief.conversation, ModelCall.Purpose.SUMMARY, brief.conversation.owner_id, token=brief.token)
    reply = await ask(model, request, charge, longest=MAX_READ_LENGTH, patience=brief.patience)
    if reply.unread:
        raise SummaryRejected("summary_prompt_cut", "The server did not read all that is to be summarised.")
    return reply


def check_summary(
    answer: OwnAnswer,
    brief: SummaryBrief,
    before: Summary | None,
    chunk: Sequence[TranscriptMessage],
    *,
    last: bool = False,
) -> Summary:
    """Return the answer as an unsaved summary. Raises `SummaryRejected` unless it can replace `before` and the chunk.

    The `last` attempt may be too long, or without headings.
    """
    text = answer.text.replace("\x00", "").strip()
    if not text:
        raise SummaryRejected("empty_summary", "It was empty.")
    if answer.cut_off:
        raise SummaryRejected("summary_cut_off", "It was cut off before its end.")
    if _ERROR.match(text):
        raise SummaryRejected("summary_is_an_error", "It was an apology or an error, not a summary.")
    sections = parse_sections(text, requested_sections(brief.budget, *brief.moments))
    if not sections and last and not has_heading(text):
        sections = [{"name": next(iter(SECTION_SHARES)), "text": text}]  # better than no summary
    if not sections:
        raise SummaryRejected("summary_without_sections", "It had none of the headings, or nothing under them.")
    end = chunk[-1].message.created
    written = Summary(sections=sections, span_end=end, as_of=brief.now, timezone=brief.zone.key)
    replaced = brief.measures.of_text(text_of(before, brief.texts)) if before else 0
    if brief.measures.of_text(text_of(written, brief.texts)) >= replaced + sum(message.sent for message in chunk):
        raise SummaryRejected("summary_not_shorter", "It was not shorter than what it stands for.")
    size = brief.tokenizer.count(text)
    if size > brief.budget * REJECTED_LENGTH_FACTOR and not last:
        raise SummaryRejected("summary_too_long", f"It had {size} tokens; at most {brief.budget} are wanted.")
    return written
