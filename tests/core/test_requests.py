"""Parameters of requests: rows and days in addresses, pages of lists, and entity tags."""

from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from accounts.models import User
from core.api.entity_tags import expected_tags
from core.api.pagination import pages
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


NAMES = ["ann", "bob", "cid", "dot", "eve"]


@pytest.fixture
def people(db: None) -> None:
    for name in NAMES:
        User.objects.create_user(name)


def request_for(path: str, **headers: str) -> Request:
    return Request(APIRequestFactory().get(path, headers=headers))


def page_of(paginator: Any, path: str) -> tuple[list[str], str | None]:
    """The names on the page, and the address of the next."""
    rows = paginator.paginate_queryset(User.objects.filter(username__in=NAMES), request_for(path))
    return [row.username for row in rows], paginator.get_next_link()


@pytest.mark.usefixtures("people")
def test_pages_go_on_with_a_cursor_until_every_row_was_on_one() -> None:
    kind = pages("-username", size=2)
    seen: list[str] = []
    path: str | None = "/people/"
    while path:
        names, path = page_of(kind(), path)
        seen += names
    assert seen == NAMES[::-1]


@pytest.mark.usefixtures("people")
def test_a_request_chooses_the_size_of_a_page_up_to_the_largest() -> None:
    kind = pages("username", size=1, at_most=3)
    assert page_of(kind(), "/people/?page_size=2")[0] == NAMES[:2]
    assert page_of(kind(), "/people/?page_size=100")[0] == NAMES[:3]


@pytest.mark.usefixtures("people")
def test_without_a_largest_size_a_request_cannot_choose() -> None:
    assert page_of(pages("username", size=2, at_most=None)(), "/people/?page_size=4")[0] == NAMES[:2]


@pytest.mark.parametrize(
    ("header", "tags"),
    [(None, None), ("*", None), ('"a"', {"a"}), ('"a", "b"', {"a", "b"}), ('W/"a", "b"', {"b"}), ("a", set())],
)
def test_if_match_names_the_states_that_were_read(header: str | None, tags: set[str] | None) -> None:
    headers = {} if header is None else {"If-Match": header}
    assert expected_tags(request_for("/", **headers)) == tags
