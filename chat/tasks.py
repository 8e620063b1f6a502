"""Celery tasks: each loads, calls one function, returns. The row, not the broker, is the truth about a turn."""

import logging
import threading
from concurrent.futures import CancelledError
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.db import DatabaseError, InterfaceError
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from chat import recovery, streams, titles, turn_rows, turns
from llm import runtime

BROKER_ERRORS = (KombuError, OperationalError, RedisError, OSError)
GRACE = 7.0  # seconds that running answers get to finish when the worker is asked to end; its supervisor waits 10

logger = logging.getLogger(__name__)


@shared_task
def run_turn(turn_id: str) -> None:
    try:
        runtime.submit(turns.run(UUID(turn_id))).result()
    except CancelledError:
        logger.info("turn %s was cut off by the end of the worker", turn_id)
        return
    try:
        if runtime.submit(turn_rows.on_database(titles.claim, UUID(turn_id))).result():
            write_title.apply_async((turn_id,), retry=False)
    except (*BROKER_ERRORS, DatabaseError, InterfaceError):
        logger.warning("turn %s: no title, since the database or the broker is away", turn_id)


@shared_task
def write_title(turn_id: str) -> None:
    runtime.submit(titles.write(UUID(turn_id))).result()


@shared_task
def sweep_turns() -> None:
    """Runs every 5 s, and so also tells that a worker is there."""
    streams.mark_worker_alive()
    stale = turn_rows.stale()
    for turn_id in stale.interrupted:
        runtime.submit(recovery.recover(turn_id)).result()
    for turn_id in stale.unclaimed:
        run_turn.apply_async((str(turn_id),), retry=False)


@worker_ready.connect
def _start(**kwargs: Any) -> None:
    runtime.submit(turns.warm_up()).result()
    streams.mark_worker_alive()


@worker_shutting_down.connect
def _end(**kwargs: Any) -> None:
    """Running answers may finish for a while; then they end as interrupted, their text kept."""
    timer = threading.Timer(GRACE, lambda: runtime.loop().call_soon_threadsafe(turns.interrupt_all))
    timer.daemon = True
    timer.start()
