"""Work beside requests: coroutines on the process's event loop, and jobs that workers claim.

One event loop a process, on its own thread, for all work that mostly waits: answers, summaries, titles, deliveries. A
thread for each would cost a database connection each and could not be cancelled while a model is silent.

Of a job its row is the truth, the broker only makes it prompt. Whoever changes a row's state by `claim` does the work,
nobody else. While at it they renew its `heartbeat`, by the clock of the database: those of machines differ. What the
broker or a dead worker lost shows in that field, and a sweeper finds it by `silent` and `unclaimed`. Each worker says
every few seconds which queues it serves. Celery hands out all jobs but turns, which event loops take from a queue of
their own.
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
from core.logs.context import knowing, known
from core.redis_failover import AsyncParser, Parser

STALE_AFTER = timedelta(seconds=30)  # without a heartbeat, whoever was at work is gone
UNCLAIMED_AFTER = timedelta(seconds=10)  # what waits longer has been lost by the broker, or all workers are busy

QUEUES = ("turns", "background")
EVERY = 5.0  # seconds
LATE = 5.0  # seconds that beat and the broker may take longer than the interval of a task
BLOCK = 2.5  # seconds that a read waits in Redis for something to come
HEARD_WITHIN = 20.0  # seconds; who has not been heard of for so long is gone
_REMEMBERED = 86_400  # seconds

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Row = TypeVar("Row", bound=Model)
logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_carried: "set[asyncio.Task[Any]]" = set()  # touched on the loop alone
# Few threads on purpose: they bound the database connections of a worker, whatever the number of turns.
_executor = ThreadPoolExecutor(4, thread_name_prefix="database")
_first = ThreadPoolExecutor(3, thread_name_prefix="first")
_apart = ThreadPoolExecutor(1, thread_name_prefix="heartbeats")


def loop() -> asyncio.AbstractEventLoop:
    """The process's loop, started at the first call."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = uvloop.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="turns", daemon=True).start()
        return _loop


def submit(work: Coroutine[Any, Any, Result]) -> "Future[Result]":
    return asyncio.run_coroutine_threadsafe(work, loop())


def carry(work: Coroutine[Any, Any, object]) -> None:
    """Has it done while the caller goes on. What it raises is logged; a worker that ends waits for it, see `end`."""
    loop().call_soon_threadsafe(_begin, work)


def _begin(work: Coroutine[Any, Any, object]) -> None:
    # Noted before its first step: an end that comes in between must reach it, too. It is never begun then.
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
    """What is carried has `grace` seconds to get done, then it is cancelled. Returns at once; `join` waits."""
    if grace > 0:
        loop().call_soon_threadsafe(loop().call_later, grace, _cancel)
    else:
        loop().call_soon_threadsafe(_cancel)


def _cancel() -> None:
    for task in _carried:
        task.cancel()


def join(seconds: float | None = None) -> None:
    """Returns when nothing is carried any more; raises TimeoutError after so many seconds."""
    submit(_join()).result(seconds)


def leave(status: int) -> NoReturn:
    """Ends the process, whose work is done, with what was registered for its end.

    Python itself would wait for threads that hang, and take apart all that is in memory, with seconds of a processor.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


async def _join() -> None:
    while _carried:
        await asyncio.wait(_carried)


async def completed(work: Coroutine[Any, Any, Result]) -> Result:
    """What it returns, once it is done: also when whoever waits is cancelled meanwhile, which is noted by the task."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


def _with_connection(work: Callable[[], Result]) -> Result:
    close_old_connections()
    try:
        return work()
    except StopIteration as error:  # cannot be handed to the event loop: whoever waits would do so for ever
        raise RuntimeError("work for the database raised StopIteration") from error
    finally:
        close_old_connections()


async def on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Runs ORM code off the event loop; its connection goes back to the pool afterwards."""
    work = partial(copy_context().run, _with_connection, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_executor, work)


async def first_on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """`on_database` for what a first token waits for: it does not queue behind what is stored of other answers."""
    work = partial(copy_context().run, _with_connection, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_first, work)


async def persistently(work: Callable[[], Result], *, seconds: float = 60.0, apart: bool = False) -> Result:
    """`on_database`, tried again while the database is away, for example restarting.

    `apart`: on a thread for such work alone. Heartbeats must not wait until hundreds of prompts are prepared.
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


class Job(Task):  # type: ignore[type-arg]  # generic in its stubs alone
    """A task of Celery whose lines of the log say what those of the request say that has led to it. One of the schedule
    notes that it is run."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with knowing(getattr(self.request, "said", None) or {}), tracing.job(self.name):
            note_run(self.name)
            return super().__call__(*args, **kwargs)


def key_of(task: str) -> str:
    """Of the note that somebody has run a task of the schedule, see `chat.background.schedule`."""
    return f"schedule:{task}"


def interval_of(task: str) -> int:
    """Milliseconds that the note stays; 0 for a task that is not of the schedule."""
    found = [float(str(each["schedule"])) for each in settings.CELERY_BEAT_SCHEDULE.values() if each["task"] == task]
    return round((found[0] + LATE) * 1000) if found else 0


def note_run(task: str) -> None:
    if interval := interval_of(task):
        try:
            streams().set(key_of(task), "run", px=interval)
        except (RedisError, OSError):
            logger.info("Redis is away; %s is not noted", task)


def enqueue(task: str, *args: object) -> None:
    """Hands work to a worker: a task by its name, so that nobody imports it. A broker that is away is no error here."""
    try:
        current_app.send_task(task, [str(each) for each in args], retry=False, headers={"said": known()})
    except (KombuError, RedisError, OSError):
        logger.warning("the broker is away; %s%s waits for the sweeper", task, args)


def streams() -> "redis.Redis":
    """The process's connections to the Redis of turns, for threads. One that broke meanwhile is opened anew, once; a
    Redis that does not answer within 2 s is not asked again."""
    return _connected(settings.STREAMS_URL)


@cache
def _connected(url: str) -> "redis.Redis":
    once = Retry(NoBackoff(), 1, supported_errors=(NotConnected,))
    times = {"socket_timeout": 2, "socket_connect_timeout": 2}
    return redis.Redis.from_url(url, protocol=2, decode_responses=True, retry=once, parser_class=Parser, **times)


_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, aioredis.Redis]" = WeakKeyDictionary()


def streams_of_loop() -> aioredis.Redis:
    """Those of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        pool = aioredis.BlockingConnectionPool.from_url(
            settings.STREAMS_URL,
            max_connections=200,
            timeout=10,
            protocol=2,
            decode_responses=True,
            parser_class=AsyncParser,
        )
        _clients[loop] = aioredis.Redis(connection_pool=pool)
    return _clients[loop]


class Queue:
    """Jobs that event loops take as they have room, in the order of their arrival; `key` is that of a sorted set.

    A job that is put again keeps its place. What is lost with Redis, or between it and a worker, a sweeper puts again.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def put(self, job: UUID) -> None:
        """A Redis that is away is no error here."""
        try:
            streams().zadd(self.key, {str(job): time.time()}, nx=True)
        except (RedisError, OSError):
            logger.warning("Redis is away; %s of %s waits for the sweeper", job, self.key)

    def remove(self, job: UUID) -> None:
        """For one that nobody need do any more. A job that stays is passed over by whoever takes it."""
        with suppress(RedisError, OSError):
            streams().zrem(self.key, str(job))

    async def take(self) -> UUID:
        """The first job, once there is one; waits for a Redis that is away."""
        while True:
            try:
                async with asyncio.timeout(2 * BLOCK):
                    taken = await streams_of_loop().bzpopmin(self.key, BLOCK)
            except (RedisError, OSError):  # a TimeoutError is one
                await asyncio.sleep(0.2)
            else:
                if taken:
                    return UUID(taken[1])

    async def position(self, job: UUID | str) -> int | None:
        """From 1; None when it does not wait here, or Redis is away."""
        try:
            rank = await streams_of_loop().zrank(self.key, str(job))
        except (RedisError, OSError):
            return None
        return None if rank is None else int(rank) + 1

    def length(self) -> int:
        """Raises RedisError."""
        length: Any = streams().zcard(self.key)
        return int(length)


TURNS = Queue("turns:queue")


def claim(rows: "QuerySet[Row]", pk: UUID, **changes: Any) -> bool:
    """Whether the row, if it is one of `rows`, is ours from now on. `changes` must take it out of `rows`."""
    return bool(rows.filter(pk=pk).update(**{"heartbeat": Now(), **changes}))


@contextmanager
def heartbeat(rows: "QuerySet[Row]") -> Iterator[None]:
    """While it is open, the row of `rows` tells that somebody is at work on it; none is left once the claim is lost."""
    beat = submit(_beat(rows))
    try:
        yield
    finally:
        beat.cancel()


async def _beat(rows: "QuerySet[Row]") -> None:
    while True:
        await asyncio.sleep(EVERY)
        with suppress(DatabaseError):
            await persistently(lambda: rows.update(heartbeat=Now()), apart=True)


def silent(rows: "QuerySet[Row]", since: timedelta = STALE_AFTER) -> "QuerySet[Row]":
    """Those without a heartbeat for so long."""
    return rows.filter(heartbeat__lt=Now() - since)


def unclaimed(waiting: "QuerySet[Row]") -> list[UUID]:
    """Those that nobody has claimed, to be enqueued again; each is told once in `UNCLAIMED_AFTER`."""
    lost: list[UUID] = list(silent(waiting, UNCLAIMED_AFTER).values_list("pk", flat=True))
    waiting.filter(pk__in=lost).update(heartbeat=Now())
    return lost


def _key(queue: str) -> str:
    return f"worker:{queue}:heard"


async def tell_queues(queues: Collection[str], deaf: Callable[[], bool] = bool) -> None:
    """Says so of these queues, until it is cancelled, while it is not `deaf`, see `core.consumer`.

    On the event loop: one that is stuck says nothing.
    """
    connection = aioredis.Redis.from_url(
        settings.STREAMS_URL, protocol=2, socket_timeout=EVERY, parser_class=AsyncParser
    )
    while True:
        try:
            async with connection.pipeline(transaction=False) as pipe:
                for queue in () if deaf() else queues:
                    pipe.set(_key(queue), f"{time.time():.3f}", ex=_REMEMBERED)
                await pipe.execute()
        except (redis.RedisError, OSError):
            pass  # Redis is away, which everybody sees who asks it
        await asyncio.sleep(EVERY)


async def show_life(file: Path, deaf: Callable[[], bool] = bool) -> None:
    """Touches the file, until it is cancelled, while it is not `deaf`: for a check that starts no Python. Whether Redis
    is there does not matter, since answers go on without."""
    while True:
        if not deaf():
            with suppress(OSError):  # it grows old then, which is what is looked at
                file.touch()  # noqa: ASYNC240 - one that hangs is to be seen as well
        await asyncio.sleep(EVERY)


def queues_heard() -> dict[str, float]:
    """Seconds since a worker of a queue was heard of, by queue; without those of the last day. Raises RedisError.

    By the clock of Redis: how much less than a day the worker's word has to live.
    """
    with streams().pipeline(transaction=False) as pipe:
        for queue in QUEUES:
            pipe.pttl(_key(queue))
        left: list[int] = pipe.execute()
    return {queue: max(0.0, _REMEMBERED - each / 1000) for queue, each in zip(QUEUES, left, strict=True) if each > 0}


def missing_queues() -> list[str]:
    """The queues that have no worker, as far as one can hear. Raises redis.RedisError."""
    heard = queues_heard()
    return [queue for queue in QUEUES if heard.get(queue, HEARD_WITHIN) >= HEARD_WITHIN]
