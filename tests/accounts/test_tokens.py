"""Tokens: created on the page, over the API and on the command line, and the limits of their rights."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiToken, User
from accounts.services import create_token
from tests.accounts.programs import Program
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db

API = "/api/v1/tokens/"
PAGE = reverse("settings:tokens")


@pytest.fixture
def page(client: Client, olga: User) -> Client:
    client.force_login(olga)
    return client


def works(token: str) -> bool:
    return Client().get("/api/v1/me/", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_the_page_shows_a_new_token_once(page: Client, olga: User) -> None:
    form = {"name": "backup script", "scopes": ["files", "projects"], "days": "30", "password": PASSWORD}
    response = page.post(PAGE, form)
    row = ApiToken.objects.get(user=olga)
    assert response.headers["Cache-Control"] == "max-age=0, no-cache, no-store, must-revalidate, private"
    token = response.content.decode().partition("<pre")[2].partition("<code>")[2].partition("</code>")[0]
    assert works(token)
    assert row.scopes == ["files", "projects"]
    assert row.expires is not None
    assert timedelta(days=29) < row.expires - timezone.now() <= timedelta(days=30)
    again = page.get(PAGE).content.decode()
    assert "backup script" in again
    assert token not in again
    assert row.digest not in again


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"name": "", "scopes": ["chat"], "days": ""}, "required"),
        ({"name": "x", "days": ""}, "Choose at least one"),
        ({"name": "x", "scopes": ["everything"], "days": ""}, "everything"),
        ({"name": "x", "scopes": ["chat"], "days": "7"}, "7"),
        ({"name": "x", "scopes": ["chat"], "days": "30", "password": "stolen"}, "not your password"),
    ],
)
def test_the_page_refuses_what_makes_no_token(page: Client, form: dict[str, Any], sentence: str) -> None:
    refused = page.post(PAGE, {"password": PASSWORD, **form})
    assert refused.status_code == 422
    assert sentence in refused.content.decode().partition('class="problem"')[2].partition("</p>")[0]
    assert not ApiToken.objects.exists()


def test_a_token_revoked_on_the_page_is_refused(page: Client, olga: User) -> None:
    row, token = create_token(user=olga, name="notebook")
    page.post(reverse("settings:revoke", args=[row.pk]))
    assert not works(token)
    shown = page.get(PAGE).content.decode()
    assert "Tokens that have ended" in shown
    assert "Revoke “notebook”" not in shown


def test_a_session_makes_no_token_without_the_password(page: Client, olga: User) -> None:
    body = {"name": "mine", "scopes": ["admin"]}
    for more, code in (({}, "password_needed"), ({"password": "stolen"}, "wrong_password")):
        refused = page.post(API, {**body, **more}, content_type="application/json")
        assert (refused.status_code, refused.json()["code"]) == (403, code)
    assert not ApiToken.objects.exists()
    response = page.post(API, {**body, "password": PASSWORD}, content_type="application/json")
    assert response.status_code == 201 and works(response.json()["token"]) and "password" not in response.json()
    for _ in range(20):
        refused = page.post(API, {**body, "password": "stolen"}, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (429, "throttled") and int(refused["Retry-After"]) > 0
    assert page.post(PAGE, {**body, "days": "30", "password": PASSWORD}).status_code == 429


def test_what_a_token_may_do_is_not_misread(olga: User) -> None:
    """A field that is not known could be meant to narrow it, and without one it may do nearly everything."""
    for fields in ({"scope": ["tasks"]}, {"scopes": ["tasks"], "expire": "2026-12-01T00:00:00Z"}):
        refused = Program(olga, "chat", "tasks", "admin").post(API, {"name": "narrow", **fields})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
        assert "There is no such field. The fields are: name, scopes, expires, password." in refused.json()["detail"]
    assert not ApiToken.objects.filter(name="narrow").exists()


def test_a_token_ends_after_90_days_unless_it_is_said_otherwise(olga: User) -> None:
    program = Program(olga, "chat", "admin")
    token = program.post(API, {"name": "usual", "scopes": ["chat"]}).json()
    never = program.post(API, {"name": "never", "scopes": ["chat"], "expires": None}).json()
    row = ApiToken.objects.get(pk=token["id"])
    assert row.expires is not None and timedelta(days=89) < row.expires - timezone.now() <= timedelta(days=90)
    assert never["expires"] is None
    soon = Program(olga, "chat", "admin", expires=timezone.now() + timedelta(days=1))
    assert soon.post(API, {"name": "usual", "scopes": ["chat"]}).status_code == 201


def test_all_tokens_are_revoked_at_once(page: Client, olga: User) -> None:
    program, others = Program(olga, "admin"), create_token(user=User.objects.create_user("somebody"), name="other")
    tokens = [create_token(user=olga, name=str(number))[1] for number in range(2)]
    assert "Revoke all tokens" in page.get(PAGE).content.decode()
    page.post(reverse("settings:revoke_all"))
    assert not any(works(token) for token in tokens) and works(others[1])
    assert program.ask("GET", API).status_code == 401
    create_token(user=olga, name="again")
    assert page.post(f"{API}revoke-all/").json() == {"revoked": 1}


def test_nobody_revokes_the_token_of_another(page: Client) -> None:
    row, token = create_token(user=User.objects.create_user("somebody"), name="notebook")
    assert page.post(reverse("settings:revoke", args=[row.pk])).status_code == 404
    assert page.delete(f"{API}{row.pk}/").status_code == 404
    assert works(token)


def test_a_program_makes_lists_and_revokes_tokens(olga: User) -> None:
    program = Program(olga, "chat", "admin")
    create_token(user=User.objects.create_user("somebody"), name="of somebody else")
    response = program.post(API, {"name": "second", "scopes": ["chat"]})
    assert response.status_code == 201
    token = response.json()["token"]
    assert works(token)
    listed = program.ask("GET", API).json()["results"]
    assert [each["name"] for each in listed] == ["second", "program"]
    assert not any("token" in each or "digest" in each for each in listed)
    assert program.ask("DELETE", f"{API}{response.json()['id']}/").status_code == 204
    assert not works(token)


def test_a_token_gives_on_no_scope_that_it_lacks(olga: User) -> None:
    program = Program(olga, "chat", "admin")
    for scopes in (["files"], ["chat", "tasks"], None):
        refused = program.post(API, {"name": "more", **({"scopes": scopes} if scopes else {})})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_not_held")
    assert ApiToken.objects.count() == 1


def test_a_token_makes_none_that_outlives_it(olga: User) -> None:
    program = Program(olga, "chat", "admin", expires=timezone.now() + timedelta(days=1))
    for expires in (None, (timezone.now() + timedelta(days=2)).isoformat()):
        refused = program.post(API, {"name": "longer", "scopes": ["chat"], "expires": expires})
        assert (refused.status_code, refused.json()["code"]) == (403, "outlives_its_maker")
    sooner = (timezone.now() + timedelta(hours=1)).isoformat()
    assert program.post(API, {"name": "sooner", "scopes": ["chat"], "expires": sooner}).status_code == 201


def test_an_expired_token_is_refused(olga: User) -> None:
    program = Program(olga, "chat")
    ApiToken.objects.update(expires=timezone.now() - timedelta(seconds=1))
    refused = program.ask("GET", "/api/v1/me/")
    assert (refused.status_code, refused.json()["code"]) == (401, "bad_token")


def test_a_program_reads_and_changes_the_settings(olga: User) -> None:
    program = Program(olga, "admin")
    changed = program.ask("PATCH", "/api/v1/me/", '{"timezone": "Europe/Paris", "theme": "dark"}')
    assert changed.status_code == 200
    me = program.ask("GET", "/api/v1/me/").json()
    assert (me["username"], me["timezone"], me["theme"], me["is_staff"]) == ("olga", "Europe/Paris", "dark", False)
    refused = program.ask("PATCH", "/api/v1/me/", '{"timezone": "Mars"}')
    assert refused.status_code == 400
    assert "not a time zone" in refused.json()["detail"]


def printed(*arguments: str) -> str:
    out = StringIO()
    call_command("token", *arguments, stdout=out)
    return out.getvalue().strip()


def test_the_command_names_scopes_and_an_end(olga: User) -> None:
    printed("olga", "--expires", "never")
    assert ApiToken.objects.get().expires is None
    ApiToken.objects.all().delete()
    assert works(printed("olga", "--scopes", "chat", "files", "--expires", "30"))
    row = ApiToken.objects.get()
    assert row.scopes == ["chat", "files"]
    assert row.expires is not None
    assert timedelta(days=29) < row.expires - timezone.now() <= timedelta(days=30)


def test_the_commands_dates_are_in_the_persons_time_zone(olga: User) -> None:
    User.objects.filter(pk=olga.pk).update(timezone="Asia/Ho_Chi_Minh")
    printed("olga", "--expires", "2199-01-31")
    expires = ApiToken.objects.get().expires
    assert expires is not None
    assert expires.isoformat() == "2199-01-30T17:00:00+00:00"


@pytest.mark.parametrize("wrong", [["--scopes", "everything"], ["--expires", "soon"], ["--expires", "2020-01-01"]])
def test_the_command_says_what_is_wrong(olga: User, wrong: list[str]) -> None:
    with pytest.raises(CommandError):
        printed("olga", *wrong)
    assert not ApiToken.objects.exists()
