"""One event loop a process, on its own thread, for all work that mostly waits: answers, summaries, titles, deliveries.

A thread for each would cost a database connection each and could not be cancelled while a model is silent.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, close_old_connections

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_carried: "set[asyncio.Task[Any]]" = set()  # touched on the loop alone
# Few threads on purpose: they bound the database connections of a worker, whatever the number of turns.
_executor = ThreadPoolExecutor(6, thread_name_prefix="database")
_apart = ThreadPoolExecutor(1, thread_name_prefix="heartbeats")


def loop() -> asyncio.AbstractEventLoop:
    """The process's loop, started at the first call."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
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


def join() -> None:
    """Returns when nothing is carried any more."""
    submit(_join()).result()


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
    finally:
        close_old_connections()


async def on_database(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Runs ORM code off the event loop; its connection goes back to the pool afterwards."""
    work = partial(_with_connection, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_executor, work)


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
