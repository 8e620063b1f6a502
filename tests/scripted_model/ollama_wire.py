"""Answers in the shape of Ollama's own protocol: one JSON object a line.

It is as its server is: a prompt beyond `num_ctx` loses its oldest messages without a word, unless `truncate` is false.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .script import Chosen, Failure, Piece, call_arguments, call_id, expected_text, pieces_of, rough_tokens

DEFAULT_WINDOW = 4_096  # tokens, on a machine with little memory


def _line(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))).encode() + b"\n"


class Answer:
    """One step as this protocol says it; `frames` yields one frame per piece of the step."""

    content_type = "application/x-ndjson"
    malformed = b'{"message":{"role":"assistant","content":"bro\n'

    def __init__(self, body: Mapping[str, Any], chosen: Chosen) -> None:
        self._step, self._cycle, self._body = chosen.step, chosen.number, body
        silent = body.get("think") is False
        self._pieces = [each for each in pieces_of(chosen.step) if not (silent and each.kind == "reasoning")]
        self._head = {"model": body.get("model"), "created_at": "2026-11-22T12:00:00Z"}

    def frames(self) -> Iterator[bytes]:
        if self._step.raw is not None:
            yield from map(_line, self._step.raw)
            return
        for piece in self._pieces:
            yield self._frame(piece)

    def _frame(self, piece: Piece) -> bytes:
        """A call comes whole, with its name; nothing follows with its arguments."""
        if piece.kind == "arguments":
            return b""
        message: dict[str, Any] = {"role": "assistant", "content": piece.text if piece.kind == "text" else ""}
        if piece.kind == "reasoning":
            message["thinking"] = piece.text
        elif piece.kind == "call":
            message["tool_calls"] = [self._call(piece.index)]
        return _line({**self._head, "message": message, "done": False})

    def tail(self) -> bytes:
        return b"" if self._step.raw is not None else _line(self._last({"role": "assistant", "content": ""}))

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": expected_text(self._step)}
        if self._step.reasoning and self._body.get("think") is not False:
            message["thinking"] = self._step.reasoning
        if self._step.tool_calls:
            message["tool_calls"] = [self._call(index) for index in range(len(self._step.tool_calls))]
        return self._last(message)

    def _call(self, index: int) -> dict[str, Any]:
        call = self._step.tool_calls[index]
        function = {"index": index, "name": call["name"], "arguments": json.loads(call_arguments(call))}
        return {"id": call_id(call, index, self._cycle), "function": function}

    def _last(self, message: Mapping[str, Any]) -> dict[str, Any]:
        usage = self._step.usage
        counts = {
            "prompt_eval_count": (usage or {}).get("input", min(_tokens(self._body), window(self._body))),
            "eval_count": (usage or {}).get("output", len(self._pieces)),
        }
        reason = self._step.finish if self._step.finish not in (None, "tool_calls") else "stop"
        return {
            **self._head,
            "message": message,
            "done": True,
            "done_reason": reason,
            **(counts if usage is not False else {}),
        }


def window(body: Mapping[str, Any]) -> int:
    return int((body.get("options") or {}).get("num_ctx") or DEFAULT_WINDOW)


def _tokens(body: Mapping[str, Any]) -> int:
    return rough_tokens([body.get("messages", []), body.get("tools", [])])


def error(failure: Failure) -> dict[str, Any]:
    return {"error": failure.message}


def refusal(body: Mapping[str, Any]) -> str | None:
    """The sentence with which the real server refuses a request that breaks its rules, or None."""
    think, model = body.get("think"), str(body.get("model"))
    if think and "llama" in model:
        return f'"{model}" does not support thinking'
    if isinstance(think, str) and "gpt-oss" not in model:
        return f'think value "{think}" is not supported for this model'
    for message in body.get("messages") or ():
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"].get("arguments"), dict):
                return (
                    "json: cannot unmarshal string into Go struct field "
                    "ChatRequest.messages.tool_calls.function.arguments of type api.ToolCallFunctionArguments"
                )
        if isinstance(message.get("content"), list):
            return "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"
    if body.get("truncate") is False and _tokens(body) > window(body):
        return "the input length exceeds the context length"
    return None


def models(names: list[str]) -> dict[str, Any]:
    return {"models": [{"name": name, "model": name, "size": 1} for name in names]}
