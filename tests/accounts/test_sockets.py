"""An open socket ends with the session it was opened with."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from websockets.exceptions import ConnectionClosed

from accounts.models import ApiToken, Session, User
from chat.models import Turn
from tests.conftest import Person, make_person
from tests.product import Product
from tests.sockets import cookie_of, opened, socket_of

pytestmark = pytest.mark.product


@pytest.fixture
def browser(product: Product, person: Person) -> Iterator[httpx.Client]:
    """The person's other browser, with the token that a page's forms carry."""
    client = Client()
    client.force_login(person.user)
    cookies = {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}
    with httpx.Client(base_url=product.url, cookies=cookies) as browser:
        browser.get("/settings/")
        browser.headers["X-CSRFToken"] = browser.cookies[settings.CSRF_COOKIE_NAME]
        yield browser


def test_signing_out_elsewhere_closes_the_sockets_that_are_open_there(
    product: Product, person: Person, stranger: Person, browser: httpx.Client
) -> None:
    with socket_of(product, person) as socket, socket_of(product, stranger) as other:
        for each in (socket, other):
            each.send("ping", id=1)
            each.until("ACK")
        assert browser.post("/settings/sessions/end/").status_code == 302
        assert socket.close_code() == 4401
        other.send("ping", id=2)
        assert other.until("ACK")
    assert browser.get("/settings/sessions/").status_code == 200


def signed_out(product: Product, person: Person, cookie: str) -> None:
    with httpx.Client(base_url=product.url, headers={"Cookie": cookie}) as browser:
        page = browser.get("/settings/").text
        token = page.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
        cookies = f"{cookie}; {settings.CSRF_COOKIE_NAME}={browser.cookies[settings.CSRF_COOKIE_NAME]}"
        answer = browser.post("/logout/", data={"csrfmiddlewaretoken": token}, headers={"Cookie": cookies})
        assert answer.status_code == 302, answer.text


def with_another_password(product: Product, person: Person, cookie: str) -> None:
    """As `manage.py changepassword`, which tells nobody."""
    person.user.set_password("an even longer staple")
    person.user.save()


ENDINGS: dict[str, Callable[[Product, Person, str], object]] = {
    "sign-out": signed_out,
    "row": lambda product, person, cookie: Session.objects.filter(user=person.user).delete(),
    "password": with_another_password,
    "deleted": lambda product, person, cookie: User.objects.filter(pk=person.user.pk).delete(),
    "token": lambda product, person, cookie: ApiToken.objects.filter(user=person.user).update(expires=timezone.now()),
}


def test_a_socket_ends_with_what_it_was_opened_with_by_whatever_way(product: Product) -> None:
    for way, end in ENDINGS.items():
        person = make_person(product)
        cookie = cookie_of(person)
        headers = {"Authorization": f"Bearer {person.token}"} if way == "token" else {"Cookie": cookie}
        place = person.caller.conversation()
        with opened(product, headers, product.url) as silent, opened(product, headers, product.url) as sending:
            for each in (silent, sending):
                each.send("ping", id=1)
                each.until("ACK")
            end(product, person, cookie)
            with suppress(ConnectionClosed):  # it may be closed already
                sending.send("send", conversation=place, text="Nobody may say this any more.")
            assert sending.close_code() == silent.close_code() == 4401, way
        assert not Turn.objects.filter(conversation_id=place).exists()
