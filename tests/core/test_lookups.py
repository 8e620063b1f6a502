"""Rows and days by what an address names them with."""

from datetime import date
from uuid import uuid4

import pytest

from accounts.models import User
from core.errors import NotFound
from core.requests import DayConverter, choice, choices, get_or_404, or_404


@pytest.fixture
def olga(db: None) -> User:
    return User.objects.create_user("olga")


def test_a_row_is_found_by_its_id_as_text_or_uuid(olga: User) -> None:
    assert get_or_404(User.objects.all(), str(olga.pk), "person") == olga
    assert get_or_404(User.objects.all(), olga.pk, "person") == olga


@pytest.mark.parametrize("pk", ["", "nonsense", None, uuid4(), "0"])
def test_what_is_no_id_is_not_found_just_as_an_unknown_id(olga: User, pk: object) -> None:
    with pytest.raises(NotFound) as caught:
        get_or_404(User.objects.all(), pk, "person")
    assert (caught.value.code, caught.value.status) == ("not_found", 404)
    assert caught.value.detail == "There is no such person, or it is not yours."


def test_a_row_that_is_not_among_those_given_is_not_found(olga: User) -> None:
    with pytest.raises(NotFound):
        get_or_404(User.objects.exclude(username="olga"), olga.pk, "person")
    assert or_404(olga, "person") is olga


def test_a_day_in_an_address_reads_back_as_it_was_written() -> None:
    converter = DayConverter()
    assert converter.to_python(converter.to_url(date(2026, 11, 21))) == date(2026, 11, 21)
    with pytest.raises(ValueError, match="day is out of range"):
        converter.to_python("2026-02-30")


def test_what_is_chosen_stays_a_choice_though_one_does_not_see_it(olga: User) -> None:
    visible, hidden = User.objects.filter(pk=olga.pk), User.objects.create_user("pia")
    assert choices(visible, None) == choices(visible, olga) == [olga]
    assert choices(visible, hidden) == [hidden, olga]
    assert choice(visible, hidden, str(hidden.pk), "person") == hidden
    assert choice(visible, hidden, str(olga.pk), "person") == olga
    assert choice(visible, hidden, "", "person") is None
    with pytest.raises(NotFound):
        choice(visible, olga, str(hidden.pk), "person")
