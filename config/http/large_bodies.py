"""The queue of large request bodies: one at a time for each person, and a few at a time in a process.

A body of 8 MB takes up to 100 MB of memory while it is read, checked and stored.

1. A body waits on disk for its turn: first for the person's previous body, then for a place in the process.
2. A view that waits for another server, such as a remote embedder, frees the place in the process (`core.outside`). The
   person's next body still waits, so that memory grows with the number of people, not with that of requests.
3. The turn ends when the answer begins, or when a view calls `core.requests.release_slot`. Such a view only waits for a
   model from then on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

from core.errors import ProductError
from core.sentences import Sentence

LARGE_BODY = 250_000  # bytes; smaller bodies do not wait for a turn
# Bodies that a process handles at once. With three, a process took 1.6 times its memory when ten people sent bodies of
# the largest size. Three are not faster than two, since they share a core.
CONCURRENT_BODIES = 2
WAIT_TIMEOUT = 30.0  # seconds that a body waits for its turn


class BodyTurn(NamedTuple):
    """The turn of one body. A second call of either function does nothing.

    `leave` frees the place of the process; `end` also lets the person's next body begin.
    """

    end: Callable[[], None]
    leave: Callable[[], None]


class LargeBodies:
    """The turns in one process. Use it only on the event loop of the process."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(CONCURRENT_BODIES)
        self._people: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, person: UUID) -> AsyncIterator[BodyTurn]:
        """Wait for the turn of a person's body. The turn ends with the block at the latest.

        Raises `busy` (503) after `WAIT_TIMEOUT` seconds.
        """
        own = self._people.setdefault(person, asyncio.Lock())
        with ExitStack() as locks:
            try:
                async with asyncio.timeout(WAIT_TIMEOUT):
                    await own.acquire()
                    locks.callback(own.release)
                    await self._all.acquire()
                    place = locks.enter_context(ExitStack())
                    place.callback(self._all.release)
            except TimeoutError as error:
                detail = Sentence("The server is handling other large requests. Send yours again in a few seconds.")
                raise ProductError("busy", detail, status=503, retry_after=5) from error
            yield BodyTurn(locks.close, place.close)
