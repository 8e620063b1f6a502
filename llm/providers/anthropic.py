"""Anthropic's Messages protocol.

Its rules for messages, which the mapping keeps: the first is the user's, roles alternate, no text is empty, the ids of
tool calls are unique and plain, and every call is answered at the start of the next message. A temperature is not
sent: since version 2026-10-21 the protocol refuses it. What else it has no word for is in `llm.providers`.
https://docs.anthropic.com/en/api/messages
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
from llm.providers import EFFORTS, errors
from llm.providers.call_ids import CallIds
from llm.providers.connection import Connection
from llm.providers.finish_reasons import finish_reason
from llm.providers.streaming import LONGEST_DETAIL, HttpClient, StepReader, members, named, parse, tokens
from llm.step_filters.valid_calls import is_plain, json_object
from llm.types.model_call import (
    Changed,
    Message,
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

VERSION = "2026-10-21"  # of the protocol
NOTHING = "(empty)"  # stands where the protocol wants a text and there is none

_THINKING = ("thinking", "redacted_thinking")
# Models that think without being asked to: those from 5.5 on. They show it only where a summary is asked for.
_THINKS_ALWAYS = re.compile(r"claude-\w+-(?:5[-.][1-9]|[6-9])(?:\b|-)")
_THINKS_BETWEEN_TOOLS = re.compile(r"claude-sonnet-5[-.]5")  # the least that it can be asked for
# Why its cache could not serve what it had read before; the other reasons say that it cannot tell.
_CHANGED: dict[str, Changed] = {
    "model_changed": "model",
    "system_changed": "system",
    "tools_changed": "tools",
    "messages_changed": "messages",
}
_COUNTS = (
    *("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    *("output_tokens", "thinking_tokens"),
)
MAX_PAUSES = 5  # of one step

# Of a request, what a count may be asked with.
_COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control")

Block = dict[str, Any]

LONGEST_CALL_ID = 64  # characters
LONGEST_ID = 200  # characters, of an answer
UNPLANNED_OUTPUT = 4_096  # tokens; this protocol demands a number, and every model of the vendor takes this one


class Client(HttpClient):
    unknown = ("temperature",)  # what else there is no word for, whoever asks is told before: `lacking`

    def __init__(self, base_url: str, api_key: str, silence: float) -> None:
        # Compatible servers of before look for the key elsewhere than in a bearer token.
        headers = {"anthropic-version": VERSION} | ({"x-api-key": api_key} if api_key else {})
        root = base_url.rstrip("/").removesuffix("/v1")
        super().__init__(Connection(root, api_key, silence, headers), api_key)
        self._greatest: dict[str, int] = {}  # answers in tokens that models have said to be their longest
        self._without_display: set[str] = set()  # models that cannot show what they think
        self._without_thinking: set[str] = set()  # models that know no thinking by their own measure

    async def _open(self, request: ModelRequest) -> ClientResponse:
        return await self._server.send("/v1/messages", self._body(request))

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body = wire_request(request)
        body["max_tokens"] = min(body["max_tokens"], self._greatest.get(request.model, body["max_tokens"]))
        if request.model in self._without_thinking and thinks(request):
            del body["thinking"]
        elif request.model in self._without_display and thinks(request):
            del body["thinking"]["display"]
        return body

    def _learn(self, request: ModelRequest, refusal: ModelError) -> bool:
        unshown = self._without_display if refusal.parameter.endswith(".display") else self._without_thinking
        if refusal.parameter.startswith("thinking") and thinks(request) and request.model not in unshown:
            unshown.add(request.model)
            return True
        if refusal.parameter == "max_tokens" and refusal.limit and request.model not in self._greatest:
            self._greatest[request.model] = refusal.limit
            return True
        return super()._learn(request, refusal)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """A model that pauses is sent back what it has said so far, and goes on: all of it is one step."""
        said: tuple[Block, ...] = ()
        spent: Usage | None = None
        for number in range(MAX_PAUSES + 1):
            messages = (*request.messages, Message("assistant", reasoning=ReasoningState(said))) if said else None
            step = super().stream(replace(request, messages=messages) if messages else request)
            async with aclosing(step) as events:
                async for event in events:
                    if not isinstance(event, StepFinished):
                        yield event
                        continue
                    spent = event.usage if spent is None or event.usage is None else spent + event.usage
                    if said and event.reasoning is not None:
                        together = replace(event.reasoning, items=said + event.reasoning.items)
                        event = replace(event, reasoning=together)
                    if event.reason != "pause" or number == MAX_PAUSES or event.reasoning is None:
                        yield replace(event, usage=spent)
                        return
                    said = event.reasoning.items

    async def _count(self, request: ModelRequest) -> Any:
        body = {name: value for name, value in self._body(request).items() if name in _COUNTED}
        return (await self._server.answer("/v1/messages/count_tokens", body))["input_tokens"]

    def _reader(self) -> "AnthropicReader":
        return AnthropicReader(self._api_key)

    async def list_models(self) -> list[str]:
        return named(await self._server.answer("/v1/models?limit=1000"))


def wire_request(request: ModelRequest) -> dict[str, Any]:
    leading = next((n for n, message in enumerate(request.messages) if message.role != "system"), len(request.messages))
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _Messages(request.cache_points).of(request.messages[leading:], leading),
        "max_tokens": request.max_output or request.left or UNPLANNED_OUTPUT,
        "stream": request.streaming,
    }
    if system := _system(request.messages[:leading], request.cache_points):
        body["system"] = system
    if tools := _tools(request):
        body["tools"] = tools
        if choice := _tool_choice(request):
            body["tool_choice"] = choice
    if stop := [text for text in request.stop if text.strip()]:
        body["stop_sequences"] = stop
    if config := _output_config(request):
        body["output_config"] = config
    if request.previous_answer is not None:
        body["diagnostics"] = {"previous_message_id": request.previous_answer or None}
    if thinks(request):
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    elif request.sampling.reasoning_effort == "none":
        least = "between_tools" if _THINKS_BETWEEN_TOOLS.search(request.model) else "disabled"
        body["thinking"] = {"type": least}
    return body


def thinks(request: ModelRequest) -> bool:
    """Whether thinking is asked for: with an effort, and of models that think anyway, so that it is shown."""
    effort = request.sampling.reasoning_effort
    return effort in EFFORTS or (effort != "none" and bool(_THINKS_ALWAYS.search(request.model)))


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


def _system(messages: Sequence[Message], points: Sequence[int]) -> str | list[Block]:
    """One text, or blocks where the cache is to keep a part of them."""
    if not any(0 < point <= len(messages) for point in points):
        return "\n\n".join(message.text for message in messages if message.text.strip())
    blocks: list[Block] = []
    for number, message in enumerate(messages, 1):
        blocks += _text(message.text)
        if number in points:
            _keep(blocks)
    return blocks


def _keep(blocks: list[Block]) -> None:
    """Asks for the cache to keep everything up to the last of these blocks. A thought cannot carry that."""
    if blocks and blocks[-1]["type"] not in _THINKING:
        blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}


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
    """Builds the protocol's messages; neighbours of one role become one message.

    A system message that does not lead is sent in its place, as the user's: in front it would change the beginning of
    the prompt whenever it changes.
    """

    def __init__(self, points: Sequence[int]) -> None:
        self._points = points
        self._wire: list[dict[str, Any]] = []
        self._ids = CallIds(longest=LONGEST_CALL_ID)

    def of(self, messages: tuple[Message, ...], before: int) -> list[dict[str, Any]]:
        """`before`: how many messages of the prompt stand before these."""
        kept = self._ids.reserve(messages)
        for number, message in enumerate(messages, before + 1):
            if message.role in ("user", "system"):
                self._add("user", _images(message) + _text(message.text))
            elif message.role == "assistant":
                self._add("assistant", self._answer(message, kept=number - before - 1 in kept))
            elif message.role == "tool":
                self._add("user", [self._result(message)])
            if number in self._points:
                _keep(self._wire[-1]["content"])
        if not self._wire or self._wire[0]["role"] != "user":
            self._wire.insert(0, {"role": "user", "content": [{"type": "text", "text": NOTHING}]})
        return self._wire

    def _add(self, role: str, blocks: list[Block]) -> None:
        if not self._wire or self._wire[-1]["role"] != role:
            # An empty message keeps its place, or its neighbours, of the other role both, would become one.
            self._wire.append({"role": role, "content": blocks or [{"type": "text", "text": NOTHING}]})
        else:
            self._wire[-1]["content"] += blocks

    def _answer(self, message: Message, *, kept: bool) -> list[Block]:
        if message.reasoning is not None and kept and _can_go_back(message):
            self._ids.keep(message)
            return list(message.reasoning.items)
        return _text(message.text) + [self._call(call) for call in message.tool_calls]

    def _call(self, call: ToolCall) -> Block:
        return {
            "type": "tool_use",
            "id": self._ids.of_call(call.id),
            "name": call.name,
            "input": json_object(call.arguments),
        }

    def _result(self, message: Message) -> Block:
        answered = self._ids.of_result(message.tool_call_id or "")
        return {"type": "tool_result", "tool_use_id": answered, "content": message.text or NOTHING}


def _can_go_back(message: Message) -> bool:
    """Whether its blocks can be sent as they came: their calls are of the message, and no server refuses them."""
    blocks = message.reasoning.items if message.reasoning is not None else ()
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if not {block["id"] for block in calls} <= {call.id for call in message.tool_calls}:
        return False
    return all(is_plain(block["name"]) for block in calls)


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


class AnthropicReader(StepReader):
    replays_text = True

    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._reason: str | None = None
        self._counts: dict[str, int] = {}
        self._calls: dict[int, int] = {}  # index of the content block: index of the call
        self._blocks: dict[int, dict[str, Any]] = {}  # of the content, by index
        self._answer = ""
        self._changed: Changed | None = None

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
                self._diagnose(event["message"])
            case "message_delta":
                self._count(event.get("usage"))
                self._reason = event["delta"].get("stop_reason") or self._reason
            case "message_stop":
                self.done = True
            case "error":
                raise errors.from_event(event, self._api_key)
        return []  # pings, ends of blocks, and what future versions of the protocol add

    def _whole(self, answer: dict[str, Any]) -> Iterator[StepEvent]:
        self._count(answer.get("usage"))
        self._diagnose(answer)
        for index, block in enumerate(answer["content"]):
            yield from self._block({"index": index, "content_block": block})
        self._reason, self.done = answer.get("stop_reason"), True

    def _block(self, event: dict[str, Any]) -> Iterator[StepEvent]:
        block = event["content_block"]
        own = block["type"] == "tool_use"  # others are of tools that run at the provider
        self._blocks[event["index"]] = {**block, "input": ""} if own or "input" in block else dict(block)
        if own:
            index = self._calls[event["index"]] = len(self._calls)
            yield ToolCallStarted(index, str(block.get("id") or f"call_{index}"), str(block.get("name") or ""))
        if block.get("input"):
            text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
            yield from self._piece(event["index"], text)
        elif block["type"] == "text" and block.get("text"):
            yield TextDelta(block["text"])
        elif block["type"] == "thinking" and block.get("thinking"):
            yield ReasoningDelta(block["thinking"])

    def _delta(self, event: dict[str, Any]) -> Iterator[StepEvent]:
        delta, place = event["delta"], event["index"]
        match delta["type"]:
            case "text_delta":
                self._blocks.setdefault(place, {"type": "text", "text": ""})["text"] += delta["text"]
                yield TextDelta(delta["text"])
            case "thinking_delta":
                self._blocks[place]["thinking"] += delta["thinking"]
                yield ReasoningDelta(delta["thinking"])
            case "signature_delta":
                self._blocks[place]["signature"] = delta["signature"]
            case "input_json_delta" if delta["partial_json"]:
                yield from self._piece(place, delta["partial_json"])

    def _piece(self, place: int, arguments: str) -> Iterator[StepEvent]:
        self._blocks[place]["input"] += arguments
        if place in self._calls:
            yield ToolCallDelta(self._calls[place], arguments)

    def _diagnose(self, message: dict[str, Any]) -> None:
        self._answer = str(message.get("id") or "")[:LONGEST_ID]
        found = members(members(message.get("diagnostics")).get("cache_miss_reason"))
        self._changed = _CHANGED.get(str(found.get("type")))

    def _count(self, usage: Any) -> None:
        """Counts are running totals; the later report wins, field by field."""
        for key, value in members(usage).items():
            if key in _COUNTS and value is not None:
                self._counts[key] = tokens(value)
            elif key == "output_tokens_details":
                self._count(value)

    def _close(self) -> Iterator[StepEvent]:
        usage = self._usage()
        told = "cache_read_input_tokens" in self._counts
        reason = finish_reason(self._reason or "end_turn")
        detail = (self._reason or "")[:LONGEST_DETAIL] if reason == "other" else ""
        yield StepFinished(
            reason,
            usage,
            self._reasoning(usage),
            detail,
            cache_told=told,
            answer=self._answer,
            changed=self._changed,
        )

    def _reasoning(self, usage: Usage | None) -> ReasoningState | None:
        """The whole content as it came: a signature covers what stood before it too."""
        blocks = [self._blocks[place] for place in sorted(self._blocks)]
        paused = self._reason == "pause_turn"
        if not paused and not (self._calls and any(block["type"] in _THINKING for block in blocks)):
            return None
        items = [
            {**block, "input": json_object(block["input"])} if "input" in block else block
            for block in blocks
            if block["type"] != "text" or block["text"].strip()
        ]
        return ReasoningState(tuple(items), usage.reasoning if usage else 0) if items else None

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
