"""The OpenAI Chat Completions protocol, as OpenAI and the many servers that copy it speak it."""

import base64
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx2
from openai import AsyncOpenAI, OpenAIError

from llm.providers.openai_stream import OpenAIReader
from llm.providers.streaming import model_names, read_step
from llm.types.events import StepEvent
from llm.types.messages import Message, ModelRequest, ToolDefinition

OPENAI_URL = "https://api.openai.com/v1"
NO_KEY = "none"  # the client insists on a key; servers without accounts ignore it


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
