"""Speak OpenAI's Chat Completions protocol with OpenAI and the many compatible servers."""

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
from llm.providers.call_ids import CallIds, with_unique_ids
from llm.providers.connection import Connection
from llm.providers.finish_reasons import is_failure, is_finish, to_finish_reason
from llm.providers.ollama import server_url
from llm.providers.streaming import (
    MAX_DETAIL_LENGTH,
    HttpClient,
    StepReader,
    as_object,
    model_names,
    parse_object,
    token_count,
)
from llm.step_filters.valid_calls import is_object
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

# Request members that only some servers know. After a refusal, the member is not sent again for this model.
EXTRA_BODY = "extra_body"  # makes Gemini's models show their thoughts
TEMPLATE_SWITCH = "chat_template_kwargs"
_OPTIONAL_MEMBERS = ("stream_options", EXTRA_BODY, TEMPLATE_SWITCH)
# Names of open models with a switch for thinking in their chat template.
_SWITCH_MODELS = re.compile(r"qwen-?3|qwq|glm-?[4-9]|gemma-?[4-9]|granite|hunyuan|nemotron|smollm-?3|exaone|ernie")
_THOUGHT_TAG = re.compile(r"^\s*</?thought>|</thought>\s*$")  # tags around Gemini's visible thoughts

_UNNUMBERED_CALL = "function_call"  # the number of a call in the older form, which has none

Filler = Mapping[str, Mapping[str, Any]]  # extra members: `message` for a message with calls, `call` for its first call

# Placeholders for the reasoning with the calls of another model. DeepSeek requires the field with every call of the
# conversation, and accepts an empty one. Google requires a signature with the first call of each step of the turn, and
# accepts this fixed value for calls that it has not signed.
_EMPTY_REASONING: Filler = {"message": {"reasoning_content": ""}}
_NO_SIGNATURE: Filler = {
    "call": {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}
}
_FILLERS_BY_NAME = {"deepseek": _EMPTY_REASONING, "gemini": _NO_SIGNATURE}
# Mistral's models accept only call ids of nine letters and digits, even for calls of other models.
CALL_ID_REFUSAL = "tool call id"  # text in Mistral's refusal
SHORT_ID_LENGTH = 9
_SHORT_ID_MODELS = re.compile(r"(?:mis|minis|magis|devs|codes|pix|vox)tral")
ALL_FILLERS: Filler = {**_EMPTY_REASONING, **_NO_SIGNATURE}
# Words in the refusals of chat templates. Qwen's refuses a second system message. Mistral's and Gemma's refuse two
# neighbouring messages of one role.
ONE_SYSTEM_MESSAGE = "system message"
ALTERNATING_ROLES = "roles"
_ONE_SYSTEM_MODELS = re.compile(r"qwen-?(?:3\.[5-9]|[4-9])")

# Fields of a message that hold reasoning: DeepSeek's, vLLM's and llama.cpp's, Groq's and Ollama's, OpenRouter's.
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


class OpenAIClient(HttpClient):
    """Client of the Chat Completions protocol."""

    def __init__(self, base_url: str, api_key: str, silence_timeout: float) -> None:
        super().__init__(Connection(base_url, api_key, silence_timeout), api_key)
        self._local_server = Connection(
            server_url(base_url), api_key, silence_timeout
        )  # for requests outside of the protocol
        # By model, the member that limits the answer. Newer models refuse `max_tokens`, so the newer name replaces it.
        self._limit_members: dict[str, str] = defaultdict(lambda: "max_tokens")
        self._responses = responses.ResponsesClient(base_url, api_key, silence_timeout)
        self._responses_models: set[str] = set()  # models that need the Responses protocol, at least for tools
        # Models by the feature that they refuse: calls without reasoning, ids, orders of messages, optional members.
        names = ("reasoning_missing", CALL_ID_REFUSAL, ONE_SYSTEM_MESSAGE, ALTERNATING_ROLES, *_OPTIONAL_MEMBERS)
        self._deviating_models: dict[str, set[str]] = {name: set() for name in names}

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        if request.model in self._responses_models:
            return self._responses.stream(request)
        return super().stream(request)

    async def _send(self, request: ModelRequest) -> ClientResponse:
        limit = {} if request.max_output is None else {self._limit_members[request.model]: request.max_output}
        body = build_body(self._adapt_messages(request))
        filler = reasoning_filler(request.model) or (
            ALL_FILLERS if request.model in self._deviating_models["reasoning_missing"] else {}
        )
        _fill_reasoning(body["messages"], filler)
        if request.model in self._deviating_models[CALL_ID_REFUSAL] or _SHORT_ID_MODELS.search(request.model.lower()):
            _shorten_ids(body["messages"])
        for name in _OPTIONAL_MEMBERS:
            if request.model in self._deviating_models[name]:
                _leave_out(name, body, request.sampling.reasoning_effort)
        return await self._server.send("/chat/completions", body | limit)

    def _adapt_messages(self, request: ModelRequest) -> ModelRequest:
        """Return the request with messages that the model's template accepts, and with a unique id for each call."""
        request = replace(request, messages=with_unique_ids(request.messages))
        if request.model in self._deviating_models[ALTERNATING_ROLES]:
            return replace(request, messages=tuple(merge_neighbours(tuple(_with_one_system_message(request.messages)))))
        single = request.model in self._deviating_models[ONE_SYSTEM_MESSAGE] or _ONE_SYSTEM_MODELS.search(
            request.model.lower()
        )
        return replace(request, several_system_messages=request.several_system_messages and not single)

    def _new_reader(self) -> "OpenAIReader":
        return OpenAIReader(self._api_key)

    def _learn_refusal(self, request: ModelRequest, refusal: ModelError) -> bool:
        if refusal.code == "responses_only":
            self._responses_models.add(request.model)
        if refusal.parameter == "max_tokens" == self._limit_members[request.model]:
            self._limit_members[request.model] = "max_completion_tokens"
            return True
        affected = self._deviating_models.get(refusal.parameter, self._deviating_models.get(refusal.code))
        if affected is not None and request.model not in affected:
            affected.add(request.model)
            return True
        return super()._learn_refusal(request, refusal)

    async def list_models(self) -> list[str]:
        return model_names(await self._server.request_json("/models"))

    async def _request_count(self, request: ModelRequest) -> Any:
        if request.model in self._responses_models:
            return await self._responses.count_tokens(request)
        full_body = build_body(self._adapt_messages(request))
        body = {name: value for name, value in full_body.items() if name in ("model", "messages", "tools")}
        return await local_servers.count_prompt(self._local_server, body)

    async def allocated_window(self, model: str) -> AllocatedWindow | None:
        return await local_servers.allocated_window(self._local_server, model)

    async def close(self) -> None:
        await super().close()
        for client in (self._local_server, self._responses):
            await client.close()


def _leave_out(name: str, body: JsonObject, effort: str | None) -> None:
    body.pop(name, None)
    if name == TEMPLATE_SWITCH and effort is not None:
        body["reasoning_effort"] = effort  # without the switch, "none" is sent as an effort, too


def reasoning_filler(model: str) -> Filler:
    """Return the placeholder for the reasoning that a model requires with the calls of another model."""
    return next((filler for name, filler in _FILLERS_BY_NAME.items() if name in model.lower()), {})


def _fill_reasoning(messages: list[JsonObject], filler: Filler) -> None:
    for message in messages:
        if filler and message.get("tool_calls"):
            for name, value in filler.get("message", {}).items():
                message.setdefault(name, value)
            for name, value in filler.get("call", {}).items():
                message["tool_calls"][0].setdefault(name, value)


def _shorten_ids(messages: list[JsonObject]) -> None:
    ids = CallIds(SHORT_ID_LENGTH, exact=True)
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["id"] = ids.id_for_call(call["id"])
        if "tool_call_id" in message:
            message["tool_call_id"] = ids.id_for_result(message["tool_call_id"])


def build_body(request: ModelRequest) -> JsonObject:
    """Return the request as a JSON object of the protocol, without the limit of the answer."""
    messages = (
        request.messages if request.several_system_messages else tuple(_with_one_system_message(request.messages))
    )
    body: JsonObject = {
        "model": request.model,
        "messages": [_wire_message(message) for message in messages],
        "stream": request.streaming,
    }
    if request.streaming:
        body["stream_options"] = {"include_usage": True}
    body |= _tool_members(request) | _sampling_members(request)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop"] = list(request.stop)
    if request.response_format is not None:
        body["response_format"] = dict(request.response_format)
    return body


def _sampling_members(request: ModelRequest) -> JsonObject:
    """Return the members for sampling and thinking.

    DeepSeek and the templates of open models have a switch for thinking, besides the effort. Gemini's models show their
    thoughts only on request.
    """
    parameters: JsonObject = {**request.sampling.specified_values()}
    name = request.model.lower()
    effort = request.sampling.reasoning_effort
    body: JsonObject = {}
    has_switch = "deepseek" in name or bool(_SWITCH_MODELS.search(name))
    if effort is not None and "deepseek" in name:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}
    elif effort is not None and has_switch:
        body[TEMPLATE_SWITCH] = {"enable_thinking": effort != "none"}
    elif effort != "none" and "gemini" in name:
        body[EXTRA_BODY] = {"google": {"thinking_config": {"include_thoughts": True}}}
    if effort == "none" and has_switch:
        del parameters["reasoning_effort"]
    return parameters | body


def _with_one_system_message(messages: tuple[ModelMessage, ...]) -> Iterator[ModelMessage]:
    """Yield the system messages as one, then the other messages. Many chat templates accept only this order."""
    texts = [message.text for message in messages if message.role == "system" and message.text]
    if texts:
        yield ModelMessage("system", "\n\n".join(texts))
    yield from (message for message in messages if message.role != "system")


def merge_neighbours(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Merge neighbouring messages of one role. A user's text after a tool's result is appended to the result."""
    merged: list[ModelMessage] = []
    for message in messages:
        last = merged[-1] if merged else None
        follows_result = last is not None and (last.role, message.role) == ("tool", "user") and not message.images
        same_role = last is not None and last.role == message.role != "tool" and not last.tool_calls
        if last is None or not (same_role or follows_result):
            merged.append(message)
            continue
        text = "\n\n".join(text for text in (last.text, message.text) if text)
        calls = message.tool_calls
        reasoning = message.reasoning
        merged[-1] = replace(
            last, text=text, images=last.images + message.images, tool_calls=calls, reasoning=reasoning
        )
    return merged


def _wire_message(message: ModelMessage) -> JsonObject:
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
    """Add the reasoning fields that the server sent with this answer and its calls, unchanged."""
    for item in reasoning.items:
        wire |= item.get("message", {})
        for call in wire.get("tool_calls", ()):
            call |= item.get("calls", {}).get(call["id"], {})


def _tool_members(request: ModelRequest) -> JsonObject:
    """Return the request members about tools. Empty without tools, since servers then refuse the other body."""
    if not request.tools:
        return {}
    body: JsonObject = {"tools": [_tool_definition(tool) for tool in request.tools]}
    if request.required_tool is not None:
        body["tool_choice"] = {"type": "function", "function": {"name": request.required_tool}}
    elif request.tool_choice != "auto":
        body["tool_choice"] = request.tool_choice
    if not request.parallel_tool_calls:
        body["parallel_tool_calls"] = False
    return body


def _tool_definition(tool: ToolDefinition) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


@dataclass(slots=True)
class _Call:
    """A tool call whose pieces still arrive. `number`: the server's index of it, or None."""

    index: int
    number: Any
    id: str
    name: str = ""
    started: bool = False
    arguments: str = ""
    extra: JsonObject = field(default_factory=dict)  # members that must be sent back: Google's signature of a thought

    def add_name(self, piece: str) -> None:
        """Add a piece of the name. Servers send the name whole, in pieces, with every chunk again, or growing."""
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
    """Reader of an answer in the Chat Completions protocol, with all known deviations of servers."""

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
    def text_complete(self) -> bool:
        return self._reason is not None

    def _read(self, payload: bytes) -> list[StepEvent]:
        if payload.strip() == b"[DONE]":
            self.end_received = True
            return []
        chunk = parse_object(payload)
        if errors.is_error(chunk):
            raise errors.from_event(chunk, self._api_key)
        if usage := as_object(chunk.get("usage")):
            self._store_usage(usage)
        choices = chunk.get("choices")
        return list(self._read_choice(choices[0])) if choices and choices[0] else []

    def _read_answer(self, answer: JsonObject) -> Iterator[StepEvent]:
        choice = answer["choices"][0]
        message = dict(choice["message"])
        # Number the calls by their order, whatever their ids: in a whole answer no call comes in pieces.
        calls = message.get("tool_calls") or ()
        if calls:
            message["tool_calls"] = [{**call, "index": index} for index, call in enumerate(calls)]
        if usage := as_object(answer.get("usage")):
            self._store_usage(usage)
        yield from self._read_choice({**choice, "delta": message})
        self.end_received = True

    def _store_usage(self, usage: JsonObject) -> None:
        self._usage = _usage(usage)
        self._cache_reported = isinstance(_reported_cached(usage), int)

    def _read_choice(self, choice: JsonObject) -> Iterator[StepEvent]:
        # Some servers send the last piece, or the whole answer, as a message.
        delta = (choice["delta"] if "delta" in choice else choice.get("message")) or {}
        if self._take_thought_mark(delta):
            yield ReasoningDelta(_THOUGHT_TAG.sub("", _require_text(delta.pop("content", None) or "")))
        self._collect_reasoning(delta)
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            yield ReasoningDelta(_require_text(reasoning))
        self._declined = self._declined or bool(delta.get("refusal"))
        content = delta.get("content") or delta.get("refusal")
        if isinstance(content, list):
            yield from _part_events(content)
        elif content:
            yield TextDelta(_require_text(content))
        calls = delta.get("tool_calls") or ()
        for piece in [calls] if isinstance(calls, dict) else calls:
            yield from self._read_call_piece(piece)
        if isinstance(call := delta.get("function_call"), dict):
            # The older form, from before `tool_calls`: one call without number and id.
            yield from self._read_call_piece({"index": _UNNUMBERED_CALL, "function": call})
        if (reason := choice.get("finish_reason")) and is_finish(_require_text(reason)):
            if is_failure(reason):
                raise errors.from_event(choice, self._api_key)
            self._reason = reason

    def _take_thought_mark(self, delta: JsonObject) -> bool:
        """Return whether Google marks the text as a thought.

        Remove the closing tag from the text after the thoughts.
        """
        thought = as_object(as_object(delta.get("extra_content")).get("google")).get("thought") is True
        if self._thinking and not thought and isinstance(delta.get("content"), str):
            delta["content"] = _THOUGHT_TAG.sub("", delta["content"])
        self._thinking = thought or (self._thinking and not delta.get("content"))
        return thought

    def _collect_reasoning(self, delta: JsonObject) -> None:
        for name in _REASONING_FIELDS:
            if piece := delta.get(name):
                self._reasoning.setdefault(name, []).append(piece)

    def _read_call_piece(self, piece: JsonObject) -> Iterator[StepEvent]:
        function = piece.get("function") or {}
        name = _require_text(function.get("name") or "")
        arguments = function.get("arguments")
        call = self._find_call(piece, name)
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
        yield from self._start_ready_calls()

    def _find_call(self, piece: JsonObject, name: str) -> _Call | None:
        """Return the call that a piece continues, or None if it begins a new call.

        Some servers give every call the number 0. Others send no number or no id.
        """
        number = piece.get("index")
        identity = piece.get("id")
        if not name and self._calls:
            # The piece continues a call. Gateways send wrong numbers, which may match no call or an older one.
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
            # Without a number it begins a new call. With a number that all calls share, it begins one if the arguments
            # of the last call are complete.
            more_arguments = (piece.get("function") or {}).get("arguments")
            complete = last.arguments.endswith("}") and is_object(last.arguments)
            return None if number is None or (more_arguments and complete) else last
        return last

    def _start_ready_calls(self) -> Iterator[StepEvent]:
        """Start calls in order. A call starts when it has a name, and arguments or a following call.

        Until then, more of the name may arrive.
        """
        for call in self._calls:
            if not call.name or not (call.arguments or call is not self._calls[-1]):
                return
            if not call.started:
                yield from call.start()

    def _final_events(self) -> Iterator[StepEvent]:
        for call in self._calls:
            if not call.started:
                yield from call.start()
        reason = to_finish_reason(self._reason or "stop")
        if reason == "stop" and (self._calls or self._declined):
            reason = "tool_calls" if self._calls else "refusal"  # several servers say "stop" after tool calls
        reasoning = self._reasoning_state() if self._calls else None
        detail = (self._reason or "")[:MAX_DETAIL_LENGTH] if reason == "other" else ""
        yield StepFinished(reason, self._usage, reasoning, detail, cache_reported=self._cache_reported)

    def _reasoning_state(self) -> ReasoningState | None:
        """Return the reasoning fields of the answer, joined, for sending them back with the message."""
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


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {type(value).__name__}")
    return value


def _part_events(content: list[Any]) -> Iterator[StepEvent]:
    """Yield the events of content that is a list of parts, as Mistral's reasoning models send it."""
    for part in content:
        kind = part.get("type")
        if kind in ("thinking", "reasoning"):
            thoughts = part.get("thinking") or part.get("reasoning") or part.get("text") or ()
            for thought in [{"text": thoughts}] if isinstance(thoughts, str) else thoughts:
                yield ReasoningDelta(_require_text(thought.get("text", "")))
        elif kind in (None, "text", "output_text"):
            yield TextDelta(_require_text(part.get("text") or ""))


def _reported_cached(usage: JsonObject) -> Any:
    """Return the number of tokens that the server reports as read from its cache. The second name is DeepSeek's."""
    cached_tokens = as_object(usage.get("prompt_tokens_details")).get("cached_tokens")
    return usage.get("prompt_cache_hit_tokens") if cached_tokens is None else cached_tokens


def _usage(usage: JsonObject) -> Usage:
    input_details = as_object(usage.get("prompt_tokens_details"))
    output_details = as_object(usage.get("completion_tokens_details"))
    return Usage(
        input=token_count(usage.get("prompt_tokens")),
        output=token_count(usage.get("completion_tokens")),
        cached_input=token_count(_reported_cached(usage)),
        reasoning=token_count(output_details.get("reasoning_tokens")),
        cache_written=token_count(input_details.get("cache_write_tokens")),
    )
