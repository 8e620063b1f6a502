"""Watch for a worker that receives no messages although some wait for it.

After an outage of the broker, Celery's consumer sometimes stays connected but gets no more messages, while its process
lives (celery #8990). Only the worker itself can distinguish this from an empty queue.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any

from celery import current_app
from celery.worker import state
from kombu.exceptions import KombuError

CHECK_INTERVAL = 5.0  # seconds between checks
STALLED_AFTER = 15.0  # seconds in which no message is received, although messages wait and there is room

logger = logging.getLogger(__name__)


class ConsumerWatchdog:
    """Watches a consumer of Celery. `stalled` is True while it receives no messages although some wait in `queues`."""

    def __init__(self, consumer: Any, queues: Collection[str]) -> None:
        self.stalled = False
        self._consumer = consumer
        self.queues = queues
        self._received = 0  # tasks, ever

    async def watch(self) -> None:
        """Reconnect the consumer whenever it is stalled, until cancelled."""
        interval_start = time.monotonic()
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            if self._receives() or not await asyncio.to_thread(self._messages_wait):
                interval_start = time.monotonic()
                self.stalled = False
            elif time.monotonic() - interval_start >= STALLED_AFTER:
                logger.error("messages wait in %s, but none is received; reconnecting", ", ".join(self.queues))
                interval_start = time.monotonic()
                self.stalled = True
                self._consumer.hub.call_soon(_raise_lost_connection)

    def _receives(self) -> bool:
        """Return whether the consumer received a message since the last call, or has reserved all that it can."""
        before = self._received
        self._received = state.all_total_count[0]
        return self._received != before or len(state.reserved_requests) > len(state.active_requests)

    def _messages_wait(self) -> bool:
        """Return whether messages wait. False if the broker is unavailable, since Celery then reconnects by itself."""
        with current_app.connection_for_read(transport_options={"socket_timeout": CHECK_INTERVAL}) as connection:
            broker_errors: tuple[type[BaseException], ...] = (KombuError, *connection.connection_errors)
            try:
                return any(_size(connection, queue) for queue in self.queues)
            except broker_errors:
                return False


def _size(connection: Any, queue: str) -> int:
    try:
        with connection.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).message_count)
    except connection.channel_errors:  # the queue does not exist: in Redis, it is empty
        return 0


def _raise_lost_connection() -> None:
    """Raise ConnectionError in the consumer's loop, which makes it reconnect."""
    raise ConnectionError("no message was received although messages wait")
