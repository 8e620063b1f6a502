"""Write checkpoints of the turns that this process carries out: one statement a second for up to a hundred turns.

One statement per turn would cost a round trip to the database per turn and second, mostly while the model is silent.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.db import InterfaceError, OperationalError

from chat.models import Turn
from chat.turns import rights, store
from chat.turns.emitter import Answer
from chat.turns.rights import TurnUses
from chat.turns.store import TurnProgress
from core.background import on_database, with_retries
from core.sentences import Sentence

CHECKPOINTS_PER_RIGHTS_CHECK = 2  # a turn ends within 5 seconds after its user loses a right that it uses
SAVE_INTERVAL = 1.0  # seconds of text that the row may lack if the worker is killed; the stream has this text
BATCH_TURNS = 100  # turns in one statement; their texts are in memory and on the wire twice

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _CheckpointedTurn:
    """A turn with its answer. `over` gets its result when the turn must end before the model does."""

    turn: Turn
    answer: Answer
    uses: Callable[[], TurnUses | None]
    over: "asyncio.Future[Sentence | None]"
    stored_seq: int = -1  # the `seq` that the row has
    asks: bool = False  # whether a call waits for the user, according to the row


_turns: dict[UUID, _CheckpointedTurn] = {}
_keeper: "asyncio.Task[None] | None" = None


async def keep_checkpoints(turn: Turn, answer: Answer, uses: Callable[[], TurnUses | None]) -> Sentence | None:
    """Write the turn's heartbeat and the answer so far, until cancelled.

    Returns None if a stop was requested or another worker has ended the turn. Returns a sentence if the user has lost a
    right that the turn `uses` now. Raises a database error that lasts for a minute.
    """
    global _keeper
    entry = _CheckpointedTurn(turn, answer, uses, asyncio.get_running_loop().create_future())
    _turns[turn.pk] = entry
    if _keeper is None or _keeper.done():
        # Its log lines must not have the ids of the turn that starts it.
        _keeper = asyncio.create_task(_checkpoint_loop(), context=Context())
    try:
        return await entry.over
    finally:
        del _turns[turn.pk]


async def _checkpoint_loop() -> None:
    for number in itertools.count():
        if not _turns:
            return
        await asyncio.sleep(SAVE_INTERVAL)
        turns = list(_turns.values())
        if number % CHECKPOINTS_PER_RIGHTS_CHECK == 0:
            await _check_rights(turns)
        for first in range(0, len(turns), BATCH_TURNS):
            await _write(turns[first : first + BATCH_TURNS])


async def _check_rights(turns: list[_CheckpointedTurn]) -> None:
    turns_using_rights = {each.turn.pk: (each, uses) for each in turns if (uses := each.uses()) is not None}
    if not turns_using_rights:
        return
    try:
        lost = await on_database(rights.find_lost_rights, {pk: uses for pk, (_, uses) in turns_using_rights.items()})
    except Exception:
        logger.exception("the rights that turns run on were not checked")  # the next check follows in two seconds
        return
    for pk, sentence in lost.items():
        _end(turns_using_rights[pk][0], sentence)


async def _write(turns: list[_CheckpointedTurn]) -> None:
    turns = [each for each in turns if not each.over.done()]
    if not turns:
        return
    progress = [_progress(each) for each in turns]
    try:
        stop_requests = await with_retries(partial(store.checkpoint, progress), apart=True)
    except Exception as error:
        if len(turns) > 1 and not isinstance(error, (OperationalError, InterfaceError)):
            for each in turns:  # one turn cannot be stored, which must not affect the others
                await _write([each])
        else:
            for each in turns:
                _end(each, error)
        return
    for each, step in zip(turns, progress, strict=True):
        each.stored_seq = step.seq
        each.asks ^= step.asks_changed
        if stop_requests.get(each.turn.pk, True):
            _end(each)


def _progress(entry: _CheckpointedTurn) -> TurnProgress:
    answer = entry.answer
    parts = None if answer.seq == entry.stored_seq else store.dump_parts(answer.parts)
    return TurnProgress(entry.turn, parts, answer.seq, asks_changed=answer.asks != entry.asks)


def _end(entry: _CheckpointedTurn, cause: Exception | Sentence | None = None) -> None:
    if entry.over.done():
        return
    if isinstance(cause, Exception):
        entry.over.set_exception(cause)
    else:
        entry.over.set_result(cause)
