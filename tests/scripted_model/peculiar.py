"""Refusals of servers that deviate from a protocol."""

import json
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from . import anthropic_wire, ollama_wire, openai_wire, responses_wire
from .script import Failure, Step

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # OpenAI's and Anthropic's pattern, in their refusals

# OpenAI's to an organisation that is not verified (LibreChat, issue 9073); the others' as gateways word it.
_NOT_VERIFIED = "Your organization must be verified to stream this model."
_WITHOUT_STREAM: Mapping[ModuleType, str] = {
    openai_wire: _NOT_VERIFIED,
    responses_wire: _NOT_VERIFIED,
    anthropic_wire: "stream: streaming is not supported for this model",
    ollama_wire: "this model does not support streaming",
}
# OpenRouter's, for models that always reason (pi, issue 98 of kwwk).
_MUST_REASON = "Reasoning is mandatory for this endpoint and cannot be disabled."


def refusal(step: Step, wire: ModuleType, body: Mapping[str, Any]) -> Failure | None:
    """Return the refusal of this step's server, or None."""
    if step.streaming == "refused" and body.get("stream"):
        message = _WITHOUT_STREAM[wire]
        named = {"type": "invalid_request_error", "param": "stream", "code": "unsupported_value"}
        by_name = {"error": {"message": message, **named}} if message == _NOT_VERIFIED else None
        return Failure(400, message, body=by_name)
    if step.must_reason and _without_reasoning(body):
        return Failure(400, _MUST_REASON)
    return None


def _without_reasoning(body: Mapping[str, Any]) -> bool:
    """Whether reasoning is switched off, in the words of any of the protocols."""
    return (
        body.get("reasoning_effort") == "none"
        or (body.get("reasoning") or {}).get("effort") == "none"
        or (body.get("thinking") or {}).get("type") == "disabled"
        or (body.get("chat_template_kwargs") or {}).get("enable_thinking") is False
        or body.get("think") is False
    )


def calls_refusal(wire: ModuleType, body: Mapping[str, Any]) -> str | None:
    """Return a server's refusal of calls that come back in a wrong form, or None.

    Sources: OpenAI's pattern of names; vLLM, LiteLLM and DeepSeek parse the arguments; OpenAI and vLLM refuse an id
    that comes twice ("Duplicate value for 'tool_call_id'", microsoft/agent-framework, issue 6788).
    """
    seen: set[str] = set()
    for identity, name, arguments in _calls(wire, body):
        if not _NAME.fullmatch(name):
            return f"Invalid name: {name!r}. Expected a string that matches the pattern '^[a-zA-Z0-9_-]{{1,64}}$'."
        if isinstance(arguments, str) and not _is_object(arguments):
            return "Invalid tool call arguments: expected the JSON text of an object."
        if identity is not None and identity in seen:
            return f"Duplicate value for 'tool_call_id' of '{identity}'."
        seen.add(identity or "")
    return None


def _calls(wire: ModuleType, body: Mapping[str, Any]) -> Iterable[tuple[str | None, str, Any]]:
    """The id, name and arguments of each call in the request."""
    if wire is responses_wire:
        items = body["input"] if isinstance(body.get("input"), list) else []
        for item in items:
            if item.get("type") == "function_call":
                yield item["call_id"], item["name"], item["arguments"]
        return
    for message in body.get("messages") or ():
        for call in message.get("tool_calls") or ():
            yield call.get("id"), call["function"]["name"], call["function"]["arguments"]
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use":
                yield block["id"], block["name"], block["input"]


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
