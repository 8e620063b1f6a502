"""What a person does with a turn on its way: stop it, allow or refuse a tool call."""

from asgiref.sync import async_to_sync

from accounts.models import User
from chat.models import Turn
from chat.models.conversation_state import require_owner
from chat.realtime import event_stream
from chat.realtime.events import Approval, Event, EventType
from chat.turns import approvals
from chat.turns.outcome import Ending
from chat.turns.store import end_queued


def stop_turn(*, user: User, turn: Turn) -> None:
    """Asks a live turn to stop. One that no worker has claimed yet ends at once; an ended one stays as it is."""
    require_owner(user, turn.conversation)
    if turn.status not in Turn.LIVE:
        return
    if end_queued(turn, Ending(Turn.Status.STOPPED)):
        last = Event(EventType.RUN_STOPPED, str(turn.pk), 1, {})
        async_to_sync(event_stream.append)(turn.pk, [last])
        return
    Turn.objects.live().filter(pk=turn.pk).update(stop_requested=True)
    event_stream.signal_stop(turn.pk)


def decide_call(*, user: User, turn: Turn, call: str, allow: bool) -> None:
    """Says whether a tool call that waits for its person may run.

    Raises `not_found` for a call that does not ask, `already_decided` and `not_waiting` (409).
    """
    require_owner(user, turn.conversation)
    approvals.require_waiting(turn, async_to_sync(approvals.parts_of)(turn), call)
    if not event_stream.decide(turn.pk, call, Approval.ALLOWED if allow else Approval.REFUSED):
        raise approvals.already_decided()
