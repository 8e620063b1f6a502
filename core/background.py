"""Work outside of requests: coroutines on the process's event loop, and jobs that workers claim.

Each process has one event loop, on its own thread, for all work that mostly waits: answers, summaries, titles,
deliveries. A thread for each piece of work would need a database connection, and could not be cancelled while a
model is silent.

The row of a job is authoritative. The broker only makes the job start sooner.

1. A service stores the row and calls `enqueue`. Celery hands out all jobs except turns; turns wait in `TURNS`.
2. A worker calls `claim`, which changes the row's state. Only the worker whose claim succeeds does the work.
3. While it works, `heartbeat` renews the row's time, by the clock of the database, since the clocks of machines differ.
4. A sweeper finds the jobs that the broker or a dead worker lost, by `stale_rows` and `unclaimed`.

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
LATE = 5.0  # seconds that beat and the broker may take longer than the interval of a task
BLOCK = 2.5  # seconds that a read waits in Redis for a job
DEAD_AFTER = 20.0  # seconds without a report after which a worker counts as dead
_REMEMBERED = 86_400  # seconds that a report stays in Redis
LOG_HEADER = "said"  # the header of Celery messages with the log fields; messages in flight have this name

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Row = TypeVar("Row", bound=Model)
logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_carried: "set[asyncio.Task[Any]]" = set()  # used only on the loop
# Few threads on purpose: they limit the database connections of a worker, however many turns it runs.
_executor = ThreadPoolExecutor(4, thread_name_prefix="database")
_first = ThreadPoolExecutor(3, thread_name_prefix="first")
_apart = ThreadPoolExecutor(1, thread_name_prefix="heartbeats")


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


def carry(work: Coroutine[Any, Any, object]) -> None:
    """Run the coroutine while the caller goes on. Errors are logged. The end of a worker waits for it, see `end`."""
    loop().call_soon_threadsafe(_begin, work)


def _begin(work: Coroutine[Any, Any, object]) -> None:
    # Added before its first step, so that an `end` in between cancels it, too. Then the task never begins.
    task = loop().create_task(_logged(work))
    _carried.add(task)
    task.add_done_callback(_carried.discard)
    task.add_done_callback(lambda _: work.close())


async def _logged(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except asyncio.CancelledError:
        logger.info("%r was cut off by the end of the worker", work)
    except Exception:
        logger.exception("%r failed", work)


def end(grace: float) -> None:
    """Give the carried coroutines `grace` seconds, then cancel them. Returns at once; `join` waits."""
    if grace > 0:
        loop().call_soon_threadsafe(loop().call_later, grace, _cancel)
    else:
        loop().call_soon_threadsafe(_cancel)


def _cancel() -> None:
    for task in _carried:
        task.cancel()


def join(seconds: float | None = None) -> None:
    """Wait until no carried coroutine is left. Raises TimeoutError after `seconds`."""
    submit(_join()).result(seconds)


def leave(status: int) -> NoReturn:
    """Call the `atexit` functions and end the process. Its work must be done.

    Python itself would wait for threads that hang, and free all objects, which takes seconds of CPU time.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _join() -> None:
    while _carried:
        await asyncio.wait(_carried)


async def completed(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of the coroutine, even if the caller is cancelled meanwhile.

    `Task.cancelling` still counts the cancellation.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


async def ended_early(work: Callable[[threading.Event], Coroutine[Any, Any, Result]]) -> Result:
    """Return the result of the coroutine of `work`.

    If the caller is cancelled, the event that `work` got is set. The cancellation goes on when the coroutine has ended,
    so that nothing of it runs beside what the caller does next. Its error is dropped then.
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
            task.exception()  # asyncio logs an error that nobody has asked for
        raise


def _with_connection(work: Callable[[], Result]) -> Result:
    close_old_connections()
    try:
        return work()
    except StopIteration as error:  # a future cannot hold it: the caller would wait for ever
        raise RuntimeError("work for the database raised StopIteration") from error
    finally:
        close_old_connections()


async def on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run ORM code off the event loop; its connection goes back to the pool afterwards."""
    work = partial(copy_context().run, _with_connection, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_executor, work)


async def first_on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run ORM code that delays a first token. It does not queue behind the writes of other answers."""
    work = partial(copy_context().run, _with_connection, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_first, work)


async def with_retries(work: Callable[[], Result], *, seconds: float = 60.0, apart: bool = False) -> Result:
    """Run ORM code as `on_database` does, and retry for `seconds` while the database is down.

    `apart`: on the thread of the heartbeats, which must not wait until hundreds of prompts are prepared.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    work = partial(_with_connection, work)
    while True:
        try:
            return await asyncio.get_running_loop().run_in_executor(_apart if apart else _executor, work)
        except (OperationalError, InterfaceError):
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.5)


class Job(Task):  # type: ignore[type-arg]  # generic only in its stubs
    """A task of Celery whose log lines have the fields of the request behind it. Scheduled tasks note their runs."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with log_context(getattr(self.request, LOG_HEADER, None) or {}), tracing.job(self.name):
            note_run(self.name)
            return super().__call__(*args, **kwargs)


def key_of(task: str) -> str:
    """Return the key in Redis that records the run of a scheduled task, see `chat.background.schedule`."""
    return f"schedule:{task}"


def interval_of(task: str) -> int:
    """Return how long the record of a run is kept, in milliseconds; 0 for a task that is not scheduled."""
    schedule = settings.CELERY_BEAT_SCHEDULE.values()
    seconds = next((float(str(each["schedule"])) for each in schedule if each["task"] == task), None)
    return 0 if seconds is None else round((seconds + LATE) * 1000)


def note_run(task: str) -> None:
    if interval := interval_of(task):
        try:
            streams().set(key_of(task), "run", px=interval)
        except (RedisError, OSError):
            logger.info("Redis is away; %s is not noted", task)


def enqueue(task: str, *args: object) -> None:
    """Send a task to a worker by name, so that the caller need not import it. Ignores a broker that is down."""
    try:
        current_app.send_task(task, [str(each) for each in args], retry=False, headers={LOG_HEADER: log_fields()})
    except (KombuError, RedisError, OSError):
        logger.warning("the broker is away; %s%s waits for the sweeper", task, args)


def streams() -> "redis.Redis":
    """Return the process's client of the Redis of turns, for threads.

    A broken connection is reopened once. If Redis does not answer within 2 s, there is no retry.
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
    """A queue of jobs in order of arrival. Event loops take jobs from it when they have room.

    `key` is the sorted set in Redis. A job that is put again keeps its place. A sweeper puts lost jobs again.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def put(self, job: UUID) -> None:
        """Add a job. Ignores a Redis that is down, since the sweeper adds the job again."""
        try:
            streams().zadd(self.key, {str(job): time.time()}, nx=True)
        except (RedisError, OSError):
            logger.warning("Redis is away; %s of %s waits for the sweeper", job, self.key)

    def remove(self, job: UUID) -> None:
        """Remove a job that is obsolete. A worker that takes an obsolete job skips it, so a failure does no harm."""
        with suppress(RedisError, OSError):
            streams().zrem(self.key, str(job))

    async def take(self) -> UUID:
        """Wait for a job, also while Redis is down, and return the first one."""
        while True:
            try:
                async with asyncio.timeout(2 * BLOCK):
                    entry = await streams_of_loop().bzpopmin(self.key, BLOCK)
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
    """Claim the row if it is in `rows`; otherwise return False. `changes` must remove it from `rows`."""
    return bool(rows.filter(pk=pk).update(**{"heartbeat": Now(), **changes}))


@contextmanager
def heartbeat(rows: "QuerySet[Row]") -> Iterator[None]:
    """Renew the heartbeat of the row in `rows` while the block runs. A row with a lost claim is no longer in `rows`."""
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
    """Return the rows without a heartbeat for the time `since`."""
    return rows.filter(heartbeat__lt=Now() - since)


def unclaimed(waiting: "QuerySet[Row]") -> list[UUID]:
    """Return the ids of rows that no worker has claimed, to enqueue them again.

    Each id comes once per `UNCLAIMED_AFTER`.
    """
    lost: list[UUID] = list(stale_rows(waiting, UNCLAIMED_AFTER).values_list("pk", flat=True))
    waiting.filter(pk__in=lost).update(heartbeat=Now())
    return lost


def _key(queue: str) -> str:
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
                    pipe.set(_key(queue), f"{time.time():.3f}", ex=_REMEMBERED)
                await pipe.execute()
        except (redis.RedisError, OSError):
            pass  # Redis is down; `queues_heard` raises an error then
        await asyncio.sleep(HEARTBEAT_INTERVAL)


async def show_life(file: Path, stalled: Callable[[], bool] = bool) -> None:
    """Touch the file while the worker is not `stalled`, so that a health check need not start Python.

    Runs until it is cancelled. It does not depend on Redis, since answers go on without it.
    """
    while True:
        if not stalled():
            with suppress(OSError):  # the health check reads the age of the file
                file.touch()  # noqa: ASYNC240 - a file system that hangs must fail the check as well
        await asyncio.sleep(HEARTBEAT_INTERVAL)


def queues_heard() -> dict[str, float]:
    """Return the seconds since the last report of each queue, by queue. Raises RedisError.

    Reports older than a day are gone. The age is by Redis's clock: a day minus the report's remaining lifetime.
    """
    with streams().pipeline(transaction=False) as pipe:
        for queue in QUEUES:
            pipe.pttl(_key(queue))
        left: list[int] = pipe.execute()
    return {queue: max(0.0, _REMEMBERED - each / 1000) for queue, each in zip(QUEUES, left, strict=True) if each > 0}


def missing_queues() -> list[str]:
    """Return the queues that no live worker serves. Raises RedisError."""
    ages = queues_heard()
    return [queue for queue in QUEUES if ages.get(queue, DEAD_AFTER) >= DEAD_AFTER]
