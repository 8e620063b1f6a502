"""The settings page “Connected tools”, its API, and the page to which authorization servers return."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import PeopleGroup, User
from llm.models import ToolGrant, ToolServer
from llm.oauth import grants
from tests.accounts.programs import Program
from tests.llm.oauth_server import OAuthServer, serving

pytestmark = pytest.mark.django_db
PAGE = reverse("settings:tools")
API = "/api/v1/connected-tools/"


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with serving() as server:
        yield server


@pytest.fixture
def row(db: None, oauth: OAuthServer) -> ToolServer:
    return ToolServer.objects.create(name=f"o{uuid4().hex[:8]}", base_url=oauth.url, access="person")


@pytest.fixture
def browser(olga: User) -> Client:
    client = Client()
    client.force_login(olga)
    return client


def begin(client: Client, row: ToolServer, then: str = "") -> Any:
    return client.post(reverse("settings:tools-sign-in", args=[row.pk]), {"then": then})


def come_back(client: Client, oauth: OAuthServer, go_page: Any) -> Any:
    return client.get(oauth.authorize(go_page.context["address"]).raw_path.decode())


def test_a_person_connects_and_disconnects(browser: Client, olga: User, row: ToolServer, oauth: OAuthServer) -> None:
    assert f"Sign in to {row.name}" in browser.get(PAGE).content.decode()
    go_page = begin(browser, row)
    page = go_page.content.decode()
    assert "Go on to 127.0.0.1" in page and "notes" in page
    back = come_back(browser, oauth, go_page)
    assert back["Location"] == PAGE
    shown = browser.get(PAGE).content.decode()
    assert f"You are signed in to {row.name}." in shown and "not used yet" in shown
    grant = ToolGrant.objects.get(user=olga)
    assert grant.access_token not in shown
    browser.post(reverse("settings:tools-disconnect", args=[row.pk]))
    assert f"You are signed out of {row.name}." in browser.get(PAGE).content.decode()
    assert not ToolGrant.objects.exists() and oauth.accounts.access == {}
    assert browser.post(reverse("settings:tools-disconnect", args=[row.pk])).status_code == 404


def test_the_page_of_return_refuses_what_it_does_not_know(browser: Client, row: ToolServer, oauth: OAuthServer) -> None:
    address = reverse("settings:tools-return")
    for query in ("", "?state=invented&code=x", "?state=%00&code=%00&iss=&error=e"):
        response = browser.get(f"{address}{query}")
        assert response.status_code == 403 and "did not start in this browser" in response.content.decode()
    go_page = begin(browser, row)
    assert come_back(browser, oauth, go_page).status_code == 302
    path = oauth.authorize(go_page.context["address"]).raw_path.decode()  # the server gives another code for the state
    assert browser.get(path).status_code == 403
    assert Client().get(path)["Location"].startswith("/login/")
    other_browser = Client()
    other_browser.force_login(User.objects.get(username="olga"))
    assert come_back(other_browser, oauth, begin(browser, row)).status_code == 403


def test_the_return_leads_to_pages_of_this_site_only(browser: Client, row: ToolServer, oauth: OAuthServer) -> None:
    assert come_back(browser, oauth, begin(browser, row, then="/c/"))["Location"] == "/c/"
    assert come_back(browser, oauth, begin(browser, row, then="https://evil.example/"))["Location"] == PAGE


def test_addresses_are_those_of_the_site(browser: Client, row: ToolServer, settings: Settings) -> None:
    settings.SITE_URL = "https://chat.example.org"
    address = begin(browser, row).context["address"]
    assert "redirect_uri=https%3A%2F%2Fchat.example.org%2Fsettings%2Ftools%2Freturn%2F" in address
    document = Client().get("/oauth/client.json").json()
    assert document["client_id"] == "https://chat.example.org/oauth/client.json"
    assert document["redirect_uris"] == ["https://chat.example.org/settings/tools/return/"]


def test_a_failure_is_told_on_the_page(browser: Client, row: ToolServer, oauth: OAuthServer) -> None:
    oauth.accounts.registers = False
    refused = begin(browser, row)
    assert refused.status_code == 502 and "Only partners may register." in refused.content.decode()


def test_only_servers_that_a_person_may_use_are_offered(browser: Client, olga: User, row: ToolServer) -> None:
    PeopleGroup.objects.update_or_create(everyone=True, defaults={"all_tool_servers": False})
    assert row.name not in browser.get(PAGE).content.decode()
    assert begin(browser, row).status_code == 404
    group = PeopleGroup.objects.create(name="Writers", all_tool_servers=False)
    group.members.add(olga)
    group.allowed_tool_servers.add(row)
    assert begin(browser, row).status_code == 200
    ToolServer.objects.update(access="header")
    assert begin(browser, row).status_code == 404


def test_a_program_lists_begins_and_disconnects(
    program: Program, browser: Client, olga: User, row: ToolServer, oauth: OAuthServer
) -> None:
    [listed] = program.ask("GET", API).json()
    assert (listed["id"], listed["state"], listed["offered"]) == (str(row.pk), "none", True)
    url = program.post(f"{API}{row.pk}/sign-in/", {}).json()["url"]
    assert browser.get(oauth.authorize(url).raw_path.decode()).status_code == 302
    [listed] = program.ask("GET", API).json()
    assert (listed["state"], listed["scope"], listed["last_used"]) == ("connected", "notes", None)
    ToolGrant.objects.update(missing_scope="more")
    assert program.ask("GET", API).json()[0]["state"] == "more"
    ToolGrant.objects.update(missing_scope="", ended="revoked")
    assert program.ask("GET", API).json()[0]["state"] == "ended"
    assert program.ask("DELETE", f"{API}{row.pk}/").status_code == 204
    assert program.ask("DELETE", f"{API}{row.pk}/").status_code == 404
    assert program.post(f"{API}{uuid4()}/sign-in/", {}).json()["code"] == "not_found"
    reader = Program(olga, "chat")
    assert reader.ask("GET", API).status_code == 403


def test_a_grant_that_is_left_can_be_removed_after_the_server_was_switched_off(
    browser: Client, olga: User, row: ToolServer, oauth: OAuthServer
) -> None:
    come_back(browser, oauth, begin(browser, row))
    ToolServer.objects.update(enabled=False)
    page = browser.get(PAGE).content.decode()
    assert row.name in page and f"Sign in to {row.name}" not in page
    browser.post(reverse("settings:tools-disconnect", args=[row.pk]))
    assert not ToolGrant.objects.exists()


def test_too_many_beginnings_are_refused(browser: Client, row: ToolServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "MAX_STARTS", 2)
    answers = [begin(browser, row).status_code for _ in range(5)]
    assert set(answers) == {200, 429}  # of five requests in at most two minutes, three are in the same one
