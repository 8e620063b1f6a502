"""The OpenAI Chat Completions protocol, as OpenAI and the many servers that copy it speak it."""

import base64
import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
from openai import AsyncOpenAI, OpenAIError

from llm.providers import errors
from llm.providers.streaming import StepReader, model_names, parse, read_step
from llm.types.model_call import (
    FinishReason,
    Message,
    ModelRequest,
    ReasoningDelta,
    StepEvent,
    StepFinished,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    Usage,
)

OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "none"  # the client insists on a key; servers without accounts ignore it

# Reasons that are not here, and there are many dialects of "stop", mean that the model came to its end.
_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_FAILED = {"error", "insufficient_system_resource"}  # OpenRouter, DeepSeek


class Client:
    def __init__(self, *, base_url: str, api_key: str, timeout: httpx2.Timeout) -> None:
        self._api_key = api_key
        self._client = AsyncOpenAI(base_url=base_url, api_key=api_key or NO_KEY, timeout=timeout, max_retries=0)
        # The client takes these two from the environment; another server has no business knowing them.
        self._client.organization = self._client.project = None
        self._limit = limit_name(base_url)

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        limit = {} if request.max_output is None else {self._limit: request.max_output}
        body = wire_request(request) | limit
        open_response = partial(self._client.chat.completions.with_streaming_response.create, **body)
        return read_step(open_response, OpenAIReader(self._api_key), OpenAIError, self._api_key)

    async def list_models(self) -> list[str]:
        ask = partial(self._client.get, "/models", cast_to=httpx2.Response)
        return await model_names(ask, OpenAIError, self._api_key)

    async def close(self) -> None:
        await self._client.close()


def limit_name(base_url: str) -> str:
    """OpenAI's newer models refuse `max_tokens`; most other servers know no other name."""
    own = urlsplit(base_url).hostname == urlsplit(OPENAI_URL).hostname
    return "max_completion_tokens" if own else "max_tokens"


def wire_request(request: ModelRequest) -> dict[str, Any]:
    """The request's JSON object, without the limit of the answer, whose name depends on the server."""
    messages = request.messages if request.several_system_messages else tuple(_one_system_message(request.messages))
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body |= _tools(request) | request.sampling.given()
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop"] = list(request.stop)
    if request.response_format is not None:
        body["response_format"] = dict(request.response_format)
    return body


def _one_system_message(messages: tuple[Message, ...]) -> Iterator[Message]:
    """Many chat templates know one system message, and only at the start."""
    texts = [message.text for message in messages if message.role == "system" and message.text]
    if texts:
        yield Message("system", "\n\n".join(texts))
    yield from (message for message in messages if message.role != "system")


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.images:
        parts = [{"type": "text", "text": message.text}] if message.text else []
        wire["content"] = parts + [
            {
                "type": "image_url",
                "image_url": {"url": f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"},
            }
            for image in message.images
        ]
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def _tools(request: ModelRequest) -> dict[str, Any]:
    """The members of the request that are about tools; servers refuse the others without the first."""
    if not request.tools:
        return {}
    members: dict[str, Any] = {"tools": [_tool(tool) for tool in request.tools]}
    if request.required_tool is not None:
        members["tool_choice"] = {"type": "function", "function": {"name": request.required_tool}}
    elif request.tool_choice != "auto":
        members["tool_choice"] = request.tool_choice
    if not request.parallel_tool_calls:
        members["parallel_tool_calls"] = False
    return members


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


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
    """The chunks of an answer, with the liberties that servers take."""

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
        chunk = parse(payload)
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
