"""A database that cannot be reached: requests that wait for it are refused, and served once it is back."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connections
from psycopg_pool import PoolTimeout, TooManyRequests
from pytest_django import DjangoDbBlocker

from config import service_urls
from config.http import problems
from config.http.database import limit_waits
from core.errors import ProductError
from tests.product import until

ALIAS = "outage"


class Relay:
    """A port through which the test's PostgreSQL is reached. `close` refuses connections, `open` takes them again."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        parts = urlsplit(settings.DATABASE_URL)
        path = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.{parts.port or 5432}"
        while True:
            try:
                near = server.accept()[0]
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(path)
            self._sockets += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)

    def close(self) -> None:
        for each in (self._server, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # ends an accept or recv of another thread, which close alone does not
            each.close()
        self._sockets.clear()

    def open(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay()
    yield relay
    relay.close()


@pytest.fixture
def database(relay: Relay, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Settings of a database behind the relay, with the bounds of a web process."""
    database = {**connections.settings["default"], "HOST": "127.0.0.1", "PORT": str(relay.port)}
    database["OPTIONS"] = {**database["OPTIONS"], "pool": {**database["OPTIONS"]["pool"]}}
    limit_waits(database)
    connections.settings[ALIAS] = database
    with django_db_blocker.unblock():
        yield
    connections[ALIAS].close()
    connections[ALIAS].close_pool()  # type: ignore[attr-defined]  # no stubs have it
    del connections.settings[ALIAS], connections[ALIAS]


def select_one() -> int:
    """Send a statement in this thread, and give the connection back to the pool."""
    try:
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("SELECT 1")
            return int(cursor.fetchone()[0])
    finally:
        connections[ALIAS].close()


def answers() -> bool:
    try:
        return select_one() == 1
    except OperationalError:
        return False


def test_requests_are_refused_before_the_pool_gives_up_while_the_database_is_away(relay: Relay, database: None) -> None:
    assert select_one() == 1
    relay.close()
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(select_one) for _ in range(5)]
        for request in waiting:
            with pytest.raises(OperationalError) as caught:
                request.result()
            assert not isinstance(caught.value.__cause__, PoolTimeout)
            problem = problems.to_product_error(caught.value)
            assert isinstance(problem, ProductError) and problem.code == "unavailable"
    relay.open()
    until(answers, "the database is used again")


@pytest.mark.parametrize("cause", [PoolTimeout(), TooManyRequests(), psycopg.OperationalError("connection lost")])
def test_a_lost_connection_is_a_sentence(cause: Exception) -> None:
    error = OperationalError("broken off")
    error.__cause__ = cause
    problem = problems.to_product_error(error)
    assert isinstance(problem, ProductError) and (problem.code, problem.status) == ("unavailable", 503)


def test_an_error_of_the_server_is_none() -> None:
    error = OperationalError("deadlock detected")
    error.__cause__ = psycopg.errors.DeadlockDetected()
    assert problems.to_product_error(error) is error


def test_options_of_the_url_take_precedence_over_the_bounds() -> None:
    database = service_urls.database("postgresql://a@b/c?connect_timeout=9")
    limit_waits(database)
    assert (database["OPTIONS"]["connect_timeout"], database["OPTIONS"]["tcp_user_timeout"]) == (9, 3000)
