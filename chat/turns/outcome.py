"""How a turn can end, and how its readers are told."""

from dataclasses import dataclass
from typing import Any

from chat.models import Turn
from chat.realtime.events import EventType


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends. `status` is one of Turn.Status; Message.Status has the same words for all of them."""

    status: str
    code: str = ""
    detail: str = ""
    retryable: bool = False


INTERRUPTED = Ending(
    Turn.Status.INTERRUPTED,
    "interrupted",
    "The answer was cut off because the server stopped. What was written is kept; try again to get a whole one.",
    retryable=True,
)
UNEXPECTED = Ending(
    Turn.Status.FAILED,
    "internal_error",
    "Something went wrong on the server while answering. Try again; if it happens again, tell your admin.",
    retryable=True,
)


def last_event(ending: Ending, usage: dict[str, int], finish: str = "stop") -> tuple[EventType, dict[str, Any]]:
    """The type and payload of the last event of a turn that ends so."""
    if ending.status == Turn.Status.DONE:
        return EventType.RUN_FINISHED, {"usage": usage, "finish": finish}
    if ending.status == Turn.Status.STOPPED:
        return EventType.RUN_STOPPED, {}
    payload = {"code": ending.code, "detail": ending.detail, "status": ending.status, "retryable": ending.retryable}
    return EventType.RUN_ERROR, payload
