"""Render the sections of a prompt, in their order, and count their tokens.

The rules: docs/develop/context.md, “Order”, “Notes” and “manage.py plan”. A message costs its tokens, its images and
the overhead. Its uploaded files are a separate message above it. A text is counted only if `tokens` is not set, and
only when its cost is needed.
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
    ImageRef,
    Memory,
    MemoryFact,
    PromptMessage,
    Role,
    Section,
    TextTokenizer,
    floored,
)
from llm.types.model_call import StoredResult, ToolCall
from personas.texts import BUILT_IN, Texts

# To add a layout: 1. Add its order here. 2. Add its name to `personas.models.BudgetProfile`, where admins choose it.
# 3. Describe it in docs/develop/context.md, “Order”.
#
# The order of the sections in each layout (docs/develop/context.md, “Order”). `history` holds the older turns, each
# with its files above its question; `current` holds the newest turn with its files. The project's files and their
# listing stay together. The reminder is last in every layout. A fact may be added to the memory in a later turn, so in
# the layouts for caching the memory stands below the files, which are larger.
LAYOUTS: dict[str, tuple[Section, ...]] = {
    # The most important texts stand close to the newest question.
    "near_end": (
        "system", "tasks", "summary", "history", "persona", "memory", "project_files", "file_listing", "current",
        "reminder",
    ),
    # A large, unchanging prefix, which providers bill at a tenth.
    "files_first": (
        "system", "project_files", "file_listing", "memory", "tasks", "summary", "history", "persona", "current",
        "reminder",
    ),
    "all_first": (
        "system", "persona", "project_files", "file_listing", "memory", "tasks", "summary", "history", "current",
        "reminder",
    ),
}  # fmt: skip


DateAwareness = Literal["day", "minute", "off"]
NoteForm = Literal["plain", "heading", "tags"]  # how notes of the workspace are marked to differ from the user's words


@dataclass(frozen=True, slots=True)
class ToolGuidance:
    """Guidance for the model on when to use a tool.

    `text` None stands for the product's text about its own tool of this name. `is_search`: the tool's results can be
    cited. `listing`: the list of tools that the product's text has in it.
    """

    name: str
    text: str | None = None
    is_search: bool = False
    listing: str = ""

    def line(self, texts: Texts) -> str:
        """Return the line of the system prompt, empty if there is no guidance for the tool."""
        text = texts.fill(f"guidance_{self.name}", list=self.listing) if self.text is None else self.text
        return f"{self.name}: {text}" if text else ""


@dataclass(frozen=True, slots=True)
class CallState:
    """The facts of one model call on which S (system prompt) and R (reminder) depend.

    `asked_at` is the time of the newest user message in the user's timezone. `tools` are all tools of the turn in a
    fixed order; `available` are the names of the tools that may be called in this cycle. `searched`: a search has run
    in this turn, by a tool or for a model without tools. `documents`: numbered documents are in the prompt.
    `always_remind`: R asks for citations whenever documents are in the prompt. `web_unopened`: a web search has run and
    no page was opened. `append_only`: messages that an earlier cycle of the turn sent do not change in a later cycle.
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
    def system_varies(self) -> bool:
        """Tell whether S may differ between the calls of a conversation."""
        return self.layout == "near_end" and not self.append_only


def system_text(base: str, call: CallState) -> str:
    """Return S: the editable text, the tools' guidance, the sections on notes and documents, and the date line."""
    tools = [tool for tool in call.tools if not call.system_varies or tool.name in call.available]
    may_search = not call.system_varies and any(tool.is_search for tool in tools)
    cites = call.searched or call.documents or may_search
    lines = "\n".join(filter(None, (tool.line(call.texts) for tool in tools)))
    guidance = call.texts.fill("tools", tools=lines) if lines else ""
    notes = call.texts["notes"] if call.note_form == "tags" else ""
    return _joined((base, guidance, notes, call.texts["citations"] if cites else "", _date_line(call)))


def reminder_text(reminders: Iterable[str], call: CallState) -> str | None:
    """Return R: the built-in reminders and the user's reminders in one message, or None without any."""
    exact_time = call.date_awareness == "minute" and not call.system_varies
    cites = call.searched or (call.always_remind and call.documents)
    opens = call.web_unopened and "open_url" in call.available
    text = _joined(
        (
            call.texts["citation_reminder"] if cites else "",
            call.texts["open_pages_reminder"] if opens else "",
            *reminders,
            _time("minute", call) if exact_time else "",
        )
    )
    return note_text(text, call.note_form, call.texts, heading="reminder_heading") or None


def note_text(text: str, form: NoteForm, texts: Texts, *, heading: str = "") -> str:
    """Mark a text of the workspace that is sent as a user message (docs/develop/context.md, “Notes”).

    `heading` is the name of the text that stands above it in the form `heading`; empty if it has none.
    """
    if text and form == "tags":
        return f"<note>\n{text}\n</note>"
    if text and form == "heading" and heading and texts[heading]:
        return f"{texts[heading]}\n{text}"
    return text


def memory_text(memory: Memory, facts: Iterable[MemoryFact]) -> str:
    """Return the memory section: its heading, the person's own text, and the facts, each on a line."""
    lines = [f"- {fact.text}" for fact in facts]
    text = "\n".join(part for part in (memory.heading, memory.profile, *lines) if part)
    return memory.wrap.replace("{text}", text, 1)


def _date_line(call: CallState) -> str:
    if call.date_awareness == "off":
        return ""
    return _time("minute" if call.system_varies and call.date_awareness == "minute" else "day", call)


def _time(name: str, call: CallState) -> str:
    at = call.asked_at
    return call.texts.fill(name, weekday=f"{at:%A}", date=f"{at:%Y-%m-%d}", time=f"{at:%H:%M}")


def asked_at_text(call: CallState) -> str:
    """Return the sentence that says when the newest message was sent. Used where a bare time would be the last line."""
    return _time("asked_at", call)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


INLINE_SHARE = Decimal("0.6")
MAX_CHARACTERS = 16  # in the longest token; bounds how much of a long text's head and tail is tokenized
MARKER_SPARE = 8  # extra tokens that a joined text may have, compared with its parts


class CitationNumbers:
    """The citation number of each document of a conversation.

    A document gets its number once, in order of appearance, and keeps it (docs/develop/context.md, “Order”). `assigned`
    are the numbers of earlier turns by document id; new numbers continue after the largest.
    """

    def __init__(self, assigned: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(assigned or {})
        self._last = max(self._numbers.values(), default=0)

    @property
    def assigned(self) -> dict[str, int]:
        """Return a copy of all numbers by document id. The caller stores them with the conversation."""
        return dict(self._numbers)

    def assign(self, document_id: str) -> int:
        """Return the document's number. Assign the next one if it has none."""
        number = self._numbers.get(document_id)
        if number is None:
            self._last += 1
            number = self._numbers[document_id] = self._last
        return number


def number_documents(documents: Sequence[Document]) -> CitationNumbers:
    """Number `documents` in their order. A document that carries a number keeps it."""
    numbers = CitationNumbers({document.id: document.number for document in documents if document.number is not None})
    for document in documents:
        numbers.assign(document.id)
    return numbers


def documents_json(documents: Iterable[Document], numbers: CitationNumbers) -> str:
    """Return the documents as JSON for the model: fixed key order, no indentation, metadata only if there is any."""
    return json.dumps({"documents": [_entry(document, numbers) for document in documents]}, ensure_ascii=False)


def documents_text(documents: Iterable[Document], numbers: CitationNumbers, texts: Texts = BUILT_IN) -> str:
    """Return the text of a message of project files (P) or uploaded files (F): the prefix line, then the JSON."""
    return f"{texts['documents']}\n{documents_json(documents, numbers)}"


def project_images_text(images: Iterable[ImageRef], texts: Texts) -> str:
    """Return the text of the message that holds the project's images. It names them."""
    return texts.fill("project_images", images=", ".join(image.title or image.id for image in images))


def split_project_files(
    files: Sequence[Document], *, room: int, pinned: frozenset[str] = frozenset(), share: Decimal = INLINE_SHARE
) -> tuple[list[Document], list[Document]]:
    """Return the project files to send inline and the files to search, each in the order of `files`.

    `room` is window − reserved output − system prompt − persona prompt. All files are inline if their tokens sum up to
    less than `share` of it. Otherwise each pinned file is inline if it fits whole into the rest of that share. A file
    without a token count is never inline. The rule: docs/develop/context.md, “Files and projects”.
    """
    inline_limit = floored(max(room, 0), share)
    inline: set[str] = set()
    used = 0
    all_fit = sum(_tokens_or(file, inline_limit) for file in files) < inline_limit
    for file in files:
        if all_fit or (file.id in pinned and used + _tokens_or(file, inline_limit) < inline_limit):
            inline.add(file.id)
            used += _tokens_or(file, inline_limit)
    return [file for file in files if file.id in inline], [file for file in files if file.id not in inline]


def _tokens_or(file: Document, line: int) -> int:
    """Return the file's tokens. An unknown count becomes the whole limit (`line`), so that the file is never inline."""
    return line if file.tokens is None else file.tokens


def _entry(document: Document, numbers: CitationNumbers) -> dict[str, int | str]:
    entry: dict[str, int | str] = {"document": numbers.assign(document.id), "title": document.title}
    if document.metadata is not None:
        entry["metadata"] = document.metadata
    entry["contents"] = document.text or ""
    return entry


class PromptRenderer:
    """Renders the prompt messages of one request."""

    def __init__(self, request: ContextRequest) -> None:
        self.request = request
        self.overhead = request.message_overhead
        self.tokenizer = request.tokenizer
        self.texts = request.texts

    @cached_property
    def numbers(self) -> CitationNumbers:
        """Return the documents' numbers: project files first, then every uploaded file, oldest first."""
        uploads = [file for message in self.request.messages for file in message.files]
        return number_documents([*self.request.project_files, *uploads])

    @cached_property
    def stub_tokens(self) -> int:
        """Return the tokens of a tool result's stub, without overhead."""
        override = self.request.stub_tokens
        return self.tokenizer.count(self.texts["tool_result_stub"]) if override is None else override

    def block(self, section: Section, role: Role, block: Block) -> PromptMessage:
        """Return the message of a section that consists of one text."""
        tokens = self.tokenizer.count(block.text or "") if block.tokens is None else block.tokens
        text = block.text if block.tokens is not None else block.text or ""
        return PromptMessage(section, None, role, tokens + self.overhead, text)

    def memory(self, facts: Sequence[MemoryFact]) -> list[PromptMessage]:
        """Return the memory section with these facts; empty if nothing of it is left."""
        memory = self.request.memory
        if memory is None or not (facts or memory.profile):
            return []
        text = memory_text(memory, facts)
        source = "+".join(fact.id for fact in facts) or None
        return [PromptMessage("memory", source, "user", self.tokenizer.count(text) + self.overhead, text)]

    def files(self, section: Section, source: str | None, files: tuple[Document, ...]) -> PromptMessage:
        """Return P or F: all of `files` in one user message."""
        tokens = self.files_tokens(files)
        counts_only = all(file.text is None and file.tokens is not None for file in files)
        text = None if counts_only else documents_text(files, self.numbers, self.texts)
        return PromptMessage(section, source, "user", tokens + self.overhead, text)

    def project_images(self) -> list[PromptMessage]:
        """Return the message of the project's images with the line that names them; empty without images."""
        images = self.request.project_images
        if not images:
            return []
        text = project_images_text(images, self.texts)
        tokens = self.tokenizer.count(text) + sum(image.tokens for image in images)
        source = "+".join(image.id for image in images)
        return [PromptMessage("project_files", source, "user", tokens + self.overhead, text, images)]

    def files_tokens(self, files: tuple[Document, ...]) -> int:
        """Return the files' tokens, without overhead. If a file has no count, count the rendered text."""
        total = 0
        for file in files:
            if file.tokens is None:
                return self.tokenizer.count(documents_text(files, self.numbers, self.texts))
            total += file.tokens
        return total

    def message(self, section: Section, message: ContextMessage) -> list[PromptMessage]:
        """Return the message in full, its files above it and its reminder below it.

        A tool result stands directly below its call, so its images are below it.
        """
        is_result = message.role == "tool"
        above = [*self._upload(message), *self._image_line(message), *self._missing_line(message)]
        rendered = [] if is_result else above
        text = message.text if message.tokens is not None else message.text or ""
        shortened = message.result is not None and message.result.marker > 0
        rendered.append(
            PromptMessage(
                section,
                message.id,
                message.role,
                self._message_tokens(message) + self.overhead,
                text,
                () if is_result else message.sent_images,
                message.tool_calls,
                message.tool_call_id,
                "shortened" if shortened else "full",
                message.result.tokens + self.overhead if message.result is not None and shortened else None,
                message.reasoning,
                as_stored=shortened,
            )
        )
        if is_result:
            rendered += self._result_images(section, message)
        if message.reminder is not None:
            rendered.append(self.block("reminder", "user", message.reminder))
        return rendered

    def plain_messages(self, messages: Sequence[ContextMessage]) -> list[PromptMessage]:
        """Render plain messages of older turns. This is a fast path: most messages of a conversation are plain."""
        overhead = self.overhead
        return [
            PromptMessage("history", m.id, m.role, (m.plain_tokens or 0) + overhead, m.text, m.images) for m in messages
        ]

    def older_message(self, message: ContextMessage) -> list[PromptMessage]:
        """Return the message as history. A stub replaces a tool result, even if the result is shorter."""
        if message.role != "tool":
            return self.message("history", message)
        tokens = self.stub_tokens + self.overhead
        text = self.texts["tool_result_stub"]
        stub = PromptMessage(
            "history", message.id, "tool", tokens, text, tool_call_id=message.tool_call_id, state="stubbed"
        )
        return [stub, *self._result_images("history", message)]

    def _result_images(self, section: Section, message: ContextMessage) -> list[PromptMessage]:
        """Return the messages below a tool result: its images, and the line that names surplus ones."""
        if not message.images or not message.shows_images(current=section == "current"):
            return []
        below = self._image_line(message)
        if images := message.sent_images:
            text = self.texts.fill("result_images", images=", ".join(image.title or image.id for image in images))
            tokens = self.tokenizer.count(text) + sum(image.tokens for image in images)
            below.append(PromptMessage(section, None, "user", tokens + self.overhead, text, images))
        return below

    def file_stub(self, upload: PromptMessage, question: ContextMessage) -> PromptMessage:
        """Return the line that replaces F (the uploaded files). It names the files."""
        text = self.texts.fill("file_stub", files=", ".join(file.title or file.id for file in question.sent_files))
        override = self.request.file_stub_tokens
        tokens = self.tokenizer.count(text) if override is None else override
        return upload._replace(tokens=tokens + self.overhead, text=text, state="stubbed")

    def _image_line(self, message: ContextMessage) -> list[PromptMessage]:
        """Return the line that names the images left out over the model's limit; empty without such images."""
        surplus = message.surplus_images
        if not surplus:
            return []
        names = ", ".join(image.title or image.id for image in surplus)
        text = self.texts.fill("image_stub", images=names, most=self.request.max_images)
        override = self.request.file_stub_tokens
        tokens = self.tokenizer.count(text) if override is None else override
        source = "+".join(image.id for image in surplus)
        return [PromptMessage("file", source, "user", tokens + self.overhead, text, state="stubbed")]

    def _missing_line(self, message: ContextMessage) -> list[PromptMessage]:
        """Return the line that names the message's missing files; empty without such files."""
        if not message.missing_files or not self.texts["file_missing"]:
            return []
        text = self.texts.fill("file_missing", files=", ".join(message.missing_files))
        return [PromptMessage("file", None, "user", self.tokenizer.count(text) + self.overhead, text, state="stubbed")]

    def _upload(self, message: ContextMessage) -> list[PromptMessage]:
        """Return F, the message of the files uploaded with `message`; empty without files."""
        files = message.sent_files
        return [self.files("file", "+".join(file.id for file in files), files)] if files else []

    def _message_tokens(self, message: ContextMessage) -> int:
        if message.plain_tokens is not None:
            return message.plain_tokens
        tokens = own_tokens(message, self.tokenizer) if message.tokens is None else message.tokens
        tokens += message.reasoning.tokens if message.reasoning is not None else 0
        return tokens + (sum(image.tokens for image in message.sent_images) if message.role != "tool" else 0)


def own_tokens(message: ContextMessage, tokenizer: TextTokenizer) -> int:
    """Count a message's text and tool calls. Callers store the result, so that each message is counted once."""
    texts = [message.text or "", *(_call_json(call) for call in message.tool_calls)]
    return sum(tokenizer.count(text) for text in texts)


def cost(messages: list[PromptMessage]) -> int:
    """Return the tokens of the messages, overhead included."""
    return sum(message.tokens for message in messages)


def _call_json(call: ToolCall) -> str:
    """Return the text to count for a call. The arguments stay as the model wrote them: they may be invalid JSON."""
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}'


def cut_end(text: str, limit: int, tokenizer: TextTokenizer, texts: Texts = BUILT_IN) -> str | None:
    """Return the beginning of a system prompt with the marker, at most `limit` tokens; None if the marker does not fit.

    A text that fits stays unchanged. This happens when the request states more tokens than the text has.
    """
    if tokenizer.count(text) <= limit:
        return text
    marker = texts["system_cut"]
    remaining = limit - tokenizer.count(marker)
    while remaining >= 0:
        shortened = f"{tokenizer.head(text, remaining)}\n{marker}"
        # A joined text may count a little more than its parts.
        excess = tokenizer.count(shortened) - limit
        if excess <= 0:
            return shortened
        remaining -= excess
    return None


def cut_middle(
    text: str,
    limit: int,
    least: int,
    tokenizer: TextTokenizer,
    texts: Texts = BUILT_IN,
    result: StoredResult | None = None,
) -> str:
    """Return a tool result's head and tail in at most `limit` tokens. The marker in between counts the omitted tokens.

    Not every count is possible, since one character may be several tokens. The function takes the closest count up to
    `limit`. If that is less than `least`, it takes the closest count above `limit`. `result` is set if the text already
    has a marker or if the whole text is stored.
    """
    parts = _HeadAndTail(text, tokenizer, texts, result)
    if not parts.marked and parts.total <= limit:
        return text
    remaining = max(limit - tokenizer.count(parts.marker(parts.total)), 0)
    tried: set[int] = set()
    below: dict[int, str] = {}
    above: dict[int, str] = {}
    while remaining not in tried:
        tried.add(remaining)
        candidate = parts.around_marker(remaining)
        tokens = tokenizer.count(candidate)
        (below if tokens <= limit else above)[tokens] = candidate
        remaining = max(remaining + limit - tokens, 0)
    closest = max(below, default=0)
    return below[closest] if closest >= least or not above else above[min(above)]


def shortened_result(
    text: str, limit: int, result: StoredResult, tokenizer: TextTokenizer, texts: Texts = BUILT_IN
) -> tuple[str, StoredResult]:
    """Return head and tail of a long tool result in about `limit` tokens, and the position of the marker in it.

    `result.tokens` is the count of the whole. The time depends on `limit`, not on the length of the text.
    """
    characters = MAX_CHARACTERS * max(limit, 1)
    remaining = max(limit - tokenizer.count(_marker(result.tokens, texts, result.id)) - MARKER_SPARE, 0)
    head = tokenizer.head(text[:characters], remaining - remaining // 2)
    tail = tokenizer.tail(text[max(len(head), len(text) - characters) :], remaining // 2)
    left_out = max(result.tokens - tokenizer.count(head) - tokenizer.count(tail), 1)
    marker = f"\n{_marker(left_out, texts, result.id)}\n"
    return f"{head}{marker}{tail}", replace(result, head=len(head), marker=len(marker))


class _HeadAndTail:
    """A tool result to be cut in its middle: the texts before and after the middle, and the tokens of the whole."""

    def __init__(self, text: str, tokenizer: TextTokenizer, texts: Texts, result: StoredResult | None) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self._result_id = result.id if result is not None else ""
        self.marked = result is not None and result.marker > 0
        self._head = text
        self._tail = text
        if result is not None and self.marked:
            self._head = text[: result.head]
            self._tail = text[result.head + result.marker :]
        self.total = result.tokens if result is not None and self.marked else tokenizer.count(text)

    def marker(self, tokens: int) -> str:
        """Return the marker that says that `tokens` tokens are left out."""
        return _marker(tokens, self._texts, self._result_id)

    def around_marker(self, tokens: int) -> str:
        """Return about `tokens` tokens of the text: head, marker and tail."""
        tail = tokens // 2
        head = self._tokenizer.head(self._head, tokens - tail)
        return f"{head}\n{self.marker(self.total - tokens)}\n{self._tokenizer.tail(self._tail, tail)}"


def _marker(tokens: int, texts: Texts, result_id: str = "") -> str:
    if result_id:
        return texts.fill("tool_result_kept", tokens=tokens, result=result_id)
    return texts.fill("tool_result_cut", tokens=tokens)
