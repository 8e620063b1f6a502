"""What each source is sent as, and what that costs (docs/context.md, “The room” and “manage.py plan”).

A message costs its tokens, its images and the overhead; the files uploaded with it are a message of their own above it.
`tokens` beats counting the text, and text is counted only when it is asked for.
"""

import json
from collections.abc import Sequence
from functools import cached_property

from chat.context.documents import Numbers, documents_text, number_documents
from chat.context.types import (
    Block,
    ContextMessage,
    ContextRequest,
    Document,
    PromptMessage,
    Role,
    Section,
    Tokenizer,
)
from llm.types.model_call import ToolCall

STUB = "This tool result is no longer available."


class Renderer:
    """Makes `PromptMessage`s for one request."""

    def __init__(self, request: ContextRequest) -> None:
        self.request = request
        self.overhead = request.message_overhead
        self.tokenizer = request.tokenizer

    @cached_property
    def numbers(self) -> Numbers:
        """The documents' numbers: project files first, then every uploaded file, oldest first."""
        uploads = [file for message in self.request.messages for file in message.files]
        return number_documents([*self.request.project_files, *uploads])

    @cached_property
    def stub_tokens(self) -> int:
        given = self.request.stub_tokens
        return self.tokenizer.count(STUB) if given is None else given

    def block(self, section: Section, role: Role, block: Block) -> PromptMessage:
        tokens = self.tokenizer.count(block.text or "") if block.tokens is None else block.tokens
        text = block.text if block.tokens is not None else block.text or ""
        return PromptMessage(section, None, role, tokens + self.overhead, text)

    def files(self, section: Section, source: str | None, files: tuple[Document, ...]) -> PromptMessage:
        """P or F: all of `files` in one user message."""
        tokens = self.files_tokens(files)
        by_tokens_alone = all(file.text is None and file.tokens is not None for file in files)
        text = None if by_tokens_alone else documents_text(files, self.numbers)
        return PromptMessage(section, source, "user", tokens + self.overhead, text)

    def files_tokens(self, files: tuple[Document, ...]) -> int:
        """The sum of the files' tokens when all are given, else the count of their rendered text. Without overhead."""
        total = 0
        for file in files:
            if file.tokens is None:
                return self.tokenizer.count(documents_text(files, self.numbers))
            total += file.tokens
        return total

    def message(self, section: Section, message: ContextMessage) -> list[PromptMessage]:
        """The message in full, below its files if it has any."""
        rendered = self._upload(message)
        text = message.text if message.tokens is not None else message.text or ""
        rendered.append(
            PromptMessage(
                section,
                message.id,
                message.role,
                self._message_tokens(message) + self.overhead,
                text,
                message.images,
                message.tool_calls,
                message.tool_call_id,
            )
        )
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
        stub = PromptMessage(
            "history", message.id, "tool", tokens, STUB, tool_call_id=message.tool_call_id, state="stubbed"
        )
        return [stub]

    def _upload(self, message: ContextMessage) -> list[PromptMessage]:
        if not message.files:
            return []
        return [self.files("file", "+".join(file.id for file in message.files), message.files)]

    def _message_tokens(self, message: ContextMessage) -> int:
        if message.plain_tokens is not None:
            return message.plain_tokens
        tokens = own_tokens(message, self.tokenizer) if message.tokens is None else message.tokens
        return tokens + sum(image.tokens for image in message.images)


def own_tokens(message: ContextMessage, tokenizer: Tokenizer) -> int:
    """The count of a message's text and tool calls; callers store it, so that it is made once."""
    texts = [message.text or "", *(_call_json(call) for call in message.tool_calls)]
    return sum(tokenizer.count(text) for text in texts)


def cost(messages: list[PromptMessage]) -> int:
    return sum(message.tokens for message in messages)


def _call_json(call: ToolCall) -> str:
    """A call as it is counted. Its arguments are put in as written: they may be invalid JSON."""
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}'


SYSTEM_MARKER = "[System prompt truncated to fit context]"


def cut_end(text: str, limit: int, tokenizer: Tokenizer) -> str | None:
    """The beginning of a system prompt and the marker, at most `limit` tokens; None if not even the marker fits.

    A text that fits (its given count was larger than the real one) stays as it is.
    """
    if tokenizer.count(text) <= limit:
        return text
    kept = limit - tokenizer.count(SYSTEM_MARKER)
    while kept >= 0:
        shortened = f"{tokenizer.head(text, kept)}\n{SYSTEM_MARKER}"
        # Texts put together may count a little more than their parts.
        excess = tokenizer.count(shortened) - limit
        if excess <= 0:
            return shortened
        kept -= excess
    return None


def cut_middle(text: str, limit: int, least: int, tokenizer: Tokenizer) -> str:
    """Head and tail of a tool result around a marker that says how much was left out: at most `limit` tokens.

    Not every count can be met, as a character may be several tokens. The closest from below is taken unless it is under
    `least`; then the closest from above.
    """
    total = tokenizer.count(text)
    if total <= limit:
        return text
    kept = limit - tokenizer.count(_marker(total))
    tried: dict[int, str] = {}
    below: dict[int, str] = {}
    above: dict[int, str] = {}
    while kept not in tried:
        tried[kept] = candidate = _around(text, kept, total, tokenizer)
        tokens = tokenizer.count(candidate)
        (below if tokens <= limit else above)[tokens] = candidate
        kept = max(kept + limit - tokens, 0)
    closest = max(below, default=0)
    return below[closest] if closest >= least or not above else above[min(above)]


def _around(text: str, kept: int, total: int, tokenizer: Tokenizer) -> str:
    tail = kept // 2
    return f"{tokenizer.head(text, kept - tail)}\n{_marker(total - kept)}\n{tokenizer.tail(text, tail)}"


def _marker(tokens: int) -> str:
    return f"[… {tokens} tokens left out …]"
