"""Keeps the rows of the turns that this process carries out, all together: one statement a second for up to a hundred.

Each by itself would be a trip to the database per turn and second, most of them to say that a model is still silent.
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
from chat.turns.rights import Uses
from chat.turns.store import Progress
from core.background import on_database, with_retries
from core.sentences import Sentence

LOOKED_AT_EVERY = 2  # checkpoints: a right that was taken away ends what runs on it within 5 seconds
EVERY = 1.0  # seconds: what a killed worker can lose of the row; the stream has the rest
AT_ONCE = 100  # turns; their texts are in memory and on the wire twice

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Kept:
    turn: Turn
    answer: Answer
    uses: Callable[[], Uses | None]
    over: "asyncio.Future[Sentence | None]"
    written: int = -1  # the `seq` that the row has
    asks: bool = False  # whether a call waits for its person there


_kept: dict[UUID, _Kept] = {}  # by turn
_keeper: "asyncio.Task[None] | None" = None


async def keep(turn: Turn, answer: Answer, uses: Callable[[], Uses | None]) -> Sentence | None:
    """Until it is cancelled, the turn has a heartbeat and its row the answer so far.

    Returns when a stop was asked for or the turn is not ours any more; and, with the sentence that says so, when its
    person may not use any more what it `uses` now. Raises a database error after a minute of it.
    """
    global _keeper
    kept = _kept[turn.pk] = _Kept(turn, answer, uses, asyncio.get_running_loop().create_future())
    if _keeper is None or _keeper.done():
        _keeper = asyncio.create_task(_keep_all())
    try:
        return await kept.over
    finally:
        del _kept[turn.pk]


async def _keep_all() -> None:
    for number in itertools.count():
        if not _kept:
            return
        await asyncio.sleep(EVERY)
        everything = list(_kept.values())
        if number % LOOKED_AT_EVERY == 0:
            await _look_at_rights(everything)
        for first in range(0, len(everything), AT_ONCE):
            await _write(everything[first : first + AT_ONCE])


async def _look_at_rights(everything: list[_Kept]) -> None:
    using = {each.turn.pk: (each, uses) for each in everything if (uses := each.uses()) is not None}
    if not using:
        return
    try:
        lost = await on_database(rights.lost, {pk: uses for pk, (_, uses) in using.items()})
    except Exception:
        logger.exception("the rights that turns run on were not looked at")  # they are in two seconds
        return
    for pk, said in lost.items():
        _end(using[pk][0], said)


async def _write(several: list[_Kept]) -> None:
    several = [each for each in several if not each.over.done()]
    if not several:
        return
    progress = [_progress(each) for each in several]
    try:
        ours = await with_retries(partial(store.checkpoint, progress), apart=True)
    except Exception as error:
        if len(several) > 1 and not isinstance(error, (OperationalError, InterfaceError)):
            for each in several:  # one of them holds what cannot be stored; the others must not suffer for it
                await _write([each])
        else:
            for each in several:
                _end(each, error)
        return
    for each, (_, _, seq, turned) in zip(several, progress, strict=True):
        each.written = seq
        each.asks ^= turned
        if ours.get(each.turn.pk, True):
            _end(each)


def _progress(kept: _Kept) -> Progress:
    parts = None if kept.answer.seq == kept.written else store.dump(kept.answer.parts)
    return Progress(kept.turn, parts, kept.answer.seq, kept.answer.asks != kept.asks)


def _end(kept: _Kept, why: Exception | Sentence | None = None) -> None:
    if kept.over.done():
        return
    if isinstance(why, Exception):
        kept.over.set_exception(why)
    else:
        kept.over.set_result(why)
