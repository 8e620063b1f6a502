"""The chunks of an OpenAI-compatible answer, with the liberties that servers take."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from llm.providers import errors, sse
from llm.providers.streaming import StepReader
from llm.types.events import (
    FinishReason,
    ReasoningDelta,
    StepEvent,
    StepFinished,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from llm.types.messages import ReasoningState

# Reasons that are not here, and there are many dialects of "stop", mean that the model came to its end.
_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
# Fields of a message that hold reasoning: DeepSeek's, vLLM's and llama.cpp's, Groq's and Ollama's, OpenRouter's.
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_FAILED = {"error", "insufficient_system_resource"}  # OpenRouter, DeepSeek


@dataclass(slots=True)
class _Call:
    """A tool call on its way. `number` is the server's own, None when it sends none."""

    index: int
    number: Any
    id: str
    name: str = ""
    started: bool = False
    extra: dict[str, Any] = field(default_factory=dict)  # Google's signature of a thought, which must come back

    def add_name(self, piece: str) -> None:
        """Servers send the name whole, in pieces, again with every chunk, or growing."""
        if not self.started:
            self.name = piece if piece.startswith(self.name) else self.name + piece

    def start(self) -> ToolCallStarted:
        self.started = True
        return ToolCallStarted(self.index, self.known_as, self.name)

    @property
    def known_as(self) -> str:
        return self.id or f"call_{self.index}"


class OpenAIReader(StepReader):
    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._calls: list[_Call] = []
        self._reasoning: dict[str, list[Any]] = {}  # pieces, by the name of the field they came in

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def _read(self, payload: bytes) -> list[StepEvent]:
        if payload.strip() == b"[DONE]":
            self.done = True
            return []
        chunk = sse.parse(payload)
        if chunk.get("error") or chunk.get("object") == "error":
            raise errors.from_event(chunk, self._api_key)
        if usage := chunk.get("usage"):
            self._usage = _usage(usage)
        choices = chunk.get("choices")
        return list(self._choice(choices[0])) if choices else []

    def _choice(self, choice: dict[str, Any]) -> Iterator[StepEvent]:
        delta = choice.get("delta") or {}
        self._keep_reasoning(delta)
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            yield ReasoningDelta(_text(reasoning))
        content = delta.get("content") or delta.get("refusal")
        if isinstance(content, list):
            yield from _parts(content)
        elif content:
            yield TextDelta(_text(content))
        for piece in delta.get("tool_calls") or ():
            yield from self._tool_call(piece)
        if reason := choice.get("finish_reason"):
            if reason in _FAILED:
                raise errors.from_event(choice, self._api_key)
            self._reason = _text(reason)

    def _keep_reasoning(self, delta: dict[str, Any]) -> None:
        for name in _REASONING:
            if piece := delta.get(name):
                self._reasoning.setdefault(name, []).append(piece)

    def _tool_call(self, piece: dict[str, Any]) -> Iterator[StepEvent]:
        function = piece.get("function") or {}
        name, arguments = _text(function.get("name") or ""), function.get("arguments")
        call = self._same_call(piece, name)
        if call is None:
            yield from self._start_waiting()
            call = _Call(len(self._calls), piece.get("index"), _text(piece.get("id") or ""))
            self._calls.append(call)
        call.add_name(name)
        call.extra |= {key: piece[key] for key in ("extra_content",) if piece.get(key)}
        if arguments:
            # The start waits for the first argument: until then more of the name may come.
            if not call.started:
                yield call.start()
            yield ToolCallDelta(call.index, arguments if isinstance(arguments, str) else json.dumps(arguments))

    def _same_call(self, piece: dict[str, Any], name: str) -> _Call | None:
        """The call that a piece continues. Some servers number every call 0, some send no number, or no id."""
        number, identity = piece.get("index"), piece.get("id")
        known = [call for call in self._calls if number is None or call.number == number]
        if not known:
            return None
        last = known[-1]
        if identity and name and identity != last.id:
            return None
        if number is None and not identity and name and last.started:
            return None
        return last

    def _start_waiting(self) -> Iterator[StepEvent]:
        for call in self._calls:
            if not call.started:
                yield call.start()

    def _close(self) -> Iterator[StepEvent]:
        yield from self._start_waiting()
        reason = _REASONS.get(self._reason or "", "stop")
        if reason == "stop" and self._calls:
            reason = "tool_calls"  # several servers say "stop" after tool calls
        yield StepFinished(reason, self._usage, self._reasoning_state() if self._calls else None)

    def _reasoning_state(self) -> ReasoningState | None:
        """The fields of reasoning that came with the calls, put together, as the message has to hold them again."""
        message: dict[str, Any] = {
            name: "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else [*chain(*pieces)]
            for name, pieces in self._reasoning.items()
        }
        if "reasoning_details" in message:
            message.pop("reasoning", None)  # the same once more, as text
        calls = {call.known_as: call.extra for call in self._calls if call.extra}
        if not (message or calls):
            return None
        return ReasoningState(({"message": message, "calls": calls},), self._usage.reasoning if self._usage else 0)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _parts(content: list[Any]) -> Iterator[StepEvent]:
    """Mistral's reasoning models send content as a list of text and thinking parts."""
    for part in content:
        if part.get("type") == "thinking":
            for thought in part.get("thinking") or ():
                yield ReasoningDelta(_text(thought.get("text", "")))
        elif part.get("type") == "text":
            yield TextDelta(_text(part.get("text", "")))


def _usage(usage: dict[str, Any]) -> Usage:
    into, out = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return Usage(
        input=int(usage.get("prompt_tokens") or 0),
        output=int(usage.get("completion_tokens") or 0),
        cached_input=int(into.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0),  # DeepSeek's name
        reasoning=int(out.get("reasoning_tokens") or 0),
        cache_written=int(into.get("cache_write_tokens") or 0),
    )
