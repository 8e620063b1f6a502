"""Large bodies are worked on one at a time for each person, and a few at a time in a process.

A body of 8 MB takes up to 100 MB while it is read, checked and stored. It waits on disk until it has its turn. The turn
ends when the answer begins, or when a view calls `core.requests.settle`, because it waits for a model from then on.

A view that waits for another server, as for a remote embedder, leaves its place of the process to others
(`core.outside`). The next body of the same person waits on, so that memory grows with people and not with requests.
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
AT_ONCE = 3  # of a process
PATIENCE = 30.0  # seconds that a body waits for its turn


class Turn(NamedTuple):
    """The turn of one body. Each may be called again, which does nothing.

    `leave` gives the place of the process to others; `end` also lets the person's next body begin.
    """

    end: Callable[[], None]
    leave: Callable[[], None]


class LargeBodies:
    """The turns of one process. Used on its event loop alone."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._people: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, person: UUID) -> AsyncIterator[Turn]:
        """Wait for the turn of a person's body, which ends with the block at the latest.

        Raises `busy` (503) after `PATIENCE` seconds.
        """
        own = self._people.setdefault(person, asyncio.Lock())
        with ExitStack() as held:
            try:
                async with asyncio.timeout(PATIENCE):
                    await own.acquire()
                    held.callback(own.release)
                    await self._all.acquire()
                    place = held.enter_context(ExitStack())
                    place.callback(self._all.release)
            except TimeoutError as error:
                detail = Sentence("Other large requests are being worked on. Send this one again in a few seconds.")
                raise ProductError("busy", detail, status=503, retry_after=5) from error
            yield Turn(held.close, place.close)
