"""Actions of a user on a live turn: stop it, allow or refuse a tool call."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
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
from chat.turns.emitter import form_id, load_answer
from chat.turns.store import Ending, end_queued
from core.background import TURNS, enqueue
from core.errors import NotFound, ProductError
from core.json_types import JsonObject
from core.requests import get_or_404
from llm.types.forms import ToolQuestion, validate_content


def stop_turn(*, user: User, turn: Turn) -> None:
    """Ask a live turn to stop. A turn that no worker has claimed yet ends at once; an ended one stays as it is.

    The row stores the request. Redis only makes it faster, so this does not wait for Redis if it is unavailable.
    """
    require_owner(user, turn.conversation)
    if turn.status not in Turn.LIVE:
        return
    if end_queued(turn, Ending(Turn.Status.STOPPED)):
        TURNS.remove(turn.pk)
        last = Event(EventType.RUN_STOPPED, str(turn.pk), 1, {})
        async_to_sync(turn_stream.append_if_reachable)(turn.pk, [last])
        enqueue("chat.tasks.send_next", turn.conversation_id)  # no worker has the turn, so none would do this
        return
    live = Turn.objects.live().filter(pk=turn.pk, stop_requested=False)
    live.update(stop_requested=True, stop_asked=timezone.now())
    signals.signal_stop(turn.pk)


def decide_call(
    *,
    user: User,
    turn: Turn,
    call: str,
    allow: bool,
    remember: bool = False,
    content: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Store the user's decision whether a waiting tool call may run, or their answer to the form of a running call.

    `remember`: the decision also holds for all other calls in this conversation to the same host, or to the same tool
    if it has no host. This includes calls that are waiting now. It does not apply to forms. `content`: the values of a
    form, by the names of its fields.
    Raises `not_found` for a call that needs no decision, `already_decided` and `not_waiting` (409), `bad_form`.
    """
    require_owner(user, turn.conversation)
    parts = async_to_sync(load_answer)(turn).parts
    require_waiting(turn, parts, call)
    if form := find_call_part(parts, call).get("form"):
        _answer_form(turn, form_id(call, form), form, content if allow else None)
        return
    decision = Approval.ALLOWED if allow else Approval.REFUSED
    tool, host = _tool_and_host(find_call_part(parts, call))
    with transaction.atomic():  # the row is rolled back if another decision came first
        if remember:
            permission.remember(turn.conversation, tool=tool, host=host, allowed=allow)
        if not signals.claim_decision(turn.pk, call):
            raise already_decided_error()
    # After the commit: the worker may make the turn's next call at once, which must find the row.
    if not signals.decide(turn.pk, call, decision):
        raise already_decided_error()
    others = [part for part in parts if remember and part.get("approval") == Approval.WAITING and part["id"] != call]
    for part in others:
        if _tool_and_host(part) == (tool, host):
            signals.decide(turn.pk, part["id"], decision)


def _answer_form(turn: Turn, wait_id: str, form: ToolQuestion, content: Mapping[str, Any] | None) -> None:
    """Store the answer to a form. None: the user declines. `wait_id`: the id of the form, see `form_id`."""
    values = None if content is None else validate_content(form, content)
    if not signals.claim_decision(turn.pk, wait_id):
        raise already_decided_error()
    if values is not None:
        signals.store_form_content(turn.pk, wait_id, values)
    if not signals.decide(turn.pk, wait_id, Approval.REFUSED if values is None else Approval.ALLOWED):
        raise already_decided_error()


def forget_permission(*, user: User, conversation: Conversation, pk: object) -> None:
    """Delete a remembered decision, so that such calls ask again. Raises `NotFound`."""
    require_owner(user, conversation)
    get_or_404(ToolPermission.objects.filter(conversation=conversation), pk, "permission").delete()


def find_call_part(parts: Sequence[MessagePart], call: str) -> MessagePart:
    """Return the part of a tool call that needs a decision or has one. Raises `NotFound`."""
    for part in parts:
        if part["type"] == "tool_call" and part["id"] == call and "approval" in part:
            return part
    raise NotFound("call")


def require_waiting(turn: Turn, parts: Sequence[MessagePart], call: str) -> None:
    """Raise an error unless the call waits for a decision.

    The error is `not_found` for a call that needs none, otherwise `already_decided` or `not_waiting` (409).
    """
    if find_call_part(parts, call)["approval"] != Approval.WAITING:
        raise already_decided_error()
    if turn.status not in Turn.LIVE:
        raise ProductError(
            "not_waiting", "The answer has ended, so this call cannot run. Try again to get a new answer.",
            status=409,
        )  # fmt: skip


def already_decided_error() -> ProductError:
    return ProductError("already_decided", "This call was already decided. Reload the page to see how.", status=409)


def with_decision_members(part: MessagePart) -> dict[str, Any]:
    """Return a part for a template. A tool call that waits for a decision has more members.

    `asked`: names and values of its arguments. `host`: the host to which a remembered decision would apply. `until`:
    the deadline of the decision as a datetime, None if it is not known.
    """
    if part.get("approval") != Approval.WAITING:
        return {**part}
    until = datetime.fromisoformat(part["until"]) if part.get("until") else None
    if "form" in part:
        return {**part, "until": until}
    return {**part, "asked": _readable_arguments(part["arguments"]), "host": _tool_and_host(part)[1], "until": until}


def _tool_and_host(part: MessagePart) -> tuple[str, str]:
    """Return the tool and its host, if any. A decision on this call is remembered for them."""
    return part["name"], permission.host_asked_for(part["name"], _parse_arguments(part["arguments"]) or {})


def _readable_arguments(arguments: str) -> list[tuple[str, str]]:
    """Return the arguments by name: strings unchanged, everything else as JSON."""
    values = _parse_arguments(arguments)
    if values is None:
        return [("", arguments)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in values.items()
    ]


def _parse_arguments(arguments: str) -> JsonObject | None:
    """Return the arguments that a model wrote; None if they are not a JSON object."""
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
