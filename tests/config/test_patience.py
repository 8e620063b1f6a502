"""A database that hangs: whoever waits for it is let go, and told so; a long query alone is waited for."""

import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from psycopg_pool import ConnectionPool, PoolTimeout

from config import service_urls
from config.http import patience, problems
from core.errors import ProductError
from tests.product import until

pytestmark = pytest.mark.django_db


class Line:
    """A line to the database that can lose everything: what comes is handed on while `open` is set."""

    def __init__(self) -> None:
        self.open, self._server = threading.Event(), socket.create_server(("127.0.0.1", 0))
        self.open.set()
        self.port = self._server.getsockname()[1]
        self._ends = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        parts = urlsplit(settings.DATABASE_URL)
        directory, port = parse_qs(parts.query)["host"][0], parts.port or 5432
        while True:
            try:
                near = self._server.accept()[0]
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(f"{directory}/.s.PGSQL.{port}")
            self._ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._hand_on, args=(one, other), daemon=True).start()

    def _hand_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65_536):
                self.open.wait()
                other.sendall(data)
        except OSError:
            pass
        other.close()

    def close(self) -> None:
        self.open.set()
        for each in self._ends:
            each.close()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


@pytest.fixture
def parameters(line: Line) -> dict[str, Any]:
    return {**connection.get_connection_params(), "host": "127.0.0.1", "port": line.port, "autocommit": True}


@pytest.fixture
def pool(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> "Iterator[ConnectionPool[Any]]":
    """Of one connection, so that whoever is next has to wait for one; its database is silent after half a second."""
    watch = patience.Watch(0.5)

    class Watched(patience.Connection):
        pass

    Watched.watch = watch
    made: ConnectionPool[Any] = ConnectionPool(kwargs=parameters, connection_class=Watched, min_size=1, open=True)
    made.wait()
    patience.begin(parameters, made, watch)
    yield made
    watch.over.set()
    made.close()


def test_whoever_waits_for_a_database_that_hangs_is_let_go_and_served_once_it_answers(
    line: Line, pool: "ConnectionPool[Any]"
) -> None:
    with pool.connection() as asked:
        line.open.clear()
        with pytest.raises(patience.Silent):
            asked.execute("SELECT 1")
        assert asked.closed
    with pytest.raises(PoolTimeout):
        pool.getconn()
    line.open.set()
    until(lambda: pool.timeout > patience.SHORT_WAIT, "the database has been heard of")
    with pool.connection() as asked:
        assert asked.execute("SELECT 1").fetchone() == (1,)


def test_a_long_query_is_waited_for_while_the_database_answers_others(pool: "ConnectionPool[Any]") -> None:
    with pool.connection() as asked:
        assert asked.execute("SELECT 1 FROM pg_sleep(1.5)").fetchone() == (1,)


def test_it_is_told_in_words() -> None:
    error = OperationalError("broken off")
    error.__cause__ = patience.Silent("the database does not answer")
    told = problems.foreseen(error)
    assert isinstance(told, ProductError) and (told.code, told.status) == ("unavailable", 503)
    error.__cause__ = psycopg.OperationalError("another one")
    assert problems.foreseen(error) is error


def test_the_web_has_such_connections_and_waits_for_none_for_long() -> None:
    database = service_urls.database("postgresql://a@b/c")
    service_urls.connect_by(database, patience.Connection)
    assert database["OPTIONS"]["pool"]["connection_class"] is patience.Connection
    assert database["OPTIONS"]["connect_timeout"] == service_urls.CONNECT_SECONDS
