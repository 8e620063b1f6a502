"""Anthropic's Messages protocol.

Its rules for messages, which the mapping keeps: the first is the user's, roles alternate, no text is empty, the ids of
tool calls are unique and plain, and every call is answered at the start of the next message. A temperature is not
sent: since version 2026-10-21 the protocol refuses it. What else it has no word for is in `llm.providers.capabilities`.
https://docs.anthropic.com/en/api/messages
"""

import base64
import json
import re
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, NoReturn

import httpx2
from anthropic import AnthropicError, AsyncAnthropic

from llm.providers.anthropic_stream import AnthropicReader
from llm.providers.capabilities import EFFORTS
from llm.providers.streaming import model_names, read_step
from llm.types.events import StepEvent
from llm.types.messages import Message, ModelRequest, ToolCall

NO_KEY = "none"  # without a key the client looks for one in the environment
NOTHING = "(empty)"  # stands where the protocol wants a text and there is none

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")

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
