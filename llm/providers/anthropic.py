"""Speak Anthropic's Messages protocol: https://docs.anthropic.com/en/api/messages.

`_Messages` follows the protocol's rules for messages. The first message is the user's, roles alternate, and no text is
empty. The ids of tool calls are unique and plain. The next message begins with the results of all calls. No temperature
is sent, since the protocol refuses it from version 2026-10-21 on. `llm.providers` lists other parameters that the
protocol lacks.
"""

import base64
import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from aiohttp import ClientResponse

from core.errors import ModelError
from core.json_types import JsonObject
from llm.providers import ANTHROPIC_EFFORTS, errors
from llm.providers.call_ids import CallIds
from llm.providers.connection import Connection
from llm.providers.finish_reasons import to_finish_reason
from llm.providers.streaming import (
    MAX_DETAIL_LENGTH,
    HttpClient,
    StepReader,
    as_object,
    model_names,
    parse_object,
    token_count,
)
from llm.step_filters.valid_calls import is_plain, to_json_object
from llm.types.model_call import (
    ChangedPart,
    ModelMessage,
    ModelRequest,
    ReasoningDelta,
    ReasoningState,
    StepEvent,
    StepFinished,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)

VERSION = "2026-10-21"  # protocol version
EMPTY_TEXT = "(empty)"  # placeholder for an empty text, which the protocol refuses

_THINKING_TYPES = ("thinking", "redacted_thinking")
# Models that think without being asked to. They show their thoughts only as a summary.
_ALWAYS_THINKING_MODELS = re.compile(r"claude-\w+-(?:5[-.][1-9]|[6-9])(?:\b|-)")
# Models that cannot switch thinking off. “between_tools” is the least.
_THINKING_BETWEEN_TOOLS_MODELS = re.compile(r"claude-sonnet-5[-.]5")
# Reasons for a cache miss. The provider's other reasons mean that it does not know the cause.
_CHANGED_PARTS: dict[str, ChangedPart] = {
    "model_changed": "model",
    "system_changed": "system",
    "tools_changed": "tools",
    "messages_changed": "messages",
}
_USAGE_MEMBERS = (
    *("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    *("output_tokens", "thinking_tokens"),
)
MAX_PAUSES = 5  # pauses of the model in one step

# Members of a request that are allowed in a request to count its tokens.
_COUNT_MEMBERS = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control")

Block = JsonObject

MAX_CALL_ID_LENGTH = 64  # characters
MAX_ID_LENGTH = 200  # characters of an answer's id
DEFAULT_OUTPUT = 4_096  # tokens; the protocol requires a number, and every model of the vendor accepts this one


class AnthropicClient(HttpClient):
    """Client of the Messages protocol."""

    # Other missing parameters are refused before a call, see `llm.providers.find_missing_parameter`.
    missing_parameters = ("temperature",)

    def __init__(self, base_url: str, api_key: str, silence_timeout: float) -> None:
        # Older compatible servers read the key from this header, not from a bearer token.
        headers = {"anthropic-version": VERSION} | ({"x-api-key": api_key} if api_key else {})
        root = base_url.rstrip("/").removesuffix("/v1")
        super().__init__(Connection(root, api_key, silence_timeout, headers), api_key)
        self._max_outputs: dict[str, int] = {}  # tokens by model, from refusals
        self._without_display: set[str] = set()  # models that refuse to show their thoughts
        self._without_thinking: set[str] = set()  # models without adaptive thinking

    async def _send(self, request: ModelRequest) -> ClientResponse:
        return await self._server.send("/v1/messages", self._adapted_body(request))

    def _adapted_body(self, request: ModelRequest) -> JsonObject:
        body = build_body(request)
        max_output = self._max_outputs.get(request.model)
        if max_output is not None:
            body["max_tokens"] = min(body["max_tokens"], max_output)
        if request.model in self._without_thinking and has_to_think(request):
            del body["thinking"]
        elif request.model in self._without_display and has_to_think(request):
            del body["thinking"]["display"]
        return body

    def _learn_refusal(self, request: ModelRequest, refusal: ModelError) -> bool:
        models = self._without_display if refusal.parameter.endswith(".display") else self._without_thinking
        if refusal.parameter.startswith("thinking") and has_to_think(request) and request.model not in models:
            models.add(request.model)
            return True
        if refusal.parameter == "max_tokens" and refusal.limit and request.model not in self._max_outputs:
            self._max_outputs[request.model] = refusal.limit
            return True
        return super()._learn_refusal(request, refusal)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """Yield the events of one step.

        If the model pauses, its content so far is sent back, and the model continues in the same step.
        """
        content: tuple[Block, ...] = ()
        usage: Usage | None = None
        for number in range(MAX_PAUSES + 1):
            next_request = request
            if content:
                paused_message = ModelMessage("assistant", reasoning=ReasoningState(content))
                next_request = replace(request, messages=(*request.messages, paused_message))
            step = super().stream(next_request)
            async with aclosing(step) as events:
                async for event in events:
                    if not isinstance(event, StepFinished):
                        yield event
                        continue
                    usage = event.usage if usage is None or event.usage is None else usage + event.usage
                    if content and event.reasoning is not None:
                        reasoning = replace(event.reasoning, items=content + event.reasoning.items)
                        event = replace(event, reasoning=reasoning)
                    if event.reason != "pause" or number == MAX_PAUSES or event.reasoning is None:
                        yield replace(event, usage=usage)
                        return
                    content = event.reasoning.items

    async def _request_count(self, request: ModelRequest) -> Any:
        body = {name: value for name, value in self._adapted_body(request).items() if name in _COUNT_MEMBERS}
        return (await self._server.request_json("/v1/messages/count_tokens", body))["input_tokens"]

    def _new_reader(self) -> "AnthropicReader":
        return AnthropicReader(self._api_key)

    async def list_models(self) -> list[str]:
        return model_names(await self._server.request_json("/v1/models?limit=1000"))


def build_body(request: ModelRequest) -> JsonObject:
    """Return the request as a JSON object of the protocol."""
    leading = next((n for n, message in enumerate(request.messages) if message.role != "system"), len(request.messages))
    body: JsonObject = {
        "model": request.model,
        "messages": _Messages(request.cache_points).build(request.messages[leading:], leading),
        "max_tokens": request.max_output or request.remaining or DEFAULT_OUTPUT,
        "stream": request.streaming,
    }
    if system := _system_prompt(request.messages[:leading], request.cache_points):
        body["system"] = system
    if tools := _tool_definitions(request):
        body["tools"] = tools
        if choice := _tool_choice(request):
            body["tool_choice"] = choice
    if stop := [text for text in request.stop if text.strip()]:
        body["stop_sequences"] = stop
    if config := _output_config(request):
        body["output_config"] = config
    if request.previous_answer is not None:
        body["diagnostics"] = {"previous_message_id": request.previous_answer or None}
    if has_to_think(request):
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    elif request.sampling.reasoning_effort == "none":
        effort_off = "between_tools" if _THINKING_BETWEEN_TOOLS_MODELS.search(request.model) else "disabled"
        body["thinking"] = {"type": effort_off}
    return body


def has_to_think(request: ModelRequest) -> bool:
    """Return whether the model has to think: the request names an effort, or the model always thinks."""
    effort = request.sampling.reasoning_effort
    return effort in ANTHROPIC_EFFORTS or (effort != "none" and bool(_ALWAYS_THINKING_MODELS.search(request.model)))


def _output_config(request: ModelRequest) -> JsonObject:
    config: JsonObject = {}
    if request.sampling.reasoning_effort in ANTHROPIC_EFFORTS:
        config["effort"] = request.sampling.reasoning_effort
    if json_schema := (request.response_format or {}).get("json_schema"):
        config["format"] = {"type": "json_schema", "schema": json_schema["schema"]}
    return config


def _tool_choice(request: ModelRequest) -> JsonObject:
    if request.tool_choice == "none" or not request.tools:
        return {"type": "none"}
    choice: JsonObject = {"type": "any"} if request.tool_choice == "required" else {}
    if request.required_tool is not None:
        choice = {"type": "tool", "name": request.required_tool}
    if not request.parallel_tool_calls:
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return choice


def _system_prompt(messages: Sequence[ModelMessage], points: Sequence[int]) -> str | list[Block]:
    """Return the system prompt as one text, or as blocks if it contains a cache breakpoint."""
    if not any(0 < point <= len(messages) for point in points):
        return "\n\n".join(message.text for message in messages if message.text.strip())
    blocks: list[Block] = []
    for number, message in enumerate(messages, 1):
        blocks += _text_blocks(message.text)
        if number in points:
            _mark_for_cache(blocks)
    return blocks


def _mark_for_cache(blocks: list[Block]) -> None:
    """Set a cache breakpoint after the last of these blocks. Blocks of thinking cannot carry one."""
    if blocks and blocks[-1]["type"] not in _THINKING_TYPES:
        blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}


def _tool_definitions(request: ModelRequest) -> list[JsonObject]:
    """Return the definitions of tools. If there are none, return stubs for earlier calls, as the protocol requires."""
    defined = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in request.tools
    ]
    if defined:
        return defined
    called = {call.name for message in request.messages for call in message.tool_calls}
    return [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]


class _Messages:
    """Builder of the protocol's messages. Adjacent messages with the same role become one message.

    A later system message becomes a message of the user in its place. At the front, each change of it would invalidate
    the cached beginning of the prompt.
    """

    def __init__(self, points: Sequence[int]) -> None:
        self._points = points
        self._wire: list[JsonObject] = []
        self._ids = CallIds(max_length=MAX_CALL_ID_LENGTH)

    def build(self, messages: tuple[ModelMessage, ...], before: int) -> list[JsonObject]:
        """Return the protocol's messages. `before`: the number of messages of the prompt before these."""
        reserved = self._ids.reserve(messages)
        for number, message in enumerate(messages, before + 1):
            if message.role in ("user", "system"):
                self._add_blocks("user", _image_blocks(message) + _text_blocks(message.text))
            elif message.role == "assistant":
                self._add_blocks("assistant", self._answer_blocks(message, unchanged=number - before - 1 in reserved))
            elif message.role == "tool":
                self._add_blocks("user", [self._result_block(message)])
            if number in self._points:
                _mark_for_cache(self._wire[-1]["content"])
        if not self._wire or self._wire[0]["role"] != "user":
            self._wire.insert(0, {"role": "user", "content": [{"type": "text", "text": EMPTY_TEXT}]})
        return self._wire

    def _add_blocks(self, role: str, blocks: list[Block]) -> None:
        if not self._wire or self._wire[-1]["role"] != role:
            # Without this placeholder, the neighbours of an empty message would become one message.
            self._wire.append({"role": role, "content": blocks or [{"type": "text", "text": EMPTY_TEXT}]})
        else:
            self._wire[-1]["content"] += blocks

    def _answer_blocks(self, message: ModelMessage, *, unchanged: bool) -> list[Block]:
        if message.reasoning is not None and unchanged and _can_replay(message):
            self._ids.keep(message)
            return list(message.reasoning.items)
        # The API refuses a last answer that ends with white space.
        return _text_blocks(message.text.rstrip()) + [self._call_block(call) for call in message.tool_calls]

    def _call_block(self, call: ToolCall) -> Block:
        return {
            "type": "tool_use",
            "id": self._ids.id_for_call(call.id),
            "name": call.name,
            "input": to_json_object(call.arguments),
        }

    def _result_block(self, message: ModelMessage) -> Block:
        call_id = self._ids.id_for_result(message.tool_call_id or "")
        return {"type": "tool_result", "tool_use_id": call_id, "content": message.text or EMPTY_TEXT}


def _can_replay(message: ModelMessage) -> bool:
    """Return whether the blocks can be sent back unchanged: all calls belong to the message and have valid names."""
    blocks = message.reasoning.items if message.reasoning is not None else ()
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if not {block["id"] for block in calls} <= {call.id for call in message.tool_calls}:
        return False
    return all(is_plain(block["name"]) for block in calls)


def _text_blocks(text: str) -> list[Block]:
    """Return the text as one unchanged block, or no block for white space alone, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _image_blocks(message: ModelMessage) -> list[Block]:
    return [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": image.media_type,
                "data": base64.b64encode(image.data).decode(),
            },
        }
        for image in message.images
    ]


class AnthropicReader(StepReader):
    """Reader of an answer in the Messages protocol."""

    replays_text = True

    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._reason: str | None = None
        self._counts: dict[str, int] = {}
        self._calls: dict[int, int] = {}  # index of the call, by index of its content block
        self._blocks: dict[int, JsonObject] = {}  # content blocks by index
        self._answer_id = ""
        self._changed_part: ChangedPart | None = None

    @property
    def text_complete(self) -> bool:
        return self._reason is not None

    def _read(self, payload: bytes) -> list[StepEvent]:
        event = parse_object(payload)
        match event.get("type"):
            case "content_block_delta":
                return list(self._read_delta(event))
            case "content_block_start":
                return list(self._start_block(event))
            case "message_start":
                self._store_counts(event["message"].get("usage"))
                self._read_diagnostics(event["message"])
            case "message_delta":
                self._store_counts(event.get("usage"))
                self._reason = event["delta"].get("stop_reason") or self._reason
            case "message_stop":
                self.end_received = True
            case "error":
                raise errors.from_event(event, self._api_key)
        return []  # pings, ends of blocks, and events of later versions of the protocol

    def _read_answer(self, answer: JsonObject) -> Iterator[StepEvent]:
        self._store_counts(answer.get("usage"))
        self._read_diagnostics(answer)
        for index, block in enumerate(answer["content"]):
            yield from self._start_block({"index": index, "content_block": block})
        self._reason = answer.get("stop_reason")
        self.end_received = True

    def _start_block(self, event: JsonObject) -> Iterator[StepEvent]:
        block = event["content_block"]
        is_own_tool = block["type"] == "tool_use"  # other types of calls are for tools that run at the provider
        self._blocks[event["index"]] = {**block, "input": ""} if is_own_tool or "input" in block else dict(block)
        if is_own_tool:
            index = self._calls[event["index"]] = len(self._calls)
            yield ToolCallStarted(index, str(block.get("id") or f"call_{index}"), str(block.get("name") or ""))
        if block.get("input"):
            text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
            yield from self._add_arguments(event["index"], text)
        elif block["type"] == "text" and block.get("text"):
            yield TextDelta(block["text"])
        elif block["type"] == "thinking" and block.get("thinking"):
            yield ReasoningDelta(block["thinking"])

    def _read_delta(self, event: JsonObject) -> Iterator[StepEvent]:
        delta = event["delta"]
        index = event["index"]
        match delta["type"]:
            case "text_delta":
                self._blocks.setdefault(index, {"type": "text", "text": ""})["text"] += delta["text"]
                yield TextDelta(delta["text"])
            case "thinking_delta":
                self._blocks[index]["thinking"] += delta["thinking"]
                yield ReasoningDelta(delta["thinking"])
            case "signature_delta":
                self._blocks[index]["signature"] = delta["signature"]
            case "input_json_delta" if delta["partial_json"]:
                yield from self._add_arguments(index, delta["partial_json"])

    def _add_arguments(self, index: int, arguments: str) -> Iterator[StepEvent]:
        self._blocks[index]["input"] += arguments
        if index in self._calls:
            yield ToolCallDelta(self._calls[index], arguments)

    def _read_diagnostics(self, message: JsonObject) -> None:
        self._answer_id = str(message.get("id") or "")[:MAX_ID_LENGTH]
        miss = as_object(as_object(message.get("diagnostics")).get("cache_miss_reason"))
        self._changed_part = _CHANGED_PARTS.get(str(miss.get("type")))

    def _store_counts(self, usage: Any) -> None:
        """Store the reported counts. They are running totals, so a later report replaces the earlier values."""
        for key, value in as_object(usage).items():
            if key in _USAGE_MEMBERS and value is not None:
                self._counts[key] = token_count(value)
            elif key == "output_tokens_details":
                self._store_counts(value)

    def _final_events(self) -> Iterator[StepEvent]:
        usage = self._to_usage()
        cache_reported = "cache_read_input_tokens" in self._counts
        reason = to_finish_reason(self._reason or "end_turn")
        detail = (self._reason or "")[:MAX_DETAIL_LENGTH] if reason == "other" else ""
        yield StepFinished(
            reason,
            usage,
            self._reasoning_state(usage),
            detail,
            cache_reported=cache_reported,
            answer_id=self._answer_id,
            changed_part=self._changed_part,
        )

    def _reasoning_state(self, usage: Usage | None) -> ReasoningState | None:
        """Return all blocks as received, since a signature also covers the blocks before it."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        paused = self._reason == "pause_turn"
        if not paused and not (self._calls and any(block["type"] in _THINKING_TYPES for block in blocks)):
            return None
        items = [
            {**block, "input": to_json_object(block["input"])} if "input" in block else block
            for block in blocks
            if block["type"] != "text" or block["text"].strip()
        ]
        return ReasoningState(tuple(items), usage.reasoning if usage else 0) if items else None

    def _to_usage(self) -> Usage | None:
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
