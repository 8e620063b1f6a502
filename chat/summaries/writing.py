"""How a summary is asked for, and when what comes back is good enough to stand for the messages."""

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
from chat.summaries.headings import has_heading, sections_of
from core.errors import ModelError
from llm import tokens
from llm.models import Model
from llm.types.model_call import Message, ModelRequest
from personas.texts import Texts

# What a workspace starts with; an administrator's versions are rows. The form with its numbers is added to it.
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
BUDGET_PART = 8  # a summary takes at most this part of its writer's window, so that the messages have room beside it
LEAST_READ = 256  # tokens of messages that one call must be able to read, or none could be read whole
ROOM_TO_THINK = 1_024  # tokens beside the summary, for models that reason first
TOO_LONG = Decimal("1.5")  # times the budget; the first attempt is asked to be shorter, the second one is taken
WORDS_PER_TOKEN = Decimal("0.7")
LONGEST_READ = 200_000  # characters of an answer; a model that never ends is cut off
_ERROR = re.compile(
    r"^\W*(?:error\b|internal server error|traceback|\{\s*\"error\"|i(?:['’]| a)m sorry|sorry,|i can(?:no|['’])t"
    r"|as an ai\b)",
    re.I,
)


class Rejected(Exception):
    """The model's text may not stand for the messages. `code` for programs, the sentence for people and the model."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def budget_for(writer: Model, wanted: int) -> int:
    """As much of `wanted` as leaves the messages room in its writer's window, and as it can say without a cut."""
    said = wanted if writer.max_output is None else int(writer.max_output / TOO_LONG)
    return min(wanted, said, writer.window // BUDGET_PART)


@dataclass(frozen=True)
class Brief:
    """Under which instructions a summary of at most `budget` tokens is written, of what, by whom, and when it is.

    `since`: when the oldest of what it tells of happened.

    `so_far`: tokens of the summary that is gone on from.
    `measures`: what the messages and the summary cost as they are sent to the conversation's model.
    `patience`: seconds of silence after which another model is asked; None where there is no other. `token`: see
    `chat.ledger.asking.Billing`.
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
    def tokenizer(self) -> tokens.Tokenizer:
        return tokens.tokenizer(self.model.tokenizer or tokens.CATCH_ALL)

    @property
    def max_output(self) -> int:
        wanted = 2 * self.budget + ROOM_TO_THINK
        return min(wanted, self.model.max_output or wanted, max(1, self.model.window // 2))

    @cached_property
    def room(self) -> int:
        """Tokens of the conversation's text that one call can take; a twentieth stays free since counts may be off."""
        beside = self.max_output + self.tokenizer.count(self.system) + max(self.so_far, 2 * self.budget)
        return self.model.window * 19 // 20 - beside

    @property
    def system(self) -> str:
        return f"{self.instructions}\n\n{form_of(self.budget, *self.moments, self.texts)}"

    @property
    def moments(self) -> tuple[datetime, datetime]:
        """`since` and `now` in the person's zone."""
        return self.since.astimezone(self.zone), self.now.astimezone(self.zone)


def asked_sections(budget: int, since: datetime, now: datetime) -> dict[str, int]:
    """Return the tokens of each section that a summary of `budget` tokens is asked for, in their order.

    `since`: when the oldest of what it tells of happened, in the zone of `now`. Sections for times before are not asked
    for, and the others share the budget: small models fill an empty section with inventions.
    """
    unneeded = set()
    if since.date() >= now.date():
        unneeded.add("This month")
    if (since.year, since.month) >= (now.year, now.month):
        unneeded.add("Earlier")
    shares = {name: share for name, share in SECTION_SHARES.items() if name not in unneeded}
    whole = sum(shares.values())
    return {name: size for name, share in shares.items() if (size := int(budget * share / whole))}


def form_of(budget: int, since: datetime, now: datetime, texts: Texts) -> str:
    """Return what stands below the summary prompt: when it is where the person is, and the sections with their lengths,
    together at most `budget` tokens."""
    sections = [
        texts.fill(
            "summary_section",
            name=name,
            meaning=texts[MEANINGS[name]],
            tokens=size,
            words=int(size * WORDS_PER_TOKEN),
        )
        for name, size in asked_sections(budget, since, now).items()
    ]
    moment = {"weekday": f"{now:%A}", "date": f"{now:%Y-%m-%d}", "time": f"{now:%H:%M}", "zone": str(now.tzinfo)}
    return texts.fill("summary_form", sections="\n".join(sections), **moment)


def conversation_text(so_far: str, messages: Sequence[str], texts: Texts) -> str:
    """Return the user message of a summary: the summary so far if there is one, the messages in tags, the order."""
    before = [f"{texts['summary_so_far']}\n{so_far}"] if so_far else []
    tagged = "\n\n".join(["<conversation>", *messages, "</conversation>"])
    return "\n\n".join(filter(None, [*before, texts["summary_messages"], tagged, texts["summary_order"]]))


@dataclass(frozen=True, slots=True)
class Piece:
    """One message as the summariser reads it, and what it costs as it is `sent`.

    `shortened`: it alone was too long for the model. `ends_turn`: a question follows, or nothing.
    """

    message: Row
    text: str
    tokens: int
    sent: int
    ends_turn: bool
    shortened: bool = False


def pieces(rows: Sequence[Row], brief: Brief) -> list[Piece]:
    """The rows as text, tool results as stubs, each small enough for one call."""
    found = []
    for row, following in zip_longest(rows, rows[1:]):
        text = _written(row, brief)
        size, shortened = brief.tokenizer.count(text), False
        if size > brief.room:
            text, shortened = cut_middle(text, brief.room, 1, brief.tokenizer, brief.texts), True
            size = brief.tokenizer.count(text)
        ends_turn = following is None or following.role == Row.Role.USER
        found.append(Piece(row, text, size, brief.measures.of_row(row), ends_turn, shortened))
    return found


def chunked(found: Sequence[Piece], room: int) -> Iterator[list[Piece]]:
    """As many whole turns as one call can take, in their order; a turn that is too long for one call is parted."""
    chunk: list[Piece] = []
    size = 0
    for turn in _turns(found):
        whole = sum(piece.tokens for piece in turn)
        for piece in turn:
            if chunk and size + (whole if piece is turn[0] else piece.tokens) > room:
                yield chunk
                chunk, size = [], 0
            chunk.append(piece)
            size += piece.tokens
    if chunk:
        yield chunk


def _turns(found: Sequence[Piece]) -> Iterator[list[Piece]]:
    turn: list[Piece] = []
    for piece in found:
        turn.append(piece)
        if piece.ends_turn:
            yield turn
            turn = []


def _written(row: Row, brief: Brief) -> str:
    when = f"{row.created.astimezone(brief.zone):%Y-%m-%d %H:%M}"
    lines = [f"[{when}] {'Person' if row.role == Row.Role.USER else 'Assistant'}:"]
    lines += [_described(attachment) for attachment in row.attachments.all()]
    for said in expand(row, brief.texts):
        if said.role == "tool":
            lines.append(f"({brief.texts['tool_result_stub']})")
            continue
        lines += [said.text] if said.text else []
        lines += [f"(called {call.name} with {call.arguments})" for call in said.tool_calls]
    return "\n".join(lines)


def _described(attachment: Attachment) -> str:
    """What a file was; `attachment` is one of `chat.models.tree.rows_between`."""
    file, beginning = attachment.file, " ".join((getattr(attachment, "beginning", None) or "").split())
    if file is None:
        return f"(attached the file {attachment.name}, which was deleted since)"
    if file.is_image or not beginning:
        return f"(attached the {'image' if file.is_image else 'file'} {attachment.name})"
    return f"(attached the file {attachment.name} of {file.token_count or 0} tokens, which begins: “{beginning}”)"


async def write(brief: Brief, before: Summary | None, chunk: Sequence[Piece]) -> Summary:
    """A summary, not stored, that takes the place of `before` (the summary so far) and the chunk's messages.

    Tried twice, the second time with what was wrong; where the provider is not available, another model is to be asked
    instead if there is one. Raises `Rejected` and `core.errors.ProductError`.
    """
    texts = brief.texts
    text = conversation_text(text_of(before, texts) if before else "", [piece.text for piece in chunk], texts)
    messages = (Message("system", brief.system), Message("user", text))
    try:
        return checked(await _ask(brief, messages), brief, before, chunk)
    except ModelError as error:
        if not error.retryable or (error.unavailable and brief.patience is not None):
            raise
    except Rejected as problem:
        again = f"{brief.system}\n\n{texts.fill('summary_again', problem=problem)}"
        messages = (replace(messages[0], text=again), messages[1])
    return checked(await _ask(brief, messages), brief, before, chunk, last=True)


async def _ask(brief: Brief, messages: tuple[Message, ...]) -> OwnAnswer:
    model = brief.model
    request = ModelRequest(model=model.name, messages=messages, max_output=brief.max_output, window=model.window)
    charge = Billing(brief.conversation, ModelCall.Purpose.SUMMARY, brief.conversation.owner_id, token=brief.token)
    said = await ask(model, request, charge, longest=LONGEST_READ, patience=brief.patience)
    if said.unread:
        raise Rejected("summary_prompt_cut", "The server did not read all that is to be summarised.")
    return said


def checked(
    answer: OwnAnswer, brief: Brief, before: Summary | None, chunk: Sequence[Piece], *, last: bool = False
) -> Summary:
    """The answer as a summary, not stored. Raises `Rejected` unless it can stand for what it takes the place of."""
    text = answer.text.replace("\x00", "").strip()
    if not text:
        raise Rejected("empty_summary", "It was empty.")
    if answer.cut_off:
        raise Rejected("summary_cut_off", "It was cut off before its end.")
    if _ERROR.match(text):
        raise Rejected("summary_is_an_error", "It was an apology or an error, not a summary.")
    sections = sections_of(text, asked_sections(brief.budget, *brief.moments))
    if not sections and last and not has_heading(text):
        sections = [{"name": next(iter(SECTION_SHARES)), "text": text}]  # better than no summary at all
    if not sections:
        raise Rejected("summary_without_sections", "It had none of the headings, or nothing under them.")
    end, zone = chunk[-1].message.created, brief.zone.key
    written = Summary(sections=sections, span_end=end, as_of=brief.now, timezone=zone)
    replaced = brief.measures.of_text(text_of(before, brief.texts)) if before else 0
    if brief.measures.of_text(text_of(written, brief.texts)) >= replaced + sum(piece.sent for piece in chunk):
        raise Rejected("summary_not_shorter", "It was not shorter than what it stands for.")
    size = brief.tokenizer.count(text)
    if size > brief.budget * TOO_LONG and not last:
        raise Rejected("summary_too_long", f"It had {size} tokens; at most {brief.budget} are wanted.")
    return written
