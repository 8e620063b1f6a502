"""Advisory locks: held until the transaction ends, each name by itself."""

from collections.abc import Iterator

import pytest
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from core.locks import lock, try_lock

TAKE = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"


@pytest.fixture
def other(committed: None) -> Iterator[BaseDatabaseWrapper]:
    """A second connection to the same database, as another process has one."""
    second = connection.copy()
    yield second
    second.close()


def takes(second: BaseDatabaseWrapper, name: str) -> bool:
    with second.cursor() as cursor:
        cursor.execute(TAKE, [name])
        return bool(cursor.fetchone()[0])


def test_nobody_else_takes_a_lock_before_the_transaction_ends(other: BaseDatabaseWrapper) -> None:
    with transaction.atomic():
        lock("default model")
        assert not takes(other, "default model")
        assert takes(other, "active web search")
    assert takes(other, "default model")


def test_trying_says_at_once_whether_somebody_else_holds_the_lock(other: BaseDatabaseWrapper) -> None:
    other.set_autocommit(False)
    assert takes(other, "default model")
    with transaction.atomic():
        assert not try_lock("default model")
        assert try_lock("active web search")
    other.rollback()
    with transaction.atomic():
        assert try_lock("default model")
