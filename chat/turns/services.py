"""What a person does with a turn on its way: stop it, allow or refuse a tool call."""

import json
from typing import Any

from asgiref.sync import async_to_sync

from accounts.models import User
from chat.models import Turn
from chat.models.conversation_state import require_owner
from chat.realtime import event_stream
from chat.realtime.events import Approval, Event, EventType
from chat.turns.emitter import answer_of
from chat.turns.store import Ending, end_queued
from core.background import enqueue
from core.errors import NotFound, ProductError


def stop_turn(*, user: User, turn: Turn) -> None:
    """Asks a live turn to stop. One that no worker has claimed yet ends at once; an ended one stays as it is."""
    require_owner(user, turn.conversation)
    if turn.status not in Turn.LIVE:
        return
    if end_queued(turn, Ending(Turn.Status.STOPPED)):
        last = Event(EventType.RUN_STOPPED, str(turn.pk), 1, {})
        async_to_sync(event_stream.append)(turn.pk, [last])
        enqueue("chat.tasks.send_next", turn.conversation_id)  # no worker has it that would see to what comes next
        return
    Turn.objects.live().filter(pk=turn.pk).update(stop_requested=True)
    event_stream.signal_stop(turn.pk)


def decide_call(*, user: User, turn: Turn, call: str, allow: bool) -> None:
    """Says whether a tool call that waits for its person may run.

    Raises `not_found` for a call that does not ask, `already_decided` and `not_waiting` (409).
    """
    require_owner(user, turn.conversation)
    require_waiting(turn, async_to_sync(answer_of)(turn).parts, call)
    if not event_stream.decide(turn.pk, call, Approval.ALLOWED if allow else Approval.REFUSED):
        raise already_decided()


def asking(parts: list[dict[str, Any]], call: str) -> dict[str, Any]:
    """The part of a call that a person was asked about. Raises `NotFound`."""
    for part in parts:
        if part["type"] == "tool_call" and part["id"] == call and "approval" in part:
            return part
    raise NotFound("call")


def require_waiting(turn: Turn, parts: list[dict[str, Any]], call: str) -> None:
    """Raises `not_found` for a call that asked nobody, `not_waiting` and `already_decided` (409) for others."""
    if asking(parts, call)["approval"] != Approval.WAITING:
        raise already_decided()
    if turn.status not in Turn.LIVE:
        raise ProductError(
            "not_waiting", "The answer has ended, so this call does not run any more. Try again for a new one.",
            status=409,
        )  # fmt: skip


def already_decided() -> ProductError:
    return ProductError("already_decided", "This call was decided already. Reload to see how.", status=409)


def shown(part: dict[str, Any]) -> dict[str, Any]:
    """A tool call's part for a template: with `asked`, what it is to be called with, while somebody has to decide."""
    waiting = part.get("approval") == Approval.WAITING
    return {**part, "asked": _readable(part["arguments"])} if waiting else part


def _readable(arguments: str) -> list[tuple[str, str]]:
    """By name: texts as they are, everything else as JSON."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return [("", arguments)]
    if not isinstance(given, dict):
        return [("", arguments)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in given.items()
    ]
