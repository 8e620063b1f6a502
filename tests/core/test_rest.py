"""Pages of lists, and the tags that tell whether somebody has changed what was read."""

from typing import Any

import pytest
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from accounts.models import User
from core.requests import expected, pages

NAMES = ["ann", "bob", "cid", "dot", "eve"]


@pytest.fixture
def people(db: None) -> None:
    for name in NAMES:
        User.objects.create_user(name)


def asked(path: str, **headers: str) -> Request:
    return Request(APIRequestFactory().get(path, headers=headers))


def page_of(paginator: Any, path: str) -> tuple[list[str], str | None]:
    """The names on the page, and the address of the next."""
    rows = paginator.paginate_queryset(User.objects.filter(username__in=NAMES), asked(path))
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
    assert expected(asked("/", **headers)) == tags
