"""The schedule without beat: each worker looks whether what is due has been done, and does what beat left undone.

Whoever runs a task of the schedule notes it in Redis, for a little longer than the task's interval. While beat puts it
into its queue in time the note never ends; once it has ended, one worker gets to renew it and runs the task. So beat
makes the schedule punctual, and nothing waits for it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import current_app
from celery.signals import task_prerun
from django.conf import settings
from redis.exceptions import RedisError

from core.background import EVERY, enqueue, on_database, streams, streams_of_loop

LATE = 5.0  # seconds that beat and the broker may take longer than an interval
# Run where it is noticed, by workers of any queue: answers go on without the broker and the worker of its queue.
AT_ONCE = frozenset({"chat.tasks.sweep_turns"})

logger = logging.getLogger(__name__)


def key_of(task: str) -> str:
    return f"schedule:{task}"


def _milliseconds(interval: float) -> int:
    return round((interval + LATE) * 1000)


async def overdue() -> list[str]:
    """The tasks of the schedule that nobody has run in time; from now on they are the caller's. Raises RedisError."""
    found = []
    for each in settings.CELERY_BEAT_SCHEDULE.values():
        task, until = str(each["task"]), _milliseconds(float(str(each["schedule"])))
        if await streams_of_loop().set(key_of(task), "late", nx=True, px=until):
            found.append(task)
    return found


async def keep(deaf: Callable[[], bool] = bool) -> None:
    """Does what is overdue, until it is cancelled; a `deaf` worker, which may be cut off, leaves it to others."""
    while True:
        await asyncio.sleep(EVERY)
        if not deaf():
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


@task_prerun.connect
def _note(sender: Any, **kwargs: Any) -> None:
    intervals = {each["task"]: float(str(each["schedule"])) for each in settings.CELERY_BEAT_SCHEDULE.values()}
    if sender.name in intervals:
        try:
            streams().set(key_of(sender.name), "run", px=_milliseconds(intervals[sender.name]))
        except (RedisError, OSError):
            logger.info("Redis is away; %s is not noted", sender.name)
