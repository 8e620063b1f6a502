"""A migration whose table is in use blocks no request, and runs once it gets its lock."""

from collections.abc import Iterator
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from config.management.commands import migrate

pytestmark = pytest.mark.django_db
TABLE = "mfa_authenticator"  # what this migration of a library adds a constraint to, which is taken back here
BEFORE = ("mfa", "0002")


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection that reads the table in an open transaction, as a backup does. It ends after 30 s."""
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(migrate, "PAUSE_SECONDS", 0)
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SET idle_in_transaction_session_timeout = '30s'")
        other.execute(f"SELECT FROM {TABLE}")
        yield other


class EndsReader(StringIO):
    """An output stream that ends the reader's transaction at the command's first line."""

    def __init__(self, reader: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.reader = reader

    def write(self, text: str) -> int:
        self.reader.rollback()
        return super().write(text)


def constrained() -> bool:
    with connection.cursor() as cursor:
        return "unique_authenticator_type" in connection.introspection.get_constraints(cursor, TABLE)


def test_a_table_that_is_in_use_is_asked_for_again(reader: psycopg.Connection[Any]) -> None:
    assert constrained()
    errors = EndsReader(reader)
    call_command("migrate", *BEFORE, verbosity=0, stderr=errors)
    assert errors.getvalue().count("A table is in use") >= 1  # a product beside it may hold it for a moment, too
    assert not constrained()


def test_a_table_that_stays_in_use_is_said_to_be(
    reader: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "MAX_TRIES", 2)
    errors = StringIO()
    with pytest.raises(CommandError, match="A table was in use all the time"):
        call_command("migrate", *BEFORE, verbosity=0, stderr=errors)
    assert errors.getvalue().count("A table is in use") == 1
    assert constrained()
