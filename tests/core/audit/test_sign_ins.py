"""Failed sign-ins: they are in the audit, and cannot fill it."""

import pytest
from django.core.cache import cache
from django.test import Client

from accounts.access import sign_ins
from accounts.models import User
from core.audit.models import Entry
from tests.core.audit.world import texts_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is counted falls into one window, however long a test takes."""
    monkeypatch.setattr(sign_ins, "MINUTE", 10**9)
    cache.delete_many(["audit:refused:1", "audit:person.sign_in_failed::1"])


def failures() -> list[Entry]:
    return list(Entry.objects.filter(action="person.sign_in_failed").order_by("id"))


def test_the_first_the_tenth_and_the_hundredth_of_a_person_are_rows() -> None:
    person = User.objects.create_user("olga")
    for _ in range(150):
        sign_ins.sign_in_refused("olga")
    assert [entry.changes["times"] for entry in failures()] == [1, 10, 100]
    assert {entry.object_id for entry in failures()} == {str(person.pk)}


def test_names_that_nobody_has_are_one_and_are_not_stored() -> None:
    for number in range(50):
        sign_ins.sign_in_refused(f"a-password-in-the-wrong-field-{number}")
    assert [entry.changes["times"] for entry in failures()] == [1, 10]
    assert "wrong-field" not in texts_of(failures())


def test_of_many_names_no_more_than_so_many_rows_are_written() -> None:
    names = [f"person-{number}" for number in range(sign_ins.ROWS_PER_MINUTE + 10)]
    for name in names:
        User.objects.create_user(name)
    for name in names:
        sign_ins.sign_in_refused(name)
    assert len(failures()) == sign_ins.ROWS_PER_MINUTE
    assert failures()[-1].changes["more_are_not_listed"] is True


def test_a_try_that_is_not_even_looked_at_counts_too(settings: object) -> None:
    User.objects.create_user("olga", password="the right password")
    for _ in range(12):
        Client(REMOTE_ADDR="203.0.113.77").post("/login/", {"username": "olga", "password": "wrong"})
    assert [entry.changes["times"] for entry in failures()] == [1, 10]
    assert {entry.address for entry in failures()} == {"203.0.113.77"}
