"""Anthropic's Messages protocol.

Its rules for messages, which the mapping keeps: the first is the user's, roles alternate, no text is empty, the ids of
tool calls are unique and plain, and every call is answered at the start of the next message. A temperature is not
sent: since version 2026-10-21 the protocol refuses it. What else it has no word for is in `llm.providers`.
https://docs.anthropic.com/en/api/messages
"""

import base64
import json
import re
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any, NoReturn

import httpx2
from anthropic import AnthropicError, AsyncAnthropic

from llm.providers import EFFORTS, errors
from llm.providers.streaming import StepReader, model_names, parse, read_step
from llm.types.model_call import (
    FinishReason,
    Message,
    ModelRequest,
    ReasoningDelta,
    StepEvent,
    StepFinished,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)

NO_KEY = "none"  # without a key the client looks for one in the environment
NOTHING = "(empty)"  # stands where the protocol wants a text and there is none

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

Block = dict[str, Any]

DEFAULT_MAX_OUTPUT = 4_096  # tokens; this protocol demands a number, and every model of the vendor takes this one


class Client:
    def __init__(self, *, base_url: str, api_key: str, timeout: httpx2.Timeout) -> None:
        self._api_key = api_key
        self._client = AsyncAnthropic(
            base_url=base_url.rstrip("/").removesuffix("/v1"),  # the client adds it
            api_key=api_key or NO_KEY,
            timeout=timeout,
            max_retries=0,
            # The client sends the key as a bearer token; compatible servers of before look for it here.
            default_headers={"x-api-key": api_key or NO_KEY},
            open_telemetry=False,
        )

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        open_response = partial(self._client.messages.with_streaming_response.create, **wire_request(request))
        return read_step(open_response, AnthropicReader(self._api_key), AnthropicError, self._api_key)

    async def list_models(self) -> list[str]:
        ask = partial(self._client.get, "/v1/models?limit=1000", cast_to=httpx2.Response)
        return await model_names(ask, AnthropicError, self._api_key)

    async def close(self) -> None:
        await self._client.close()


def wire_request(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _Messages().of(request.messages),
        "max_tokens": request.max_output or DEFAULT_MAX_OUTPUT,
        "stream": True,
    }
    if system := "\n\n".join(message.text for message in request.messages if _is_system(message)):
        body["system"] = system
    if tools := _tools(request):
        body["tools"] = tools
        if choice := _tool_choice(request):
            body["tool_choice"] = choice
    if stop := [text for text in request.stop if text.strip()]:
        body["stop_sequences"] = stop
    if config := _output_config(request):
        body["output_config"] = config
    return body


def _output_config(request: ModelRequest) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.sampling.reasoning_effort in EFFORTS:
        config["effort"] = request.sampling.reasoning_effort
    if described := (request.response_format or {}).get("json_schema"):
        config["format"] = {"type": "json_schema", "schema": described["schema"]}
    return config


def _tool_choice(request: ModelRequest) -> dict[str, Any]:
    if request.tool_choice == "none" or not request.tools:
        return {"type": "none"}
    choice: dict[str, Any] = {"type": "any"} if request.tool_choice == "required" else {}
    if request.required_tool is not None:
        choice = {"type": "tool", "name": request.required_tool}
    if not request.parallel_tool_calls:
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
    return choice


def _is_system(message: Message) -> bool:
    return message.role == "system" and bool(message.text.strip())


def _tools(request: ModelRequest) -> list[dict[str, Any]]:
    """The protocol wants definitions as soon as the messages hold a call: a stand-in for tools that are gone."""
    defined = [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in request.tools
    ]
    if defined:
        return defined
    called = {call.name for message in request.messages for call in message.tool_calls}
    return [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]


class _Messages:
    """Builds the protocol's messages; neighbours of one role become one message."""

    def __init__(self) -> None:
        self._wire: list[dict[str, Any]] = []
        self._ids: dict[str, str] = {}  # a call's id: the one sent for its latest use
        self._used: set[str] = set()

    def of(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        for message in messages:
            if message.role == "user":
                self._add("user", _images(message) + _text(message.text))
            elif message.role == "assistant":
                self._add("assistant", _text(message.text) + [self._call(call) for call in message.tool_calls])
            elif message.role == "tool":
                self._add("user", [self._result(message)])
        if not self._wire or self._wire[0]["role"] != "user":
            self._wire.insert(0, {"role": "user", "content": [{"type": "text", "text": NOTHING}]})
        return self._wire

    def _add(self, role: str, blocks: list[Block]) -> None:
        if not self._wire or self._wire[-1]["role"] != role:
            # An empty message keeps its place, or its neighbours, of the other role both, would become one.
            self._wire.append({"role": role, "content": blocks or [{"type": "text", "text": NOTHING}]})
        else:
            self._wire[-1]["content"] += blocks

    def _call(self, call: ToolCall) -> Block:
        plain = wire = _NOT_IN_ID.sub("_", call.id) or "call"
        while wire in self._used:  # servers that send no ids leave "call_0" in every cycle
            wire = f"{plain}_{len(self._used)}"
        self._used.add(wire)
        self._ids[call.id] = wire
        return {"type": "tool_use", "id": wire, "name": call.name, "input": _input(call.arguments)}

    def _result(self, message: Message) -> Block:
        asked = message.tool_call_id or ""
        return {"type": "tool_result", "tool_use_id": self._ids.get(asked, asked), "content": message.text or NOTHING}


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text.rstrip()}] if text.strip() else []


def _images(message: Message) -> list[Block]:
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


def _input(arguments: str) -> dict[str, Any]:
    """The protocol wants an object; what the model wrote instead is kept as it was."""
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"invalid_json": arguments}
    return value if isinstance(value, dict) else {"value": value}


def _refuse(constant: str) -> NoReturn:
    """NaN and Infinity are Python's, not JSON's: they could not be sent."""
    raise ValueError(constant)


class AnthropicReader(StepReader):
    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._reason: str | None = None
        self._counts: dict[str, int] = {}
        self._calls: dict[int, int] = {}  # index of the content block: index of the call

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def _read(self, payload: bytes) -> list[StepEvent]:
        event = parse(payload)
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
        if block["type"] == "tool_use":
            index = self._calls[event["index"]] = len(self._calls)
            yield ToolCallStarted(index, str(block.get("id") or f"call_{index}"), str(block["name"]))
            if block.get("input"):
                yield ToolCallDelta(index, json.dumps(block["input"]))
        elif block["type"] == "text" and block.get("text"):
            yield TextDelta(block["text"])

    def _delta(self, event: dict[str, Any]) -> Iterator[StepEvent]:
        delta = event["delta"]
        match delta["type"]:
            case "text_delta":
                yield TextDelta(delta["text"])
            case "thinking_delta":
                yield ReasoningDelta(delta["thinking"])
            case "input_json_delta" if delta["partial_json"]:
                yield ToolCallDelta(self._calls[event["index"]], delta["partial_json"])

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Counts are running totals; the later report wins, field by field."""
        for key, value in (usage or {}).items():
            if isinstance(value, int):
                self._counts[key] = value
            elif key == "output_tokens_details" and value:
                self._count(value)

    def _close(self) -> Iterator[StepEvent]:
        yield StepFinished(_REASONS.get(self._reason or "", "stop"), self._usage())

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
        )
