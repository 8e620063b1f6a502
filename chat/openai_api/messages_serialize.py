"""Write an answer in Anthropic's Messages protocol: as the events of a stream, or as one message.

The content is a list of blocks: thinking, text and calls of the program's tools. The protocol allows one open block at
a time. While a call is being written, all other pieces wait until the end of the answer, since no event says that the
arguments of a call are complete.
"""

from collections.abc import Mapping
from typing import TypedDict

from chat.openai_api import errors
from chat.openai_api.answer import (
    LENGTH_REASONS,
    AnswerArguments,
    AnswerCall,
    AnswerEnd,
    AnswerHead,
    AnswerReasoning,
    AnswerText,
    AnswerWriter,
    Piece,
    StreamEvent,
    TextMoved,
)
from core.errors import ProductError
from core.json_types import JsonObject
from llm.step_filters.valid_calls import is_object, to_json_object


class ThinkingBlock(TypedDict):
    """The model's thinking. `signature` is the turn's id: the product keeps the provider's signature itself."""

    type: str
    thinking: str
    signature: str


class TextLocation(TypedDict):
    """A source that a text cites."""

    type: str
    url: str
    title: str
    cited_text: str
    encrypted_index: str


class AnswerTextBlock(TypedDict):
    """A text of the answer."""

    type: str
    text: str
    citations: "list[TextLocation] | None"


class ToolUseBlock(TypedDict):
    """A call of one of the program's tools."""

    type: str
    id: str
    name: str
    input: JsonObject


ContentBlock = ThinkingBlock | AnswerTextBlock | ToolUseBlock


class MessageUsage(TypedDict):
    """The tokens of an answer. `input_tokens` are those that were neither read from a cache nor written to it."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class AnthropicMessage(TypedDict):
    """A whole answer."""

    id: str
    type: str
    role: str
    model: str
    content: list[ContentBlock]
    stop_reason: str | None
    stop_sequence: None
    usage: MessageUsage


# The protocol's stop reasons, by finish reason. We cut off a model that calls a tool against its instructions, so
# `tool_calls` without a call is `end_turn`. `other` becomes `max_tokens`: the answer may be incomplete.
REASONS = {
    "length": "max_tokens",
    "context_window": "model_context_window_exceeded",
    "pause": "max_tokens",
    "other": "max_tokens",
    "refusal": "refusal",
    "content_filter": "refusal",
}


class MessageWriter(AnswerWriter):
    """Writes the events of a message. `shows_thinking`: the program has asked for the model's thinking."""

    waiting = 'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, head: AnswerHead, *, shows_thinking: bool) -> None:
        super().__init__(head)
        self._shows_thinking = shows_thinking
        self._content: list[ContentBlock] = []
        self._index = 0  # of the open block, or of the next one
        self._kind = ""  # of the open block: text, thinking, or none
        self._text: list[str] = []  # of the open block
        self._part_starts: dict[int, int] = {}  # the index in `_text` at which each part of the answer begins
        self._live: AnswerCall | None = None  # the call that is being written
        self._deferred: list[Piece] = []  # pieces that came while a call was being written
        self._stop_reason: str | None = None

    def opening(self) -> list[StreamEvent]:
        message: AnthropicMessage = {**self._message(), "content": [], "stop_reason": None}
        message["usage"] = {**message["usage"], "output_tokens": 0}
        return [_event("message_start", message=message), _event("ping")]

    def whole(self) -> Mapping[str, object]:
        return self._message()

    def failed(self, error: ProductError) -> list[StreamEvent]:
        return [StreamEvent(errors.anthropic_error_body(error), "error")]

    def _write(self, piece: Piece) -> list[StreamEvent]:
        if isinstance(piece, AnswerEnd):
            return self._finish(piece.finish)
        if self._live is None:
            return self._write_block(piece)
        if isinstance(piece, AnswerArguments) and piece.id == self._live.id:
            return [self._delta({"type": "input_json_delta", "partial_json": piece.text}, piece.text)]
        self._deferred.append(piece)
        return []

    def _write_block(self, piece: Piece) -> list[StreamEvent]:
        match piece:
            case AnswerText(part, text):
                events = self._open("text", {"type": "text", "text": "", "citations": None})
                self._part_starts.setdefault(part, len(self._text))
                return [*events, self._delta({"type": "text_delta", "text": text}, text)]
            case AnswerReasoning(text) if self._shows_thinking:
                events = self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                return [*events, self._delta({"type": "thinking_delta", "thinking": text}, text)]
            case TextMoved(part, text):
                if part in self._part_starts:
                    del self._text[self._part_starts[part] :]
                return [*self._close(), *self._write_block(AnswerReasoning(text)), *self._close()]
            case AnswerCall(call, name):
                events = self._open("tool_use", {"type": "tool_use", "id": call, "name": name, "input": {}})
                self._live = piece
                return events
        return []

    def _open(self, kind: str, block: ContentBlock) -> list[StreamEvent]:
        """Return the events up to an open block of this kind."""
        if self._kind == kind:
            return []
        events = self._close()
        self._kind = kind
        return [*events, _event("content_block_start", index=self._index, content_block=block)]

    def _delta(self, delta: Mapping[str, str], text: str) -> StreamEvent:
        self._text.append(text)
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> list[StreamEvent]:
        """Return the last events of the open block, if there is one."""
        kind, self._kind = self._kind, ""
        text = "".join(self._text)
        call, self._live = self._live, None
        self._text, self._part_starts = [], {}
        if not kind:
            return []
        last: list[Mapping[str, object]] = []
        if kind == "thinking":
            self._content.append({"type": "thinking", "thinking": text, "signature": self._head.turn})
            last.append({"type": "signature_delta", "signature": self._head.turn})
        elif call is not None:
            input_ = to_json_object(text) if is_object(text or "{}") else {}  # cut off by the limit of length
            self._content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": input_})
        elif text:
            citations = self._citations(text)
            self._content.append({"type": "text", "text": text, "citations": citations or None})
            last += [{"type": "citations_delta", "citation": citation} for citation in citations]
        events = [_event("content_block_delta", index=self._index, delta=delta) for delta in last]
        events.append(_event("content_block_stop", index=self._index))
        self._index += 1
        return events

    def _citations(self, text: str) -> list[TextLocation]:
        """Return the sources that a text cites, in the protocol's form for pages that the server has looked up."""
        return [
            {
                "type": "web_search_result_location",
                "url": citation.url,
                "title": citation.title,
                "cited_text": "",
                "encrypted_index": "",
            }
            for citation in self._reader.citations(text)
        ]

    def _finish(self, finish: str) -> list[StreamEvent]:
        calls = self._live is not None
        events = self._close()
        deferred, self._deferred = self._deferred, []
        arguments: dict[str, list[str]] = {piece.id: [] for piece in deferred if isinstance(piece, AnswerCall)}
        for piece in deferred:
            if isinstance(piece, AnswerArguments):
                arguments[piece.id].append(piece.text)
        for piece in deferred:
            if isinstance(piece, AnswerArguments):
                continue
            events += self._write_block(piece)
            if isinstance(piece, AnswerCall):
                text = "".join(arguments[piece.id])
                events += [self._delta({"type": "input_json_delta", "partial_json": text}, text), *self._close()]
        events += self._close()
        self._stop_reason = "tool_use" if calls and finish not in LENGTH_REASONS else REASONS.get(finish, "end_turn")
        delta = {"stop_reason": self._stop_reason, "stop_sequence": None}
        return [*events, _event("message_delta", delta=delta, usage=self._usage()), _event("message_stop")]

    def _message(self) -> AnthropicMessage:
        return {
            "id": f"msg_{self._head.turn}",
            "type": "message",
            "role": "assistant",
            "model": self._reader.model,
            "content": list(self._content),
            "stop_reason": self._stop_reason,
            "stop_sequence": None,
            "usage": self._usage(),
        }

    def _usage(self) -> MessageUsage:
        usage = self._reader.usage
        return {
            "input_tokens": max(0, (usage.input or self._reader.planned) - usage.cached - usage.cache_written),
            "cache_creation_input_tokens": usage.cache_written,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.output,
        }


def _event(name: str, **members: object) -> StreamEvent:
    return StreamEvent({"type": name, **members}, name)
