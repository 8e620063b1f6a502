"""Speak OpenAI's Responses protocol without state: OpenAI stores nothing, and every request is complete.

Within a turn, the output items of a step are sent back unchanged, with their encrypted reasoning and the results of the
calls. Older turns are sent back only as text and calls: ids link the items, and an edited or shortened answer would
break the links. https://platform.openai.com/docs/api-reference/responses
"""

import base64
import json
from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import Any

from aiohttp import ClientResponse

from core.errors import ModelError
from core.json_types import JsonObject
from llm.providers import errors
from llm.providers.call_ids import CallIds
from llm.providers.connection import Connection
from llm.providers.streaming import (
    MAX_DETAIL_LENGTH,
    HttpClient,
    StepReader,
    as_object,
    model_names,
    parse_object,
    token_count,
)
from llm.step_filters.valid_calls import is_plain, to_json_text
from llm.types.model_call import (
    FinishReason,
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

MIN_OUTPUT = 16  # tokens; the protocol refuses smaller limits
ENCRYPTED_REASONING = "reasoning.encrypted_content"  # a value for `include`
MAX_CALL_ID_LENGTH = 64  # characters


# Request members that are allowed in a request for a token count.
_COUNT_MEMBERS = ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text")


class ResponsesClient(HttpClient):
    """Client of the Responses protocol."""

    missing_parameters = ("stop", "seed", "presence_penalty", "frequency_penalty")

    def __init__(self, base_url: str, api_key: str, silence_timeout: float) -> None:
        super().__init__(Connection(base_url, api_key, silence_timeout), api_key)
        # Models that refuse encrypted reasoning, since they do not reason, and models without summaries for this
        # account.
        self._without_encrypted: set[str] = set()
        self._without_summary: set[str] = set()

    async def _send(self, request: ModelRequest) -> ClientResponse:
        body = build_body(request)
        if request.model not in self._without_encrypted:
            body["include"] = [ENCRYPTED_REASONING]
        if request.model not in self._without_summary and request.sampling.reasoning_effort != "none":
            body["reasoning"] = {**body.get("reasoning", {}), "summary": "auto"}
        return await self._server.send("/responses", body)

    async def _request_count(self, request: ModelRequest) -> Any:
        body = {name: value for name, value in build_body(request).items() if name in _COUNT_MEMBERS}
        return (await self._server.request_json("/responses/input_tokens", body))["input_tokens"]

    def _new_reader(self) -> "ResponsesReader":
        return ResponsesReader(self._api_key)

    def _learn_refusal(self, request: ModelRequest, refusal: ModelError) -> bool:
        if refusal.parameter in ("include", "encrypted content") and request.model not in self._without_encrypted:
            self._without_encrypted.add(request.model)
            return True
        effort = request.sampling.reasoning_effort
        if refusal.parameter in ("reasoning", "reasoning.summary") or (_is_about_effort(refusal) and effort is None):
            had_summary = request.model not in self._without_summary  # without it, the effort caused the refusal
            self._without_summary.add(request.model)
            return had_summary or super()._learn_refusal(request, refusal)
        return super()._learn_refusal(request, refusal)

    async def list_models(self) -> list[str]:
        return model_names(await self._server.request_json("/models"))


def _is_about_effort(refusal: ModelError) -> bool:
    return refusal.parameter == "reasoning.effort"


def build_body(request: ModelRequest) -> JsonObject:
    """Return the request as a JSON object of the protocol, without `include`."""
    leading = list(takewhile(lambda message: message.role == "system", request.messages))
    body: JsonObject = {
        "model": request.model,
        "input": list(
            _InputItems().build(request.messages[len(leading) :], _breakpoint_indexes(request, len(leading)))
        ),
        "store": False,
        "stream": request.streaming,
        "truncation": "disabled",  # "auto" drops messages from the front silently
    }
    if instructions := "\n\n".join(message.text for message in leading if message.text):
        body["instructions"] = instructions
    if request.max_output is not None:
        body["max_output_tokens"] = max(MIN_OUTPUT, request.max_output)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.cache_key:
        body["prompt_cache_key"] = request.cache_key
    return body | _tool_members(request) | _sampling_members(request)


def _breakpoint_indexes(request: ModelRequest, leading: int) -> set[int]:
    """Return the indexes, after the leading messages, of the messages up to which the cache should store the input."""
    return {point - leading - 1 for point in request.cache_points}


def _sampling_members(request: ModelRequest) -> JsonObject:
    sampling = request.sampling
    text = _text_config(request)
    body: JsonObject = {} if sampling.top_p is None else {"top_p": sampling.top_p}
    if sampling.reasoning_effort is not None:
        body["reasoning"] = {"effort": sampling.reasoning_effort}
    return body | ({"text": text} if text else {})


def _text_config(request: ModelRequest) -> JsonObject:
    config: JsonObject = {}
    if request.sampling.verbosity is not None:
        config["verbosity"] = request.sampling.verbosity
    if request.response_format is not None:
        schema = request.response_format.get("json_schema") or {}
        config["format"] = {"type": request.response_format["type"], **schema}
    return config


def _tool_members(request: ModelRequest) -> JsonObject:
    if not request.tools:
        return {}
    body: JsonObject = {"tools": [_tool_definition(tool) for tool in request.tools]}
    if request.required_tool is not None:
        body["tool_choice"] = {"type": "function", "name": request.required_tool}
    elif request.tool_choice != "auto":
        body["tool_choice"] = request.tool_choice
    if not request.parallel_tool_calls:
        body["parallel_tool_calls"] = False
    return body


def _tool_definition(tool: ToolDefinition) -> JsonObject:
    # The protocol's default is a strict schema, which most tools do not have.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


def _can_replay(message: ModelMessage) -> bool:
    """Return whether the items can be sent back unchanged: all calls belong to the message and are valid."""
    items = message.reasoning.items if message.reasoning is not None else ()
    calls = [item for item in items if item.get("type") == "function_call"]
    if not {item["call_id"] for item in calls} <= {call.id for call in message.tool_calls}:
        return False
    return all(is_plain(item["name"]) and to_json_text(item["arguments"]) == item["arguments"] for item in calls)


class _InputItems:
    """Builder of the items of a request's input."""

    def __init__(self) -> None:
        self._ids = CallIds(max_length=MAX_CALL_ID_LENGTH)

    def build(self, messages: tuple[ModelMessage, ...], points: Collection[int]) -> Iterator[JsonObject]:
        """Yield the items. `points`: indexes of the messages up to which the cache should store the input."""
        reserved = self._ids.reserve(messages)
        for number, message in enumerate(messages):
            if message.role == "tool":
                call_id = self._ids.id_for_result(message.tool_call_id or "")
                yield {"type": "function_call_output", "call_id": call_id, "output": message.text}
            elif message.reasoning is not None and number in reserved and _can_replay(message):
                self._ids.keep(message)
                yield from message.reasoning.items
            else:
                yield from self._message_items(message, cache_breakpoint=number in points and message.role == "user")

    def _message_items(self, message: ModelMessage, *, cache_breakpoint: bool) -> Iterator[JsonObject]:
        if message.text or message.images:
            yield {"role": message.role, "content": _content(message, cache_breakpoint=cache_breakpoint)}
        for call in message.tool_calls:
            yield {
                "type": "function_call",
                "call_id": self._ids.id_for_call(call.id),
                "name": call.name,
                "arguments": call.arguments,
            }


def _content(message: ModelMessage, *, cache_breakpoint: bool) -> str | list[JsonObject]:
    if not message.images and not cache_breakpoint:
        return message.text
    parts: list[JsonObject] = [{"type": "input_text", "text": message.text}] if message.text else []
    parts += [
        {
            "type": "input_image",
            "detail": "auto",
            "image_url": f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}",
        }
        for image in message.images
    ]
    if cache_breakpoint:
        parts[-1]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return parts


_INCOMPLETE_REASONS: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "steered": "pause",  # a person wrote during the answer
}
_UNFINISHED_STATES = ("failed", "cancelled", "queued", "in_progress")  # states of a response without an answer


_CONTENT_EVENTS = (
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.output_item.added",
    "response.output_item.done",
)


class ResponsesReader(StepReader):
    """Reader of an answer in the Responses protocol."""

    replays_text = True

    def __init__(self, api_key: str) -> None:
        super().__init__(api_key)
        self._response: JsonObject | None = None
        self._items: dict[int, JsonObject] = {}  # finished items, by index in the output
        self._calls: dict[int, int] = {}  # number of the call, by its index in the output
        self._argument_lengths: dict[int, int] = {}  # characters of arguments so far, by index in the output
        self._declined = False
        self._started = False  # a part of the answer has arrived

    @property
    def text_complete(self) -> bool:
        return self._response is not None

    def _read(self, payload: bytes) -> list[StepEvent]:
        event = parse_object(payload)
        self._started = self._started or event.get("type") in _CONTENT_EVENTS
        match event.get("type"):
            case "response.output_text.delta":
                return [TextDelta(str(event["delta"]))]
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [ReasoningDelta(str(event["delta"]))]
            case "response.refusal.delta":
                self._declined = True
                return [TextDelta(str(event["delta"]))]
            case "response.function_call_arguments.delta":
                return self._add_arguments(event["output_index"], str(event["delta"]))
            case "response.output_item.added":
                return self._start_item(event["output_index"], event["item"])
            case "response.output_item.done":
                return self._finish_item(event["output_index"], event["item"])
            case "response.completed" | "response.incomplete":
                return self._finish_response(event["response"])
            case "response.failed":
                raise errors.from_event(event["response"], self._api_key)
            case "error":
                raise errors.from_event(event, self._api_key)
        return []  # the other events repeat the same content

    def _finish_response(self, response: JsonObject) -> list[StepEvent]:
        if not self._started and isinstance(response.get("output"), list):
            return list(self._read_answer(response))  # some gateways send no pieces
        self._response = response
        self.end_received = True
        return []

    def _read_answer(self, answer: JsonObject) -> Iterator[StepEvent]:
        if answer.get("status") in _UNFINISHED_STATES:
            raise errors.from_event(answer, self._api_key)
        for index, item in enumerate(answer["output"]):
            if item.get("type") == "message":
                yield from self._content(item["content"])
            elif item.get("type") == "reasoning":
                yield from (ReasoningDelta(str(part["text"])) for part in item.get("summary") or ())
            yield from self._finish_item(index, item)
        self._response = answer
        self.end_received = True

    def _content(self, parts: list[JsonObject]) -> Iterator[StepEvent]:
        for part in parts:
            self._declined = self._declined or part.get("type") == "refusal"
            yield TextDelta(str(part.get("text") or part.get("refusal") or ""))

    def _start_item(self, index: int, item: JsonObject) -> list[StepEvent]:
        if item.get("type") != "function_call":
            return []
        call_index = self._calls[index] = len(self._calls)
        self._argument_lengths[index] = 0
        return [ToolCallStarted(call_index, _call_id(item, call_index), str(item.get("name") or ""))]

    def _add_arguments(self, index: int, delta: str) -> list[StepEvent]:
        self._argument_lengths[index] += len(delta)
        return [ToolCallDelta(self._calls[index], delta)] if delta else []

    def _finish_item(self, index: int, item: JsonObject) -> list[StepEvent]:
        """Store the finished item, which is sent back later. The item of the start event may have been incomplete."""
        self._items[index] = {key: value for key, value in item.items() if value is not None}
        if item.get("type") != "function_call":
            return []
        start_events = [] if index in self._calls else self._start_item(index, item)
        arguments = item.get("arguments") or ""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self._items[index] |= {"call_id": _call_id(item, self._calls[index]), "arguments": text}
        return [*start_events, *self._add_arguments(index, text[self._argument_lengths[index] :])]

    def _final_events(self) -> Iterator[StepEvent]:
        response = self._response or {}
        reason: FinishReason = "tool_calls" if self._calls else "refusal" if self._declined else "stop"
        detail = ""
        if response.get("status") == "incomplete":
            cause = str(as_object(response.get("incomplete_details")).get("reason") or "incomplete")
            reason = _INCOMPLETE_REASONS.get(cause, "other")
            detail = cause[:MAX_DETAIL_LENGTH] if reason == "other" else ""
        usage_members = as_object(response.get("usage"))
        usage = _to_usage(usage_members)
        cached_tokens = as_object(usage_members.get("input_tokens_details")).get("cached_tokens")
        reasoning = self._reasoning_state(usage) if self._calls else None
        yield StepFinished(reason, usage, reasoning, detail, cache_reported=isinstance(cached_tokens, int))

    def _reasoning_state(self, usage: Usage | None) -> ReasoningState | None:
        """Return the items to send back.

        None if the reasoning of one is not encrypted, so that it cannot be sent back.
        """
        items = [self._items[index] for index in sorted(self._items)]
        if any(item.get("type") == "reasoning" and not item.get("encrypted_content") for item in items):
            return None
        return ReasoningState(tuple(items), usage.reasoning if usage else 0)


def _call_id(item: JsonObject, index: int) -> str:
    return str(item.get("call_id") or item.get("id") or f"call_{index}")


def _to_usage(usage: JsonObject) -> Usage | None:
    if not usage:
        return None
    input_details = as_object(usage.get("input_tokens_details"))
    output_details = as_object(usage.get("output_tokens_details"))
    return Usage(
        input=token_count(usage.get("input_tokens")),
        output=token_count(usage.get("output_tokens")),
        cached_input=token_count(input_details.get("cached_tokens")),
        reasoning=token_count(output_details.get("reasoning_tokens")),
        cache_written=token_count(input_details.get("cache_write_tokens")),
    )
