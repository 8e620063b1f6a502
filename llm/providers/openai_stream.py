"""The chunks of an OpenAI-compatible answer, with the liberties that servers take."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
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

# Reasons that are not here, and there are many dialects of "stop", mean that the model came to its end.
_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_FAILED = {"error", "insufficient_system_resource"}  # OpenRouter, DeepSeek


@dataclass(slots=True)
class _Call:
    """A tool call on its way. `number` is the server's own, None when it sends none."""

    index: int
    number: Any
    id: str
    name: str = ""
    started: bool = False

    def add_name(self, piece: str) -> None:
        """Servers send the name whole, in pieces, again with every chunk, or growing."""
        if not self.started:
            self.name = piece if piece.startswith(self.name) else self.name + piece

    def start(self) -> ToolCallStarted:
        self.started = True
        return ToolCallStarted(self.index, self.id or f"call_{self.index}", self.name)


class OpenAIReader(StepReader):
    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._calls: list[_Call] = []

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

    def _tool_call(self, piece: dict[str, Any]) -> Iterator[StepEvent]:
        function = piece.get("function") or {}
        name, arguments = _text(function.get("name") or ""), function.get("arguments")
        call = self._same_call(piece, name)
        if call is None:
            yield from self._start_waiting()
            call = _Call(len(self._calls), piece.get("index"), _text(piece.get("id") or ""))
            self._calls.append(call)
        call.add_name(name)
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
        yield StepFinished(reason, self._usage)


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
        cached_input=int(into.get("cached_tokens") or 0),
        reasoning=int(out.get("reasoning_tokens") or 0),
    )
