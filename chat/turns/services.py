"""What a person does with a turn on its way: stop it, allow or refuse a tool call."""

import json
from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, ToolPermission, Turn
from chat.models.conversation_state import require_owner
from chat.realtime import bell, turn_stream
from chat.realtime.events import Approval, Event, EventType
from chat.tools import permission
from chat.turns.emitter import answer_of
from chat.turns.store import Ending, end_queued
from core.background import TURNS, enqueue
from core.errors import NotFound, ProductError
from core.requests import get_or_404


def stop_turn(*, user: User, turn: Turn) -> None:
    """Asks a live turn to stop. One that no worker has claimed yet ends at once; an ended one stays as it is.

    The rows say so; Redis only makes it faster, so the request does not wait for a Redis that is away.
    """
    require_owner(user, turn.conversation)
    if turn.status not in Turn.LIVE:
        return
    if end_queued(turn, Ending(Turn.Status.STOPPED)):
        TURNS.remove(turn.pk)
        last = Event(EventType.RUN_STOPPED, str(turn.pk), 1, {})
        async_to_sync(turn_stream.append_if_reachable)(turn.pk, [last])
        enqueue("chat.tasks.send_next", turn.conversation_id)  # no worker has it that would see to what comes next
        return
    live = Turn.objects.live().filter(pk=turn.pk, stop_requested=False)
    live.update(stop_requested=True, stop_asked=timezone.now())
    bell.signal_stop(turn.pk)


def decide_call(*, user: User, turn: Turn, call: str, allow: bool, remember: bool = False) -> None:
    """Says whether a tool call that waits for its person may run.

    `remember`: and so may, or may never, every other call of this conversation to the same host, for tools without one
    of the same tool. Those that wait now are decided along with it.
    Raises `not_found` for a call that does not ask, `already_decided` and `not_waiting` (409).
    """
    require_owner(user, turn.conversation)
    parts = async_to_sync(answer_of)(turn).parts
    require_waiting(turn, parts, call)
    decision = Approval.ALLOWED if allow else Approval.REFUSED
    tool, host = _about(asking(parts, call))
    with transaction.atomic():  # whose row stands only if this decision is the one that counts
        if remember:
            permission.remember(turn.conversation, tool=tool, host=host, allowed=allow)
        if not bell.claim_decision(turn.pk, call):
            raise already_decided()
    # Only now: the next call of the turn may be there before a row that is not committed.
    if not bell.decide(turn.pk, call, decision):
        raise already_decided()
    others = [part for part in parts if remember and part.get("approval") == Approval.WAITING and part["id"] != call]
    for part in others:
        if _about(part) == (tool, host):
            bell.decide(turn.pk, part["id"], decision)


def forget_permission(*, user: User, conversation: Conversation, pk: object) -> None:
    """From now on its calls ask again. Raises `NotFound`."""
    require_owner(user, conversation)
    get_or_404(ToolPermission.objects.filter(conversation=conversation), pk, "permission").delete()


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
    """A tool call's part for a template, while somebody has to decide with `asked`, what it is to be called with,
    `host`, which a decision for the conversation would be about, and `until`, a time, where that is known."""
    if part.get("approval") != Approval.WAITING:
        return part
    until = datetime.fromisoformat(part["until"]) if part.get("until") else None
    return {**part, "asked": _readable(part["arguments"]), "host": _about(part)[1], "until": until}


def _about(part: dict[str, Any]) -> tuple[str, str]:
    """The tool and the host, if it has one, that a decision about this call is remembered for."""
    return part["name"], permission.host_asked_for(part["name"], _given(part["arguments"]) or {})


def _readable(arguments: str) -> list[tuple[str, str]]:
    """By name: texts as they are, everything else as JSON."""
    given = _given(arguments)
    if given is None:
        return [("", arguments)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in given.items()
    ]


def _given(arguments: str) -> dict[str, Any] | None:
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None
