"""Actions of a person on a live turn: stop it, allow or refuse a tool call."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, ToolPermission, Turn
from chat.models.conversation_state import require_owner
from chat.models.parts import MessagePart
from chat.realtime import signals, turn_stream
from chat.realtime.events import Approval, Event, EventType
from chat.tools import permission
from chat.turns.emitter import answer_of
from chat.turns.store import Ending, end_queued
from core.background import TURNS, enqueue
from core.errors import NotFound, ProductError
from core.json_types import JsonObject
from core.requests import get_or_404


def stop_turn(*, user: User, turn: Turn) -> None:
    """Ask a live turn to stop. A turn that no worker has claimed yet ends at once; an ended one stays as it is.

    The row holds the request. Redis only makes it faster, so nobody waits for a Redis that is away.
    """
    require_owner(user, turn.conversation)
    if turn.status not in Turn.LIVE:
        return
    if end_queued(turn, Ending(Turn.Status.STOPPED)):
        TURNS.remove(turn.pk)
        last = Event(EventType.RUN_STOPPED, str(turn.pk), 1, {})
        async_to_sync(turn_stream.append_if_reachable)(turn.pk, [last])
        enqueue("chat.tasks.send_next", turn.conversation_id)  # no worker has the turn and would begin what follows
        return
    live = Turn.objects.live().filter(pk=turn.pk, stop_requested=False)
    live.update(stop_requested=True, stop_asked=timezone.now())
    signals.signal_stop(turn.pk)


def decide_call(*, user: User, turn: Turn, call: str, allow: bool, remember: bool = False) -> None:
    """Decide whether a tool call that waits for its person may run.

    `remember`: the decision holds for every other call of this conversation to the same host, or of the same tool where
    it has no host. Calls that wait now are decided along with it.
    Raises `not_found` for a call that does not ask, `already_decided` and `not_waiting` (409).
    """
    require_owner(user, turn.conversation)
    parts = async_to_sync(answer_of)(turn).parts
    require_waiting(turn, parts, call)
    decision = Approval.ALLOWED if allow else Approval.REFUSED
    tool, host = _tool_and_host(asking(parts, call))
    with transaction.atomic():  # the row is rolled back when another decision came first
        if remember:
            permission.remember(turn.conversation, tool=tool, host=host, allowed=allow)
        if not signals.claim_decision(turn.pk, call):
            raise already_decided()
    # After the commit: the worker may make the turn's next call at once, which must find the row.
    if not signals.decide(turn.pk, call, decision):
        raise already_decided()
    others = [part for part in parts if remember and part.get("approval") == Approval.WAITING and part["id"] != call]
    for part in others:
        if _tool_and_host(part) == (tool, host):
            signals.decide(turn.pk, part["id"], decision)


def forget_permission(*, user: User, conversation: Conversation, pk: object) -> None:
    """Delete a remembered decision, so that such calls ask again. Raises `NotFound`."""
    require_owner(user, conversation)
    get_or_404(ToolPermission.objects.filter(conversation=conversation), pk, "permission").delete()


def asking(parts: Sequence[MessagePart], call: str) -> MessagePart:
    """Return the part of a call that a person was asked about. Raises `NotFound`."""
    for part in parts:
        if part["type"] == "tool_call" and part["id"] == call and "approval" in part:
            return part
    raise NotFound("call")


def require_waiting(turn: Turn, parts: Sequence[MessagePart], call: str) -> None:
    """Raise `not_found` for a call that asked nobody, `not_waiting` and `already_decided` (409) for others."""
    if asking(parts, call)["approval"] != Approval.WAITING:
        raise already_decided()
    if turn.status not in Turn.LIVE:
        raise ProductError(
            "not_waiting", "The answer has ended, so this call does not run any more. Try again for a new one.",
            status=409,
        )  # fmt: skip


def already_decided() -> ProductError:
    return ProductError("already_decided", "This call was decided already. Reload to see how.", status=409)


def shown(part: MessagePart) -> dict[str, Any]:
    """Return a part for a template. A tool call that waits for its person has more members.

    `asked`: names and values of its arguments. `host`: that a decision for the conversation would be about. `until`:
    the end of the time to decide as a datetime, None where it is not known.
    """
    if part.get("approval") != Approval.WAITING:
        return {**part}
    until = datetime.fromisoformat(part["until"]) if part.get("until") else None
    return {**part, "asked": _readable(part["arguments"]), "host": _tool_and_host(part)[1], "until": until}


def _tool_and_host(part: MessagePart) -> tuple[str, str]:
    """Return the tool and the host, if it has one, for which a decision about this call is remembered."""
    return part["name"], permission.host_asked_for(part["name"], _arguments_of(part["arguments"]) or {})


def _readable(arguments: str) -> list[tuple[str, str]]:
    """Return the arguments by name: texts as they are, everything else as JSON."""
    values = _arguments_of(arguments)
    if values is None:
        return [("", arguments)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in values.items()
    ]


def _arguments_of(arguments: str) -> JsonObject | None:
    """Return the arguments that a model wrote; None where they are no JSON object."""
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
