"""Answers in the shape of OpenAI's Chat Completions protocol."""

import base64
import hashlib
import json
import math
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

from . import dialects
from .script import Chosen, Failure, Piece, call_arguments, call_id, expected_text, pieces_of, prompt_tokens

CONTENT_TYPE = "text/event-stream; charset=utf-8"
MALFORMED = b'data: {"choices":[{"index":0,"delta":{"content":"bro\n\n'
DIMENSIONS = 32

_ERROR_TYPES = {401: "invalid_request_error", 429: "rate_limit_error", 400: "invalid_request_error"}


def _event(value: Any) -> bytes:
    payload = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return f"data: {payload}\n\n".encode()


class Answer:
    """One step as this protocol says it; `frames` yields one frame per piece of the step."""

    content_type = CONTENT_TYPE
    malformed = MALFORMED

    def __init__(self, body: Mapping[str, Any], chosen: Chosen, dialect: str = "") -> None:
        self._dialect = dialect
        self._step = chosen.step
        self._cycle = chosen.number
        self._body = body
        silent = not dialects.thinks(dialect, body)
        self._pieces = [each for each in pieces_of(chosen.step) if not (silent and each.kind == "reasoning")]
        if dialect == "gemini":
            self._pieces = list(dialects.tagged(self._pieces))
        self._head = {"id": f"chatcmpl-{chosen.number}", "created": int(time.time()), "model": body.get("model")}
        self._opening = _event(self._chunk({"role": "assistant", "content": ""}))  # sent with whatever comes first

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def frames(self) -> Iterator[bytes]:
        if self._step.raw is not None:
            yield from map(_event, self._step.raw)
            return
        # Everything around a text token is constant: encoded once, so that a fast stream costs little.
        before, after = _event(self._chunk({"content": "@"})).split(b'"@"')
        for piece in self._pieces:
            opening, self._opening = self._opening, b""
            if piece.kind == "text" and self._step.finish == "refusal":
                yield opening + _event(self._chunk({"refusal": piece.text}))
            elif piece.kind == "text":
                yield opening + before + json.dumps(piece.text).encode() + after
            else:
                yield opening + _event(self._chunk(self._delta(piece)))

    def _delta(self, piece: Piece) -> dict[str, Any]:
        if piece.kind == "reasoning":
            return dialects.reasoning_delta(self._dialect, piece.text)
        call: dict[str, Any] = {"index": piece.index, "function": {"arguments": piece.text}}
        if piece.kind == "call":
            identity = call_id(self._step.tool_calls[piece.index], piece.index, self._cycle)
            if self._dialect == "deepseek":
                identity = dialects.deepseek_call_id(identity, self._step.reasoning)
            elif self._dialect == "mistral":
                identity = dialects.mistral_call_id(identity)
            call |= {"id": identity, "type": "function", "function": {"name": piece.text, "arguments": ""}}
            if self._dialect == "gemini" and piece.index == 0:
                call["extra_content"] = {"google": {"thought_signature": dialects.signature(identity)}}
        return {"tool_calls": [call]}

    def tail(self) -> bytes:
        if self._step.raw is not None:
            return b""
        end = self._opening + _event(self._chunk({}, self._finish()))
        wants_usage = (self._body.get("stream_options") or {}).get("include_usage")
        if wants_usage and self._step.usage is not False:
            end += _event({**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()})
        return end + b"data: [DONE]\n\n"

    def _finish(self) -> str:
        finish = "stop" if self._step.finish == "refusal" else self._step.finish
        return finish or ("tool_calls" if self._step.tool_calls else "stop")

    def _usage(self) -> dict[str, Any]:
        usage = self._step.usage or {}
        into = usage.get("input", prompt_tokens(self._body))
        out = usage.get("output", len(self._pieces))
        cached = usage.get("cached", 0)
        served: dict[str, Any] = {"prompt_tokens_details": {"cached_tokens": cached}}
        if self._dialect == "deepseek":
            served = {"prompt_cache_hit_tokens": cached, "prompt_cache_miss_tokens": into - cached}
        return {
            "prompt_tokens": into,
            "completion_tokens": out,
            "total_tokens": into + out,
            **served,
            "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
        }

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": expected_text(self._step)}
        if self._step.reasoning:
            message["reasoning_content"] = self._step.reasoning
        if self._step.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call_id(call, index, self._cycle),
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call_arguments(call)},
                }
                for index, call in enumerate(self._step.tool_calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finish()}
        usage = {} if self._step.usage is False else {"usage": self._usage()}
        return {**self._head, "object": "chat.completion", "choices": [choice], **usage}


def error(failure: Failure) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(failure.status, "server_error" if failure.status >= 500 else "invalid_request_error")
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": failure.code}}


def refusal(body: Mapping[str, Any]) -> str | None:
    """The sentence with which the real service refuses a request that breaks its rules, or None."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "Invalid 'messages': empty array. Expected an array with minimum length 1."
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in open_calls:
                return f"messages[{number}]: 'tool' must be a response to a preceding message with 'tool_calls'."
            continue
        open_calls = {call["id"] for call in message.get("tool_calls") or ()}
        if message.get("content") is None and not open_calls:
            return f"Invalid value for 'messages[{number}].content': expected a string, got null."
    return None


def models(names: list[str]) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "scripted"} for name in names],
    }


def embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    """Vectors of hashed words, normalised: equal texts have equal vectors, texts that share words similar ones."""
    input_ = body.get("input", "")
    texts = [input_] if isinstance(input_, str) else list(input_)
    size = int(body.get("dimensions") or DIMENSIONS)
    vectors = [_vector(str(text), size) for text in texts]
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, body.get("encoding_format"))}
        for index, vector in enumerate(vectors)
    ]
    used = sum(len(str(text)) for text in texts) // 4
    usage = {"prompt_tokens": used, "total_tokens": used}
    return {"object": "list", "model": body.get("model"), "data": data, "usage": usage}


def _vector(text: str, size: int) -> list[float]:
    vector = [0.0] * size
    for word in text.lower().split():
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % size] += 1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


def _encoded(vector: list[float], encoding: Any) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector
