"""Render the sections of a prompt, in their order, and count them.

The rules: docs/develop/context.md, “Order” and “manage.py plan”.

A message costs its tokens, its images and the overhead; the files uploaded with it are a message of their own above it.
`tokens` beats counting the text, and text is counted only when it is asked for.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Literal

from chat.context.types import (
    Block,
    ContextMessage,
    ContextRequest,
    Document,
    PromptMessage,
    Role,
    Section,
    Tokenizer,
    floored,
)
from llm.types.model_call import StoredResult, ToolCall
from personas.texts import BUILT_IN, Texts

# `history` is older turns with the files above their messages, `current` the newest turn with its files. The project's
# files and their listing stay together; the reminder is last in every layout (docs/develop/context.md, “Order”).
LAYOUTS: dict[str, tuple[Section, ...]] = {
    # What matters most is close to the newest question.
    "near_end": (
        "system", "tasks", "summary", "history", "persona", "project_files", "file_listing", "current", "reminder",
    ),
    # A large, unchanging prefix, which providers bill at a tenth.
    "files_first": (
        "system", "project_files", "file_listing", "tasks", "summary", "history", "persona", "current", "reminder",
    ),
    "all_first": (
        "system", "persona", "project_files", "file_listing", "tasks", "summary", "history", "current", "reminder",
    ),
}  # fmt: skip


DateAwareness = Literal["day", "minute", "off"]
NoteForm = Literal["plain", "heading", "tags"]  # how texts of the workspace are told from the person's words


@dataclass(frozen=True, slots=True)
class ToolGuidance:
    """When to use a tool, in words for the model; without any, those that `texts` have for this tool of the product's.
    A search tool's results can be cited."""

    name: str
    text: str | None = None
    is_search: bool = False

    def line(self, texts: Texts) -> str:
        text = texts[f"guidance_{self.name}"] if self.text is None else self.text
        return f"{self.name}: {text}" if text else ""


@dataclass(frozen=True, slots=True)
class Moment:
    """What S and R depend on in one model call.

    `asked_at` is the time of the newest user message in the user's timezone. `tools` are all tools of the turn in a
    fixed order, `available` the names of those that may be called in this cycle; `searched`: a search has run in this
    turn, by a tool or for a model without tools. `documents`: numbered documents are in the prompt; `always_remind`: R
    then asks for citations without a search, too. `web_unopened`: a web search has run, and no page was opened.
    `append_only`: what was sent in an earlier cycle of the turn does not change in a later one.
    """

    layout: str
    asked_at: datetime
    date_awareness: DateAwareness = "day"
    tools: Sequence[ToolGuidance] = ()
    available: frozenset[str] = frozenset()
    searched: bool = False
    append_only: bool = False
    texts: Texts = BUILT_IN
    documents: bool = False
    always_remind: bool = False
    web_unopened: bool = False
    note_form: NoteForm = "plain"

    @property
    def moves(self) -> bool:
        """Whether S changes from call to call."""
        return self.layout == "near_end" and not self.append_only


def system_text(base: str, moment: Moment) -> str:
    """S: the editable text, guidance for tools, the sections on notes and documents, and the date as the last line."""
    tools = [tool for tool in moment.tools if not moment.moves or tool.name in moment.available]
    may_search = not moment.moves and any(tool.is_search for tool in tools)
    cites = moment.searched or moment.documents or may_search
    lines = "\n".join(filter(None, (tool.line(moment.texts) for tool in tools)))
    guidance = moment.texts.fill("tools", tools=lines) if lines else ""
    notes = moment.texts["notes"] if moment.note_form == "tags" else ""
    return _joined((base, guidance, notes, moment.texts["citations"] if cites else "", _date_line(moment)))


def reminder_text(reminders: Iterable[str], moment: Moment) -> str | None:
    """R: the built-in reminders and the user's, in one message; None when there is nothing to remind of."""
    exact_time = moment.date_awareness == "minute" and not moment.moves
    cites = moment.searched or (moment.always_remind and moment.documents)
    opens = moment.web_unopened and "open_url" in moment.available
    text = _joined(
        (
            moment.texts["citation_reminder"] if cites else "",
            moment.texts["open_pages_reminder"] if opens else "",
            *reminders,
            _time("minute", moment) if exact_time else "",
        )
    )
    return note_text(text, moment.note_form, moment.texts, heading="reminder_heading") or None


def note_text(text: str, form: NoteForm, texts: Texts, *, heading: str = "") -> str:
    """Mark a text of the workspace that is sent as a user message; `heading` names the text above it, if it has one."""
    if text and form == "tags":
        return f"<note>\n{text}\n</note>"
    if text and form == "heading" and heading and texts[heading]:
        return f"{texts[heading]}\n{text}"
    return text


def _date_line(moment: Moment) -> str:
    if moment.date_awareness == "off":
        return ""
    return _time("minute" if moment.moves and moment.date_awareness == "minute" else "day", moment)


def _time(name: str, moment: Moment) -> str:
    at = moment.asked_at
    return moment.texts.fill(name, weekday=f"{at:%A}", date=f"{at:%Y-%m-%d}", time=f"{at:%H:%M}")


def asked_at(moment: Moment) -> str:
    """Return the sentence that says when the newest message was sent, for where a time alone would be last."""
    return _time("asked_at", moment)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


INLINE_SHARE = Decimal("0.6")
MOST_CHARACTERS = 16  # of a token, where only the ends of a long text are read
MARKER_SPARE = 8  # tokens by which texts that are put together may count more than their parts


class Numbers:
    """The number to cite for each document of a conversation: given once, in order of appearance, and kept.

    `known` are the numbers given before, by document id; new ones continue after the largest.
    """

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(known or {})
        self._last = max(self._numbers.values(), default=0)

    @property
    def known(self) -> dict[str, int]:
        """All numbers given so far, by document id, for whoever keeps them with the conversation."""
        return dict(self._numbers)

    def of(self, document_id: str) -> int:
        number = self._numbers.get(document_id)
        if number is None:
            self._last += 1
            number = self._numbers[document_id] = self._last
        return number


def number_documents(documents: Sequence[Document]) -> Numbers:
    """Numbers for `documents` in their order; those that carry a number keep it."""
    numbers = Numbers({document.id: document.number for document in documents if document.number is not None})
    for document in documents:
        numbers.of(document.id)
    return numbers


def documents_json(documents: Iterable[Document], numbers: Numbers) -> str:
    """The JSON a model reads: fixed key order, no indentation, absent metadata left out. Search results are sent so."""
    return json.dumps({"documents": [_entry(document, numbers) for document in documents]}, ensure_ascii=False)


def documents_text(documents: Iterable[Document], numbers: Numbers, texts: Texts = BUILT_IN) -> str:
    """The text of a message of files (P and F): the line above them, then the JSON."""
    return f"{texts['documents']}\n{documents_json(documents, numbers)}"


def split_project_files(
    files: Sequence[Document], *, room: int, pinned: frozenset[str] = frozenset(), share: Decimal = INLINE_SHARE
) -> tuple[list[Document], list[Document]]:
    """Which project files are sent inline and which are reached by search, each in the given order.

    `room`: window − reserved output − system prompt − persona prompt. All are inline when their sum is below `share`
    of it; otherwise the pinned ones that fit whole below that line. A file without a token count is never inline.
    """
    line = floored(max(room, 0), share)
    inline: set[str] = set()
    used = 0
    everything = sum(_known(file, line) for file in files) < line
    for file in files:
        if everything or (file.id in pinned and used + _known(file, line) < line):
            inline.add(file.id)
            used += _known(file, line)
    return [file for file in files if file.id in inline], [file for file in files if file.id not in inline]


def _known(file: Document, line: int) -> int:
    """The file's tokens; an unknown count is taken to be as large as the whole line, so that it blocks."""
    return line if file.tokens is None else file.tokens


def _entry(document: Document, numbers: Numbers) -> dict[str, int | str]:
    entry: dict[str, int | str] = {"document": numbers.of(document.id), "title": document.title}
    if document.metadata is not None:
        entry["metadata"] = document.metadata
    entry["contents"] = document.text or ""
    return entry


class Renderer:
    """Makes `PromptMessage`s for one request."""

    def __init__(self, request: ContextRequest) -> None:
        self.request = request
        self.overhead = request.message_overhead
        self.tokenizer = request.tokenizer
        self.texts = request.texts

    @cached_property
    def numbers(self) -> Numbers:
        """The documents' numbers: project files first, then every uploaded file, oldest first."""
        uploads = [file for message in self.request.messages for file in message.files]
        return number_documents([*self.request.project_files, *uploads])

    @cached_property
    def stub_tokens(self) -> int:
        given = self.request.stub_tokens
        return self.tokenizer.count(self.texts["tool_result_stub"]) if given is None else given

    def block(self, section: Section, role: Role, block: Block) -> PromptMessage:
        tokens = self.tokenizer.count(block.text or "") if block.tokens is None else block.tokens
        text = block.text if block.tokens is not None else block.text or ""
        return PromptMessage(section, None, role, tokens + self.overhead, text)

    def files(self, section: Section, source: str | None, files: tuple[Document, ...]) -> PromptMessage:
        """P or F: all of `files` in one user message."""
        tokens = self.files_tokens(files)
        by_tokens_alone = all(file.text is None and file.tokens is not None for file in files)
        text = None if by_tokens_alone else documents_text(files, self.numbers, self.texts)
        return PromptMessage(section, source, "user", tokens + self.overhead, text)

    def files_tokens(self, files: tuple[Document, ...]) -> int:
        """The sum of the files' tokens when all are given, else the count of their rendered text. Without overhead."""
        total = 0
        for file in files:
            if file.tokens is None:
                return self.tokenizer.count(documents_text(files, self.numbers, self.texts))
            total += file.tokens
        return total

    def message(self, section: Section, message: ContextMessage) -> list[PromptMessage]:
        """The message in full, below its files if it has any."""
        rendered = [*self._upload(message), *self._image_line(message)]
        text = message.text if message.tokens is not None else message.text or ""
        shortened = message.result is not None and message.result.marker > 0
        rendered.append(
            PromptMessage(
                section,
                message.id,
                message.role,
                self._message_tokens(message) + self.overhead,
                text,
                message.sent_images,
                message.tool_calls,
                message.tool_call_id,
                "shortened" if shortened else "full",
                message.result.tokens + self.overhead if message.result is not None and shortened else None,
                message.reasoning,
                as_stored=shortened,
            )
        )
        if message.reminder is not None:
            rendered.append(self.block("reminder", "user", message.reminder))
        return rendered

    def plain_messages(self, messages: Sequence[ContextMessage]) -> list[PromptMessage]:
        """Messages of older turns whose `plain_tokens` are all known: the quick way for the bulk of a conversation."""
        overhead = self.overhead
        return [
            PromptMessage("history", m.id, m.role, (m.plain_tokens or 0) + overhead, m.text, m.images) for m in messages
        ]

    def older_message(self, message: ContextMessage) -> list[PromptMessage]:
        """The message as history: a tool result is replaced by the stub, also when it is shorter than that."""
        if message.role != "tool":
            return self.message("history", message)
        tokens = self.stub_tokens + self.overhead
        text = self.texts["tool_result_stub"]
        stub = PromptMessage(
            "history", message.id, "tool", tokens, text, tool_call_id=message.tool_call_id, state="stubbed"
        )
        return [stub]

    def file_stub(self, upload: PromptMessage, question: ContextMessage) -> PromptMessage:
        """The line that stands in the place of F."""
        text = self.texts.fill("file_stub", files=", ".join(file.title or file.id for file in question.sent_files))
        given = self.request.file_stub_tokens
        tokens = self.tokenizer.count(text) if given is None else given
        return upload._replace(tokens=tokens + self.overhead, text=text, state="stubbed")

    def _image_line(self, message: ContextMessage) -> list[PromptMessage]:
        """The line that names the images of a message that are not sent, because the model takes fewer."""
        surplus = message.surplus_images
        if not surplus:
            return []
        names = ", ".join(image.title or image.id for image in surplus)
        text = self.texts.fill("image_stub", images=names, most=self.request.max_images)
        given = self.request.file_stub_tokens
        tokens = self.tokenizer.count(text) if given is None else given
        source = "+".join(image.id for image in surplus)
        return [PromptMessage("file", source, "user", tokens + self.overhead, text, state="stubbed")]

    def _upload(self, message: ContextMessage) -> list[PromptMessage]:
        files = message.sent_files
        return [self.files("file", "+".join(file.id for file in files), files)] if files else []

    def _message_tokens(self, message: ContextMessage) -> int:
        if message.plain_tokens is not None:
            return message.plain_tokens
        tokens = own_tokens(message, self.tokenizer) if message.tokens is None else message.tokens
        tokens += message.reasoning.tokens if message.reasoning is not None else 0
        return tokens + sum(image.tokens for image in message.sent_images)


def own_tokens(message: ContextMessage, tokenizer: Tokenizer) -> int:
    """The count of a message's text and tool calls; callers store it, so that it is made once."""
    texts = [message.text or "", *(_call_json(call) for call in message.tool_calls)]
    return sum(tokenizer.count(text) for text in texts)


def cost(messages: list[PromptMessage]) -> int:
    return sum(message.tokens for message in messages)


def _call_json(call: ToolCall) -> str:
    """A call as it is counted. Its arguments are put in as written: they may be invalid JSON."""
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}'


def cut_end(text: str, limit: int, tokenizer: Tokenizer, texts: Texts = BUILT_IN) -> str | None:
    """The beginning of a system prompt and the marker, at most `limit` tokens; None if not even the marker fits.

    A text that fits (its given count was larger than the real one) stays as it is.
    """
    if tokenizer.count(text) <= limit:
        return text
    marker = texts["system_cut"]
    kept = limit - tokenizer.count(marker)
    while kept >= 0:
        shortened = f"{tokenizer.head(text, kept)}\n{marker}"
        # Texts put together may count a little more than their parts.
        excess = tokenizer.count(shortened) - limit
        if excess <= 0:
            return shortened
        kept -= excess
    return None


def cut_middle(
    text: str,
    limit: int,
    least: int,
    tokenizer: Tokenizer,
    texts: Texts = BUILT_IN,
    result: StoredResult | None = None,
) -> str:
    """Head and tail of a tool result around a marker that says how much was left out: at most `limit` tokens.

    Not every count can be met, as a character may be several tokens. The closest from below is taken unless it is under
    `least`; then the closest from above. `result`: of a text that has a marker already, or of which more is stored.
    """
    parts = _Parts(text, tokenizer, texts, result)
    if not parts.marked and parts.total <= limit:
        return text
    kept = max(limit - tokenizer.count(parts.marker(parts.total)), 0)
    tried: dict[int, str] = {}
    below: dict[int, str] = {}
    above: dict[int, str] = {}
    while kept not in tried:
        tried[kept] = candidate = parts.around(kept)
        tokens = tokenizer.count(candidate)
        (below if tokens <= limit else above)[tokens] = candidate
        kept = max(kept + limit - tokens, 0)
    closest = max(below, default=0)
    return below[closest] if closest >= least or not above else above[min(above)]


def shortened_result(
    text: str, limit: int, result: StoredResult, tokenizer: Tokenizer, texts: Texts = BUILT_IN
) -> tuple[str, StoredResult]:
    """Head and tail of a long tool result in about `limit` tokens, and where the marker stands in it.

    `result` counts the whole. The time depends on `limit`, not on the length of the text.
    """
    near = MOST_CHARACTERS * max(limit, 1)
    kept = max(limit - tokenizer.count(_marker(result.tokens, texts, result.id)) - MARKER_SPARE, 0)
    head = tokenizer.head(text[:near], kept - kept // 2)
    tail = tokenizer.tail(text[max(len(head), len(text) - near) :], kept // 2)
    left_out = max(result.tokens - tokenizer.count(head) - tokenizer.count(tail), 1)
    marker = f"\n{_marker(left_out, texts, result.id)}\n"
    return f"{head}{marker}{tail}", replace(result, head=len(head), marker=len(marker))


class _Parts:
    """A tool result to be cut in its middle: what stands before and after the middle, and the tokens of the whole."""

    def __init__(self, text: str, tokenizer: Tokenizer, texts: Texts, result: StoredResult | None) -> None:
        self._tokenizer, self._texts = tokenizer, texts
        self._stored = result.id if result is not None else ""
        self.marked = result is not None and result.marker > 0
        self._head = self._tail = text
        if result is not None and self.marked:
            self._head, self._tail = text[: result.head], text[result.head + result.marker :]
        self.total = result.tokens if result is not None and self.marked else tokenizer.count(text)

    def marker(self, tokens: int) -> str:
        return _marker(tokens, self._texts, self._stored)

    def around(self, kept: int) -> str:
        tail = kept // 2
        head = self._tokenizer.head(self._head, kept - tail)
        return f"{head}\n{self.marker(self.total - kept)}\n{self._tokenizer.tail(self._tail, tail)}"


def _marker(tokens: int, texts: Texts, stored: str = "") -> str:
    if stored:
        return texts.fill("tool_result_kept", tokens=tokens, result=stored)
    return texts.fill("tool_result_cut", tokens=tokens)
