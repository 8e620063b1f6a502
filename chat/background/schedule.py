"""The schedule without beat: each worker looks whether what is due has been done, and does what beat left undone.

Whoever runs a task of the schedule notes it in Redis (`core.background.Job`), for a little longer than the task's
interval. While beat puts it into its queue in time the note never ends; once it has ended, one worker gets to renew it
and runs the task. So beat makes the schedule punctual, and nothing waits for it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from celery import current_app
from django.conf import settings
from redis.exceptions import RedisError

from core.background import EVERY, enqueue, interval_of, key_of, on_database, streams_of_loop

# Run where it is noticed, by workers of any queue: answers go on without the broker and the worker of its queue.
AT_ONCE = frozenset({"chat.tasks.sweep_turns"})

logger = logging.getLogger(__name__)


async def overdue() -> list[str]:
    """The tasks of the schedule that nobody has run in time; from now on they are the caller's. Raises RedisError."""
    found = []
    for each in settings.CELERY_BEAT_SCHEDULE.values():
        task = str(each["task"])
        if await streams_of_loop().set(key_of(task), "late", nx=True, px=interval_of(task)):
            found.append(task)
    return found


async def keep(stalled: Callable[[], bool] = bool) -> None:
    """Does what is overdue, until it is cancelled; a `stalled` worker, which may be cut off, leaves it to others."""
    while True:
        await asyncio.sleep(EVERY)
        if not stalled():
            await look()


async def look() -> None:
    """Does what is overdue now."""
    try:
        for task in await overdue():
            await on_database(current_app.tasks[task] if task in AT_ONCE else partial(enqueue, task))
    except (RedisError, OSError):
        pass  # Redis is away, and with it all that a sweep could begin
    except Exception:
        logger.exception("what is due was not done")  # it is tried again when its note has ended
