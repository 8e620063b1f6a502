"""The chain of the audit: rows are in order and cannot be changed, and a change in the database is found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.models import User
from core.audit.chain import ChainCheck, sign, verify
from core.audit.models import Entry
from core.audit.origin import How, Origin, use_origin
from core.audit.services import delete_expired, record

pytestmark = pytest.mark.django_db
RULE = "never changed or deleted"


def seal() -> None:
    """Run the deferred triggers of the end of a transaction. A test has only one transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


@pytest.fixture
def rows(db: None) -> list[Entry]:
    """Five rows at the end of the chain."""
    admin = User.objects.create_superuser("admin")
    with use_origin(Origin(How.ADMIN, "203.0.113.9", "a-request")):
        for number in range(5):
            record(user=admin, action="group.added", name=f"Group {number}", changes={"n": [None, number]})
    seal()
    return list(Entry.objects.order_by("-sequence")[:5])[::-1]


@contextmanager
def behind_the_back() -> Iterator[Any]:
    """Yield a cursor without the audit's triggers, as the owner of the database can have."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_entry DISABLE TRIGGER USER")
        yield cursor
        cursor.execute("ALTER TABLE audit_entry ENABLE TRIGGER USER")


def broken() -> list[str]:
    return [finding.sentence for finding in verify(ChainCheck())]


def test_each_row_follows_the_one_before_it(rows: list[Entry]) -> None:
    places = [row.sequence or 0 for row in rows]
    assert places == list(range(places[0], places[0] + 5))
    assert [row.previous for row in rows[1:]] == [row.hash for row in rows[:-1]]
    checked = ChainCheck()
    assert list(verify(checked)) == []
    assert (checked.sequence, checked.hash) == (places[-1], rows[-1].hash)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entry SET actor_name = 'somebody else'",
        "UPDATE audit_entry SET sequence = sequence + 1000",
        "DELETE FROM audit_entry",
    ],
)
def test_the_database_changes_and_deletes_no_row(rows: list[Entry], statement: str) -> None:
    with pytest.raises(DatabaseError, match=RULE), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_the_table_is_not_emptied_either(rows: list[Entry]) -> None:
    with pytest.raises(DatabaseError, match=RULE), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE audit_entry")


def test_a_row_is_changed_and_deleted_through_django_no_more_than_by_sql(rows: list[Entry]) -> None:
    rows[0].action = "group.deleted"
    for does in (rows[0].save, rows[0].delete, Entry.objects.all().delete):
        with pytest.raises(DatabaseError, match=RULE), transaction.atomic():
            does()


@pytest.mark.parametrize(
    ("tampered", "sentence_part"),
    [
        (lambda sql, row: sql("UPDATE audit_entry SET action = 'group.deleted' WHERE id = %s", [row.pk]), "changed"),
        (lambda sql, row: sql("UPDATE audit_entry SET at = at - interval '1 day' WHERE id = %s", [row.pk]), "changed"),
        (lambda sql, row: sql("UPDATE audit_entry SET changes = '{}' WHERE id = %s", [row.pk]), "changed"),
        (lambda sql, row: sql("UPDATE audit_entry SET actor_id = NULL WHERE id = %s", [row.pk]), "changed"),
        (lambda sql, row: sql("UPDATE audit_entry SET actor_name = 'olga' WHERE id = %s", [row.pk]), "A name"),
        (lambda sql, row: sql("UPDATE audit_entry SET address = '' WHERE id = %s", [row.pk]), "A name"),
        (lambda sql, row: sql("UPDATE audit_entry SET hash = previous WHERE id = %s", [row.pk]), "Its hash"),
        (lambda sql, row: sql("UPDATE audit_entry SET sequence = NULL WHERE id = %s", [row.pk]), "has no place"),
        (lambda sql, row: sql("DELETE FROM audit_entry WHERE id = %s", [row.pk]), "The 1 rows before"),
        (
            lambda sql, row: sql("DELETE FROM audit_entry WHERE sequence <= %s", [row.sequence]),
            "retention did not delete them",
        ),
    ],
)
def test_what_was_changed_in_the_database_is_found(
    rows: list[Entry], tampered: Callable[[Any, Entry], object], sentence_part: str
) -> None:
    with behind_the_back() as cursor:
        tampered(cursor.execute, rows[2])
    assert any(sentence_part in sentence for sentence in broken()), broken()


def test_the_command_tells_it_and_ends_with_an_error(rows: list[Entry]) -> None:
    out = StringIO()
    call_command("audit", "--verify", stdout=out)
    assert f"{rows[-1].sequence}:{rows[-1].hash}" in out.getvalue()
    with behind_the_back() as cursor:
        cursor.execute("UPDATE audit_entry SET object_name = 'x' WHERE id = %s", [rows[1].pk])
    errors = StringIO()
    with pytest.raises(CommandError, match="changed after it was written: 1 fault"):
        call_command("audit", "--verify", stdout=StringIO(), stderr=errors)
    assert f"row {rows[1].sequence:,}: A name or the address of this row was changed." in errors.getvalue()


def test_an_end_that_was_cut_off_is_found_by_what_was_kept_elsewhere(rows: list[Entry]) -> None:
    head = f"{rows[-1].sequence}:{rows[-1].hash}"
    call_command("audit", "--verify", "--head", head, stdout=StringIO())
    with behind_the_back() as cursor:
        cursor.execute("DELETE FROM audit_entry WHERE sequence >= %s", [rows[3].sequence])
    assert broken() == []
    with pytest.raises(CommandError):
        call_command("audit", "--verify", "--head", head, stdout=StringIO(), stderr=StringIO())
    with pytest.raises(CommandError, match="Write --head as"):
        call_command("audit", "--verify", "--head", "x", stdout=StringIO())


def test_a_new_key_signs_and_the_old_one_still_verifies(rows: list[Entry], settings: Settings) -> None:
    settings.ENCRYPTION_KEYS = ["another", *settings.ENCRYPTION_KEYS]
    record(user=None, action="group.added", name="Later")
    seal()
    assert broken() == []
    settings.ENCRYPTION_KEYS = ["another"]
    assert set(broken()) == {"It was changed, or signed with a key that is no longer in ENCRYPTION_KEYS."}


def test_of_what_was_rolled_back_no_row_stays(rows: list[Entry]) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        record(user=None, action="group.deleted")
        _ = 1 / 0
    seal()
    assert not Entry.objects.filter(action="group.deleted").exists() and broken() == []


# Retention


def test_nothing_is_forgotten_unless_it_is_set(rows: list[Entry]) -> None:
    assert delete_expired() == 0


def test_what_is_older_than_the_setting_goes_and_the_chain_still_holds(rows: list[Entry], settings: Settings) -> None:
    with behind_the_back() as cursor:
        cursor.execute("DELETE FROM audit_entry")
    old = timezone.now() - timedelta(days=40)
    for number in range(4):
        record_at(old if number < 2 else timezone.now(), number)
    settings.AUDIT_DAYS = 30
    assert delete_expired() == 2
    seal()
    left = list(Entry.objects.order_by("sequence"))
    assert [row.sequence for row in left] == [3, 4, 5]
    assert left[-1].action == "audit.forgotten" and left[-1].changes["through"] == 2
    assert broken() == []
    assert delete_expired() == 0
    with behind_the_back() as cursor:
        cursor.execute("DELETE FROM audit_entry WHERE sequence = 3")
    assert any("retention did not delete them" in sentence for sentence in broken())


def test_the_newest_row_stays_however_old_it_is(rows: list[Entry], settings: Settings) -> None:
    settings.AUDIT_DAYS = 1
    with behind_the_back() as cursor:
        cursor.execute("DELETE FROM audit_entry")
    record_at(timezone.now() - timedelta(days=40), 0)
    record_at(timezone.now() - timedelta(days=39), 1)
    assert delete_expired() == 1
    seal()
    assert [row.sequence for row in Entry.objects.order_by("sequence")] == [2, 3] and broken() == []


def record_at(moment: datetime, number: int) -> Entry:
    entry = Entry(at=moment, how=How.SYSTEM, action="row.added", object_name=str(number))
    sign(entry)
    entry.save()
    seal()
    return entry
