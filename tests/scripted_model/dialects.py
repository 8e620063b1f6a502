"""Rules of single vendors for requests in OpenAI's Chat Completions protocol. Each vendor has a path of its own.

`/deepseek/v1`, `/gemini/v1`, `/groq/v1`, `/gpt/v1`, `/mistral/v1`, `/vllm/v1`, `/llamacpp/v1`. Sources: the vendors'
pages on reasoning, and error answers of their services.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .script import Failure, Piece, prompt_tokens

UNSIGNED = "skip_thought_signature_validator"  # Google's word for calls that another model made
WINDOW = 32_768  # tokens, with which the servers of open models were started
_SIGNED = "signed-by-gemini"
_THOUGHT = re.compile(r"_thought([0-9a-f]{8})")


def refusal(dialect: str, body: Mapping[str, Any]) -> Failure | None:
    """Return the vendor's refusal of the request, or None."""
    problem = RULES[dialect](body)
    if problem is None or isinstance(problem, Failure):
        return problem
    whole: Any = {"error": {"message": problem, "type": "invalid_request_error", "param": None, "code": None}}
    if dialect == "gemini":
        whole = [{"error": {"code": 400, "message": problem, "status": "INVALID_ARGUMENT"}}]
    return Failure(400, problem, body=whole)


def reasoning_delta(dialect: str, text: str) -> dict[str, Any]:
    """A piece of reasoning in the field that the vendor's servers have for it."""
    if dialect == "mistral":
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}
    if dialect == "gemini":
        return {"content": text, "extra_content": {"google": {"thought": True}}}
    return {"reasoning" if dialect in ("groq", "vllm") else "reasoning_content": text}


def tagged(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield Gemini's pieces, with tags around its thoughts."""
    before = ""
    for piece in pieces:
        tag = "<thought>" if piece.kind == "reasoning" != before else ""
        tag = "</thought>" if before == "reasoning" and piece.kind == "text" else tag
        yield replace(piece, text=tag + piece.text)
        before = piece.kind


def signature(call_id: str) -> str:
    return f"{_SIGNED}-{zlib.crc32(call_id.encode()):08x}"


def deepseek_call_id(call_id: str, reasoning: str) -> str:
    """Return an id by which the service recognises its own call and the reasoning before it."""
    return f"{call_id}_thought{zlib.crc32(reasoning.encode()):08x}"


def mistral_call_id(call_id: str) -> str:
    return f"{zlib.crc32(call_id.encode()):09d}"[:9]


def thinks(dialect: str, body: Mapping[str, Any]) -> bool:
    """Return whether reasoning is sent. Gemini sends it on request; open models have a switch in their template."""
    if dialect == "gemini":
        return bool(_thinking_config(body).get("include_thoughts"))
    if dialect in ("vllm", "llamacpp"):
        return (body.get("chat_template_kwargs") or {}).get("enable_thinking") is not False
    return dialect != "deepseek" or (body.get("thinking") or {}).get("type") != "disabled"


def _thinking_config(body: Mapping[str, Any]) -> dict[str, Any]:
    google: dict[str, Any] = (body.get("extra_body") or {}).get("google") or {}
    return google.get("thinking_config") or {}


def _deepseek(body: Mapping[str, Any]) -> str | None:
    if (body.get("thinking") or {"type": "enabled"}).get("type") not in ("enabled", "disabled"):
        return "thinking.type: unknown variant, expected `enabled` or `disabled`"
    if not thinks("deepseek", body):
        return None
    if body.get("tool_choice") not in (None, "auto", "none"):
        return "Thinking mode does not support this tool_choice"
    for message in body["messages"]:
        reasoning = message.get("reasoning_content")
        for call in message.get("tool_calls") or ():
            match = _THOUGHT.search(call["id"])
            expected = match[1] if match else None  # another model's call has none
            if not isinstance(reasoning, str) or expected not in (None, f"{zlib.crc32(reasoning.encode()):08x}"):
                return "The `reasoning_content` in the thinking mode must be passed back to the API."
    return None


def _gemini(body: Mapping[str, Any]) -> str | None:
    """Return Gemini's refusal. It checks the messages after the newest question that is no reminder."""
    if unknown := body.keys() - _GEMINI:
        return f'Invalid JSON payload received. Unknown name "{min(unknown)}": Cannot find field.'
    if body.get("reasoning_effort") not in (None, "none", "minimal", "low", "medium", "high"):
        return f"Invalid reasoning_effort: {body['reasoning_effort']}"
    if (body.get("extra_body") or {}).keys() - {"google"} or _thinking_config(body).keys() - {"include_thoughts"}:
        return 'Invalid JSON payload received. Unknown name "extra_body": Cannot find field.'
    for message in _current(body["messages"]):
        calls = message.get("tool_calls") or ()
        if not calls:
            continue
        signature_ = ((calls[0].get("extra_content") or {}).get("google") or {}).get("thought_signature")
        if signature_ is None:
            name = calls[0]["function"]["name"]
            return f"Function call is missing a thought_signature in functionCall parts: function call `{name}`."
        if signature_ not in (UNSIGNED, signature(calls[0]["id"])):
            return "Corrupted thought signature."
    return None


def _current(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    for number in range(len(messages) - 1, -1, -1):
        after_result = number and messages[number - 1]["role"] == "tool"
        if messages[number]["role"] == "user" and not after_result:
            return messages[number + 1 :]
    return messages


_GEMINI = {
    *("model", "messages", "stream", "stream_options", "temperature", "top_p", "max_tokens", "stop", "seed", "tools"),
    *("tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "presence_penalty", "extra_body"),
    "frequency_penalty",
}


def _groq(body: Mapping[str, Any]) -> str | None:
    for name in ("chat_template_kwargs", "extra_body"):
        if name in body:
            return f"property '{name}' is unsupported"
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


def _mistral(body: Mapping[str, Any]) -> str | Failure | None:
    places: list[tuple[tuple[Any, ...], set[str]]] = [((), body.keys() - _MISTRAL)]
    places += [((number, each["role"]), each.keys() - _OF_MESSAGE) for number, each in enumerate(body["messages"])]
    for place, unknown in places:
        if unknown:
            where = ["body", *(("messages", *place) if place else ()), min(unknown)]
            detail = {"type": "extra_forbidden", "loc": where, "msg": "Extra inputs are not permitted"}
            return Failure(422, "Unprocessable", body={"object": "error", "message": {"detail": [detail]}})
    for message in body["messages"]:
        named = [message.get("tool_call_id"), *(call["id"] for call in message.get("tool_calls") or ())]
        for call_id in named:
            if call_id is not None and not re.fullmatch("[a-zA-Z0-9]{9}", call_id):
                return f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
    return None


_OF_MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "name", "prefix"}
_MISTRAL = {
    *("model", "messages", "stream", "temperature", "top_p", "max_tokens", "stop", "random_seed", "tools"),
    *("tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "presence_penalty"),
}


def _template(body: Mapping[str, Any]) -> str | None:
    """Return the error that the chat template of an open model raises: of Qwen's, Mistral's or Gemma's models."""
    roles, name = [message["role"] for message in body["messages"]], body["model"].lower()
    if "qwen" in name and "system" in roles[1:]:
        return "System message must be at the beginning."
    in_text = [message["role"] for message in body["messages"] if message["role"] != "tool" and not _calls(message)]
    turns = in_text[1:] if in_text[0] == "system" else in_text
    if re.search("mistral|gemma", name) and turns != [("user", "assistant")[n % 2] for n in range(len(turns))]:
        return "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
    return None


def _calls(message: Mapping[str, Any]) -> Any:
    return message.get("tool_calls")


def _vllm(body: Mapping[str, Any]) -> str | None:
    if raised := _template(body):
        return raised
    used, answer = prompt_tokens(body), body.get("max_tokens") or 0
    if used + answer > WINDOW:
        return (
            f"This model's maximum context length is {WINDOW} tokens. However, you requested {used + answer} tokens "
            f"({used} in the messages, {answer} in the completion). Please reduce the length of the messages or "
            "completion."
        )
    return None


def _llamacpp(body: Mapping[str, Any]) -> Failure | None:
    if raised := _template(body):
        message = f"Unable to generate parser for this template. Automatic parser generation failed:\nError: {raised}"
        return Failure(500, message, body={"error": {"code": 500, "message": message, "type": "server_error"}})
    used = prompt_tokens(body)
    if used <= WINDOW:
        return None
    message = "the request exceeds the available context size. try increasing the context size or enable context shift"
    error = {
        "code": 400,
        "message": message,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": used,
        "n_ctx": WINDOW,
    }
    return Failure(400, message, body={"error": error})


RULES: Mapping[str, Callable[[Mapping[str, Any]], str | Failure | None]] = {
    "deepseek": _deepseek,
    "gemini": _gemini,
    "groq": _groq,
    "gpt": _gpt,
    "mistral": _mistral,
    "vllm": _vllm,
    "llamacpp": _llamacpp,
}
