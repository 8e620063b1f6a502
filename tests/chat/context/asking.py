"""Asking `plan` from a test, the way another program does."""

import json
from typing import Any

from chat.context.plan_io import run

Json = dict[str, Any]

# Without reserves and overhead the numbers of a test are the numbers of the request.
BARE: Json = {"window": 1_000, "reserved_output": 0, "buffer": 0, "message_overhead": 0, "tool_result_stub_tokens": 5}


def answers(kind: str, *lines: str | bytes) -> tuple[list[Json], bool]:
    """The answers to the lines and whether all of them were well formed."""
    written: list[str] = []
    well_formed = run(kind, lines, written.append)
    return [json.loads(line) for line in written], well_formed


def plan(kind: str, request: Json) -> Json:
    (answer,), _ = answers(kind, json.dumps(request))
    return answer


def context(*messages: Json, **fields: Any) -> Json:
    """The answer to a `context` request with the bare room, for these messages."""
    return plan("context", {**BARE, "messages": list(messages), **fields})


def error_code(answer: Json) -> str | None:
    return None if answer.get("ok", True) else answer["error"]["code"]


def user(name: str, tokens: int | None = 5, **fields: Any) -> Json:
    return _message(name, "user", tokens, fields)


def assistant(name: str, tokens: int | None = 5, **fields: Any) -> Json:
    return _message(name, "assistant", tokens, fields)


def call(name: str, *call_ids: str, tokens: int | None = 5, **fields: Any) -> Json:
    calls = [{"id": call_id, "name": "search", "arguments": {"q": "x"}} for call_id in call_ids]
    return _message(name, "assistant", tokens, {"tool_calls": calls, **fields})


def result(name: str, call_id: str, tokens: int | None = 300, **fields: Any) -> Json:
    return _message(name, "tool", tokens, {"tool_call_id": call_id, **fields})


def file(name: str, tokens: int | None = None, **fields: Any) -> Json:
    return {"id": name, "title": f"{name}.txt", **({} if tokens is None else {"tokens": tokens}), **fields}


def sent(answer: Json) -> list[str]:
    """Sections, and the ids of messages and files in their place, in the order of the prompt."""
    return [message["source"] or message["section"] for message in answer["messages"]]


def message_of(answer: Json, source_or_section: str) -> Json:
    message: Json = next(m for m in answer["messages"] if source_or_section in (m["source"], m["section"]))
    return message


def _message(name: str, role: str, tokens: int | None, fields: Json) -> Json:
    return {"id": name, "role": role, **({} if tokens is None else {"tokens": tokens}), **fields}
