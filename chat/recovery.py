"""What the sweeper does about turns whose worker is gone."""

import logging
from uuid import UUID

from chat import streams
from chat.answers import Answer
from chat.endings import INTERRUPTED, last_event
from chat.events import fold
from chat.turn_rows import Outcome, end, on_database, stale_turn

logger = logging.getLogger(__name__)


async def recover(turn_id: UUID) -> None:
    """Ends a turn whose worker is gone: its text is completed from the stream, which is ahead of the row, and kept."""
    turn = await on_database(stale_turn, turn_id)
    if turn is None:
        return
    answer = Answer(str(turn.pk))
    answer.parts, answer.seq = turn.answer.parts, turn.seq
    for event in await streams.read(turn.pk, turn.seq):
        fold(answer.parts, event.type, event.payload)
        answer.seq = event.seq
    last, payload = last_event(INTERRUPTED, {})
    answer.emit(last, **payload)
    events = answer.drain()
    if await on_database(end, turn, INTERRUPTED, Outcome(answer.parts, answer.seq)):
        await streams.append(turn.pk, events)
        logger.warning("turn %s was interrupted: its worker is gone", turn.pk)
