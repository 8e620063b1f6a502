"""An open socket ends with the session it was opened with."""

from collections.abc import Iterator

import httpx
import pytest
from django.conf import settings
from django.test import Client

from tests.application import Application
from tests.conftest import Person
from tests.sockets import socket_of


@pytest.fixture
def browser(application: Application, person: Person) -> Iterator[httpx.Client]:
    """The person's other browser, with the token that a page's forms carry."""
    client = Client()
    client.force_login(person.user)
    cookies = {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}
    with application.http(cookies=cookies) as browser:
        browser.get("/settings/")
        browser.headers["X-CSRFToken"] = browser.cookies[settings.CSRF_COOKIE_NAME]
        yield browser


def test_signing_out_elsewhere_closes_the_sockets_that_are_open_there(
    application: Application, person: Person, stranger: Person, browser: httpx.Client
) -> None:
    with socket_of(application, person) as socket, socket_of(application, stranger) as other:
        for each in (socket, other):
            each.send("ping", id=1)
            each.until("ACK")
        assert browser.post("/settings/sessions/end/").status_code == 302
        assert socket.close_code() == 4401
        other.send("ping", id=2)
        assert other.until("ACK")
    assert browser.get("/settings/sessions/").status_code == 200
