"""Answers in the shape of Anthropic's Messages protocol."""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anthropic.types.message_count_tokens_params import MessageCountTokensParams

from . import caching
from .script import Chosen, Failure, Piece, call_arguments, expected_text, pieces_of, prompt_tokens

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "context_window": "model_context_window_exceeded",
    "pause": "pause_turn",
}
_DELTAS = {
    "reasoning": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "arguments": ("input_json_delta", "partial_json"),
}
_OF_OTHER_PROTOCOLS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "response_format")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_OLD = re.compile(r"claude-(?:3|\w+-4-5)")  # think only by a number of tokens
_LEAST_THINKING = re.compile(r"claude-(\w+)-5-[1-9]")  # those that think without being asked to
_LEAST = {"opus": "", "fable": "", "sonnet": "between_tools", "haiku": "disabled"}
GREATEST_ANSWER = 64_000  # tokens, as of most models
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_CACHE_CONTROL = re.compile(r'"cache_control": \{[^}]*\}(?:, )?')  # no part of what a signature covers


def _signature(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the signature of a thinking block. It covers the system prompt, the tools and all messages before it."""
    bound = json.dumps([body.get("system"), body.get("tools"), messages], sort_keys=True, default=str)
    return f"signed-{zlib.crc32(_CACHE_CONTROL.sub('', bound).encode()):08x}"


def _event(value: Any) -> bytes:
    if isinstance(value, str):
        return f"event: message\ndata: {value}\n\n".encode()
    return f"event: {value.get('type')}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


# Given a request and the id of its answer, what is said of how its prefix compares with an earlier one's.
Diagnose = Callable[[Mapping[str, Any], str], dict[str, Any] | None]


class Answer:
    """One step as this protocol says it; `frames` yields one frame per piece of the step."""

    content_type = "text/event-stream; charset=utf-8"
    malformed = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"text":"bro\n\n'

    def __init__(self, body: Mapping[str, Any], chosen: Chosen, diagnose: Diagnose) -> None:
        self._step = chosen.step
        self._cycle = chosen.number
        self._body = body
        self._pieces = pieces_of(chosen.step)
        self._mark = (
            f"{zlib.crc32(json.dumps(body.get('messages')).encode()):08x}"  # its ids are unique, as the real ones
        )
        self._open = -1  # index of the content block being streamed
        self._head: dict[str, Any] = {
            "id": f"msg_{self._mark}_{chosen.number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        self._head["diagnostics"] = diagnose(body, self._head["id"])
        usage = {} if self._step.usage is False else {"usage": self._usage() | {"output_tokens": 1}}
        start = _event({"type": "message_start", "message": {**self._head, **usage}})
        self._opening = start + _event({"type": "ping"})  # sent with whatever comes first

    def frames(self) -> Iterator[bytes]:
        if self._step.raw is not None:
            yield from map(_event, self._step.raw)
            return
        block: tuple[str, int] | None = None
        for piece in self._pieces:
            next_block = ("call", piece.index) if piece.kind in ("call", "arguments") else (piece.kind, 0)
            frame, self._opening = self._opening, b""
            if next_block != block:
                frame += self._close() + self._start(piece)
                block = next_block
            yield frame + (b"" if piece.kind == "call" else self._delta(piece))

    def _start(self, piece: Piece) -> bytes:
        self._open += 1
        content: dict[str, Any] = {"type": "text", "text": ""}
        if piece.kind == "reasoning":
            content = {"type": "thinking", "thinking": "", "signature": ""}
        elif piece.kind == "call":
            identity = self._call_id(piece.index)
            content = {"type": "tool_use", "id": identity, "name": piece.text, "input": {}}
        return _event({"type": "content_block_start", "index": self._open, "content_block": content})

    def _call_id(self, index: int) -> str:
        call = self._step.tool_calls[index]
        return str(call.get("id") or f"toolu_{self._mark}_{index}")

    def _close(self) -> bytes:
        if self._open < 0:
            return b""
        signed = b""
        if self._open == 0 and self._step.reasoning:
            delta = {"type": "signature_delta", "signature": _signature(self._body, self._body["messages"])}
            signed = _event({"type": "content_block_delta", "index": self._open, "delta": delta})
        return signed + _event({"type": "content_block_stop", "index": self._open})

    def _delta(self, piece: Piece) -> bytes:
        if piece.kind == "reasoning" and not self._shown():
            return b""
        kind, key = _DELTAS[piece.kind]
        return _event({"type": "content_block_delta", "index": self._open, "delta": {"type": kind, key: piece.text}})

    def _shown(self) -> bool:
        """Return whether thinking is shown. By default the newer models sign it and do not show it."""
        summarized = (self._body.get("thinking") or {}).get("display") == "summarized"
        return summarized or not _LEAST_THINKING.search(str(self._body.get("model")))

    def tail(self) -> bytes:
        if self._step.raw is not None:
            return b""
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        usage = {} if self._step.usage is False else {"usage": self._final_usage()}
        end = _event({"type": "message_delta", "delta": delta, **usage}) + _event({"type": "message_stop"})
        return self._opening + self._close() + (self._search() if self._step.finish == "pause" else b"") + end

    def _search(self) -> bytes:
        """Return the frames of a call of the provider's own tool. Its result comes when the answer goes on."""
        place = {"index": self._open + 1}
        block = {"type": "server_tool_use", "id": f"srvtoolu_{self._mark}", "name": "web_search", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": '{"query": "rain"}'}
        return (
            _event({"type": "content_block_start", **place, "content_block": block})
            + _event({"type": "content_block_delta", **place, "delta": delta})
            + _event({"type": "content_block_stop", **place})
        )

    def _stop_reason(self) -> str:
        finish = self._step.finish or ("tool_calls" if self._step.tool_calls else "stop")
        return _STOP_REASONS.get(finish, finish)

    def _final_usage(self) -> dict[str, Any]:
        details = {"thinking_tokens": (self._step.usage or {}).get("reasoning", 0)}
        return {"output_tokens": self._usage()["output_tokens"], "output_tokens_details": details}

    def _usage(self) -> dict[str, int]:
        usage = self._step.usage or {}
        cached = usage.get("cached", 0)
        return {
            "input_tokens": usage.get("input", prompt_tokens(self._body)) - cached - usage.get("written", 0),
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": usage.get("written", 0),
            "output_tokens": usage.get("output", len(self._pieces)),
        }

    def whole(self) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if self._step.reasoning:
            signature = _signature(self._body, self._body["messages"])
            shown = self._step.reasoning if self._shown() else ""
            content.append({"type": "thinking", "thinking": shown, "signature": signature})
        if text := expected_text(self._step):
            content.append({"type": "text", "text": text})
        for index, call in enumerate(self._step.tool_calls):
            identity = self._call_id(index)
            arguments = _object(call_arguments(call))
            content.append({"type": "tool_use", "id": identity, "name": call["name"], "input": arguments})
        return {**self._head, "content": content, "stop_reason": self._stop_reason(), "usage": self._usage()}


def _object(arguments: str) -> dict[str, Any]:
    """The arguments of a call that comes whole; this protocol has no place for others."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def error(failure: Failure) -> dict[str, Any]:
    kind = failure.code or _ERROR_TYPES.get(failure.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": "req_scripted"}


def models(names: list[str]) -> dict[str, Any]:
    data = [{"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"} for name in names]
    return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}


_COUNTED = set(MessageCountTokensParams.__annotations__)


def count_refusal(body: Mapping[str, Any]) -> str | None:
    if extra := sorted(set(body) - _COUNTED):
        return f"{extra[0]}: Extra inputs are not permitted"
    return refusal({**body, "max_tokens": 1})


def refusal(body: Mapping[str, Any]) -> str | None:
    """The sentence with which the real service refuses a request that breaks its rules, or None."""
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    if body["max_tokens"] > GREATEST_ANSWER:
        return (
            f"max_tokens: {body['max_tokens']} > {GREATEST_ANSWER}, which is the maximum allowed number of output "
            f"tokens for {body.get('model')}"
        )
    if sentence := _effort_refusal(str(body.get("model")), body):
        return sentence
    if extra := [name for name in _OF_OTHER_PROTOCOLS if name in body]:
        return f"{extra[0]}: Extra inputs are not permitted"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: at least one message is required"
    if messages[0].get("role") != "user":
        return 'messages: first message must use the "user" role'
    used: set[str] = set()
    for number, message in enumerate(messages):
        previous = messages[number - 1] if number else {}
        if sentence := _message_refusal(message, previous, used):
            return f"messages.{number}: {sentence}"
    if used and not body.get("tools"):
        return "Requests which include `tool_use` or `tool_result` blocks must define tools"
    return caching.anthropic_refusal(body) or _prefill_refusal(body) or _thinking_refusal(body)


def _prefill_refusal(body: Mapping[str, Any]) -> str | None:
    last = body["messages"][-1]
    if last["role"] != "assistant" or not str(body.get("model")).startswith("claude-") or _paused(last):
        return None
    return "This model does not support assistant message prefill. The conversation must end with a user message."


def _effort_refusal(model: str, body: Mapping[str, Any]) -> str | None:
    effort = (body.get("output_config") or {}).get("effort")
    if effort not in (None, *_EFFORTS):
        return f"output_config.effort: Input should be {', '.join(map(repr, _EFFORTS))}"
    kind = (body.get("thinking") or {}).get("type")
    if kind == "adaptive" and _OLD.search(model):
        return "adaptive thinking is not supported on this model"
    if match := _LEAST_THINKING.search(model):
        if kind not in (None, "adaptive", _LEAST[match[1]]):
            return (
                f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" and '
                '"output_config.effort" to control thinking behavior.'
            )
        if (body.get("tool_choice") or {}).get("type") in ("any", "tool") and match[1] != "haiku":
            return "Thinking may not be enabled when tool_choice forces tool use."
    return None


def _thinking_refusal(body: Mapping[str, Any]) -> str | None:
    for number, message in enumerate(body["messages"]):
        for place, block in enumerate(_blocks(message)):
            if block["type"] == "thinking" and block.get("signature") != _signature(body, body["messages"][:number]):
                return (
                    f"messages.{number}.content.{place}: Invalid signature in thinking block. The block is bound to a "
                    "different conversation and cannot be used here."
                )
    return None


def _paused(message: Mapping[str, Any]) -> bool:
    """Return whether the message ends with the unchanged call at which the model paused."""
    last = _blocks(message)[-1]
    return bool(last["type"] == "server_tool_use" and last["input"] == {"query": "rain"})


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content", [])
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message_refusal(message: Mapping[str, Any], previous: Mapping[str, Any], used: set[str]) -> str | None:
    if message.get("role") not in ("user", "assistant"):
        return f'unexpected role "{message.get("role")}"'
    if message.get("role") == previous.get("role"):
        return "roles must alternate"
    blocks = _blocks(message)
    if not blocks:
        return "user messages must have non-empty content"
    if any(block["type"] == "text" and not str(block["text"]).strip() for block in blocks):
        return "text content blocks must contain non-whitespace text"
    called = [block["id"] for block in _blocks(previous) if block["type"] == "tool_use"]
    answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if sorted(called) != sorted(answered):
        return f"`tool_use` ids {called} and `tool_result` ids {answered} do not match"
    if any(block["type"] != "tool_result" for block in blocks[: len(answered)]):
        return "`tool_result` blocks must come first"
    return _calls_refusal([block for block in blocks if block["type"] == "tool_use"], used)


def _calls_refusal(calls: list[Mapping[str, Any]], used: set[str]) -> str | None:
    for call in calls:
        if call["id"] in used:
            return "`tool_use` ids must be unique"
        if not _ID.fullmatch(call["id"]):
            return "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if not isinstance(call["input"], dict):
            return "tool_use.input: Input should be a valid dictionary"
        used.add(call["id"])
    return None
