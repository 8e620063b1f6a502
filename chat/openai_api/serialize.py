"""Write an answer in OpenAI's Chat Completions protocol: as the chunks of a stream, or as one completion."""

import time
from typing import NotRequired, TypedDict

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


class FunctionCall(TypedDict):
    """The function of a tool call. `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallEntry(TypedDict):
    """A tool call of a whole answer."""

    id: str
    type: str
    function: FunctionCall


class FunctionDelta(TypedDict, total=False):
    """New text of a tool call's function."""

    name: str
    arguments: str


class CallDelta(TypedDict):
    """New text of a tool call. `id` and `type` come with the first chunk of the call."""

    index: int
    id: NotRequired[str]
    type: NotRequired[str]
    function: FunctionDelta


class UrlCitation(TypedDict):
    """A citation. `start_index` and `end_index` count characters of the answer."""

    start_index: int
    end_index: int
    title: str
    url: str


class Annotation(TypedDict):
    """An annotation of an answer."""

    type: str
    url_citation: UrlCitation


class Delta(TypedDict, total=False):
    """The new text of a chunk."""

    role: str
    content: str
    reasoning_content: str
    tool_calls: list[CallDelta]
    annotations: list[Annotation]


class PromptTokensDetails(TypedDict):
    """Details of the prompt's tokens."""

    cached_tokens: int


class CompletionTokensDetails(TypedDict):
    """Details of the answer's tokens."""

    reasoning_tokens: int


class CompletionUsage(TypedDict):
    """The tokens of an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class ChunkChoice(TypedDict):
    """The choice of a chunk. There is one."""

    index: int
    delta: Delta
    logprobs: None
    finish_reason: str | None


class CompletionBase(TypedDict):
    """The members that every chunk and the whole answer have."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: None


class CompletionChunk(CompletionBase):
    """A chunk of a stream. The last one may have no choice, but the usage."""

    choices: list[ChunkChoice]
    usage: NotRequired[CompletionUsage | None]


class AnswerMessage(TypedDict):
    """The message of a whole answer."""

    role: str
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallEntry]]
    annotations: NotRequired[list[Annotation]]


class AnswerChoice(TypedDict):
    """The choice of a whole answer. There is one."""

    index: int
    message: AnswerMessage
    logprobs: None
    finish_reason: str


class WholeCompletion(CompletionBase):
    """A whole answer."""

    choices: list[AnswerChoice]
    usage: CompletionUsage


# Finish reasons that the protocol lacks, with its closest value. We cut off a model that calls a tool against its
# instructions, so `tool_calls` becomes `stop`. `other` becomes `length`, which tells programs that the answer may be
# incomplete.
REASONS = {
    "tool_calls": "stop",
    "refusal": "content_filter",
    "context_window": "length",
    "pause": "length",
    "other": "length",
}


class Completion(AnswerWriter):
    """Writes the chunks of an answer."""

    last_line = "data: [DONE]\n\n"

    def __init__(self, head: AnswerHead, *, include_usage: bool = False) -> None:
        super().__init__(head)
        self._include_usage = include_usage
        self._created = int(time.time())
        self._reasoning: list[str] = []
        self._calls: dict[str, ToolCallEntry] = {}  # by id
        self._opened = False
        self._finish = "stop"

    def whole(self) -> WholeCompletion:
        text = self._reader.text
        message: AnswerMessage = {"role": "assistant", "content": text or None, "refusal": None}
        if not self._calls:
            message["content"] = text
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        if annotations := self._annotations():
            message["annotations"] = annotations
        choice: AnswerChoice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return {**self._base("chat.completion"), "choices": [choice], "usage": self._usage()}

    def failed(self, error: ProductError) -> list[StreamEvent]:
        return [StreamEvent(errors.error_body(error))]

    def _write(self, piece: Piece) -> list[StreamEvent]:
        match piece:
            case AnswerText(_, text):
                return [self._chunk({"content": text})]
            case AnswerReasoning(text) | TextMoved(_, text):
                self._reasoning.append(text)
                return [self._chunk({"reasoning_content": text})]
            case AnswerCall(call, name):
                return [self._call(call, name)]
            case AnswerArguments(call, text):
                self._calls[call]["function"]["arguments"] += text
                index = list(self._calls).index(call)
                return [self._chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})]
            case AnswerEnd(finish):
                return self._close(finish)

    def _call(self, id_: str, name: str) -> StreamEvent:
        self._calls[id_] = {"id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
        call: CallDelta = {
            "index": len(self._calls) - 1,
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        return self._chunk({"tool_calls": [call]})

    def _close(self, finish: str) -> list[StreamEvent]:
        """Return the last chunks."""
        # A call that was cut off by the length limit of the answer must not be run.
        self._finish = "tool_calls" if self._calls and finish not in LENGTH_REASONS else REASONS.get(finish, finish)
        annotations = self._annotations()
        last = self._chunk({"annotations": annotations} if annotations else {}, self._finish)
        totals: CompletionChunk = {**self._base("chat.completion.chunk"), "choices": [], "usage": self._usage()}
        return [last, StreamEvent(totals)] if self._include_usage else [last]

    def _usage(self) -> CompletionUsage:
        usage = self._reader.usage
        return {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }

    def _annotations(self) -> list[Annotation]:
        """Return the citations of the answer."""
        return [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": citation.start,
                    "end_index": citation.end,
                    "title": citation.title,
                    "url": citation.url,
                },
            }
            for citation in self._reader.citations(self._reader.text)
        ]

    def _base(self, kind: str) -> CompletionBase:
        return {
            "id": f"chatcmpl-{self._head.turn}",
            "object": kind,
            "created": self._created,
            "model": self._reader.model,
            "system_fingerprint": None,
        }

    def _chunk(self, delta: Delta, finish: str | None = None) -> StreamEvent:
        if not self._opened:
            self._opened = True
            first: Delta = {"role": "assistant", "content": ""}
            delta = {**first, **delta}
        choice: ChunkChoice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        base = self._base("chat.completion.chunk")
        chunk: CompletionChunk = {
            "id": base["id"],
            "object": base["object"],
            "created": base["created"],
            "model": base["model"],
            "system_fingerprint": base["system_fingerprint"],
            "choices": [choice],
        }
        if self._include_usage:
            chunk["usage"] = None
        return StreamEvent(chunk)
