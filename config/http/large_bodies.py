"""The queue of large bodies: one at a time for each person, and a few at a time in a process.

A body of 8 MB takes up to 100 MB while it is read, checked and stored.

1. It waits on disk for its turn: for the person's previous body, then for a place of the process.
2. A view that waits for another server, as for a remote embedder, frees its place of the process (`core.outside`). The
   person's next body still waits, so that memory grows with people and not with requests.
3. The turn ends when the answer begins, or when a view calls `core.requests.settle`, since it only waits for a model
   from then on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

from core.errors import ProductError
from core.sentences import Sentence

LARGE = 250_000  # bytes
# Bodies that a process works on. Three at once, with ten people who sent the largest, took a process to 1.6 times its
# memory; they are no faster, since they share a core.
AT_ONCE = 2
PATIENCE = 30.0  # seconds that a body waits for its turn


class BodyTurn(NamedTuple):
    """The turn of one body. Both functions may be called again, which does nothing.

    `leave` frees the place of the process; `end` also lets the person's next body begin.
    """

    end: Callable[[], None]
    leave: Callable[[], None]


class LargeBodies:
    """The turns of one process. Use it only on the process's event loop."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._people: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, person: UUID) -> AsyncIterator[BodyTurn]:
        """Wait for the turn of a person's body, which ends with the block at the latest.

        Raises `busy` (503) after `PATIENCE` seconds.
        """
        own = self._people.setdefault(person, asyncio.Lock())
        with ExitStack() as locks:
            try:
                async with asyncio.timeout(PATIENCE):
                    await own.acquire()
                    locks.callback(own.release)
                    await self._all.acquire()
                    place = locks.enter_context(ExitStack())
                    place.callback(self._all.release)
            except TimeoutError as error:
                detail = Sentence("Other large requests are being worked on. Send this one again in a few seconds.")
                raise ProductError("busy", detail, status=503, retry_after=5) from error
            yield BodyTurn(locks.close, place.close)
