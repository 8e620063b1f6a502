"""Speak OpenAI's Chat Completions protocol, as OpenAI and the many compatible servers understand it."""

import base64
import json
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from aiohttp import ClientResponse

from core.errors import ModelError
from core.json_types import JsonObject
from llm.providers import errors, local_servers, responses
from llm.providers.call_ids import CallIds, with_own_ids
from llm.providers.connection import Connection
from llm.providers.finish_reasons import finish_reason, is_failure, is_finish
from llm.providers.ollama import server_url
from llm.providers.streaming import MAX_DETAIL_LENGTH, HttpClient, StepReader, members, model_names, parse, tokens
from llm.step_filters.valid_calls import is_object
from llm.types.model_call import (
    Allocated,
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

# Request members that only some servers know. After a refusal, the member is not sent again for this model.
SHOWN_THOUGHTS = "extra_body"
TEMPLATE_SWITCH = "chat_template_kwargs"
_OPTIONAL_MEMBERS = ("stream_options", SHOWN_THOUGHTS, TEMPLATE_SWITCH)
# Names of open models whose chat template has a switch for thinking.
_SWITCHED = re.compile(r"qwen-?3|qwq|glm-?[4-9]|gemma-?[4-9]|granite|hunyuan|nemotron|smollm-?3|exaone|ernie")
_THOUGHT_TAG = re.compile(r"^\s*</?thought>|</thought>\s*$")  # tags around Gemini's visible thoughts

_ONLY_CALL = "function_call"  # replaces the missing number of a call

Filler = Mapping[str, Mapping[str, Any]]  # extra members for a message with calls, and for its first call

# Placeholders for the reasoning of another model's calls. DeepSeek requires the field with every call of the
# conversation, and accepts an empty one. Google requires a signature with the first call of each step of the turn, and
# accepts a fixed value for unsigned calls.
_EMPTY_REASONING: Filler = {"message": {"reasoning_content": ""}}
_NEVER_SIGNED: Filler = {
    "call": {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}
}
_FILLERS_OF = {"deepseek": _EMPTY_REASONING, "gemini": _NEVER_SIGNED}
# Mistral's models accept only call ids of nine letters and digits, also for calls of other models.
CALL_ID = "tool call id"  # text in Mistral's refusal
SHORT_ID = 9
_SHORT_IDS = re.compile(r"(?:mis|minis|magis|devs|codes|pix|vox)tral")
FILLERS: Filler = {**_EMPTY_REASONING, **_NEVER_SIGNED}
# Words in the refusals of chat templates: Qwen's refuses a second system message, Mistral's and Gemma's refuse
# neighbours of one role.
ONE_SYSTEM_MESSAGE = "system message"
ALTERNATING_ROLES = "roles"
_ONE_SYSTEM_MODELS = re.compile(r"qwen-?(?:3\.[5-9]|[4-9])")

# Fields of a message that hold reasoning: DeepSeek's, vLLM's and llama.cpp's, Groq's and Ollama's, OpenRouter's.
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")


class OpenAIClient(HttpClient):
    """Client of the Chat Completions protocol."""

    def __init__(self, base_url: str, api_key: str, silence: float) -> None:
        super().__init__(Connection(base_url, api_key, silence), api_key)
        self._local_server = Connection(server_url(base_url), api_key, silence)  # for requests outside of the protocol
        # By model, the member that limits the answer. Newer models refuse `max_tokens`; then the client uses the newer
        # name.
        self._limits: dict[str, str] = defaultdict(lambda: "max_tokens")
        self._responses = responses.ResponsesClient(base_url, api_key, silence)
        self._of_responses: set[str] = set()  # models that need the Responses protocol, at least for tools
        # Models by the refused feature: calls without reasoning, ids, an order of messages, optional members.
        names = ("reasoning_missing", CALL_ID, ONE_SYSTEM_MESSAGE, ALTERNATING_ROLES, *_OPTIONAL_MEMBERS)
        self._peculiar: dict[str, set[str]] = {name: set() for name in names}

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        if request.model in self._of_responses:
            return self._responses.stream(request)
        return super().stream(request)

    async def _open(self, request: ModelRequest) -> ClientResponse:
        limit = {} if request.max_output is None else {self._limits[request.model]: request.max_output}
        body = wire_request(self._ordered(request))
        fill = filler(request.model) or (FILLERS if request.model in self._peculiar["reasoning_missing"] else {})
        _fill_reasoning(body["messages"], fill)
        if request.model in self._peculiar[CALL_ID] or _SHORT_IDS.search(request.model.lower()):
            _shorten_ids(body["messages"])
        for name in _OPTIONAL_MEMBERS:
            if request.model in self._peculiar[name]:
                _leave_out(name, body, request.sampling.reasoning_effort)
        return await self._server.send("/chat/completions", body | limit)

    def _ordered(self, request: ModelRequest) -> ModelRequest:
        """Return the request with messages in the order that the template accepts, and a unique id for each call."""
        request = replace(request, messages=with_own_ids(request.messages))
        if request.model in self._peculiar[ALTERNATING_ROLES]:
            return replace(request, messages=tuple(merge_neighbours(tuple(_one_system_message(request.messages)))))
        single = request.model in self._peculiar[ONE_SYSTEM_MESSAGE] or _ONE_SYSTEM_MODELS.search(request.model.lower())
        return replace(request, several_system_messages=request.several_system_messages and not single)

    def _reader(self) -> "OpenAIReader":
        return OpenAIReader(self._api_key)

    def _learn(self, request: ModelRequest, refusal: ModelError) -> bool:
        if refusal.code == "responses_only":
            self._of_responses.add(request.model)
        if refusal.parameter == "max_tokens" == self._limits[request.model]:
            self._limits[request.model] = "max_completion_tokens"
            return True
        affected = self._peculiar.get(refusal.parameter, self._peculiar.get(refusal.code))
        if affected is not None and request.model not in affected:
            affected.add(request.model)
            return True
        return super()._learn(request, refusal)

    async def list_models(self) -> list[str]:
        return model_names(await self._server.answer("/models"))

    async def _count(self, request: ModelRequest) -> Any:
        if request.model in self._of_responses:
            return await self._responses.count_tokens(request)
        whole = wire_request(self._ordered(request))
        body = {name: value for name, value in whole.items() if name in ("model", "messages", "tools")}
        return await local_servers.count_prompt(self._local_server, body)

    async def allocated(self, model: str) -> Allocated | None:
        return await local_servers.allocated(self._local_server, model)

    async def close(self) -> None:
        await super().close()
        for client in (self._local_server, self._responses):
            await client.close()


def _leave_out(name: str, body: JsonObject, effort: str | None) -> None:
    body.pop(name, None)
    if name == TEMPLATE_SWITCH and effort is not None:
        body["reasoning_effort"] = effort  # without the switch, "none" is an effort like the others


def filler(model: str) -> Filler:
    """Return the placeholder for reasoning that a model requires with calls of another model."""
    return next((fill for name, fill in _FILLERS_OF.items() if name in model.lower()), {})


def _fill_reasoning(messages: list[JsonObject], fill: Filler) -> None:
    for message in messages:
        if fill and message.get("tool_calls"):
            for name, value in fill.get("message", {}).items():
                message.setdefault(name, value)
            for name, value in fill.get("call", {}).items():
                message["tool_calls"][0].setdefault(name, value)


def _shorten_ids(messages: list[JsonObject]) -> None:
    ids = CallIds(SHORT_ID, exactly=True)
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["id"] = ids.of_call(call["id"])
        if "tool_call_id" in message:
            message["tool_call_id"] = ids.of_result(message["tool_call_id"])


def wire_request(request: ModelRequest) -> JsonObject:
    """Return the request's JSON object without the answer's limit, whose name depends on the server."""
    messages = request.messages if request.several_system_messages else tuple(_one_system_message(request.messages))
    body: JsonObject = {
        "model": request.model,
        "messages": [_message(message) for message in messages],
        "stream": request.streaming,
    }
    if request.streaming:
        body["stream_options"] = {"include_usage": True}
    body |= _tools(request) | _sampling(request)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop"] = list(request.stop)
    if request.response_format is not None:
        body["response_format"] = dict(request.response_format)
    return body


def _sampling(request: ModelRequest) -> JsonObject:
    """Return the members for sampling and thinking.

    DeepSeek and the templates of open models have a switch for thinking, in addition to the usual effort. Gemini's
    models show their thoughts only on request.
    """
    parameters: JsonObject = {**request.sampling.set_values()}
    name = request.model.lower()
    effort = request.sampling.reasoning_effort
    body: JsonObject = {}
    switched = "deepseek" in name or bool(_SWITCHED.search(name))
    if effort is not None and "deepseek" in name:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}
    elif effort is not None and switched:
        body[TEMPLATE_SWITCH] = {"enable_thinking": effort != "none"}
    elif effort != "none" and "gemini" in name:
        body[SHOWN_THOUGHTS] = {"google": {"thinking_config": {"include_thoughts": True}}}
    if effort == "none" and switched:
        del parameters["reasoning_effort"]
    return parameters | body


def _one_system_message(messages: tuple[ModelMessage, ...]) -> Iterator[ModelMessage]:
    """Yield one joined system message, then the other messages. Many chat templates accept only this order."""
    texts = [message.text for message in messages if message.role == "system" and message.text]
    if texts:
        yield ModelMessage("system", "\n\n".join(texts))
    yield from (message for message in messages if message.role != "system")


def merge_neighbours(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Merge neighbouring messages of one role. A user's text after a tool's result is appended to the result."""
    merged: list[ModelMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        below_result = last is not None and (last.role, message.role) == ("tool", "user") and not message.images
        same = last is not None and last.role == message.role != "tool" and not last.tool_calls
        if last is None or not (same or below_result):
            merged.append(message)
            continue
        text = "\n\n".join(text for text in (last.text, message.text) if text)
        calls = message.tool_calls
        reasoning = message.reasoning
        merged[-1] = replace(
            last, text=text, images=last.images + message.images, tool_calls=calls, reasoning=reasoning
        )
    return merged


def _message(message: ModelMessage) -> JsonObject:
    wire: JsonObject = {"role": message.role, "content": message.text}
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
    if message.reasoning is not None:
        _add_reasoning(wire, message.reasoning)
    return wire


def _add_reasoning(wire: JsonObject, reasoning: ReasoningState) -> None:
    """Add unchanged the reasoning fields that the server sent with this answer and its calls."""
    for item in reasoning.items:
        wire |= item.get("message", {})
        for call in wire.get("tool_calls", ()):
            call |= item.get("calls", {}).get(call["id"], {})


def _tools(request: ModelRequest) -> JsonObject:
    """Return the request members about tools. Empty without tools, since servers then refuse the other members."""
    if not request.tools:
        return {}
    members: JsonObject = {"tools": [_tool(tool) for tool in request.tools]}
    if request.required_tool is not None:
        members["tool_choice"] = {"type": "function", "function": {"name": request.required_tool}}
    elif request.tool_choice != "auto":
        members["tool_choice"] = request.tool_choice
    if not request.parallel_tool_calls:
        members["parallel_tool_calls"] = False
    return members


def _tool(tool: ToolDefinition) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


@dataclass(slots=True)
class _Call:
    """A tool call that is still arriving. `number` is the server's index; None if it sends none."""

    index: int
    number: Any
    id: str
    name: str = ""
    started: bool = False
    arguments: str = ""
    extra: JsonObject = field(default_factory=dict)  # Google's signature of a thought, which must be sent back

    def add_name(self, piece: str) -> None:
        """Add a piece of the name. Servers send it whole, in pieces, repeated with every chunk, or growing."""
        if not self.started:
            self.name = piece if piece.startswith(self.name) else self.name + piece

    def start(self) -> Iterator[StepEvent]:
        """Yield the start of the call, and its arguments so far."""
        self.started = True
        yield ToolCallStarted(self.index, self.sent_id, self.name)
        if self.arguments:
            yield ToolCallDelta(self.index, self.arguments)

    @property
    def sent_id(self) -> str:
        return self.id or f"call_{self.index}"


class OpenAIReader(StepReader):
    """Reader of an answer in chunks. It handles all known deviations of servers."""

    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._reason: str | None = None
        self._declined = False
        self._thinking = False
        self._usage: Usage | None = None
        self._cache_reported = False
        self._calls: list[_Call] = []
        self._reasoning: dict[str, list[Any]] = {}  # pieces by field name

    @property
    def finished(self) -> bool:
        return self._reason is not None

    def _read(self, payload: bytes) -> list[StepEvent]:
        if payload.strip() == b"[DONE]":
            self.done = True
            return []
        chunk = parse(payload)
        if errors.says_error(chunk):
            raise errors.from_event(chunk, self._api_key)
        if usage := members(chunk.get("usage")):
            self._report_usage(usage)
        choices = chunk.get("choices")
        return list(self._choice(choices[0])) if choices and choices[0] else []

    def _whole(self, answer: JsonObject) -> Iterator[StepEvent]:
        choice = answer["choices"][0]
        message = dict(choice["message"])
        # Number the calls by their order, regardless of ids: in a whole answer no call comes in pieces.
        calls = message.get("tool_calls") or ()
        if calls:
            message["tool_calls"] = [{**call, "index": index} for index, call in enumerate(calls)]
        if usage := members(answer.get("usage")):
            self._report_usage(usage)
        yield from self._choice({**choice, "delta": message})
        self.done = True

    def _report_usage(self, usage: JsonObject) -> None:
        self._usage = _usage(usage)
        self._cache_reported = isinstance(_cached(usage), int)

    def _choice(self, choice: JsonObject) -> Iterator[StepEvent]:
        # Some servers send the last piece, or the whole answer, as a message.
        delta = (choice["delta"] if "delta" in choice else choice.get("message")) or {}
        if self._is_thought(delta):
            yield ReasoningDelta(_THOUGHT_TAG.sub("", _text(delta.pop("content", None) or "")))
        self._keep_reasoning(delta)
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            yield ReasoningDelta(_text(reasoning))
        self._declined = self._declined or bool(delta.get("refusal"))
        content = delta.get("content") or delta.get("refusal")
        if isinstance(content, list):
            yield from _parts(content)
        elif content:
            yield TextDelta(_text(content))
        calls = delta.get("tool_calls") or ()
        for piece in [calls] if isinstance(calls, dict) else calls:
            yield from self._tool_call(piece)
        if isinstance(call := delta.get("function_call"), dict):
            # The older form, from before `tool_calls`: one call without number and id.
            yield from self._tool_call({"index": _ONLY_CALL, "function": call})
        if (reason := choice.get("finish_reason")) and is_finish(_text(reason)):
            if is_failure(reason):
                raise errors.from_event(choice, self._api_key)
            self._reason = reason

    def _is_thought(self, delta: JsonObject) -> bool:
        """Return whether Google marks the text as a thought. Remove the closing tag from the text after thoughts."""
        thought = members(members(delta.get("extra_content")).get("google")).get("thought") is True
        if self._thinking and not thought and isinstance(delta.get("content"), str):
            delta["content"] = _THOUGHT_TAG.sub("", delta["content"])
        self._thinking = thought or (self._thinking and not delta.get("content"))
        return thought

    def _keep_reasoning(self, delta: JsonObject) -> None:
        for name in _REASONING:
            if piece := delta.get(name):
                self._reasoning.setdefault(name, []).append(piece)

    def _tool_call(self, piece: JsonObject) -> Iterator[StepEvent]:
        function = piece.get("function") or {}
        name = _text(function.get("name") or "")
        arguments = function.get("arguments")
        call = self._same_call(piece, name)
        if call is None:
            call = _Call(len(self._calls), piece.get("index"), str(piece.get("id") or ""))
            self._calls.append(call)
        call.add_name(name)
        call.extra |= {key: piece[key] for key in ("extra_content",) if piece.get(key)}
        if arguments:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            call.arguments += text
            if call.started:
                yield ToolCallDelta(call.index, text)
        yield from self._start_ready()

    def _same_call(self, piece: JsonObject, name: str) -> _Call | None:
        """Return the call that a piece continues. None if it begins a new call.

        Some servers number every call 0. Others send no number or no id.
        """
        number = piece.get("index")
        identity = piece.get("id")
        if not name and self._calls:
            # The piece continues a call. Gateways miscount: its index may match no call, or an older one.
            matching = [call for call in self._calls if (call.id == identity if identity else call.number == number)]
            numbers = [call.number for call in self._calls]
            if not matching and identity and number is not None and number not in numbers and self._calls[-1].id:
                return None  # a new call, whose name comes later
            return matching[-1] if matching else self._calls[-1]
        numbered = [call for call in self._calls if number is None or call.number == number]
        if not numbered:
            return None
        last = numbered[-1]
        if identity and name and identity != last.id:
            return None
        if not identity and name and last.started:
            # Without a number it is a new call. With a number that all calls share, it is new once the last call's
            # arguments are complete.
            more_arguments = (piece.get("function") or {}).get("arguments")
            complete = last.arguments.endswith("}") and is_object(last.arguments)
            return None if number is None or (more_arguments and complete) else last
        return last

    def _start_ready(self) -> Iterator[StepEvent]:
        """Start calls in order, each when it has a name and either arguments or a following call.

        Until then, more of the name may arrive.
        """
        for call in self._calls:
            if not call.name or not (call.arguments or call is not self._calls[-1]):
                return
            if not call.started:
                yield from call.start()

    def _close(self) -> Iterator[StepEvent]:
        for call in self._calls:
            if not call.started:
                yield from call.start()
        reason = finish_reason(self._reason or "stop")
        if reason == "stop" and (self._calls or self._declined):
            reason = "tool_calls" if self._calls else "refusal"  # several servers say "stop" after tool calls
        reasoning = self._reasoning_state() if self._calls else None
        detail = (self._reason or "")[:MAX_DETAIL_LENGTH] if reason == "other" else ""
        yield StepFinished(reason, self._usage, reasoning, detail, cache_reported=self._cache_reported)

    def _reasoning_state(self) -> ReasoningState | None:
        """Return the reasoning fields that came with the calls, joined for sending them back with the message."""
        message: JsonObject = {
            name: "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else [*chain(*pieces)]
            for name, pieces in self._reasoning.items()
        }
        if "reasoning_details" in message:
            message.pop("reasoning", None)  # repeats the details as text
        # If several calls share an id, the first one keeps it.
        calls = {call.sent_id: call.extra for call in reversed(self._calls) if call.extra}
        if not (message or calls):
            return None
        return ReasoningState(({"message": message, "calls": calls},), self._usage.reasoning if self._usage else 0)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _parts(content: list[Any]) -> Iterator[StepEvent]:
    """Yield the events of content in parts: Mistral's reasoning models send lists of text and thinking parts."""
    for part in content:
        kind = part.get("type")
        if kind in ("thinking", "reasoning"):
            thoughts = part.get("thinking") or part.get("reasoning") or part.get("text") or ()
            for thought in [{"text": thoughts}] if isinstance(thoughts, str) else thoughts:
                yield ReasoningDelta(_text(thought.get("text", "")))
        elif kind in (None, "text", "output_text"):
            yield TextDelta(_text(part.get("text") or ""))


def _cached(usage: JsonObject) -> Any:
    """Return the reported number of tokens that the server read from its cache. The second name is DeepSeek's."""
    cached_tokens = members(usage.get("prompt_tokens_details")).get("cached_tokens")
    return usage.get("prompt_cache_hit_tokens") if cached_tokens is None else cached_tokens


def _usage(usage: JsonObject) -> Usage:
    input_details = members(usage.get("prompt_tokens_details"))
    output_details = members(usage.get("completion_tokens_details"))
    return Usage(
        input=tokens(usage.get("prompt_tokens")),
        output=tokens(usage.get("completion_tokens")),
        cached_input=tokens(_cached(usage)),
        reasoning=tokens(output_details.get("reasoning_tokens")),
        cache_written=tokens(input_details.get("cache_write_tokens")),
    )
