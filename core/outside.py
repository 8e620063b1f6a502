"""Waits for something outside of this process: another server, a child process, a slot.

A web process has a pool of 24 connections to the database. A waiting thread that holds one of them takes it from
the others, so a handful of slow answers from outside would stop all pages. Each such wait therefore runs in a
`wait_outside` block, which first returns the connection to the pool.

A transaction cannot return its connection. The admin's forms and API calls with an `Idempotency-Key` run in a
transaction, and some of them call a server. Only `MAX_TRANSACTION_WAITS` of those may wait at a time, so the other
connections stay free.

A request with a large body also holds one of the few slots for such bodies. It leaves that slot before it waits.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import connection

from core.errors import ProductError
from core.sentences import Sentence

MAX_TRANSACTION_WAITS = 8  # concurrent waits per process that hold a connection; a third of the pool
BUSY_SECONDS = 5
_transaction_slots = threading.BoundedSemaphore(MAX_TRANSACTION_WAITS)
_before_wait: ContextVar[Callable[[], object] | None] = ContextVar("called before a wait", default=None)


@contextmanager
def before_waits(call: Callable[[], object]) -> Iterator[None]:
    """Make each `wait_outside` in the block first call `call`, on its own thread. `call` must not raise."""
    token = _before_wait.set(call)
    try:
        yield
    finally:
        _before_wait.reset(token)


@contextmanager
def wait_outside() -> Iterator[None]:
    """Return this thread's database connection to the pool, then run the block, which waits.

    Calls the function of `before_waits` first. The block must not query, since a query takes a connection again. Within
    a transaction the thread keeps its connection. Raises `busy` (503) if too many transactions wait already.
    """
    if call := _before_wait.get():
        call()
    if not connection.in_atomic_block:
        connection.close()
        yield
        return
    if not _transaction_slots.acquire(blocking=False):
        sentence = Sentence("Too many requests are waiting for other servers. Try again in a few seconds.")
        raise ProductError("busy", sentence, status=503, retry_after=BUSY_SECONDS)
    try:
        yield
    finally:
        _transaction_slots.release()
