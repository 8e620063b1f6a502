"""What single vendors demand of requests in OpenAI's Chat Completions protocol; each has a path of its own.

`/deepseek/v1`, `/gemini/v1`, `/groq/v1`, `/gpt/v1`. Sources: the vendors' pages on reasoning, and what their services
answer to clients that do not keep to them.
"""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

UNSIGNED = "skip_thought_signature_validator"  # Google's word for calls that another model made
_SIGNED = "signed-by-gemini"
_THOUGHT = re.compile(r"_thought([0-9a-f]{8})")


def refusal(dialect: str, body: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The sentence and the whole body with which the vendor refuses the request; None where it takes it."""
    said = RULES[dialect](body)
    if said is None:
        return None
    if dialect == "gemini":
        return said, [{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}]
    return said, {"error": {"message": said, "type": "invalid_request_error", "param": None, "code": None}}


def signature(call_id: str) -> str:
    return f"{_SIGNED}-{zlib.crc32(call_id.encode()):08x}"


def deepseek_call_id(call_id: str, reasoning: str) -> str:
    """An id by which the service knows its own calls, and what it thought before them."""
    return f"{call_id}_thought{zlib.crc32(reasoning.encode()):08x}"


def _deepseek(body: Mapping[str, Any]) -> str | None:
    for message in body["messages"]:
        given = message.get("reasoning_content")
        for call in message.get("tool_calls") or ():
            thought = _THOUGHT.search(call["id"])
            wanted = thought[1] if thought else None  # another model's call has none
            if not isinstance(given, str) or wanted not in (None, f"{zlib.crc32(given.encode()):08x}"):
                return "The `reasoning_content` in the thinking mode must be passed back to the API."
    return None


def _gemini(body: Mapping[str, Any]) -> str | None:
    """Looks at the current turn: what stands behind the newest message of a person that is no reminder."""
    for message in _current(body["messages"]):
        calls = message.get("tool_calls") or ()
        if not calls:
            continue
        given = ((calls[0].get("extra_content") or {}).get("google") or {}).get("thought_signature")
        if given is None:
            name = calls[0]["function"]["name"]
            return f"Function call is missing a thought_signature in functionCall parts: function call `{name}`."
        if given not in (UNSIGNED, signature(calls[0]["id"])):
            return "Corrupted thought signature."
    return None


def _current(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    for number in range(len(messages) - 1, -1, -1):
        after_result = number and messages[number - 1]["role"] == "tool"
        if messages[number]["role"] == "user" and not after_result:
            return messages[number + 1 :]
    return messages


def _groq(body: Mapping[str, Any]) -> str | None:
    for number, message in enumerate(body["messages"]):
        if "reasoning_content" in message:
            return f"'messages.{number}' : property 'reasoning_content' is unsupported"
    return None


def _gpt(body: Mapping[str, Any]) -> str | None:
    if "max_tokens" in body:
        return (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
    if body.get("tools") and body.get("reasoning_effort") != "none":
        return (
            f"Function tools with reasoning_effort are not supported for {body['model']} in /v1/chat/completions. "
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        )
    if "temperature" in body:
        return (
            f"Unsupported value: 'temperature' does not support {body['temperature']} with this model. "
            "Only the default (1) value is supported."
        )
    return None


RULES: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "deepseek": _deepseek,
    "gemini": _gemini,
    "groq": _groq,
    "gpt": _gpt,
}
