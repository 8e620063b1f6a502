"""The wire vocabulary of a turn: what sockets and SSE carry, what the Redis stream keeps.

Names follow those that chat protocols share (AG-UI 1.0). `part` is an index into the answer's parts, `call` a tool
call's id. Payloads:

    RUN_STARTED             conversation, message, model
    TEXT_MESSAGE_START      part
    TEXT_MESSAGE_CONTENT    part, delta, blocks [[index, html], …]    placing a block twice is harmless
    TEXT_MESSAGE_END        part, blocks, count
    REASONING_START / _END  part
    REASONING_CONTENT       part, delta
    TOOL_CALL_START         part, call, name
    TOOL_CALL_ARGS          part, call, delta
    TOOL_CALL_END           part, call, label
    TOOL_CALL_APPROVAL      part, call, state             an Approval: waiting, then what was decided
    TOOL_CALL_RESULT        part, call, text, error, arguments (as really used), documents [{number, title, …}]
    CITATION                part, number, title, href       each source once, when its text has ended
    CONTEXT_REPORT          limit, used, left_out, refused
    RUN_FINISHED            usage, finish (why the model ended: llm.events.FinishReason)
    RUN_STOPPED             (nothing)
    RUN_ERROR               code, detail, status ("failed" or "interrupted"), retryable
"""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    RUN_STARTED = "RUN_STARTED"
    TEXT_MESSAGE_START = "TEXT_MESSAGE_START"
    TEXT_MESSAGE_CONTENT = "TEXT_MESSAGE_CONTENT"
    TEXT_MESSAGE_END = "TEXT_MESSAGE_END"
    REASONING_START = "REASONING_START"
    REASONING_CONTENT = "REASONING_CONTENT"
    REASONING_END = "REASONING_END"
    TOOL_CALL_START = "TOOL_CALL_START"
    TOOL_CALL_ARGS = "TOOL_CALL_ARGS"
    TOOL_CALL_END = "TOOL_CALL_END"
    TOOL_CALL_APPROVAL = "TOOL_CALL_APPROVAL"
    TOOL_CALL_RESULT = "TOOL_CALL_RESULT"
    CITATION = "CITATION"
    CONTEXT_REPORT = "CONTEXT_REPORT"
    RUN_FINISHED = "RUN_FINISHED"
    RUN_STOPPED = "RUN_STOPPED"
    RUN_ERROR = "RUN_ERROR"


class Approval(StrEnum):
    """Of a tool call that only the conversation's owner can allow. Without an answer in time it does not run."""

    WAITING = "waiting"
    ALLOWED = "allowed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"


LAST = frozenset({EventType.RUN_FINISHED, EventType.RUN_STOPPED, EventType.RUN_ERROR})


@dataclass(frozen=True, slots=True)
class Event:
    """`seq` counts from 1 within a turn, without gaps; `ts` is Unix time in seconds."""

    type: EventType
    turn: str
    seq: int
    payload: dict[str, Any]
    ts: float = field(default_factory=time.time)

    def to_wire(self) -> dict[str, Any]:
        return {"type": self.type, "turn": self.turn, "seq": self.seq, "ts": round(self.ts, 3), **self.payload}

    @property
    def last(self) -> bool:
        return self.type in LAST


def fold(parts: list[dict[str, Any]], type_: str, payload: dict[str, Any]) -> None:
    """Applies one event to an answer's parts, in place. The worker and the recovery of a dead turn share it."""
    if "part" not in payload:
        return
    index = payload["part"]
    match type_:
        case EventType.TEXT_MESSAGE_START:
            parts.append({"type": "text", "text": ""})
        case EventType.REASONING_START:
            parts.append({"type": "reasoning", "text": ""})
        case EventType.TEXT_MESSAGE_CONTENT | EventType.REASONING_CONTENT:
            parts[index]["text"] += payload["delta"]
        case EventType.CITATION:
            source = {name: payload[name] for name in ("number", "title", "href")}
            parts[index].setdefault("citations", []).append(source)
        case _:
            _fold_call(parts, type_, payload)


def _fold_call(parts: list[dict[str, Any]], type_: str, payload: dict[str, Any]) -> None:
    index = payload["part"]
    match type_:
        case EventType.TOOL_CALL_START:
            parts.append({"type": "tool_call", "id": payload["call"], "name": payload["name"], "arguments": ""})
        case EventType.TOOL_CALL_ARGS:
            parts[index]["arguments"] += payload["delta"]
        case EventType.TOOL_CALL_END:
            parts[index]["label"] = payload["label"]
        case EventType.TOOL_CALL_APPROVAL:
            parts[index]["approval"] = payload["state"]
        case EventType.TOOL_CALL_RESULT:
            call = next(part for part in parts if part["type"] == "tool_call" and part["id"] == payload["call"])
            call["arguments"] = payload["arguments"]
            kept = {name: payload[name] for name in ("text", "error", "documents")}
            parts.append({"type": "tool_result", "id": payload["call"], **kept})
