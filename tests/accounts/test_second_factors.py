"""Second factors: set up, required at every way to sign in, required by the workspace, lost."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from random import SystemRandom
from typing import Any
from uuid import uuid4

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth import authenticate
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from fido2.utils import websafe_encode
from pytest_django.fixtures import Settings

from accounts import people
from accounts.access import login
from accounts.access.authentication import Credential, valid_credentials
from accounts.models import Session, User
from accounts.second_factors import services
from accounts.second_factors.forms import NEW_APP
from accounts.services import create_token
from core.crypto import decrypt
from core.errors import ProductError
from tests.accounts.factors import code_of, with_app
from tests.accounts.software_passkey import Passkey, with_passkey
from tests.conftest import PASSWORD
from tests.product import free_port
from workspace.models import Workspace
from workspace.services import change_settings

pytestmark = pytest.mark.django_db

PAGE, SECOND, PASSKEY = "/settings/second-factor/", "/login/second/", "/login/passkey/"
APP, PASSKEYS, CODES = f"{PAGE}app/", f"{PAGE}passkeys/", f"{PAGE}codes/"
SCRIPT = {"Accept": "application/json"}
NO_PASSKEYS = ["", "{}", "[]", "null", "nonsense", "[" * 15_000, '{"response": {"userHandle": "AAAA"}}', '{"id": 1}']
_random = SystemRandom()


def browser() -> Client:
    """At an address that no other test counts for."""
    return Client(REMOTE_ADDR=f"10.{_random.randrange(256)}.{_random.randrange(256)}.{_random.randrange(256)}")


@pytest.fixture
def olga() -> User:
    return User.objects.create_user(f"olga-{uuid4().hex[:8]}", password=PASSWORD)


@pytest.fixture
def required() -> Iterator[None]:
    change_settings(user=None, fields={"second_factor": Workspace.SecondFactor.EVERYBODY})
    yield


def sign_in(person: User, at: str = "/login/", who: Client | None = None, **more: Any) -> tuple[Client, Any]:
    here = who or browser()
    return here, here.post(at, {"username": person.username, "password": PASSWORD, **more})


def signed_in(client: Client) -> bool:
    return bool(client.get("/settings/").status_code == 200)


def refused(code: str, does: Any) -> ProductError:
    with pytest.raises(ProductError) as error:
        does()
    assert error.value.code == code
    return error.value


# Every way in


def test_the_password_is_followed_by_the_code_which_is_taken_once(olga: User) -> None:
    secret, _ = with_app(olga)
    here, answer = sign_in(olga, next="/files/")
    assert answer["Location"] == SECOND and not signed_in(here)
    assert "Code from your app" in here.get(SECOND).content.decode()
    code = code_of(secret)
    assert here.post(SECOND, {"code": f"{code[:3]}-{code[3:]} "})["Location"] == "/files/"
    assert signed_in(here)
    again, _ = sign_in(olga)
    answer = again.post(SECOND, {"code": code})
    assert answer.status_code == 422 and "used already" in answer.content.decode()
    assert not signed_in(again)


def test_a_code_of_a_step_before_one_that_was_used_is_not_taken_either(olga: User) -> None:
    secret, _ = with_app(olga)
    assert services.takes_code(user=olga, code=code_of(secret, 1))  # a phone that is fast
    assert not services.takes_code(user=olga, code=code_of(secret))


def test_a_recovery_code_signs_in_once(olga: User) -> None:
    _, codes = with_app(olga)
    assert len(set(codes)) == 10
    assert services.takes_code(user=olga, code=codes[3])
    assert not services.takes_code(user=olga, code=codes[3])
    assert len(services.recovery_codes(olga) or []) == 9


def test_new_recovery_codes_end_those_of_before_and_are_shown_once(olga: User) -> None:
    secret, codes = with_app(olga)
    here, _ = sign_in(olga)
    here.post(SECOND, {"code": code_of(secret)})
    shown = here.post(CODES).context["codes"].split()
    assert len(set(shown) - set(codes)) == 10
    assert not any(code in here.get(PAGE).content.decode() for code in shown)
    assert not services.takes_code(user=olga, code=codes[4])
    assert services.takes_code(user=olga, code=shown[4])


def test_the_admin_asks_for_it_too(olga: User) -> None:
    User.objects.filter(pk=olga.pk).update(is_staff=True)
    olga.user_permissions.add(Permission.objects.get(codename="view_user"))
    secret, _ = with_app(olga)
    here, answer = sign_in(olga, "/admin/login/?next=/admin/", next="/admin/")
    assert answer["Location"] == SECOND
    assert here.get("/admin/").status_code == 302
    assert here.post(SECOND, {"code": code_of(secret)})["Location"] == "/admin/"
    assert here.get("/admin/").status_code == 200


def test_a_link_to_choose_a_password_is_no_way_around_it(olga: User) -> None:
    with_app(olga)
    here, new = browser(), "another long password"
    link = f"{reverse('welcome', args=[olga.pk])}?key={people.links.make_token(olga)}"
    assert here.post(link, {"new_password1": new, "new_password2": new})["Location"] == SECOND
    assert not signed_in(here)


def test_what_only_knows_of_passwords_signs_nobody_in_who_has_one(olga: User) -> None:
    assert browser().login(username=olga.username, password=PASSWORD)
    with_app(olga)
    assert not browser().login(username=olga.username, password=PASSWORD)
    assert authenticate(None, username=olga.username, password=PASSWORD) is None


def test_who_waits_for_the_second_step_is_nobody_to_the_api_until_then(olga: User) -> None:
    with_app(olga)
    here, _ = sign_in(olga)
    assert here.get("/api/v1/me/").status_code == 401
    assert not Session.objects.filter(user=olga).exists()


def test_another_password_or_ten_minutes_end_the_waiting(olga: User, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, _ = with_app(olga)
    here, _ = sign_in(olga)
    later, _ = sign_in(olga)
    monkeypatch.setattr(login, "SECOND_FACTOR_SECONDS", -1)
    assert later.post(SECOND, {"code": code_of(secret)})["Location"] == "/login/"
    monkeypatch.undo()
    olga.set_password("another long password")
    olga.save()
    assert here.post(SECOND, {"code": code_of(secret)})["Location"] == "/login/"
    assert browser().get(SECOND)["Location"] == "/login/"


def wrong_codes(person: User, who: Client | None = None, code: str = "000000", most: int = 9) -> int:
    """Tries a wrong code until no more are looked at. Returns the last answer's status."""
    answer: Any = None
    for _ in range(most):  # the clock's quarter of an hour may end meanwhile
        here, _ = sign_in(person, who=who)
        answer = here.post(SECOND, {"code": code})
        if answer.status_code == 429:
            assert int(answer["Retry-After"]) >= 1
            break
    return int(answer.status_code)


def test_wrong_codes_at_one_address_do_not_keep_the_owner_out_at_another(olga: User, settings: Settings) -> None:
    settings.SIGN_IN_LIMITS = {"name": 2, "address": 1000, "codes": 100}
    secret, recovery = with_app(olga)
    thief = browser()
    assert wrong_codes(olga, thief) == 429
    here, _ = sign_in(olga, who=thief)
    assert here.post(SECOND, {"code": code_of(secret)}).status_code == 429 and not signed_in(here)
    here, _ = sign_in(olga, who=thief)
    here.post(SECOND, {"code": recovery[0]})  # counted apart
    assert signed_in(here)
    here, _ = sign_in(olga)
    assert here.post(SECOND, {"code": code_of(secret)})["Location"] == "/"
    assert signed_in(here)


def test_codes_are_not_guessed_from_many_addresses(olga: User, settings: Settings) -> None:
    settings.SIGN_IN_LIMITS = {"name": 100, "address": 1000, "codes": 4}
    secret, recovery = with_app(olga)
    assert wrong_codes(olga) == 429
    here, _ = sign_in(olga)
    assert here.post(SECOND, {"code": code_of(secret)}).status_code == 429 and not signed_in(here)
    assert wrong_codes(olga, code="12345678", most=3) == 422
    here, _ = sign_in(olga)
    here.post(SECOND, {"code": recovery[0]})
    assert signed_in(here)
    assert wrong_codes(olga, code="12345678") == 429
    here, _ = sign_in(olga)
    assert here.post(SECOND, {"code": recovery[1]}).status_code == 429 and not signed_in(here)


@pytest.mark.parametrize("sent", NO_PASSKEYS)
def test_what_is_no_passkey_signs_nobody_in(sent: str) -> None:
    here = browser()
    challenge = here.get(PASSKEY, headers=SCRIPT).json()["request_options"]["publicKey"]
    assert challenge["userVerification"] == "required"
    answer = here.post(PASSKEY, {"credential": sent, "next": "/files/"}, follow=True)
    assert answer.redirect_chain == [("/login/?next=%2Ffiles%2F&refused=passkey_refused", 302)]
    assert "The passkey was not accepted" in answer.content.decode() and not signed_in(here)


# One's own page


def test_an_app_is_set_up_with_the_code_that_it_shows(olga: User) -> None:
    here, _ = sign_in(olga)
    other, _ = sign_in(olga)
    new_app = here.get(APP).context["begun"]
    assert new_app["drawn"].startswith("<svg")
    secret = new_app["secret"].replace(" ", "")
    wrong = here.post(APP, {"code": "12"})
    assert wrong.status_code == 422 and wrong.context["begun"]["secret"] == new_app["secret"]
    code = code_of(secret)
    answer = here.post(APP, {"code": f"{code[:3]}-{code[3:]}"})
    shown = answer.content.decode()
    assert "messages" not in answer.cookies  # which the admin would show
    assert all(code in shown for code in answer.context["codes"].split())
    assert signed_in(here) and not signed_in(other)
    data = Authenticator.objects.get(user=olga, type="totp").data
    assert secret not in str(data)
    assert here.get(APP)["Location"] == here.post(APP, {"code": code})["Location"] == PAGE
    refused("app_is_set_up", lambda: with_app(olga))
    second, _ = sign_in(olga)  # the code that has set it up is used
    assert second.post(SECOND, {"code": code}).status_code == 422
    assert here.get(PAGE).context["codes_left"] == 10


def test_with_the_last_one_the_recovery_codes_go_and_other_browsers_are_signed_out(olga: User) -> None:
    secret, _ = with_app(olga)
    here, _ = sign_in(olga)
    here.post(SECOND, {"code": code_of(secret)})
    row = Authenticator.objects.get(user=olga, type="totp")
    here.post(f"{PAGE}{row.pk}/remove/")
    assert not Authenticator.objects.filter(user=olga).exists()
    assert signed_in(here)
    answer = here.post(CODES)
    assert answer.status_code == 409 and "Set up an app or a passkey first" in answer.content.decode()


def test_nobody_removes_somebody_elses(olga: User) -> None:
    with_app(olga)
    other = User.objects.create_user(uuid4().hex, password=PASSWORD)
    here, _ = sign_in(other)
    row = Authenticator.objects.get(user=olga, type="totp")
    assert here.post(f"{PAGE}{row.pk}/remove/").status_code == 404
    assert Authenticator.objects.filter(pk=row.pk).exists()


# A fresh sign-in


@pytest.mark.parametrize("address", [APP, PASSKEYS, "/export/"])
def test_a_sensitive_page_asks_who_signed_in_long_ago_to_do_it_again(
    olga: User, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = sign_in(olga)
    assert here.get(address).status_code == 200
    monkeypatch.setattr(login, "FRESH_FOR", -1)
    location = here.get(address)["Location"]
    assert location == f"/login/again/?next={address.replace('/', '%2F')}"
    assert here.get("/api/v1/export/").json()["code"] == "fresh_sign_in_needed"
    assert here.get(address, headers={"HX-Request": "true"}).status_code == 403  # a script is not led away
    _, token = create_token(user=olga, name="backup")
    with_token = Client(headers={"Authorization": f"Bearer {token}"}).get("/api/v1/export/")
    assert with_token.status_code == 200
    monkeypatch.undo()
    key = here.session.session_key
    wrong = here.post(location, {"password": "guess", "next": address})
    assert "The user name or the password is wrong" in wrong.content.decode()
    other = User.objects.create_user(uuid4().hex, password="the password of another")
    foreign = here.post(location, {"username": other.username, "password": "the password of another", "next": address})
    assert foreign.status_code == 200  # whoever is named, it is the password of who is signed in that counts
    assert here.post(location, {"password": PASSWORD, "next": address})["Location"] == address
    assert here.session.session_key == key  # what is open stays open


@pytest.mark.parametrize("address", ["/settings/password/", "/settings/tokens/"])
def test_with_a_second_factor_a_stolen_session_and_the_password_are_not_enough(
    olga: User, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, _ = with_app(olga)
    here, _ = sign_in(olga)
    here.post(SECOND, {"code": code_of(secret)})
    monkeypatch.setattr(login, "FRESH_FOR", -1)
    stolen = {"old_password": PASSWORD, "password": PASSWORD, "name": "x", "scopes": ["chat"]}
    assert here.post(address, stolen).status_code == 403
    again = here.get(address)["Location"]
    assert again.startswith("/login/again/")
    body = {"name": "x", "password": PASSWORD}
    answer = here.post("/api/v1/tokens/", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "fresh_sign_in_needed")
    monkeypatch.undo()
    _, answer = sign_in(olga, again, here, next=address)
    assert answer["Location"] == SECOND
    assert not olga.api_tokens.exists()


# Required by the workspace


def test_until_one_is_set_up_only_that_page_opens(olga: User, required: None) -> None:
    here, answer = sign_in(olga)
    assert answer["Location"] == "/"
    for address in ("/", "/files/", "/settings/", "/settings/password/", "/admin/", "/export/"):
        assert here.get(address)["Location"] == PAGE, address
    shown = here.get(PAGE)
    assert "This workspace asks for a second factor" in shown.content.decode()
    assert 'id="side"' not in shown.content.decode()
    answer = here.post("/settings/tokens/", {"name": "x"})
    assert answer.status_code == 403 and "/settings/second-factor/" in answer.content.decode()
    for address in ("/api/v1/me/", "/api/v1/conversations/", "/api/v1/export/"):
        answer = here.get(address)
        assert (answer.status_code, answer.json()["code"]) == (403, "second_factor_needed")
    secret = here.get(APP).context["begun"]["secret"].replace(" ", "")
    assert here.post(APP, {"code": code_of(secret)}).status_code == 200
    assert here.get("/files/").status_code == 200
    row = Authenticator.objects.get(user=olga, type="totp")
    answer = here.post(f"{PAGE}{row.pk}/remove/")
    assert answer.status_code == 409 and "Set up another one" in answer.content.decode()
    assert signed_in(here)


def test_a_token_goes_on_and_a_header_is_no_way_around_it(olga: User, required: None) -> None:
    _, token = create_token(user=olga, name="robot")
    here, _ = sign_in(olga)
    mine, made_up = ({"Authorization": f"Bearer {each}"} for each in (token, "gh_made-up"))
    assert Client(headers=mine).get("/api/v1/me/").status_code == 200
    assert here.get("/api/v1/me/", headers=mine).status_code == 200
    assert here.get("/api/v1/me/", headers=made_up).status_code == 401
    assert here.get("/api/v1/me/", headers={"Authorization": "Basic eDp5"}).status_code == 403
    assert here.get("/files/", headers=mine)["Location"] == PAGE


def test_what_a_session_has_open_ends_when_the_workspace_begins_to_ask(olga: User) -> None:
    here, _ = sign_in(olga)
    credential = Credential.of_session(here.session, olga)
    assert valid_credentials({credential}) == {credential}
    change_settings(user=None, fields={"second_factor": Workspace.SecondFactor.EVERYBODY})
    assert valid_credentials({credential}) == set()
    with_app(olga)  # which ends that session
    client, _ = sign_in(olga)
    assert valid_credentials({Credential.of_session(client.session, olga)}) == set()


def test_it_may_be_asked_of_administrators_alone(olga: User) -> None:
    change_settings(user=None, fields={"second_factor": Workspace.SecondFactor.ADMINISTRATORS})
    here, _ = sign_in(olga)
    assert here.get("/files/").status_code == 200
    User.objects.filter(pk=olga.pk).update(is_staff=True)
    assert here.get("/files/")["Location"] == PAGE


# Lost ones


def test_a_command_removes_those_of_somebody_who_has_lost_them(olga: User) -> None:
    with pytest.raises(CommandError, match="has no second factor"):
        call_command("second_factor", olga.username, "--remove")
    secret, _ = with_app(olga)
    here, _ = sign_in(olga)
    here.post(SECOND, {"code": code_of(secret)})
    call_command("second_factor", olga.username, "--remove", stdout=StringIO())
    assert not signed_in(here)
    client, _ = sign_in(olga)
    assert signed_in(client)


def test_an_administrator_removes_none_of_who_may_do_more(olga: User) -> None:
    chief = User.objects.create_superuser(uuid4().hex)
    with_app(chief)
    staff = User.objects.create_user(uuid4().hex, is_staff=True)
    refused("right_missing", lambda: services.reset(user=staff, person=chief))


def test_codes_of_a_secret_that_cannot_be_read_are_not_taken(olga: User, settings: Settings) -> None:
    with_app(olga)
    settings.ENCRYPTION_KEYS = ["another key"]
    assert refused("secret_lost", lambda: services.takes_code(user=olga, code=code_of(""))).status == 409
    here, _ = sign_in(olga)
    assert "Ask an administrator" in here.post(SECOND, {"code": code_of("")}).content.decode()


def test_a_passkey_is_made_for_the_device_to_find_and_signs_in_again(olga: User) -> None:
    here, _ = sign_in(olga)
    challenge = here.get(PASSKEYS, headers=SCRIPT, secure=True).json()["creation_options"]["publicKey"]
    chosen = challenge["authenticatorSelection"]
    assert (chosen["residentKey"], chosen["userVerification"]) == ("required", "required")
    passkey = Passkey.for_person(olga)
    answer = here.post(PASSKEYS, {"name": "x" * 200, "credential": passkey.create(challenge["challenge"])}, secure=True)
    assert answer.context["made"] == "passkey" and len(answer.context["codes"].split()) == 10
    [row] = services.factors_of(olga)
    assert row.data["name"] == "x" * 100
    for who in (here, browser()):  # again, and anew
        options = who.get(PASSKEY, headers=SCRIPT, secure=True).json()["request_options"]["publicKey"]
        sent = {"credential": passkey.signed(options["challenge"]), "next": "/files/"}
        assert who.post(PASSKEY, sent, secure=True)["Location"] == "/files/"
        assert signed_in(who)
    assert Authenticator.objects.get(pk=row.pk).last_used_at


def test_whose_passkey_it_is_counts(olga: User) -> None:
    other = User.objects.create_user(uuid4().hex, password=PASSWORD)
    mine, theirs = with_passkey(olga), with_passkey(other)

    def sent(here: Client, passkey: Passkey, to: str) -> Any:
        options = here.get(PASSKEY, headers=SCRIPT, secure=True).json()["request_options"]["publicKey"]
        return here.post(to, {"credential": passkey.signed(options["challenge"])}, secure=True)

    here, answer = sign_in(olga)
    assert answer["Location"] == SECOND
    assert here.get(SECOND).context["passkeys"] == websafe_encode(mine.ident)
    answer = sent(here, theirs, SECOND)
    assert answer.status_code == 422 and "The passkey was not accepted" in answer.content.decode()
    forged = replace(mine, key=theirs.key)
    assert sent(here, forged, SECOND).status_code == 422 and not signed_in(here)
    assert sent(here, mine, SECOND)["Location"] == "/" and signed_in(here)
    assert "refused=passkey_refused" in sent(here, theirs, PASSKEY)["Location"]  # again, as somebody else
    User.objects.filter(pk=other.pk).update(is_active=False)
    assert "refused=passkey_refused" in sent(browser(), theirs, PASSKEY)["Location"]


def test_many_passkeys_are_too_many(olga: User) -> None:
    here, _ = sign_in(olga)
    challenge = here.get(PASSKEYS, headers=SCRIPT, secure=True).json()["creation_options"]["publicKey"]["challenge"]
    passkey = with_passkey(olga)
    for _ in range(services.MAX_PASSKEYS - 1):
        with_passkey(olga)
    answer = here.post(PASSKEYS, {"credential": passkey.create(challenge)}, secure=True)
    assert answer.status_code == 409 and "You have 20 passkeys" in answer.content.decode()
    assert len(services.factors_of(olga)) == services.MAX_PASSKEYS


def test_with_redis_away_factors_are_set_up_and_sign_in(olga: User, settings: Settings) -> None:
    away = f"redis://127.0.0.1:{free_port()}/0"
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": away}}
    here, _ = sign_in(olga)
    secret = here.get(APP).context["begun"]["secret"].replace(" ", "")
    recovery = here.post(APP, {"code": code_of(secret)}).context["codes"].split()
    passkey = with_passkey(olga)
    for sent in ({"code": code_of(secret, 1)}, {"code": recovery[0]}):
        client, _ = sign_in(olga)
        assert client.post(SECOND, sent)["Location"] == "/" and signed_in(client)
        again, _ = sign_in(olga)
        assert again.post(SECOND, sent).status_code == 422  # taken once, nevertheless
    client = browser()
    challenge = client.get(PASSKEY, headers=SCRIPT, secure=True).json()["request_options"]["publicKey"]
    client.post(PASSKEY, {"credential": passkey.signed(challenge["challenge"])}, secure=True)
    assert signed_in(client)


@pytest.mark.parametrize("sent", NO_PASSKEYS)
def test_what_is_no_passkey_is_not_added(sent: str, olga: User) -> None:
    here, _ = sign_in(olga)
    here.get(PASSKEYS, headers=SCRIPT)
    answer = here.post(PASSKEYS, {"credential": sent})
    assert answer.status_code == 403 and "The passkey was not accepted" in answer.content.decode()
    assert not services.factors_of(olga)


def test_the_secret_of_an_app_that_is_being_set_up_is_nowhere_as_plain_text(olga: User) -> None:
    here, _ = sign_in(olga)
    secret = here.get(APP).context["begun"]["secret"].replace(" ", "")
    here.post(APP, {"code": "12"})
    assert decrypt(here.session[NEW_APP]) == secret
    assert secret not in str(dict(here.session.items()))
    assert here.post(APP, {"code": code_of(secret)}).status_code == 200
    assert NEW_APP not in here.session


def test_a_code_without_a_secret_or_of_one_that_is_lost_sets_nothing_up(olga: User, settings: Settings) -> None:
    here, _ = sign_in(olga)
    first = here.post(APP, {"code": code_of("")})  # the form was not shown in this session
    secret = first.context["begun"]["secret"].replace(" ", "")
    settings.ENCRYPTION_KEYS = ["another key"]
    second = here.post(APP, {"code": code_of(secret)})
    assert first.status_code == second.status_code == 422
    assert second.context["begun"]["secret"] != first.context["begun"]["secret"]
    assert not Authenticator.objects.filter(user=olga).exists()


def test_a_wrong_code_sets_nothing_up(olga: User) -> None:
    here, _ = sign_in(olga)
    secret = here.get(APP).context["begun"]["secret"].replace(" ", "")
    answer = here.post(APP, {"code": code_of(secret, 5)})
    assert answer.status_code == 422 and "Check the clock of your phone" in answer.content.decode()
    assert not Authenticator.objects.filter(user=olga).exists()


def test_codes_of_who_had_to_set_one_up_can_be_copied(olga: User, required: None) -> None:
    here, _ = sign_in(olga)
    secret = here.get(APP).context["begun"]["secret"].replace(" ", "")
    shown = here.post(APP, {"code": code_of(secret)}).content.decode()
    assert "data-copy" in shown and "js/page.js" in shown
