"""Celery tasks: each loads, calls one function, returns. The row, not the broker, is the truth about a turn."""

import logging
from concurrent.futures import CancelledError
from uuid import UUID

from celery import shared_task
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from chat import streams, turns
from llm import runtime

BROKER_ERRORS = (KombuError, OperationalError, RedisError, OSError)

logger = logging.getLogger(__name__)


@shared_task
def run_turn(turn_id: str) -> None:
    try:
        runtime.submit(turns.run(UUID(turn_id))).result()
    except CancelledError:
        logger.info("turn %s was cut off by the end of the worker", turn_id)


@shared_task
def sweep_turns() -> None:
    """Runs every 5 s, and so also tells that a worker is there."""
    streams.mark_worker_alive()
    stale = turns.stale()
    for turn_id in stale.interrupted:
        runtime.submit(turns.recover(turn_id)).result()
    for turn_id in stale.unclaimed:
        run_turn.apply_async((str(turn_id),), retry=False)
