"""Work outside of requests: coroutines on the process's event loop, and jobs that workers claim.

Each process has one event loop, on its own thread, for all work that mostly waits: answers, summaries, titles,
deliveries. A thread for each piece of work would need a database connection, and could not be cancelled while a
model is silent.

The row of a job is the source of truth. The broker only makes the job start sooner.

1. A service stores the row and calls `enqueue`. Celery hands out all jobs except turns; turns wait in `TURNS`.
2. A worker calls `claim`, which changes the row's state. Only the worker whose claim succeeds does the work.
3. While it works, `heartbeat` renews the row's time, by the clock of the database, since the clocks of machines differ.
4. A sweeper uses `stale_rows` and `take_unclaimed` to get the jobs that the broker or a dead worker lost.

Each worker reports every few seconds which queues it serves (`report_queues`).
"""

import asyncio
import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import redis
import uvloop
from celery import Task, current_app
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from kombu.exceptions import KombuError
from redis import asyncio as aioredis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import RedisError
from redis.retry import Retry

from core.logs import tracing
from core.logs.context import log_context, log_fields
from core.redis_failover import AsyncFailoverParser, FailoverParser

STALE_AFTER = timedelta(seconds=30)  # after this time without a heartbeat, the worker counts as dead
UNCLAIMED_AFTER = timedelta(seconds=10)  # if a job waits longer, the broker lost it or all workers are busy

QUEUES = ("turns", "background")
HEARTBEAT_INTERVAL = 5.0  # seconds between two heartbeats or reports
MAX_DELAY = 5.0  # seconds by which beat and the broker may exceed the interval of a task
BLOCK_SECONDS = 2.5  # for which a read waits in Redis for a job
DEAD_AFTER = 20.0  # seconds without a report after which a worker counts as dead
_REPORT_LIFETIME = 86_400  # seconds that a report stays in Redis
LOG_HEADER = "said"  # the header of Celery messages with the log fields; messages in flight have this name

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Row = TypeVar("Row", bound=Model)
logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_background_tasks: "set[asyncio.Task[Any]]" = set()  # used only on the loop
# Few threads on purpose: they limit the database connections of a worker, however many turns it runs.
_executor = ThreadPoolExecutor(4, thread_name_prefix="database")
_urgent_executor = ThreadPoolExecutor(3, thread_name_prefix="first")
_heartbeat_executor = ThreadPoolExecutor(1, thread_name_prefix="heartbeats")


def loop() -> asyncio.AbstractEventLoop:
    """Return the process's event loop, which the first call starts."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = uvloop.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="turns", daemon=True).start()
        return _loop


def submit(work: Coroutine[Any, Any, Result]) -> "Future[Result]":
    return asyncio.run_coroutine_threadsafe(work, loop())


def run_in_background(work: Coroutine[Any, Any, object]) -> None:
    """Run the coroutine while the caller continues. Errors are logged. A worker that ends waits for the coroutine.

    See `cancel_background_tasks`.
    """
    loop().call_soon_threadsafe(_begin, work)


def _begin(work: Coroutine[Any, Any, object]) -> None:
    # Added before its first step, so that `cancel_background_tasks` cancels it even before it begins.
    task = loop().create_task(_logged(work))
    _background_tasks.add(task)
    task.add_done_callback(_background_tasks.discard)
    task.add_done_callback(lambda _: work.close())


async def _logged(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        logger.info("%r was cancelled, since the worker ended", work)
    except Exception:
        logger.exception("%r failed", work)


def cancel_background_tasks(grace: float) -> None:
    """Give the coroutines of `run_in_background` `grace` seconds, then cancel them. Returns at once.

    `wait_for_background_tasks` waits for their end.
    """
    if grace > 0:
        loop().call_soon_threadsafe(loop().call_later, grace, _cancel_background_tasks)
    else:
        loop().call_soon_threadsafe(_cancel_background_tasks)


def _cancel_background_tasks() -> None:
    for task in _background_tasks:
        task.cancel()


def wait_for_background_tasks(seconds: float | None = None) -> None:
    """Wait until no coroutine of `run_in_background` runs. Raises TimeoutError after `seconds`."""
    submit(_wait_for_background_tasks()).result(seconds)


def exit_process(status: int) -> NoReturn:
    """Call the `atexit` functions and end the process. Call this when its work is done.

    Python itself would wait for threads that hang, and free all objects, which takes seconds of CPU time.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _wait_for_background_tasks() -> None:
    while _background_tasks:
        await asyncio.wait(_background_tasks)


async def run_to_completion(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of the coroutine, even if the caller is cancelled meanwhile. The cancellation is swallowed.

    `Task.cancelling` still counts it, so a caller can check it.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


async def run_until_abandoned(work: Callable[[threading.Event], Coroutine[Any, Any, Result]]) -> Result:
    """Return the result of the coroutine that `work` returns. `work` gets an event.

    If the caller is cancelled, the event is set, and the cancellation continues once the coroutine has ended. So no
    part of it runs beside the caller's next steps. Its error is dropped then.
    """
    abandoned = threading.Event()
    task = asyncio.create_task(work(abandoned))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        abandoned.set()
        while not task.done():
            with suppress(asyncio.CancelledError):  # daphne cancels a request of a lost client every second
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # asyncio logs an error that no code retrieves
        raise


def _with_connection(work: Callable[[], Result]) -> Result:
    close_old_connections()
    try:
        return work()
    except StopIteration as error:  # a future cannot hold it, so the caller would wait forever
        raise RuntimeError("work for the database raised StopIteration") from error
    finally:
        close_old_connections()


async def on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run ORM code on a thread. Its connection returns to the pool afterwards."""
    work = partial(copy_context().run, _with_connection, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_executor, work)


async def first_on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run ORM code that a first token waits for. It does not queue behind the writes of other answers."""
    work = partial(copy_context().run, _with_connection, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_urgent_executor, work)


async def with_retries(work: Callable[[], Result], *, seconds: float = 60.0, apart: bool = False) -> Result:
    """Run ORM code like `on_database`, and retry for `seconds` while the database is down.

    `apart`: use the thread of the heartbeats, which must not wait while hundreds of prompts are prepared.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    work = partial(_with_connection, work)
    while True:
        try:
            return await asyncio.get_running_loop().run_in_executor(_heartbeat_executor if apart else _executor, work)
        except (OperationalError, InterfaceError):
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.5)


class Job(Task):  # type: ignore[type-arg]  # generic only in its stubs
    """A task of Celery whose log lines have the fields of its request. Records runs of scheduled tasks in Redis."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with log_context(getattr(self.request, LOG_HEADER, None) or {}), tracing.job(self.name):
            note_run(self.name)
            return super().__call__(*args, **kwargs)


def run_key(task: str) -> str:
    """Return the key in Redis that records the run of a scheduled task, see `chat.background.schedule`."""
    return f"schedule:{task}"


def run_interval_ms(task: str) -> int:
    """Return how long the record of a run is kept, in milliseconds; 0 for a task that is not scheduled."""
    schedule = settings.CELERY_BEAT_SCHEDULE.values()
    seconds = next((float(str(each["schedule"])) for each in schedule if each["task"] == task), None)
    return 0 if seconds is None else round((seconds + MAX_DELAY) * 1000)


def note_run(task: str) -> None:
    if interval := run_interval_ms(task):
        try:
            streams().set(run_key(task), "run", px=interval)
        except (RedisError, OSError):
            logger.info("Redis is unavailable; the run of %s is not recorded", task)


def enqueue(task: str, *args: object) -> None:
    """Send a task to a worker by name, so that the caller need not import it. Ignores a broker that is down."""
    try:
        current_app.send_task(task, [str(each) for each in args], retry=False, headers={LOG_HEADER: log_fields()})
    except (KombuError, RedisError, OSError):
        logger.warning("the broker is unavailable; %s%s waits for the sweeper", task, args)


def streams() -> "redis.Redis":
    """Return the process's client of the Redis of turns, for use on threads.

    A broken connection is reopened once. A timeout of 2 s is not retried.
    """
    return _connected(settings.STREAMS_URL)


@cache
def _connected(url: str) -> "redis.Redis":
    return redis.Redis.from_url(
        url,
        protocol=2,
        decode_responses=True,
        retry=Retry(NoBackoff(), 1, supported_errors=(NotConnected,)),
        parser_class=FailoverParser,
        socket_timeout=2,
        socket_connect_timeout=2,
    )


_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, aioredis.Redis]" = WeakKeyDictionary()


def streams_of_loop() -> aioredis.Redis:
    """Return the client of the Redis of turns for the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        pool = aioredis.BlockingConnectionPool.from_url(
            settings.STREAMS_URL,
            max_connections=200,
            timeout=10,
            protocol=2,
            decode_responses=True,
            parser_class=AsyncFailoverParser,
        )
        _clients[loop] = aioredis.Redis(connection_pool=pool)
    return _clients[loop]


class Queue:
    """A queue of jobs in order of arrival. Event loops take jobs from it when they have capacity.

    `key` is the sorted set in Redis. A job that is put twice keeps its first place. A sweeper puts lost jobs again.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def put(self, job: UUID) -> None:
        """Add a job. Ignores a Redis that is down, since the sweeper adds the job again."""
        try:
            streams().zadd(self.key, {str(job): time.time()}, nx=True)
        except (RedisError, OSError):
            logger.warning("Redis is unavailable; %s of %s waits for the sweeper", job, self.key)

    def remove(self, job: UUID) -> None:
        """Remove a job that is obsolete. A worker that takes an obsolete job skips it, so a failure does no harm."""
        with suppress(RedisError, OSError):
            streams().zrem(self.key, str(job))

    async def take(self) -> UUID:
        """Wait for a job, also while Redis is down, and return the first one."""
        while True:
            try:
                async with asyncio.timeout(2 * BLOCK_SECONDS):
                    entry = await streams_of_loop().bzpopmin(self.key, BLOCK_SECONDS)
            except (RedisError, OSError):  # TimeoutError is an OSError
                await asyncio.sleep(0.2)
            else:
                if entry:
                    return UUID(entry[1])

    async def position(self, job: UUID | str) -> int | None:
        """Return the position of a job, from 1, or None if it does not wait here or Redis is down."""
        try:
            rank = await streams_of_loop().zrank(self.key, str(job))
        except (RedisError, OSError):
            return None
        return None if rank is None else int(rank) + 1

    def length(self) -> int:
        """Return the number of waiting jobs. Raises RedisError."""
        length: Any = streams().zcard(self.key)
        return int(length)


TURNS = Queue("turns:queue")


def claim(rows: "QuerySet[Row]", pk: UUID, **changes: Any) -> bool:
    """Claim the row if it is in `rows`. Return whether that succeeded. `changes` must remove the row from `rows`."""
    return bool(rows.filter(pk=pk).update(**{"heartbeat": Now(), **changes}))


@contextmanager
def heartbeat(rows: "QuerySet[Row]") -> Iterator[None]:
    """Renew the heartbeat of the row in `rows` while the block runs. `rows` must be empty once the claim is lost."""
    beat = submit(_beat(rows))
    try:
        yield
    finally:
        beat.cancel()


async def _beat(rows: "QuerySet[Row]") -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_INTERVAL)
        with suppress(DatabaseError):
            await with_retries(lambda: rows.update(heartbeat=Now()), apart=True)


def stale_rows(rows: "QuerySet[Row]", since: timedelta = STALE_AFTER) -> "QuerySet[Row]":
    """Return the rows whose last heartbeat is older than `since`."""
    return rows.filter(heartbeat__lt=Now() - since)


def take_unclaimed(waiting: "QuerySet[Row]") -> list[UUID]:
    """Return the ids of waiting rows that no worker has claimed, and renew their heartbeats. Enqueue these ids again.

    So each id is returned once per `UNCLAIMED_AFTER`.
    """
    lost: list[UUID] = list(stale_rows(waiting, UNCLAIMED_AFTER).values_list("pk", flat=True))
    waiting.filter(pk__in=lost).update(heartbeat=Now())
    return lost


def _report_key(queue: str) -> str:
    return f"worker:{queue}:heard"


async def report_queues(queues: Collection[str], stalled: Callable[[], bool] = bool) -> None:
    """Report these queues as served while the worker is not `stalled` (`core.consumer`). Runs until it is cancelled.

    It runs on the event loop, so a stuck loop sends no reports.
    """
    connection = aioredis.Redis.from_url(
        settings.STREAMS_URL, protocol=2, socket_timeout=HEARTBEAT_INTERVAL, parser_class=AsyncFailoverParser
    )
    while True:
        try:
            async with connection.pipeline(transaction=False) as pipe:
                for queue in () if stalled() else queues:
                    pipe.set(_report_key(queue), f"{time.time():.3f}", ex=_REPORT_LIFETIME)
                await pipe.execute()
        except (redis.RedisError, OSError):
            pass  # Redis is down, and `report_ages` raises an error, too
        await asyncio.sleep(HEARTBEAT_INTERVAL)


async def touch_life_file(file: Path, stalled: Callable[[], bool] = bool) -> None:
    """Touch the file while the worker is not `stalled`, so that a health check need not start Python.

    Runs until it is cancelled. It does not depend on Redis, since answers go on without it.
    """
    while True:
        if not stalled():
            with suppress(OSError):  # the health check reads the age of the file
                file.touch()  # noqa: ASYNC240 - a file system that hangs must fail the check as well
        await asyncio.sleep(HEARTBEAT_INTERVAL)


def report_ages() -> dict[str, float]:
    """Return the seconds since the last report of each queue, by queue. Raises RedisError.

    A report is deleted after a day. The age comes from Redis's clock: a day minus the report's remaining lifetime.
    """
    with streams().pipeline(transaction=False) as pipe:
        for queue in QUEUES:
            pipe.pttl(_report_key(queue))
        left: list[int] = pipe.execute()
    return {
        queue: max(0.0, _REPORT_LIFETIME - each / 1000) for queue, each in zip(QUEUES, left, strict=True) if each > 0
    }


def missing_queues() -> list[str]:
    """Return the queues that no live worker serves. Raises RedisError."""
    ages = report_ages()
    return [queue for queue in QUEUES if ages.get(queue, DEAD_AFTER) >= DEAD_AFTER]
