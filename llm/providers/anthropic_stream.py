"""The events of an answer in Anthropic's Messages protocol."""

import json
from collections.abc import Iterator
from typing import Any

from llm.providers import errors, sse
from llm.providers.call_ids import json_object
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

_THINKING = ("thinking", "redacted_thinking")
_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class AnthropicReader(StepReader):
    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._reason: str | None = None
        self._counts: dict[str, int] = {}
        self._calls: dict[int, int] = {}  # index of the content block: index of the call
        self._blocks: dict[int, dict[str, Any]] = {}  # of the content, by index

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def _read(self, payload: bytes) -> list[StepEvent]:
        event = sse.parse(payload)
        match event.get("type"):
            case "content_block_delta":
                return list(self._delta(event))
            case "content_block_start":
                return list(self._block(event))
            case "message_start":
                self._count(event["message"].get("usage"))
            case "message_delta":
                self._count(event.get("usage"))
                self._reason = event["delta"].get("stop_reason") or self._reason
            case "message_stop":
                self.done = True
            case "error":
                raise errors.from_event(event, self._api_key)
        return []  # pings, ends of blocks, and what future versions of the protocol add

    def _block(self, event: dict[str, Any]) -> Iterator[StepEvent]:
        block = event["content_block"]
        self._blocks[event["index"]] = {**block, "input": ""} if block["type"] == "tool_use" else dict(block)
        if block["type"] == "tool_use":
            index = self._calls[event["index"]] = len(self._calls)
            yield ToolCallStarted(index, str(block.get("id") or f"call_{index}"), str(block["name"]))
            if block.get("input"):
                yield self._piece(event["index"], json.dumps(block["input"]))
        elif block["type"] == "text" and block.get("text"):
            yield TextDelta(block["text"])

    def _delta(self, event: dict[str, Any]) -> Iterator[StepEvent]:
        delta, place = event["delta"], event["index"]
        match delta["type"]:
            case "text_delta":
                self._blocks[place]["text"] += delta["text"]
                yield TextDelta(delta["text"])
            case "thinking_delta":
                self._blocks[place]["thinking"] += delta["thinking"]
                yield ReasoningDelta(delta["thinking"])
            case "signature_delta":
                self._blocks[place]["signature"] = delta["signature"]
            case "input_json_delta" if delta["partial_json"]:
                yield self._piece(place, delta["partial_json"])

    def _piece(self, place: int, arguments: str) -> ToolCallDelta:
        self._blocks[place]["input"] += arguments
        return ToolCallDelta(self._calls[place], arguments)

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Counts are running totals; the later report wins, field by field."""
        for key, value in (usage or {}).items():
            if isinstance(value, int):
                self._counts[key] = value
            elif key == "output_tokens_details" and value:
                self._count(value)

    def _close(self) -> Iterator[StepEvent]:
        usage = self._usage()
        yield StepFinished(_REASONS.get(self._reason or "", "stop"), usage, self._reasoning(usage))

    def _reasoning(self, usage: Usage | None) -> ReasoningState | None:
        """The whole content as it came: a signature covers what stood before it too."""
        blocks = [self._blocks[place] for place in sorted(self._blocks)]
        if not self._calls or not any(block["type"] in _THINKING for block in blocks):
            return None
        items = [
            {**block, "input": json_object(block["input"])} if block["type"] == "tool_use" else block
            for block in blocks
            if block["type"] != "text" or block["text"].strip()
        ]
        return ReasoningState(tuple(items), usage.reasoning if usage else 0)

    def _usage(self) -> Usage | None:
        if not self._counts:
            return None
        cached = self._counts.get("cache_read_input_tokens", 0)
        written = self._counts.get("cache_creation_input_tokens", 0)
        return Usage(
            input=self._counts.get("input_tokens", 0) + cached + written,
            output=self._counts.get("output_tokens", 0),
            cached_input=cached,
            reasoning=self._counts.get("thinking_tokens", 0),
            cache_written=written,
        )
