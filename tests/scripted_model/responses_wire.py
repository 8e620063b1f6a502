"""Answers in OpenAI's Responses protocol. It is as strict about its own items in requests as the real service.

Sources: the request types of the package `openai`; the service's own sentences as reported in its clients' issues.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from . import caching
from .openai_wire import error
from .script import Chosen, Piece, call_arguments, call_id, expected_text, pieces_of, prompt_tokens

__all__ = ["Answer", "conversation", "error", "refusal"]

_PARAMETERS = set(ResponseCreateParamsBase.__annotations__) | {"stream"}
_COUNTED = set(InputTokenCountParams.__annotations__)
_EFFORTS = ("none", "low", "medium", "high", "xhigh", "max")  # of gpt-5.6
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter", "pause": "steered"}
_ROLES = ("user", "assistant", "system", "developer")


def _event(value: Any) -> bytes:
    if isinstance(value, str):
        return f"event: message\ndata: {value}\n\n".encode()
    return f"event: {value['type']}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def conversation(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request with `messages` and `system`, as the other protocols have them: by these a script is chosen."""
    messages: list[dict[str, Any]] = []
    for item in _items(body):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            messages.append({"role": "tool", "content": item["output"]})
        elif kind == "message" and item["role"] != "assistant":
            messages.append({"role": item["role"], "content": _parts(item["content"])})
        elif not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
    return {**body, "messages": messages, "system": body.get("instructions") or ""}


def _items(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    input_ = body.get("input", [])
    return [{"role": "user", "content": input_}] if isinstance(input_, str) else list(input_)


def _parts(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": part["text"]} for part in content if part["type"] == "input_text"]


def _sealed(model: Any, identity: str) -> str:
    """Return a replacement for encrypted reasoning. It depends on the item and the model, so a wrong one is noticed."""
    return f"sealed-{zlib.crc32(f'{model} {identity}'.encode()):08x}"


class Answer:
    """One step as this protocol says it; `frames` yields one frame per piece of the step."""

    content_type = "text/event-stream; charset=utf-8"
    malformed = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"bro\n\n'

    def __init__(self, body: Mapping[str, Any], chosen: Chosen) -> None:
        self._step, self._cycle, self._body = chosen.step, chosen.number, body
        self._pieces = pieces_of(chosen.step)
        self._mark = f"{zlib.crc32(json.dumps(body.get('input'), sort_keys=True).encode()):08x}"
        self._head = {"id": f"resp_{self._mark}", "object": "response", "model": body.get("model")}
        created = {"type": "response.created", "response": {**self._head, "status": "in_progress", "output": []}}
        self._opening = _event(created)
        self._open: tuple[str, int] | None = None
        self._number = 0
        self.output = self._output()

    def _output(self) -> list[dict[str, Any]]:
        """The finished items, in their order: reasoning, then text, then calls."""
        items: list[dict[str, Any]] = []
        if self._step.reasoning:
            items.append(self._reasoning_item())
        if text := expected_text(self._step):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            phase = "commentary" if self._step.tool_calls else "final_answer"
            items.append(
                {"id": f"msg_{self._mark}", "type": "message", "role": "assistant", "status": "completed",
                 "phase": phase, "content": content}
            )  # fmt: skip
        for index, call in enumerate(self._step.tool_calls):
            items.append(
                {"id": f"fc_{self._mark}_{index}", "type": "function_call", "status": "completed",
                 "call_id": call_id(call, index, self._cycle), "name": call["name"],
                 "arguments": call_arguments(call)}
            )  # fmt: skip
        return items

    def _reasoning_item(self) -> dict[str, Any]:
        identity = f"rs_{self._mark}"
        summary = [{"type": "summary_text", "text": self._step.reasoning}] if self._summarised() else []
        encrypted = "reasoning.encrypted_content" in (self._body.get("include") or ())
        sealed = _sealed(self._body.get("model"), identity) if encrypted else None
        return {"id": identity, "type": "reasoning", "summary": summary, "encrypted_content": sealed, "content": None}

    def _summarised(self) -> bool:
        return bool((self._body.get("reasoning") or {}).get("summary"))

    def frames(self) -> Iterator[bytes]:
        if self._step.raw is not None:
            yield from map(_event, self._step.raw)
            return
        for piece in self._pieces:
            next_item = ("call", piece.index) if piece.kind in ("call", "arguments") else (piece.kind, 0)
            frame, self._opening = self._opening, b""
            if next_item != self._open:
                frame += self._close() + self._begin(next_item)
            yield frame + self._delta(piece)

    def _place(self) -> int:
        kind, index = self._open or ("", 0)
        before = bool(self._step.reasoning) + (bool(expected_text(self._step)) if kind == "call" else 0)
        return {"reasoning": 0, "text": int(bool(self._step.reasoning))}.get(kind, before + index)

    def _begin(self, block: tuple[str, int]) -> bytes:
        self._open = block
        item = self.output[self._place()]
        empty: dict[str, Any] = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        unsealed: dict[str, Any] = {"encrypted_content": None, "summary": []} if item["type"] == "reasoning" else {}
        item_in_progress = {**item, **empty, **unsealed, "status": "in_progress"}
        return _event({"type": "response.output_item.added", "output_index": self._place(), "item": item_in_progress})

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        item = self.output[self._place()]
        done = _event({"type": "response.output_item.done", "output_index": self._place(), "item": item})
        if item["type"] == "function_call":
            fields = {"output_index": self._place(), "item_id": item["id"], "arguments": item["arguments"]}
            return _event({"type": "response.function_call_arguments.done", **fields}) + done
        return done

    def _delta(self, piece: Piece) -> bytes:
        if piece.kind == "call" or (piece.kind == "reasoning" and not self._summarised()):
            return b""
        text = "refusal" if self._step.finish == "refusal" else "output_text"
        kind = {"reasoning": "reasoning_summary_text", "text": text, "arguments": "function_call_arguments"}
        place = self._place()
        return _event(
            {"type": f"response.{kind[piece.kind]}.delta", "output_index": place,
             "item_id": self.output[place]["id"], "delta": piece.text}
        )  # fmt: skip

    def tail(self) -> bytes:
        if self._step.raw is not None:
            return b""
        end = "response.incomplete" if self._incomplete() else "response.completed"
        return self._opening + self._close() + _event({"type": end, "response": self.whole()})

    def _incomplete(self) -> str | None:
        """Why the response has no end: a reason that the protocol names, or one that it may name some day."""
        finish = self._step.finish
        return None if finish in (None, "stop", "tool_calls", "refusal") else _INCOMPLETE.get(finish, finish)

    def whole(self) -> dict[str, Any]:
        reason = self._incomplete()
        return {
            **self._head,
            "status": "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "output": self.output,
            "usage": None if self._step.usage is False else self._usage(),
        }

    def _usage(self) -> dict[str, Any]:
        usage = self._step.usage or {}
        into = usage.get("input", prompt_tokens(conversation(self._body)))
        out = usage.get("output", len(self._pieces))
        return {
            "input_tokens": into,
            "input_tokens_details": {
                "cached_tokens": usage.get("cached", 0),
                "cache_write_tokens": usage.get("written", 0),
            },
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
            "total_tokens": into + out,
        }


def count_refusal(body: Mapping[str, Any]) -> str | None:
    if unknown := sorted(set(body) - _COUNTED):
        return f"Unknown parameter: '{unknown[0]}'."
    return refusal(body)


def refusal(body: Mapping[str, Any]) -> str | None:
    """The sentence with which the real service refuses a request that breaks its rules, or None."""
    if unknown := sorted(set(body) - _PARAMETERS):
        return f"Unknown parameter: '{unknown[0]}'."
    if sentence := _effort_refusal(str(body.get("model")), body.get("reasoning") or {}):
        return sentence
    if "temperature" in body:
        return "Unsupported parameter: 'temperature' is not supported with this model."
    if (body.get("max_output_tokens") or 16) < 16:
        return "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
    for number, tool in enumerate(body.get("tools") or ()):
        if not tool.get("name"):
            return f"Missing required parameter: 'tools[{number}].name'."
    items = _items(body)
    if not items:
        return "Missing required parameter: 'input'."
    return caching.responses_refusal(body) or _calls_refusal(items) or _reasoning_refusal(items, body.get("model"))


def _effort_refusal(model: str, reasoning: Mapping[str, Any]) -> str | None:
    if model.startswith("gpt-4") and reasoning:
        return f"Unsupported parameter: 'reasoning.{min(reasoning)}' is not supported with this model."
    if "effort" in reasoning and reasoning["effort"] not in _EFFORTS:
        return (
            f"Unsupported value: '{reasoning['effort']}' is not supported with the '{model}' model. "
            f"Supported values are: {', '.join(map(repr, _EFFORTS))}."
        )
    return None


def _calls_refusal(items: Sequence[Mapping[str, Any]]) -> str | None:
    calls: dict[str, bool] = {}
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") not in _ROLES:
            return f"Invalid value: '{item.get('role')}'. Supported values are: 'assistant', 'system', 'developer'."
        if kind == "message" and not item.get("content"):
            return f"Invalid 'input[{number}].content': empty string."
        if kind == "function_call":
            if len(item["call_id"]) > 64:
                return f"Invalid 'input[{number}].call_id': string too long."
            if not isinstance(item["arguments"], str):
                return f"Invalid type for 'input[{number}].arguments': expected a string."
            calls[item["call_id"]] = False
        elif kind == "function_call_output":
            if item["call_id"] not in calls:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            calls[item["call_id"]] = True
    unanswered = [identity for identity, answered in calls.items() if not answered]
    return f"No tool output found for function call {unanswered[0]}." if unanswered else None


def _reasoning_refusal(items: Sequence[Mapping[str, Any]], model: Any) -> str | None:
    """Return the refusal of items with ids that were separated: a call needs its reasoning, reasoning its next item."""
    reasoned: str | None = None  # the mark of the step whose reasoning has come
    for number, item in enumerate(items):
        identity, kind = str(item.get("id") or ""), item.get("type", "message")
        mark = identity.split("_")[1] if identity else ""
        if kind == "reasoning":
            following = items[number + 1] if number + 1 < len(items) else {}
            if mark not in str(following.get("id") or ""):
                return f"Item '{identity}' of type 'reasoning' was provided without its required following item."
            if not item.get("encrypted_content"):
                return (
                    f"Item with id '{identity}' not found. Items are not persisted when `store` is set to false. "
                    "Try again with `store` set to true, or remove this item from your input."
                )
            if item["encrypted_content"] != _sealed(model, identity):
                return "The encrypted content could not be verified. Reason: Encrypted content could not be decrypted."
            reasoned = mark
        elif identity and mark != reasoned and kind in ("function_call", "message"):
            problem = f"'{kind}' was provided without its required 'reasoning' item: 'rs_{mark}'"
            return f"Item '{identity}' of type {problem}."
    return None
