"""What the sweeper does about turns whose worker is gone."""

import logging
from uuid import UUID

from chat.realtime import event_stream
from chat.realtime.events import fold
from chat.turns.emitter import Answer
from chat.turns.outcome import INTERRUPTED, last_event
from chat.turns.store import Outcome, end, stale_turn
from core.background import on_database

logger = logging.getLogger(__name__)


async def recover(turn_id: UUID) -> UUID | None:
    """Ends a turn whose worker is gone: its text is completed from the stream, which is ahead of the row, and kept.

    Returns its conversation, None when somebody else has ended it.
    """
    turn = await on_database(stale_turn, turn_id)
    if turn is None:
        return None
    answer = Answer(str(turn.pk))
    answer.parts, answer.seq = turn.answer.parts, turn.seq
    for event in await event_stream.read(turn.pk, turn.seq):
        fold(answer.parts, event.type, event.payload)
        answer.seq = event.seq
    last, payload = last_event(INTERRUPTED, {})
    answer.emit(last, **payload)
    events = answer.drain()
    if not await on_database(end, turn, INTERRUPTED, Outcome(answer.parts, answer.seq)):
        return None
    await event_stream.append(turn.pk, events)
    logger.warning("turn %s was interrupted: its worker is gone", turn.pk)
    return turn.conversation_id
