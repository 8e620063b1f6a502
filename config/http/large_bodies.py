"""Large bodies are worked on one at a time for each person, and a few at a time in a process.

A body of 8 MB takes up to 100 MB while it is read, checked and stored. It waits on disk until it has its turn. The turn
ends when the answer begins, or when a view calls `core.requests.settle`, because it waits for a model from then on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from uuid import UUID
from weakref import WeakValueDictionary

from core.errors import ProductError

LARGE = 250_000  # bytes
AT_ONCE = 3  # of a process
PATIENCE = 30.0  # seconds that a body waits for its turn


class LargeBodies:
    """The turns of one process. Used on its event loop alone."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._people: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, person: UUID) -> AsyncIterator[Callable[[], None]]:
        """Wait for the turn of a person's body; yields what ends it early.

        Raises `busy` (503) after `PATIENCE` seconds.
        """
        own = self._people.setdefault(person, asyncio.Lock())
        with ExitStack() as held:
            try:
                async with asyncio.timeout(PATIENCE):
                    await own.acquire()
                    held.callback(own.release)
                    await self._all.acquire()
                    held.callback(self._all.release)
            except TimeoutError as error:
                detail = "Other large requests are being worked on. Send this one again in a few seconds."
                raise ProductError("busy", detail, status=503, retry_after=5) from error
            yield held.close
