"""Work that workers do. Its row is the truth about it, the broker only makes it prompt.

Whoever changes a row's state by `claim` does the work, nobody else. While at it they renew `heartbeat`. What the broker
or a dead worker lost shows in that field, and a sweeper finds it by `silent` and `unclaimed`.

Each worker says every few seconds which queues it serves.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import redis
from celery import current_app
from django.conf import settings
from django.db.models import Model, QuerySet
from django.utils import timezone
from kombu.exceptions import KombuError, OperationalError
from redis import asyncio as aioredis
from redis.exceptions import RedisError

STALE_AFTER = timedelta(seconds=30)  # without a heartbeat, whoever was at work is gone
UNCLAIMED_AFTER = timedelta(seconds=10)  # what waits longer has been lost by the broker, or all workers are busy

QUEUES = ("turns", "background")
EVERY = 5.0  # seconds
HEARD_WITHIN = 20.0  # seconds; who has not been heard of for so long is gone
_REMEMBERED = 86_400  # seconds

Row = TypeVar("Row", bound=Model)
logger = logging.getLogger(__name__)


def enqueue(task: str, *args: object) -> None:
    """Hands work to a worker: a task by its name, so that nobody imports it. A broker that is away is no error here."""
    try:
        current_app.send_task(task, [str(each) for each in args], retry=False)
    except (KombuError, OperationalError, RedisError, OSError):
        logger.warning("the broker is away; %s%s waits for the sweeper", task, args)


def claim(rows: "QuerySet[Row]", pk: UUID, **changes: Any) -> bool:
    """Whether the row, if it is one of `rows`, is ours from now on. `changes` must take it out of `rows`."""
    return bool(rows.filter(pk=pk).update(**{"heartbeat": timezone.now(), **changes}))


def silent(rows: "QuerySet[Row]", since: timedelta = STALE_AFTER) -> "QuerySet[Row]":
    """Those without a heartbeat for so long."""
    return rows.filter(heartbeat__lt=timezone.now() - since)


def unclaimed(waiting: "QuerySet[Row]") -> list[UUID]:
    """Those that nobody has claimed, to be enqueued again; each is told once in `UNCLAIMED_AFTER`."""
    lost: list[UUID] = list(silent(waiting, UNCLAIMED_AFTER).values_list("pk", flat=True))
    waiting.filter(pk__in=lost).update(heartbeat=timezone.now())
    return lost


def _key(queue: str) -> str:
    return f"worker:{queue}:heard"


async def tell_queues(queues: Collection[str]) -> None:
    """Says so of these queues, until it is cancelled. On the event loop: one that is stuck says nothing."""
    connection = aioredis.Redis.from_url(settings.STREAMS_URL, protocol=2, socket_timeout=EVERY)
    while True:
        try:
            async with connection.pipeline(transaction=False) as pipe:
                for queue in queues:
                    pipe.set(_key(queue), f"{time.time():.3f}", ex=_REMEMBERED)
                await pipe.execute()
        except (redis.RedisError, OSError):
            pass  # Redis is away, which everybody sees who asks it
        await asyncio.sleep(EVERY)


def queues_heard() -> dict[str, float]:
    """Seconds since a worker of a queue was heard of, by queue; without those of the last day. Raises RedisError."""
    with redis.Redis.from_url(settings.STREAMS_URL, protocol=2, socket_timeout=2) as connection:
        said = connection.mget([_key(queue) for queue in QUEUES])
    return {queue: max(0.0, time.time() - float(at)) for queue, at in zip(QUEUES, said, strict=True) if at}


def missing_queues() -> list[str]:
    """The queues that have no worker, as far as one can hear. Raises redis.RedisError."""
    heard = queues_heard()
    return [queue for queue in QUEUES if heard.get(queue, HEARD_WITHIN) >= HEARD_WITHIN]
