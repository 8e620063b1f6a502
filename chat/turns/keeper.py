"""Checkpoints of the turns that this process carries out: one statement a second for up to a hundred turns.

A statement for each turn would be a trip to the database per turn and second, mostly while its model is still silent.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
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

CHECKPOINTS_PER_RIGHTS_CHECK = 2  # a turn ends within 5 seconds of losing a right that it uses
EVERY = 1.0  # seconds of text that the row of a killed worker's turn can lack; the stream has the rest
AT_ONCE = 100  # turns in one statement; their texts are in memory and on the wire twice

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _CheckpointedTurn:
    """A turn with its answer. `over` is set when the turn must end before its model does."""

    turn: Turn
    answer: Answer
    uses: Callable[[], TurnUses | None]
    over: "asyncio.Future[Sentence | None]"
    stored_seq: int = -1  # the `seq` that the row has
    asks: bool = False  # whether a call waits for its person in the row


_turns: dict[UUID, _CheckpointedTurn] = {}
_keeper: "asyncio.Task[None] | None" = None


async def keep(turn: Turn, answer: Answer, uses: Callable[[], TurnUses | None]) -> Sentence | None:
    """Write the turn's heartbeat and the answer so far, until cancelled.

    Returns None when a stop was requested or another worker has ended the turn. Returns a sentence when its person has
    lost a right that it `uses` now. Raises a database error after a minute of it.
    """
    global _keeper
    entry = _CheckpointedTurn(turn, answer, uses, asyncio.get_running_loop().create_future())
    _turns[turn.pk] = entry
    if _keeper is None or _keeper.done():
        _keeper = asyncio.create_task(_keep_all())
    try:
        return await entry.over
    finally:
        del _turns[turn.pk]


async def _keep_all() -> None:
    for number in itertools.count():
        if not _turns:
            return
        await asyncio.sleep(EVERY)
        turns = list(_turns.values())
        if number % CHECKPOINTS_PER_RIGHTS_CHECK == 0:
            await _check_rights(turns)
        for first in range(0, len(turns), AT_ONCE):
            await _write(turns[first : first + AT_ONCE])


async def _check_rights(turns: list[_CheckpointedTurn]) -> None:
    using = {each.turn.pk: (each, uses) for each in turns if (uses := each.uses()) is not None}
    if not using:
        return
    try:
        lost = await on_database(rights.lost, {pk: uses for pk, (_, uses) in using.items()})
    except Exception:
        logger.exception("the rights that turns run on were not checked")  # they are in two seconds
        return
    for pk, sentence in lost.items():
        _end(using[pk][0], sentence)


async def _write(turns: list[_CheckpointedTurn]) -> None:
    turns = [each for each in turns if not each.over.done()]
    if not turns:
        return
    progress = [_progress(each) for each in turns]
    try:
        ours = await with_retries(partial(store.checkpoint, progress), apart=True)
    except Exception as error:
        if len(turns) > 1 and not isinstance(error, (OperationalError, InterfaceError)):
            for each in turns:  # one of them cannot be stored, which must not affect the others
                await _write([each])
        else:
            for each in turns:
                _end(each, error)
        return
    for each, step in zip(turns, progress, strict=True):
        each.stored_seq = step.seq
        each.asks ^= step.asks_changed
        if ours.get(each.turn.pk, True):
            _end(each)


def _progress(entry: _CheckpointedTurn) -> TurnProgress:
    answer = entry.answer
    parts = None if answer.seq == entry.stored_seq else store.dump(answer.parts)
    return TurnProgress(entry.turn, parts, answer.seq, asks_changed=answer.asks != entry.asks)


def _end(entry: _CheckpointedTurn, cause: Exception | Sentence | None = None) -> None:
    if entry.over.done():
        return
    if isinstance(cause, Exception):
        entry.over.set_exception(cause)
    else:
        entry.over.set_result(cause)
