"""The OpenAI Chat Completions protocol, as OpenAI and the many servers that copy it speak it."""

import base64
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
from openai import OpenAIError

from core.errors import ModelError
from llm.providers import responses
from llm.providers.openai_stream import OpenAIReader
from llm.providers.streaming import HttpClient, Response
from llm.types.events import StepEvent
from llm.types.messages import Message, ModelRequest, ReasoningState, ToolDefinition

Filler = Mapping[str, Mapping[str, Any]]  # members of a message with calls, and of its first call

# DeepSeek wants the field with every call of the conversation, and takes it empty from other models; Google wants a
# signature with the first call of each step of the turn, and has a word for those that were never signed.
_EMPTY_REASONING: Filler = {"message": {"reasoning_content": ""}}
_NEVER_SIGNED: Filler = {
    "call": {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}
}
_FILLERS_OF = {"deepseek": _EMPTY_REASONING, "gemini": _NEVER_SIGNED}
FILLERS: Filler = {**_EMPTY_REASONING, **_NEVER_SIGNED}


class Client(HttpClient):
    client_error = OpenAIError

    def __init__(self, *, base_url: str, api_key: str, timeout: httpx2.Timeout) -> None:
        super().__init__(api_key)
        self._client = responses.connected(base_url, api_key, timeout)
        # Most servers know no other name; that of newer models is learnt when they refuse it.
        self._limits: dict[str, str] = defaultdict(lambda: "max_tokens")
        self._responses = responses.Client(base_url=base_url, api_key=api_key, timeout=timeout)
        self._of_responses: set[str] = set()  # models that are not to be had, or not with tools, by this protocol
        self._missed: set[str] = set()  # models that refused a call without the reasoning that led to it

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        if request.model in self._of_responses:
            return self._responses.stream(request)
        return super().stream(request)

    def _open(self, request: ModelRequest) -> AbstractAsyncContextManager[Response]:
        limit = {} if request.max_output is None else {self._limits[request.model]: request.max_output}
        body = wire_request(request)
        fill = filler(request.model) or (FILLERS if request.model in self._missed else {})
        _fill_reasoning(body["messages"], fill)
        return self._client.chat.completions.with_streaming_response.create(**body | limit)

    def _reader(self) -> OpenAIReader:
        return OpenAIReader(self._api_key)

    def _learn(self, request: ModelRequest, refusal: ModelError) -> bool:
        if refusal.code == "responses_only":
            self._of_responses.add(request.model)
        if refusal.parameter == "max_tokens" == self._limits[request.model]:
            self._limits[request.model] = "max_completion_tokens"
            return True
        if refusal.code == "reasoning_missing" and request.model not in self._missed:
            self._missed.add(request.model)
            return True
        return super()._learn(request, refusal)

    async def list_models(self) -> list[str]:
        return await self._responses.list_models()

    async def close(self) -> None:
        await self._client.close()
        await self._responses.close()


def filler(model: str) -> Filler:
    """What a model wants in the place of reasoning behind calls that another model made."""
    return next((fill for name, fill in _FILLERS_OF.items() if name in model.lower()), {})


def _fill_reasoning(messages: list[dict[str, Any]], fill: Filler) -> None:
    for message in messages:
        if fill and message.get("tool_calls"):
            for name, value in fill.get("message", {}).items():
                message.setdefault(name, value)
            for name, value in fill.get("call", {}).items():
                message["tool_calls"][0].setdefault(name, value)


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
    if message.reasoning is not None:
        _add_reasoning(wire, message.reasoning)
    return wire


def _add_reasoning(wire: dict[str, Any], reasoning: ReasoningState) -> None:
    """The fields that the server sent with this answer and its calls, as it sent them."""
    for item in reasoning.items:
        wire |= item.get("message", {})
        for call in wire.get("tool_calls", ()):
            call |= item.get("calls", {}).get(call["id"], {})


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
