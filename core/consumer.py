"""A worker that receives nothing although messages wait for it: it is noticed, and connects to its broker anew.

After the broker was away Celery's consumer now and then stays connected and gets no message any more, while the process
lives (celery #8990). Nobody but the worker itself can tell that from having nothing to do.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any

from celery import current_app
from celery.worker import state
from kombu.exceptions import KombuError

EVERY = 5.0  # seconds
DEAF_AFTER = 15.0  # seconds in which it has room, messages wait, and none is received

logger = logging.getLogger(__name__)


class Hearing:
    """What a consumer of Celery receives of its queues. `deaf` while that is nothing although it should."""

    def __init__(self, consumer: Any, queues: Collection[str]) -> None:
        self.deaf = False
        self._consumer = consumer
        self.queues = queues
        self._received = 0  # tasks, ever

    async def keep(self) -> None:
        """Connects a deaf consumer anew, as often as it takes; until it is cancelled."""
        since = time.monotonic()
        while True:
            await asyncio.sleep(EVERY)
            if self._hears() or not await asyncio.to_thread(self._messages_wait):
                since, self.deaf = time.monotonic(), False
            elif time.monotonic() - since >= DEAF_AFTER:
                logger.error("messages wait in %s and none is received; connecting anew", ", ".join(self.queues))
                since, self.deaf = time.monotonic(), True
                self._consumer.hub.call_soon(_lost)

    def _hears(self) -> bool:
        """Whether it received something since it was last asked, or holds so much that it takes no more."""
        before, self._received = self._received, state.all_total_count[0]
        return self._received != before or len(state.reserved_requests) > len(state.active_requests)

    def _messages_wait(self) -> bool:
        """False also when the broker is away: then Celery tries again by itself."""
        with current_app.connection_for_read(transport_options={"socket_timeout": EVERY}) as connection:
            away: tuple[type[BaseException], ...] = (KombuError, *connection.connection_errors)
            try:
                return any(_size(connection, queue) for queue in self.queues)
            except away:
                return False


def _size(connection: Any, queue: str) -> int:
    try:
        with connection.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).message_count)
    except connection.channel_errors:  # there is no such queue: in Redis, an empty one
        return 0


def _lost() -> None:
    """Runs in the consumer's loop, which takes it for the end of its connection."""
    raise ConnectionError("nothing was received although messages wait")
