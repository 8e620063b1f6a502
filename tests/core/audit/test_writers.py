"""Many writers at once, each in a transaction of its own."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections, transaction

from core.audit.chain import ChainCheck, verify
from core.audit.models import Entry
from core.audit.services import record


def test_nothing_is_recorded_outside_of_a_transaction_or_under_an_unknown_name(committed: None) -> None:
    with pytest.raises(transaction.TransactionManagementError):
        record(user=None, action="group.added")
    with pytest.raises(ValueError, match="no act"), transaction.atomic():
        record(user=None, action="group.painted")


def test_many_writers_at_once_make_one_chain(committed: None) -> None:
    def write(number: int) -> None:
        try:
            with transaction.atomic():
                for part in range(3):
                    record(user=None, action="row.changed", name=f"many {number}", changes={"part": part})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(40)))
    entries = Entry.objects.filter(object_name__startswith="many ").order_by("sequence")
    parts: dict[str, list[int]] = {}
    for row in entries:
        parts.setdefault(row.object_name, []).append(row.changes["part"])
    assert len(parts) == 40 and all(each == [0, 1, 2] for each in parts.values())
    assert list(verify(ChainCheck())) == []


def test_who_is_in_the_middle_of_a_transaction_holds_up_nobody(committed: None) -> None:
    """The lock of the chain is taken as a transaction ends, not when the row is written."""
    second = connection.copy()
    try:
        with transaction.atomic():
            record(user=None, action="row.changed", name="unhurried")
            with second.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(hashtextextended('the chain of the audit', 0))")
                assert cursor.fetchone()[0]
                cursor.execute("SELECT pg_advisory_unlock(hashtextextended('the chain of the audit', 0))")
    finally:
        second.close()
    assert Entry.objects.filter(object_name="unhurried").exclude(sequence=None).exists()
