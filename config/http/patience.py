"""Nobody waits for a database that answers nobody.

A server that hangs, or a network that loses everything, looks to a connection like a long query. Here each web process
asks for itself every second; where for some seconds nobody has heard anything, whoever waits for the database is let
go, and until it answers again nobody waits for longer than a second. The answer to them is a 503 (`problems`).
"""

import logging
import threading
import time
from collections.abc import Generator, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
SILENT_SECONDS = 3.0  # without a word to anybody; a request has to be answered within five
ASKED_EVERY = 1.0  # seconds
SHORT_WAIT = 1.0  # seconds for a connection, while there is none to be expected
LOOKED_EVERY = 0.25  # seconds
FRESH = 4  # connections that are opened at once when it answers again
CONNECT_SECONDS = 2  # the least that libpq knows


class Silent(psycopg.OperationalError):
    """The database has not answered anybody for a while."""


class Watch:
    """Whether it has answered nobody for `patience` seconds, known once somebody has asked in vain."""

    def __init__(self, patience: float = SILENT_SECONDS) -> None:
        self.patience, self.silent, self.over, self._last = patience, False, threading.Event(), time.monotonic()

    @property
    def left(self) -> float:
        """Seconds until it is silent."""
        return self._last + self.patience - time.monotonic()

    def heard(self) -> None:
        self._last, self.silent = time.monotonic(), False

    def not_heard(self) -> None:
        self.silent = self.silent or self.left <= 0


watch = Watch()


class Connection(psycopg.Connection[Any]):
    """Its waits end with Silent where the database is. The connection is closed then."""

    watch = watch

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().wait(self._while_it_answers(gen), *args, **kwargs)
        self.watch.heard()
        return result

    def _while_it_answers(self, steps: Generator[Any, int, Result]) -> Generator[Any, int, Result]:
        """psycopg asks for the next step every tenth of a second, also when nothing has come."""
        try:
            wanted = next(steps)
            while True:
                came = yield wanted
                if not came and self.watch.silent:
                    self.pgconn.finish()
                    raise Silent("the database does not answer")
                wanted = steps.send(came)
        except StopIteration as end:
            result: Result = end.value
            return result


class _Asking(psycopg.Connection[Any]):
    """Whose waits have an end."""

    seconds = ASKED_EVERY

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(gen, *args, **{**kwargs, "timeout": self.seconds})


def begin(parameters: Mapping[str, Any], pool: ConnectionPool[Any], of: Watch = watch) -> None:
    """Until it is `over`. `parameters`: what psycopg connects with."""
    for work in (lambda: _ask_on(parameters, of), lambda: _let_go_on(pool, of)):
        threading.Thread(target=work, name="patience", daemon=True).start()


def _ask_on(parameters: Mapping[str, Any], of: Watch) -> None:
    asking: _Asking | None = None
    pause = 0.0
    while not of.over.wait(pause):
        try:
            if asking is None:
                asking = _Asking.connect(**{**parameters, "connect_timeout": CONNECT_SECONDS, "autocommit": True})
            asking.seconds = max(ASKED_EVERY, of.left)
            asking.execute("SELECT 1")
            of.heard()
            pause = ASKED_EVERY
        except psycopg.Error:
            if asking is not None:
                asking.pgconn.finish()
                asking = None
            of.not_heard()
            pause = LOOKED_EVERY


def _let_go_on(pool: ConnectionPool[Any], of: Watch) -> None:
    """Of those who wait for a connection; whoever has one looks for themselves."""
    usual, least, most, told = pool.timeout, pool.min_size, pool.max_size, False
    while not of.over.wait(LOOKED_EVERY):
        if told != of.silent:
            told = not told
            pool.timeout = SHORT_WAIT if told else usual
            logger.warning(
                "the database is silent; whoever waits for it is refused" if told else "the database answers again"
            )
            if told:
                pool.drain()  # else each of its connections is tried, one after the other
            else:
                # The pool would try again only when its pause is over, which has grown with each failure.
                pool.resize(least + FRESH, max(most, least + FRESH))
                pool.resize(least, most)
        for waiting in tuple(pool._waiting) if told else ():
            waiting.fail(PoolTimeout("the database does not answer"))
