"""Rows become what the context engine is given: the branch, read newest first until the budget is full, and the blocks.

A message row may be several of the engine's messages: an answer holds the whole turn, with its calls and their results.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db import connection

from chat.context.rendering import STUB, own_tokens
from chat.context.types import ContextMessage, SourceReport
from chat.models import Message
from llm.tokens import Tokenizer
from llm.types.model_call import ToolCall

# How an answer that did not end well is replayed: its text as it stands, marked as what it is. Its error never is.
MARKS = {
    Message.Status.STOPPED: "[This answer was stopped before its end.]",
    Message.Status.FAILED: "[This answer broke off before its end.]",
    Message.Status.INTERRUPTED: "[This answer broke off before its end.]",
}

# Errors of an answer whose question was never sent, since it was too long. It must not stand in the way of what came
# before it: the policy `recent` would find in every later turn that it does not fit, and look no further.
UNSENT = ("context_too_long", "file_too_long")

# Walks up the branch and stops at the question whose turn makes the tokens read exceed the room: the engine wants whole
# turns, and one that does not fit, to know that it has seen enough. A row without a stored count weighs nothing here,
# so it is read rather than missed; its count is then stored for the next time. A summary's last message ends the walk.
_NEWEST_FIRST = """
WITH RECURSIVE branch AS (
    SELECT m.*, COALESCE((m.tokens #>> %(path)s)::int, 0) AS read FROM chat_message m
    WHERE m.id = %(leaf)s AND m.id IS DISTINCT FROM %(covered)s
    UNION ALL
    SELECT m.*, b.read + CASE WHEN m.role = 'user' AND b.error_code = ANY(%(unsent)s) AND b.parts = '[]'::jsonb
        THEN 0 ELSE COALESCE((m.tokens #>> %(path)s)::int, 0) END
    FROM chat_message m JOIN branch b ON m.id = b.parent_id
    WHERE (b.read <= %(room)s OR b.role <> 'user') AND m.id IS DISTINCT FROM %(covered)s
)
SELECT * FROM branch ORDER BY depth
"""

_STORE = "UPDATE chat_message m SET tokens = m.tokens || v.tokens FROM (VALUES {}) AS v (id, tokens) WHERE m.id = v.id"


def newest(
    leaf_id: UUID, *, room: int, tokenizer: Tokenizer, overhead: int, covered: UUID | None = None
) -> list[Message]:
    """The end of the branch, oldest first: the turns that fit into `room` tokens and, if there is more, one beyond.

    `covered` is the last message that a summary stands for: neither it nor anything above it is read.
    """
    path = [tokenizer.name, f"as_history_{overhead}"]
    bound = {"leaf": leaf_id, "room": max(room, 0), "path": path, "covered": covered, "unsent": list(UNSENT)}
    return list(Message.objects.raw(_NEWEST_FIRST, bound))


def unsent(rows: Sequence[Message]) -> list[SourceReport]:
    """The questions among the rows that were too long to be sent, and so are not part of what was said."""
    return [SourceReport("message", str(row.pk), "left_out", 0, "no_room") for row in _unsent(rows)]


def _unsent(rows: Sequence[Message]) -> list[Message]:
    return [question for question, answer in pairwise(rows) if answer.error_code in UNSENT and not answer.parts]


def messages_of(rows: Sequence[Message], *, tokenizer: Tokenizer, overhead: int) -> list[ContextMessage]:
    """The engine's messages of these rows, without the `unsent`, and their counts, which are stored where new."""
    messages: list[ContextMessage] = []
    counted: list[tuple[UUID, dict[str, Any]]] = []
    left_out = {row.pk for row in _unsent(rows)}
    for row in rows:
        if row.pk in left_out:
            continue
        expanded = list(expand(row))
        known = row.tokens.get(tokenizer.name, {})
        if len(known.get("each", ())) != len(expanded) or f"as_history_{overhead}" not in known:
            each = [own_tokens(message, tokenizer) for message in expanded]
            known = {**known, "each": each, f"as_history_{overhead}": _as_history(expanded, each, tokenizer, overhead)}
            if row.status != Message.Status.PENDING:
                counted.append((row.pk, {tokenizer.name: known}))
        messages += [replace(message, tokens=own) for message, own in zip(expanded, known["each"], strict=True)]
    _store(counted)
    return messages


def _as_history(messages: Sequence[ContextMessage], each: Sequence[int], tokenizer: Tokenizer, overhead: int) -> int:
    """What the row costs in an older turn, where results are stubs."""
    stub = tokenizer.count(STUB)
    return sum((stub if m.role == "tool" else own) + overhead for m, own in zip(messages, each, strict=True))


def _store(counted: Sequence[tuple[UUID, dict[str, Any]]]) -> None:
    if not counted:
        return
    values = ", ".join(["(%s::uuid, %s::jsonb)"] * len(counted))
    flat = [value for pk, tokens in counted for value in (pk, json.dumps(tokens))]
    with connection.cursor() as cursor:
        cursor.execute(_STORE.format(values), flat)


def expand(row: Message) -> list[ContextMessage]:
    """The row as the model sees it: reasoning is never replayed, what was said before a call is.

    The last message carries the row's id; the steps before it are numbered, as `<id>#1`.
    """
    if row.role == Message.Role.USER:
        return [ContextMessage(str(row.pk), "user", row.text)]
    steps = _steps(row.parts)
    mark = MARKS.get(Message.Status(row.status))
    if mark and steps:
        final = steps.pop() if steps[-1].role == "assistant" and not steps[-1].tool_calls else _said([], [])
        steps.append(replace(final, text=f"{final.text}\n\n{mark}".strip()))
    names = [f"{row.pk}#{number}" for number in range(1, len(steps))] + [str(row.pk)]
    return [replace(step, id=name) for step, name in zip(steps, names, strict=False)]


def _steps(parts: Sequence[dict[str, Any]]) -> list[ContextMessage]:
    steps: list[ContextMessage] = []
    texts: list[str] = []
    calls: list[ToolCall] = []

    def close() -> None:
        if texts or calls:
            steps.append(_said(texts, calls))
            texts.clear()
            calls.clear()

    for part in parts:
        match part["type"]:
            case "text":
                if calls:
                    close()
                texts.append(part["text"])
            case "tool_call":
                calls.append(ToolCall(part["id"], part["name"], part["arguments"]))
            case "tool_result":
                close()
                steps.append(ContextMessage("", "tool", part["text"], tool_call_id=part["id"]))
    close()
    return steps


def _said(texts: Sequence[str], calls: Sequence[ToolCall]) -> ContextMessage:
    return ContextMessage("", "assistant", "\n\n".join(texts), tool_calls=tuple(calls))
