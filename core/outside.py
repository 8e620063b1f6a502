"""Waits for something outside of this process: another server, a child process, a slot.

A web process has a pool of 24 connections to the database. A thread that waits and holds one of them takes it from
everybody else, so a handful of slow answers from outside would stop all pages. Each such wait stands in a
`wait_outside` block, which gives the connection back first.

A transaction cannot give its connection back. The admin's forms and API calls with an `Idempotency-Key` run in one, and
some of them ask a server. Only a few of those may wait at a time, so the other connections stay free.

A request with a large body also has one of the few places for such bodies. It leaves that place before it waits.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import connection

from core.errors import ProductError
from core.sentences import Sentence

IN_TRANSACTION = 8  # waits of one process at a time that hold a connection, a third of the pool
BUSY_SECONDS = 5
_places = threading.BoundedSemaphore(IN_TRANSACTION)
_before: ContextVar[Callable[[], object] | None] = ContextVar("called before a wait", default=None)


@contextmanager
def before_waits(call: Callable[[], object]) -> Iterator[None]:
    """Have each `wait_outside` of the block call this first, on its own thread. It must not raise."""
    token = _before.set(call)
    try:
        yield
    finally:
        _before.reset(token)


@contextmanager
def wait_outside() -> Iterator[None]:
    """Give this thread's database connection back to the pool, then run the block, which waits.

    The function of `before_waits` is called first. The next query takes a connection again, so the block itself must
    make none. Within a transaction the connection stays. Raises `busy` (503) where too many such waits are under way.
    """
    if call := _before.get():
        call()
    if not connection.in_atomic_block:
        connection.close()
        yield
        return
    if not _places.acquire(blocking=False):
        sentence = Sentence("Too many requests wait for other servers at the moment. Try again in a few seconds.")
        raise ProductError("busy", sentence, status=503, retry_after=BUSY_SECONDS)
    try:
        yield
    finally:
        _places.release()
