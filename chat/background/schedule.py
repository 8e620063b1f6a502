"""The schedule without beat: each worker runs the tasks that beat did not start in time.

A worker that runs a scheduled task notes it in Redis (`core.background.Job`), for a little longer than the task's
interval. While beat enqueues the task in time, the note never expires. Once it has expired, the first worker
that renews it runs the task. So beat keeps the schedule punctual, but no task depends on beat.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from celery import current_app
from django.conf import settings
from redis.exceptions import RedisError

from core.background import HEARTBEAT_INTERVAL, enqueue, on_database, run_interval_ms, run_key, streams_of_loop

# These run in the worker that finds them overdue, whatever its queue, so that answers go on without the broker.
RUN_IN_PROCESS = frozenset({"chat.tasks.sweep_turns", "core.tasks.sweep_jobs"})

logger = logging.getLogger(__name__)


async def find_overdue_tasks() -> list[str]:
    """Return the scheduled tasks that no worker has run in time; the caller has to run them. Raises RedisError."""
    tasks = []
    for each in settings.CELERY_BEAT_SCHEDULE.values():
        task = str(each["task"])
        if await streams_of_loop().set(run_key(task), "late", nx=True, px=run_interval_ms(task)):
            tasks.append(task)
    return tasks


async def run_overdue_tasks_forever(stalled: Callable[[], bool] = bool) -> None:
    """Run overdue tasks until cancelled. A worker that is `stalled` runs none, since it may be killed soon."""
    while True:
        await asyncio.sleep(HEARTBEAT_INTERVAL)
        if not stalled():
            await run_overdue_tasks()


async def run_overdue_tasks() -> None:
    """Run the tasks that are overdue now."""
    try:
        for task in await find_overdue_tasks():
            await on_database(current_app.tasks[task] if task in RUN_IN_PROCESS else partial(enqueue, task))
    except (RedisError, OSError):
        pass  # without Redis the sweeps could not start any work
    except Exception:
        logger.exception("an overdue task failed")  # the next worker tries when the note has expired
