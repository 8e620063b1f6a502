"""Inputs and outputs of the context engine: plain frozen values.

A message has three forms (docs/develop/context.md, “What comes back”). This module holds the middle one: a
`ContextMessage` is a stored message as the engine reads it, a `PromptMessage` is a message that the engine sends. The
caller makes a `llm.types.model_call.ModelMessage` from it. All token counts are whole tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Protocol

from core.errors import ProductError
from core.sentences import Sentence, gettext_noop
from llm.types.model_call import ReasoningState, StoredResult, ToolCall
from personas.texts import BUILT_IN, Texts

Role = Literal["system", "user", "assistant", "tool"]
Section = Literal[
    "system",
    "tasks",
    "summary",
    "persona",
    "memory",
    "project_files",
    "file_listing",
    "file",
    "omitted",
    "history",
    "current",
    "reminder",
]
State = Literal["full", "shortened", "stubbed", "by_search", "left_out"]
Mark = Literal["pinned", "excluded"]
Reason = Literal[
    "no_room",
    "behind_gap",
    "by_user",
    "summarised",
    "failed_file",
    "unread_file",
    "deleted_file",
    "deleted_persona",
    "lost_persona",
    "deleted_project",
    "lost_project",
    "unknown_task",
    "tasks_off",
    "tasks_off_here",
    "mention_off",
    "always",
    "pinned_fact",
    "matches",
    "matched_before",
    "memory_full",
    "memory_off",
    "memory_off_here",
    "memory_off_persona",
    "memory_off_workspace",
    "project_image",
    "over_share",
    "not_searchable_yet",
    "not_searchable",
    "attached",
    "in_project",
    "of_result",
    "no_vision",
    "too_many_images",
    "result_without_call",
    "call_without_result",
]


class TextTokenizer(Protocol):
    """Counts and cuts text. The engine calls it only for texts that come without `tokens` and for texts it must cut."""

    def count(self, text: str) -> int: ...

    def head(self, text: str, limit: int) -> str:
        """Return the beginning of `text`: at most `limit` tokens, cut on a token boundary."""
        ...

    def tail(self, text: str, limit: int) -> str:
        """Return the end of `text`: at most `limit` tokens, cut on a token boundary."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """The text of one section.

    `tokens` is used instead of counting the text. `tokens` without `text` stands for a text of that length.
    """

    text: str | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryFact:
    """A remembered fact that may be sent.

    `tokens` is the cost of its text without its mark, for the report. `required`: it is sent even if the other required
    sections then do not fit; other facts make room for them.
    """

    id: str
    text: str
    reason: Reason
    tokens: int | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory section: what the person has written about themselves, and remembered facts, in this order.

    `heading` stands above both. `profile` is the text about the person, empty without one. `wrap` is put around the
    section, with `{text}` for it.
    """

    heading: str
    profile: str = ""
    facts: tuple[MemoryFact, ...] = ()
    wrap: str = "{text}"
    profile_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file whose text is sent.

    `number` is its citation number, if the conversation has assigned one already. `excluded`: the user leaves it out.
    """

    id: str
    title: str = ""
    text: str | None = None
    tokens: int | None = None
    metadata: str | None = None
    number: int | None = None
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image that is sent with its message unless it is `excluded`. `tokens` is its assumed size.

    `reason` says why it is excluded: the user leaves it out, or the model accepts fewer images.
    """

    id: str
    tokens: int
    excluded: bool = False
    title: str = ""
    reason: Reason = "by_user"


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A message of the conversation.

    `tokens` covers the text and the tool calls, not the images and not the files. `reasoning` goes back to the provider
    with the calls it led to and costs its own tokens. `reminder` is the reminder that an earlier cycle of an
    append-only turn sent below this message; it stays there. `mark` is set on a question and holds for its whole turn.
    `result` is set on a tool result that was shortened before, or whose whole text is stored. `missing_files` are the
    names of files that were uploaded with the message and were deleted since, or cannot be read.

    The files of tool results: `result_files` are the ids that the caller resolves into the others. `images` of a tool
    result are sent below it, in a message of their own. `result_documents` have their text in the text of the result,
    so they are only reported. `mark` is also set on a tool result with files: only a pinned turn sends its images again
    in later turns.

    `plain_tokens` is the cost without overhead of a message that needs no decision, else None. It is derived once, so
    that the walk over old messages only adds numbers.
    """

    id: str
    role: Role
    text: str | None = None
    tokens: int | None = None
    files: tuple[Document, ...] = ()
    images: tuple[ImageRef, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: ReasoningState | None = None
    reminder: Block | None = None
    mark: Mark | None = None
    result: StoredResult | None = None
    missing_files: tuple[str, ...] = ()
    result_files: tuple[str, ...] = ()
    result_documents: tuple[Document, ...] = ()
    plain_tokens: int | None = field(init=False, repr=False, compare=False)

    @property
    def sent_files(self) -> tuple[Document, ...]:
        """Return the files that are not excluded."""
        return tuple(file for file in self.files if not file.excluded)

    @property
    def surplus_images(self) -> tuple[ImageRef, ...]:
        """Return the images that are only named, because the model accepts fewer images."""
        return tuple(image for image in self.images if image.reason == "too_many_images")

    @property
    def sent_images(self) -> tuple[ImageRef, ...]:
        """Return the images that are not excluded."""
        return tuple(image for image in self.images if not image.excluded)

    def shows_images(self, *, current: bool) -> bool:
        """Return whether the message sends its images: a tool result does in its own turn, and in a pinned one."""
        return self.role != "tool" or current or self.mark == "pinned"

    def __post_init__(self) -> None:
        plain = None
        excludes_image = any(image.excluded for image in self.images)
        above = self.files or self.missing_files or excludes_image
        is_plain = not (above or self.tool_calls or self.reminder or self.role == "tool")
        if self.tokens is not None and is_plain:
            plain = self.tokens + sum(image.tokens for image in self.images)
        object.__setattr__(self, "plain_tokens", plain)


class PromptMessage(NamedTuple):
    """One message of the prompt. `tokens` includes images and overhead.

    `source` is the id of the stored message, the ids of the files or images joined by `+`, or None for other sections
    and for the images of tool results.
    `text` is None for a block that has `tokens` only. `cut_from` is the cost of a shortened text before it was
    shortened. `as_stored`: the stored message was shortened already, and this text is the stored one.
    """

    section: Section
    source: str | None
    role: Role
    tokens: int
    text: str | None
    images: tuple[ImageRef, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    state: State = "full"
    cut_from: int | None = None
    reasoning: ReasoningState | None = None
    as_stored: bool = False


class SourceReport(NamedTuple):
    """The state of one source in the prompt.

    `kind` is `message`, `file`, `project_file`, `image`, or the section's name. `tokens` is its cost in the prompt with
    overhead: 0 when it is not sent, None when it is part of a message that is counted as a whole. `cut_from` is its
    cost before it was shortened. `exact` is False for estimates. `title` is set for a source that has no row any more.
    """

    kind: str
    id: str | None
    state: State
    tokens: int | None
    reason: Reason | None = None
    cut_from: int | None = None
    exact: bool = True
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """A model's window and its reserves, in tokens. `safety_margin` is a share of the window.

    The formula: docs/develop/context.md, “The room”.
    """

    window: int
    reserved_output: int = 1_024
    buffer: int = 40
    safety_margin: Decimal = Decimal(0)
    tools_tokens: int = 0

    @property
    def input_limit(self) -> int:
        """Return the tokens that messages may take. It is zero or less when the reserves exceed the window."""
        usable = floored(self.window, 1 - Fraction(self.safety_margin)) if self.safety_margin else self.window
        return usable - self.reserved_output - self.buffer - self.tools_tokens


def floored(tokens: int, share: Decimal | Fraction) -> int:
    """Return a share of `tokens`, rounded down.

    The product is exact: as a decimal, 0.7 is seven tenths, which a binary float is not.
    """
    return math.floor(tokens * Fraction(share))


@dataclass(frozen=True, slots=True)
class DocumentBudget:
    """The room for documents, in tokens.

    `available` is the whole room, `offered` is the share that is offered to the user, and `selectable_up_to` is the
    most that selected files may take.
    """

    available: int
    offered: int
    selectable_up_to: int

    def accepts(self, candidate: int | None, selected: Sequence[int | None] = ()) -> bool:
        """Return whether a file of `candidate` tokens may be added to the `selected` files.

        Return False if any count is unknown (None).
        """
        if candidate is None or None in selected:
            return False
        return sum(tokens for tokens in selected if tokens is not None) + candidate <= self.selectable_up_to


@dataclass(frozen=True, slots=True)
class Reserves:
    """The reserves of the document budget, in tokens, and the share of the rest that is offered."""

    reserved_output: int = 1_024
    expected_user: int = 512
    buffer: int = 40
    tools_tokens: int = 0
    ui_share: Decimal = Decimal("0.5")
    select_margin: int = 75


def document_budget(window: int, prompts: Sequence[int], reserves: Reserves) -> DocumentBudget:
    """Return the document budget of a window (docs/develop/context.md, “Document budget”).

    `prompts` are the tokens of the system prompt and of the persona's prompt.
    """
    reserved = reserves.reserved_output + reserves.expected_user + reserves.buffer + reserves.tools_tokens
    available = max(0, window - sum(prompts) - reserved)
    offered = floored(available, reserves.ui_share)
    return DocumentBudget(available, offered, max(0, offered - reserves.select_margin))


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """All inputs of one prompt.

    `messages` is the branch, oldest first, with unique ids. The current turn starts at the last user message. The list
    may hold only the end of the branch: the `unloaded` older messages then count as left out (`Prompt.wants_older`).

    `max_images`: the most images of one prompt; older images are only named, and those of the project come last.
    `project_images` stand below the project's files. `stub_tokens` and `file_stub_tokens`
    override the cost of the stubs. `exact`: `tokenizer` is the model's own. `texts` are the product's own texts.
    `versions` (of prompts, persona, project and texts) and `extra_sources` (failed files, files by search, summarised
    messages) go into the report unchanged. `system_is_persona`: `system` holds the persona's text, and `persona` holds
    the other texts of its section; errors then name the persona. `reminder_above`: the reminder is placed above the
    current turn instead of last. `whole_results`: tool results of older turns are sent whole while they fit, since a
    calling program sent them.

    `marked` holds the indexes of the questions with a mark. It is derived once, so planning need not search for them.
    """

    room: Room
    messages: Sequence[ContextMessage]
    tokenizer: TextTokenizer
    policy: str = "recent"
    layout: str = "near_end"
    message_overhead: int = 4
    stub_tokens: int | None = None
    file_stub_tokens: int | None = None
    omission_note: bool = True
    system: Block | None = None
    tasks: Block | None = None
    summary: Block | None = None
    persona: Block | None = None
    memory: Memory | None = None
    persona_replaces_system: bool = False
    system_is_persona: bool = False
    project_files: tuple[Document, ...] = ()
    project_images: tuple[ImageRef, ...] = ()
    file_listing: Block | None = None
    reminder: Block | None = None
    reminder_above: bool = False
    whole_results: bool = False
    unloaded: int = 0
    max_images: int | None = None
    exact: bool = True
    texts: Texts = BUILT_IN
    versions: Mapping[str, str] = field(default_factory=dict)
    extra_sources: tuple[SourceReport, ...] = ()
    marked: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        marked = [index for index, message in enumerate(self.messages) if message.mark and message.role == "user"]
        object.__setattr__(self, "marked", tuple(marked))

    @property
    def system_block(self) -> Block | None:
        """Return the system prompt, or the persona that replaces it."""
        return self.persona if self.persona and self.persona_replaces_system else self.system

    @property
    def blocks(self) -> list[tuple[Section, Role, Block]]:
        """Return the non-empty sections that consist of one text, each with the role it is sent in."""
        blocks: list[tuple[Section, Role, Block | None]] = [
            ("system", "system", self.system_block),
            ("tasks", "system", self.tasks),
            ("summary", "system", self.summary),
            ("persona", "user", None if self.persona_replaces_system else self.persona),
            ("file_listing", "user", self.file_listing),
            ("reminder", "user", self.reminder),
        ]
        return [(section, role, block) for section, role, block in blocks if block]


class ContextError(ProductError):
    """Raised if no prompt can be built from the request.

    `code` is `no_user_message`, `file_too_long` or `context_too_long`. `extra` holds the numbers behind `detail`; they
    differ by code.
    """

    def __init__(self, code: str, sentence: Sentence | str, **extra: Any) -> None:
        super().__init__(code, sentence, status=422, **extra)


def no_user_message() -> ContextError:
    """Return the error for a branch without a user message."""
    return ContextError("no_user_message", "There is nothing to answer: write a message first.")


def file_too_long(file_id: str, title: str, *, tokens: int, room: int) -> ContextError:
    """Return the error for an attached file of `tokens` tokens where only `room` tokens are free."""
    return ContextError(
        "file_too_long",
        Sentence(
            "“{file_id}” is too long by {room} %. Remove it from the message, or "
            "choose a model that can read more. In a project it can be searched.",
            file_id=title or file_id,
            room=too_long_by(tokens - room, room),
        )
        if room > 0
        else Sentence(
            "There is no room left for “{file_id}”. Remove it from the message, or choose a model that can "
            "read more. In a project it can be searched.",
            file_id=title or file_id,
        ),
        file=file_id,
        title=title,
        tokens=tokens,
        room=room,
    )


def context_too_long(sections: dict[str, int], *, room: Room, persona_is_system: bool = False) -> ContextError:
    """Return the error for required sections that do not fit.

    `sections` holds the cost of each section in tokens, overhead included. `persona_is_system`: the persona's prompt
    replaces the system prompt.
    """
    limit = room.input_limit
    needed = sum(sections.values())
    reserve = room.window - room.tools_tokens - limit
    part = _part_to_blame(sections, room.tools_tokens, reserve, room.window)
    name = "persona_as_system" if part == "system" and persona_is_system else part
    over = too_long_by(needed - limit, limit)
    return ContextError(
        "context_too_long",
        Sentence(
            "The required parts are too long by {over} %. The largest part is {name}: {name2}.",
            over=over,
            name=Sentence(_PARTS[name]),
            name2=Sentence(ADVICE[name]),
        )
        if limit > 0
        else Sentence(
            "The model has no room for a question. The largest part is {name}: {name2}.",
            name=Sentence(_PARTS[name]),
            name2=Sentence(ADVICE[name]),
        ),
        sections=sections,
        needed=needed,
        limit=limit,
        tools_tokens=room.tools_tokens,
        reserve=reserve,
        part=part,
    )


def too_long_by(over: int, room: int) -> int:
    """Return how far `over` tokens exceed `room`, in percent of the room, rounded up. It may exceed 100."""
    return -(-100 * over // max(1, room))


def _part_to_blame(sections: dict[str, int], tools: int, reserve: int, window: int) -> str:
    """Return the largest part of the window: a section, `tools`, or `reserve` if that takes half of the window."""
    parts = {**sections, "tools": tools}
    largest = max(parts, key=lambda name: parts[name])
    return "reserve" if 2 * reserve >= window and reserve > parts[largest] else largest


_PARTS = {
    "reserve": gettext_noop("the reserve, mainly for the answer"),
    "system": gettext_noop("the system prompt"),
    "persona_as_system": gettext_noop("the persona's prompt, which replaces the system prompt"),
    "tools": gettext_noop("the definitions of the tools"),
    "tasks": gettext_noop("the list of tasks"),
    "summary": gettext_noop("the summary"),
    "persona": gettext_noop("the persona's prompt and the project's instructions"),
    "memory": gettext_noop("what is remembered about you"),
    "project_files": gettext_noop("the project's files"),
    "file_listing": gettext_noop("the list of files"),
    "file": gettext_noop("the attached files"),
    "current": gettext_noop("this message and its tool results"),
    "reminder": gettext_noop("the reminder"),
}
# Advice by part of the window, for the case that this part is too large.
ADVICE = {
    "reserve": gettext_noop("choose a model that can read more, or let an admin reserve less in the budget profile"),
    "system": gettext_noop("let an admin shorten it, or choose a model that can read more"),
    "persona_as_system": gettext_noop("shorten it, choose another persona, or choose a model that can read more"),
    "tools": gettext_noop("offer fewer tools, or choose a model that can read more"),
    "tasks": gettext_noop("move or drop some of today's tasks, or choose a model that can read more"),
    "summary": gettext_noop("choose a model that can read more"),
    "persona": gettext_noop("shorten it, choose another persona, or choose a model that can read more"),
    "memory": gettext_noop("shorten your profile, pin fewer facts, or choose a model that can read more"),
    "project_files": gettext_noop("take some out of the project, or choose a model that can read more"),
    "file_listing": gettext_noop("choose a model that can read more"),
    "file": gettext_noop("attach less, or choose a model that can read more"),
    "current": gettext_noop("shorten the message, or choose a model that can read more"),
    "reminder": gettext_noop("shorten it, or choose a model that can read more"),
}
