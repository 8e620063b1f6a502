"""Speak Ollama's own protocol: https://docs.ollama.com/api.

Unlike Ollama's OpenAI-compatible protocol, it lets a request set the size of the window. Every request asks the server
not to shorten the prompt, so a prompt that is too long for the window is an error.
"""

import base64
import json
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

from aiohttp import ClientResponse

from core.errors import ModelError
from core.json_types import JsonObject
from llm.providers import errors, local_servers
from llm.providers.connection import Connection
from llm.providers.finish_reasons import to_finish_reason
from llm.providers.streaming import (
    MAX_DETAIL_LENGTH,
    MAX_EVENT_BYTES,
    HttpClient,
    StepReader,
    model_names,
    parse_object,
    token_count,
)
from llm.step_filters.valid_calls import to_json_object
from llm.types.model_call import (
    AllocatedWindow,
    ModelMessage,
    ModelRequest,
    ReasoningDelta,
    ReasoningState,
    StepEvent,
    StepFinished,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    Usage,
)

_NO_ANSWER_REASONS = ("load", "unload")  # the server has only loaded or unloaded the model
_THINK_VALUES: dict[str, bool | str] = {"none": False, "minimal": "low", "xhigh": "high", "max": "high"}


class OllamaClient(HttpClient):
    """Client of Ollama's own protocol."""

    # The protocol cannot demand a tool call, forbid parallel calls or set the verbosity.
    missing_parameters = ("tool_choice", "parallel_tool_calls", "verbosity")

    def __init__(self, base_url: str, api_key: str, silence_timeout: float) -> None:
        super().__init__(Connection(server_url(base_url), api_key, silence_timeout), api_key)
        self._without_levels: set[str] = set()  # models whose thinking can only be on or off

    async def _send(self, request: ModelRequest) -> ClientResponse:
        body = build_body(request)
        if request.model in self._without_levels and "think" in body:
            body["think"] = bool(body["think"])
        return await self._server.send("/api/chat", body)

    def _learn_refusal(self, request: ModelRequest, refusal: ModelError) -> bool:
        if refusal.parameter == "think" and request.model not in self._without_levels:
            self._without_levels.add(request.model)
            return True
        return super()._learn_refusal(request, refusal)

    def _new_reader(self) -> "OllamaReader":
        return OllamaReader(self._api_key)

    async def list_models(self) -> list[str]:
        return model_names(await self._server.request_json("/api/tags"), "models", "name")

    async def allocated_window(self, model: str) -> AllocatedWindow | None:
        return await local_servers.allocated_window(self._server, model)


def server_url(base_url: str) -> str:
    """Return the server's address. `base_url` may also be the address of its OpenAI-compatible endpoint."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1").removesuffix("/api")
    return urlunsplit(parts._replace(path=path))


def build_body(request: ModelRequest) -> JsonObject:
    """Return the request as a JSON object of the protocol."""
    body: JsonObject = {
        "model": request.model,
        "messages": list(_wire_messages(request.messages)),
        "stream": request.streaming,
        # By default Ollama silently drops the first messages of a long prompt, and the beginning of a long answer.
        "truncate": False,
        "shift": False,
        "options": _options(request),
    }
    if request.tools and request.tool_choice != "none":
        body["tools"] = [_tool_definition(tool) for tool in request.tools]
    if effort := request.sampling.reasoning_effort:
        body["think"] = _THINK_VALUES.get(effort, effort)
    if request.response_format is not None:
        body["format"] = (request.response_format.get("json_schema") or {}).get("schema", "json")
    return body


def _options(request: ModelRequest) -> JsonObject:
    sampling = request.sampling
    options = {
        "num_ctx": request.window,
        "num_predict": request.max_output,
        "temperature": request.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
        "stop": list(request.stop) or None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _wire_messages(messages: tuple[ModelMessage, ...]) -> Iterator[JsonObject]:
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        wire: JsonObject = {"role": message.role, "content": message.text}
        if message.images:
            wire["images"] = [base64.b64encode(image.data).decode() for image in message.images]
        if message.tool_calls:
            wire["tool_calls"] = [
                {"function": {"name": call.name, "arguments": to_json_object(call.arguments)}}
                for call in message.tool_calls
            ]
        if message.reasoning is not None:
            wire |= message.reasoning.items[0]
        if message.role == "tool":
            wire["tool_name"] = names.get(message.tool_call_id or "", "")
        yield wire


def _tool_definition(tool: ToolDefinition) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


class JsonLineDecoder:
    """Decoder of a stream that has one JSON object in each line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that these bytes complete. Raises `ModelError` (malformed_stream) for an endless line."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_EVENT_BYTES:
            raise errors.malformed_error()
        return [line for line in lines if line.strip()]

    def finish(self) -> list[bytes]:
        rest = self._rest
        self._rest = b""
        return [rest] if rest.strip() else []


class OllamaReader(StepReader):
    """Reader of an answer in Ollama's own protocol."""

    decoder = JsonLineDecoder

    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._last_line: JsonObject | None = None
        self._thinking: list[str] = []
        self._calls = 0

    @property
    def text_complete(self) -> bool:
        return self._last_line is not None

    def is_document(self, content_type: str, beginning: bytes) -> bool:
        """Return whether the body is one document instead of a stream.

        Each line of a stream is also a JSON object, so the content type decides.
        """
        return content_type.startswith(("application/json", "text/html")) or beginning.startswith((b"[", b"<"))

    def _read_answer(self, answer: JsonObject) -> Iterator[StepEvent]:
        yield from self._read_message(answer["message"])
        self._last_line = answer
        self.end_received = True

    def _read(self, payload: bytes) -> list[StepEvent]:
        line = parse_object(payload)
        if line.get("error"):
            raise errors.from_event(line, self._api_key)
        events = list(self._read_message(line.get("message") or {}))
        if line.get("done"):
            self._last_line = line
            self.end_received = True
        return events

    def _read_message(self, message: JsonObject) -> Iterator[StepEvent]:
        if thinking := message.get("thinking"):
            self._thinking.append(str(thinking))
            yield ReasoningDelta(str(thinking))
        if content := message.get("content"):
            yield TextDelta(str(content))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            index = self._calls
            self._calls += 1
            yield ToolCallStarted(index, str(call.get("id") or f"call_{index}"), str(function.get("name") or ""))
            arguments = function.get("arguments") or {}
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            yield ToolCallDelta(index, text)

    def _final_events(self) -> Iterator[StepEvent]:
        last = self._last_line or {}
        if last.get("done_reason") in _NO_ANSWER_REASONS:
            raise errors.stream_cut_error()
        done_reason = str(last.get("done_reason") or "stop")
        reason = to_finish_reason(done_reason)
        detail = done_reason[:MAX_DETAIL_LENGTH] if reason == "other" else ""
        state = None
        if self._calls:
            reason = "tool_calls" if reason == "stop" else reason
            reasoning = "".join(self._thinking)
            state = ReasoningState(({"thinking": reasoning},), len(reasoning) // 4) if reasoning else None
        usage = Usage(input=token_count(last.get("prompt_eval_count")), output=token_count(last.get("eval_count")))
        yield StepFinished(reason, usage if usage.input else None, state, detail)
