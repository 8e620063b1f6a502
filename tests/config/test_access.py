"""Access to addresses. The tests walk the whole URLconf, so a new address is covered when it is added."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.apps import apps
from django.conf import settings
from django.test import Client

from accounts.models import ApiToken, User
from tests.config.household import ELSEWHERE, INTRUSION, PRIVATE, SECRET, SHOWN, Household, content, signed_in

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
IN_THE_ADMIN = ("GET", "POST")  # its views ask for nothing else
# What anybody may see: signing in, what load balancers ask, the empty frame of a diagram, and the description of the
# API, which holds no data.
PUBLIC = {
    "/login/",
    "/login/forgotten/",
    "/admin/login/",
    "/livez",
    "/readyz",
    "/manifest.webmanifest",
    "/service-worker.js",
    "/offline/",
    "/diagram/",
    "/oauth/client.json",
    "/api/v1/schema/",
    "/api/v1/asyncapi/",
    "/api/docs/",
}
# Gives a script that is not signed in a challenge, which says nothing of anybody.
CHALLENGE = {"/login/passkey/"}
SIGNING_OUT = {"/logout/", "/admin/logout/"}
# Rows of the workspace, which whoever is signed in may read.
SHARED = ("/api/v1/models/", "/api/v1/budget-profiles/")
# What people mark of these rows, each for themselves.
OWN_MARKS = re.compile(r"(?:/api/v1)?/models/[0-9a-f-]+/favourite/")


def ask(client: Client, method: str, url: str) -> Any:
    body: Any = json.dumps(INTRUSION) if url.startswith("/api/") else INTRUSION
    if method == "POST" and not url.startswith("/api/"):
        return client.post(url, body)
    return client.generic(method, url, json.dumps(INTRUSION), content_type="application/json")


def to_sign_in(response: Any) -> bool:
    return response.status_code == 302 and urlsplit(response["Location"]).path in ("/login/", "/admin/login/")


def test_every_kind_of_row_in_the_admin_is_walked(household: Household) -> None:
    """Otherwise an address of the admin would get another kind's id, and each answer would be 404."""
    walked = {type(row) for row in household.rows}
    unknown = {
        address.url
        for address in household.addresses()
        if address.admin and "object_id" in address.parameters and not address.url.startswith("/admin/r/")
        for app, name in [address.url.split("/")[2:4]]
        if apps.get_model(app, name) not in walked
    }
    assert not unknown, "give the household a row for each"


def test_what_is_not_public_asks_strangers_to_sign_in(household: Household) -> None:
    client, wrong = Client(raise_request_exception=False, REMOTE_ADDR=ELSEWHERE), []
    for address in household.addresses():
        for method in IN_THE_ADMIN if address.admin else METHODS:
            response = ask(client, method, address.url)
            refused = response.status_code in (401, 403, 404, 405) or to_sign_in(response)
            if (address.url not in PUBLIC | CHALLENGE | SIGNING_OUT and not refused) or response.status_code == 500:
                wrong.append((method, address.url, response.status_code))
            assert PRIVATE not in content(response)
    assert not wrong, "\n".join(map(str, wrong))


def test_public_addresses_are_there(client: Client, household: Household) -> None:
    urls = {address.url for address in household.addresses()}
    assert urls >= PUBLIC
    assert all(client.get(url).status_code in (200, 503) for url in PUBLIC)


def says_as_much_of_no_row(client: Client, method: str, url: str, response: Any) -> bool:
    """Return whether a missing row gives the same words for this body."""
    nowhere = ask(client, method, re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(uuid4()), url))
    return bool(nowhere.status_code == 400 and nowhere.json()["detail"] == response.json()["detail"])


def test_other_peoples_rows_are_neither_seen_nor_changed(household: Household, people: Callable[..., User]) -> None:
    before = household.state()
    intruder = people()
    client, wrong = signed_in(intruder), []
    for address in household.addresses():
        for method in IN_THE_ADMIN if address.admin else METHODS:
            response = ask(client, method, address.url)
            if settings.SESSION_COOKIE_NAME in response.cookies:  # one of the addresses signs out
                client.force_login(intruder)
            status = response.status_code
            if address.admin:
                fine = to_sign_in(response) or address.url in PUBLIC | SIGNING_OUT
            elif {"pk", "object_id", "id"} & set(address.parameters):
                fine = status in (403, 404, 405) or (method == "OPTIONS" and status == 200)
                fine |= status == 400 and says_as_much_of_no_row(client, method, address.url, response)
                fine |= method in ("GET", "HEAD") and address.url.startswith(SHARED)
                fine |= status in (200, 204) and OWN_MARKS.fullmatch(address.url) is not None
            else:
                fine = status != 500
            if not fine:
                wrong.append((method, address.url, status))
            assert PRIVATE not in content(response), (method, address.url)
            assert SECRET not in content(response), (method, address.url)
    assert not wrong, "\n".join(map(str, wrong))
    assert household.state() == before
    assert client.get("/").status_code == 200, "the walk has lost its session on the way"


def test_what_is_everybodys_is_read_by_all_and_changed_by_no_member(
    household: Household, people: Callable[..., User]
) -> None:
    before = household.state()
    browser, read = signed_in(people()), set()
    for address in household.of_everybody():
        for method in METHODS:
            status = ask(browser, method, address.url).status_code
            assert status in (200, 201, 302, 400, 403, 404, 405), (method, address.url, status)
            if method == "GET" and status == 200:
                read.add(address.url)
        assert household.state() == before, address.url
        stranger = Client(raise_request_exception=False, REMOTE_ADDR=ELSEWHERE).get(address.url)
        assert stranger.status_code in (401, 405) or to_sign_in(stranger), address.url
    assert len(read) >= 2, "its page and its resource"


def test_staff_without_permissions_see_no_rows(household: Household, people: Callable[..., User]) -> None:
    before = household.state()
    client = signed_in(people(is_staff=True))
    for address in household.addresses():
        if not address.admin or not {"object_id", "id"} & set(address.parameters):
            continue
        for method in ("GET", "POST"):
            response = ask(client, method, address.url)
            assert response.status_code in (302, 403, 404), (method, address.url, response.status_code)
            assert PRIVATE not in content(response)
    assert household.state() == before


def test_being_staff_without_a_right_opens_no_page_that_others_cannot_open(
    household: Household, people: Callable[..., User]
) -> None:
    """Every address, those of the admin and `/metrics` included, answers as it does to any person."""
    alone, anybody = signed_in(people(is_staff=True)), signed_in(people())
    opened = []
    for address in household.addresses():
        if address.url in SIGNING_OUT | PUBLIC:
            continue
        status, usual = (ask(each, "GET", address.url).status_code for each in (alone, anybody))
        if status != (403 if address.admin else usual) and status not in (302, 404, 405):
            opened.append((address.url, status, usual))
    assert ask(alone, "GET", "/metrics").status_code == 403
    assert not opened, opened


def test_the_admin_shows_administrators_no_secret_and_no_private_words(
    household: Household, people: Callable[..., User]
) -> None:
    admin = signed_in(people(is_staff=True, is_superuser=True))
    digest = next(row.digest for row in household.rows if isinstance(row, ApiToken))
    seen = 0
    for address in household.addresses():
        if not address.admin or address.url in SIGNING_OUT:
            continue
        response = admin.get(address.url, follow=True)
        assert response.status_code in (200, 403, 404, 405), (address.url, response.status_code)
        seen += response.status_code == 200
        page = content(response)
        assert SECRET not in page, address.url
        assert digest not in page, address.url
        if not any(kind in address.url for kind in SHOWN):
            assert PRIVATE not in page, address.url
    assert seen > 50


def test_a_browser_is_not_tricked_into_changing_anything(household: Household) -> None:
    """Requests with the owner's session and without the token that our own pages carry."""
    owner = next(row for row in household.rows if isinstance(row, User))
    client = signed_in(owner, enforce_csrf_checks=True)
    before = household.state()
    for address in household.addresses():
        for method in ("POST",) if address.admin else ("POST", "PUT", "PATCH", "DELETE"):
            response = ask(client, method, address.url)
            assert response.status_code in (302, 401, 403, 404, 405), (method, address.url, response.status_code)
    assert household.state() == before


def test_an_address_of_an_unknown_kind_is_not_passed_over(household: Household) -> None:
    del household.values["c/pk"]
    with pytest.raises(LookupError, match="do not know"):
        household.addresses()


def test_json_that_is_nested_too_deeply_is_refused_everywhere(household: Household) -> None:
    owner = next(row for row in household.rows if isinstance(row, User))
    browser, nested = signed_in(owner), "[" * 100_000
    browser.raise_request_exception = False
    requests = refused = 0
    for address in household.addresses():
        if not address.url.startswith(("/api/v1/", "/v1/")):
            continue
        for method in ("POST", "PUT", "PATCH"):
            response = browser.generic(method, address.url, nested, content_type="application/json")
            assert response.status_code < 500, (method, address.url)
            requests += 1
            refused += response.status_code == 400
    assert refused > 25, f"{requests} requests, of which only {refused} were refused"
