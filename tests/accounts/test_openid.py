"""Signing in through an OpenID provider: first and later sign-ins, groups, refusals, signing out from provider."""

import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from joserfc.jwk import ECKey, RSAKey

from accounts.access.authentication import Credential, valid_credentials
from accounts.groups.services import save_group
from accounts.models import OpenIDIdentity, OpenIDProvider, PeopleGroup, Session, User
from accounts.openid import connection
from accounts.openid.reading import read
from accounts.openid.services import delete_provider, store_provider
from core.errors import ProductError
from tests.accounts.factors import code_of, with_app
from tests.accounts.openid_browser import begin_sign_in, browser, row_of, sign_in
from tests.accounts.openid_provider import CLIENT, SECRET, Provider, providing
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db
EMAIL: dict[str, Any] = {"email": "ada@example.org", "email_verified": True}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing() as provider:
        yield provider


@pytest.fixture
def row(provider: Provider) -> OpenIDProvider:
    return row_of(provider)


def person_at(here: Client) -> User:
    return User.objects.get(pk=here.session["_auth_user_id"])


def signed_in(here: Client) -> bool:
    return "_auth_user_id" in here.session


# Who comes in


def test_the_first_sign_in_makes_an_account_and_the_next_finds_it(provider: Provider, row: OpenIDProvider) -> None:
    provider.person |= {"preferred_username": "Ada L", "given_name": "Ada", "family_name": "Lovelace", **EMAIL}
    here, answer = sign_in(provider, row)
    assert answer["Location"] == "/files/"
    ada = person_at(here)
    assert (ada.username, ada.email, ada.first_name, ada.last_name) == ("Ada-L", EMAIL["email"], "Ada", "Lovelace")
    assert ada.email_confirmed and not (ada.has_usable_password() or ada.is_staff or ada.is_superuser)
    provider.person |= {"preferred_username": "another", "email": "other@example.org"}  # the subject alone says who
    again, _ = sign_in(provider, row)
    assert person_at(again) == ada
    assert User.objects.filter(openid_identities__issuer=row.issuer).count() == 1
    assert browser().get("/login/").content.decode().count(f"Sign in with {row.name}") == 1


def test_a_name_or_an_address_that_somebody_has_is_no_match(provider: Provider, row: OpenIDProvider) -> None:
    local = User.objects.create_user("ada", email=EMAIL["email"], password=PASSWORD)
    provider.person |= {"preferred_username": "ada", **EMAIL}
    here, _ = sign_in(provider, row)
    assert person_at(here) != local and person_at(here).username == "ada-2"
    with providing() as second:  # another provider, the same subject and address
        second.person = dict(provider.person)
        other, _ = sign_in(second, row_of(second))
    assert person_at(other) not in (local, person_at(here))


@pytest.mark.parametrize("verified", [True, False, "true", None])
def test_accounts_are_matched_by_an_address_where_allowed_and_verified(provider: Provider, verified: Any) -> None:
    local = User.objects.create_user("ada", email=EMAIL["email"], password=PASSWORD)
    provider.person |= {"email": "ADA@example.org", "email_verified": verified}
    here, _ = sign_in(provider, row_of(provider, matches_email=True))
    assert (person_at(here) == local) == (verified is True)


def test_an_address_that_somebody_gave_themselves_or_that_two_have_is_no_match(provider: Provider) -> None:
    row = row_of(provider, matches_email=True)
    User.objects.create_user("thief", email=EMAIL["email"], password=PASSWORD, email_confirmed=False)
    provider.person |= EMAIL
    here, _ = sign_in(provider, row)
    assert person_at(here).username == "ada"
    User.objects.create_user("twin", email=EMAIL["email"], password=PASSWORD)
    provider.person["sub"] = "another"
    here, _ = sign_in(provider, row)
    assert person_at(here).username == "ada-2"


def test_who_has_no_account_is_told_so_where_none_are_made(provider: Provider) -> None:
    row = row_of(provider, creates_accounts=False)
    here, answer = sign_in(provider, row)
    assert answer.status_code == 403 and "You have no account here" in answer.content.decode()
    assert not signed_in(here)


def test_who_is_deactivated_is_not_let_in(provider: Provider, row: OpenIDProvider) -> None:
    here, _ = sign_in(provider, row)
    User.objects.filter(pk=person_at(here).pk).update(is_active=False)
    here, answer = sign_in(provider, row)
    assert answer.status_code == 403 and not signed_in(here)


def test_the_provider_is_no_second_factor_here(provider: Provider, row: OpenIDProvider) -> None:
    here, _ = sign_in(provider, row)
    secret, _codes = with_app(person_at(here))
    here, answer = sign_in(provider, row)
    assert answer["Location"] == "/login/second/" and not signed_in(here)
    assert here.post("/login/second/", {"code": code_of(secret)})["Location"] == "/files/"
    assert signed_in(here)


def test_what_is_not_in_the_token_is_asked_for(provider: Provider) -> None:
    row = row_of(provider, admin_group="admins")
    provider.userinfo = {"email": EMAIL["email"], "email_verified": True, "groups": ["admins"]}
    here, _ = sign_in(provider, row)
    assert person_at(here).email == EMAIL["email"] and person_at(here).is_superuser
    provider.person["sub"] = "somebody"
    provider.userinfo["sub"] = "somebody else"
    here, _ = sign_in(provider, row)
    assert not person_at(here).email and not person_at(here).is_superuser


# Groups


def test_administrators_follow_their_group(provider: Provider) -> None:
    row = row_of(provider, admin_group="admins")
    User.objects.create_superuser("root", password=PASSWORD)
    provider.person["groups"] = ["staff", "admins"]
    here, _ = sign_in(provider, row)
    ada = person_at(here)
    assert ada.is_superuser and ada.is_staff
    del provider.person["groups"]
    here, _ = sign_in(provider, row)
    assert not person_at(here).is_superuser and not person_at(here).is_staff
    User.objects.filter(pk=ada.pk).update(is_staff=True, is_superuser=True)  # by hand
    here, _ = sign_in(provider, row)
    assert person_at(here).is_superuser


def test_groups_of_people_are_gained_and_lost(provider: Provider, row: OpenIDProvider) -> None:
    for claim in ("sales", "design", ""):
        save_group(user=None, group=None, fields={"name": f"g-{claim}", "claim": claim})
    by_hand = PeopleGroup.objects.get(name="g-")

    def group_names() -> set[str]:
        return set(person_at(sign_in(provider, row)[0]).people_groups.values_list("name", flat=True))

    provider.person["groups"] = ["sales", "unknown", 7]
    assert group_names() == {"g-sales"}
    by_hand.members.add(*User.objects.filter(openid_identities__issuer=row.issuer))
    provider.person["groups"] = "design"
    assert group_names() == {"g-design", "g-"}
    del provider.person["groups"]
    assert group_names() == {"g-"}


def test_groups_that_are_too_many_for_a_token_change_nothing(provider: Provider) -> None:
    row = row_of(provider, admin_group="admins")
    User.objects.create_superuser("root", password=PASSWORD)
    provider.person["groups"] = ["admins"]
    sign_in(provider, row)
    del provider.person["groups"]
    provider.person["_claim_names"] = {"groups": "src1"}
    here, _ = sign_in(provider, row)
    assert person_at(here).is_superuser


def test_the_last_administrator_stays_one(provider: Provider) -> None:
    User.objects.filter(is_superuser=True).update(is_superuser=False)
    row = row_of(provider, admin_group="admins")
    provider.person["groups"] = ["admins"]
    sign_in(provider, row)
    provider.person["groups"] = []
    here, _ = sign_in(provider, row)
    assert person_at(here).is_superuser


# What is refused


def by_secret(provider: Provider) -> None:
    provider.header, provider.secret = {"alg": "HS256"}, SECRET.encode()


def by_public_key(provider: Provider) -> None:
    provider.header, provider.secret = {"alg": "HS256"}, provider.key.as_pem(private=False)


def unsigned(provider: Provider) -> None:
    provider.header, provider.secret = {"alg": "none"}, b""


def forged(provider: Provider) -> None:
    provider.key = RSAKey.generate_key(2048, {"kid": provider.key.kid})


def wrong(**claims: Any) -> Callable[[Provider], None]:
    return lambda provider: provider.wrong.update(claims)


REFUSED: dict[str, Callable[[Provider], None]] = {
    "issuer": wrong(iss="https://id.example.org"),
    "no issuer": wrong(iss=None),
    "audience": wrong(aud="another-client"),
    "no audience": wrong(aud=None),
    "two audiences, made for the other": wrong(aud=[CLIENT, "other"], azp="other"),
    "two audiences": wrong(aud=[CLIENT, "other"]),
    "nonce": wrong(nonce="n-0S6_WzA2Mj"),
    "no nonce": wrong(nonce=None),
    "ended": wrong(exp=int(time.time()) - 3600),
    "of the future": wrong(iat=int(time.time()) + 3600),
    "no end": wrong(exp=None),
    "no subject": wrong(sub=None),
    "a subject too long": wrong(sub="s" * 300),
    "another access token": wrong(at_hash="77QmUPtjPfzWtF2AnpK9RQ"),
    "no signature": unsigned,
    "the secret as key": by_secret,
    "the public key as secret": by_public_key,
    "a forged signature": forged,
}


@pytest.mark.parametrize("spoil", REFUSED.values(), ids=REFUSED)
def test_a_token_that_is_not_what_it_should_be_is_refused(
    provider: Provider, row: OpenIDProvider, spoil: Callable[[Provider], None]
) -> None:
    spoil(provider)
    here, answer = sign_in(provider, row)
    assert answer.status_code == 403 and not signed_in(here)
    assert not OpenIDIdentity.objects.filter(issuer=row.issuer).exists()
    assert "eyJ" not in answer.content.decode() and SECRET not in answer.content.decode()


def test_a_return_that_was_not_begun_here_is_refused(provider: Provider, row: OpenIDProvider) -> None:
    mine, another = browser(), browser()
    back = provider.sign_in(begin_sign_in(row, mine))
    assert another.get(back).status_code == 403 and not signed_in(another)  # somebody is to be signed in as another
    for spoilt in (back.replace("state=", "state=x"), back.partition("?")[0], back.replace("iss=", "iss=x")):
        assert mine.get(spoilt).status_code == 403
    other = row_of_another(provider)
    back = provider.sign_in(begin_sign_in(row, mine))
    assert mine.get(back.replace(str(row.pk), str(other.pk))).status_code == 403


def row_of_another(provider: Provider) -> OpenIDProvider:
    row = OpenIDProvider(name="another", issuer="https://id.example.org", client_id=CLIENT)
    store_provider(user=None, provider=row, secret=SECRET)
    return row


def test_a_state_and_a_code_are_taken_once(provider: Provider, row: OpenIDProvider) -> None:
    here = browser()
    back = provider.sign_in(begin_sign_in(row, here))
    assert here.get(back).status_code == 302
    assert here.get(back).status_code == 403
    back = provider.sign_in(begin_sign_in(row, here))
    provider.codes.clear()  # somebody was faster
    assert here.get(back).status_code == 403


def test_several_tabs_sign_in_side_by_side(provider: Provider, row: OpenIDProvider) -> None:
    here = browser()
    first, second = begin_sign_in(row, here, "/files/"), begin_sign_in(row, here, "//evil.example/")
    assert here.get(provider.sign_in(second))["Location"] == "/"
    assert here.get(provider.sign_in(first))["Location"] == "/files/"


def test_what_the_provider_refuses_is_said(provider: Provider, row: OpenIDProvider) -> None:
    here = browser()
    state = parse_qs(urlsplit(begin_sign_in(row, here)).query)["state"][0]
    more = {"state": state, "error": "access_denied", "error_description": "<b>You may not.</b>"}
    answer = here.get(reverse("login-openid-done", args=[row.pk]), more)
    assert answer.status_code == 403 and "&lt;b&gt;You may not." in answer.content.decode()


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256"])
def test_keys_that_have_changed_are_read_anew(provider: Provider, row: OpenIDProvider, algorithm: str) -> None:
    assert signed_in(sign_in(provider, row)[0])
    if algorithm == "ES256":
        provider.key = ECKey.generate_key("P-256", {"kid": "new"})
        provider.keys = [provider.key]
    else:
        provider.rotate()
    provider.header = {"alg": algorithm}
    assert signed_in(sign_in(provider, row)[0])
    before = len(provider.requests)
    assert signed_in(sign_in(provider, row)[0])
    assert provider.requests[before:].count("/keys") == 0  # what is known is not asked for again


# Signing in again


def test_what_needs_a_fresh_sign_in_asks_the_provider_for_it(provider: Provider, row: OpenIDProvider) -> None:
    here, _ = sign_in(provider, row)
    session = here.session
    session["signed_in_at"] = 0
    session.save()
    tokens = {"name": "notebook", "scopes": ["chat"], "days": "30"}
    assert here.get("/settings/tokens/").status_code == 302
    again = here.get("/login/again/?next=/settings/tokens/").content.decode()
    assert f"Sign in with {row.name}" in again and 'type="password"' not in again
    address = begin_sign_in(row, here, "/settings/tokens/")
    assert "prompt=login" in address and "max_age=0" in address
    provider.wrong["auth_time"] = int(time.time()) - 3600
    assert here.get(provider.sign_in(address)).status_code == 403
    assert here.get(provider.sign_in(begin_sign_in(row, here, "/settings/tokens/")))["Location"] == "/settings/tokens/"
    assert here.post("/settings/tokens/", tokens).context["token"]
    new = "another long password"
    assert here.post("/settings/password/", {"new_password1": new, "new_password2": new}).status_code == 302
    assert person_at(here).check_password(new)


# In the place of passwords


def test_passwords_give_way_but_to_administrators(provider: Provider) -> None:
    row = row_of(provider, only=True)
    ada = User.objects.create_user(f"ada-{uuid4().hex[:8]}", password=PASSWORD)
    root = User.objects.create_superuser(f"root-{uuid4().hex[:8]}", password=PASSWORD)
    staff = User.objects.create_user(f"staff-{uuid4().hex[:8]}", password=PASSWORD, is_staff=True)  # and no right
    clerk = User.objects.create_user(f"clerk-{uuid4().hex[:8]}", password=PASSWORD, is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="view_user"))
    assert 'type="password"' not in browser().get("/login/").content.decode()
    for at in ("/login/", "/admin/login/"):
        here = browser()
        answer = here.post(at, {"username": ada.username, "password": PASSWORD})
        assert not signed_in(here)
        assert at != "/login/" or f"only with {row.name}" in answer.content.decode()
        here = browser()
        here.post(at, {"username": staff.username, "password": PASSWORD})
        assert not signed_in(here)
    for administrator in (root, clerk):
        here = browser()
        here.post("/admin/login/?next=/admin/", {"username": administrator.username, "password": PASSWORD})
        assert person_at(here) == administrator
    delete_provider(user=root, provider=row)
    here = browser()
    here.post("/login/", {"username": ada.username, "password": PASSWORD})
    assert signed_in(here)


# Signing out from the provider


def send_logout(row: OpenIDProvider, token: str) -> Any:
    return browser().post(reverse("openid-sign-out", args=[row.pk]), {"logout_token": token})


def test_the_provider_signs_a_person_out(provider: Provider, row: OpenIDProvider) -> None:
    provider.person["sid"] = "one"
    one, _ = sign_in(provider, row)
    provider.person["sid"] = "two"
    two, _ = sign_in(provider, row)
    ada = person_at(one)
    stream = Credential.of_session(two.session, ada)
    assert send_logout(row, provider.logout_token(sub=provider.person["sub"], sid="one")).status_code == 200
    assert one.get("/settings/").status_code == 302 and two.get("/settings/").status_code == 200
    assert valid_credentials([stream]) == {stream}
    assert send_logout(row, provider.logout_token(sid="two")).status_code == 200
    assert valid_credentials([stream]) == set()
    here, _ = sign_in(provider, row)
    assert send_logout(row, provider.logout_token(sub="somebody else")).status_code == 200
    assert Session.objects.filter(user=ada).count() == 1
    assert send_logout(row, provider.logout_token(sub=provider.person["sub"])).status_code == 200
    assert not Session.objects.filter(user=ada).exists() and here.get("/settings/").status_code == 302


BAD_LOGOUTS: dict[str, dict[str, Any]] = {
    "issuer": {"iss": "https://id.example.org"},
    "audience": {"aud": "another"},
    "an ID token": {"events": None},
    "a nonce": {"nonce": "n"},
    "nobody": {"sub": None},
    "old": {"iat": int(time.time()) - 7200},
    "ended": {"exp": int(time.time()) - 7200},
    "no id": {"jti": None},
}


@pytest.mark.parametrize("spoilt", BAD_LOGOUTS.values(), ids=BAD_LOGOUTS)
def test_a_token_that_signs_nobody_out(provider: Provider, row: OpenIDProvider, spoilt: dict[str, Any]) -> None:
    here, _ = sign_in(provider, row)
    provider.wrong = spoilt
    answer = send_logout(row, provider.logout_token(sub=provider.person["sub"]))
    assert answer.status_code == 400 and answer.json()["error"] == "invalid_request"
    assert send_logout(row, "not.a.token").status_code == send_logout(row, "").status_code == 400
    assert here.get("/settings/").status_code == 200


# Setting up


def test_the_command_sets_a_provider_up_and_says_its_addresses(provider: Provider, tmp_path: Path) -> None:
    file, out = tmp_path / "secret", StringIO()
    file.write_text(SECRET + "\n")
    options = {"issuer": provider.issuer, "client_id": CLIENT, "client_secret_file": file, "admin_group": "admins"}
    call_command("oidc", "Company", stdout=out, only=True, **options)
    row = OpenIDProvider.objects.get(name="Company")
    assert (row.client_secret, row.only, row.groups_claim, row.admin_group) == (SECRET, True, "groups", "admins")
    assert reverse("login-openid-done", args=[row.pk]) in out.getvalue()
    assert reverse("openid-sign-out", args=[row.pk]) in out.getvalue() and SECRET not in out.getvalue()
    call_command("oidc", "Company", stdout=out, only=False)
    row.refresh_from_db()
    assert not row.only and row.client_secret == SECRET
    with pytest.raises(CommandError, match="Nothing was stored"):
        call_command("oidc", "Company", stdout=out, issuer="http://127.0.0.1:9")
    with pytest.raises(CommandError, match="--issuer"):
        call_command("oidc", "Nobody", stdout=out)


def test_a_stored_secret_goes_to_no_other_server(provider: Provider, row: OpenIDProvider) -> None:
    row.issuer = "https://evil.example"
    with pytest.raises(ProductError, match="secret_moved"):
        store_provider(user=None, provider=row, secret=None)


def test_only_superusers_say_who_signs_people_in(provider: Provider, row: OpenIDProvider) -> None:
    staff = User.objects.create_user("staff", password=PASSWORD, is_staff=True)
    with pytest.raises(ProductError, match="superuser_only"):
        store_provider(user=staff, provider=row, secret=None)
    here = browser()
    here.force_login(staff)
    assert here.get(reverse("admin:accounts_openidprovider_changelist")).status_code == 403


def test_the_admin_stores_and_tests_a_provider(provider: Provider) -> None:
    here = browser()
    here.force_login(User.objects.create_superuser("root", password=PASSWORD))
    form = {"name": "Company", "issuer": provider.issuer, "client_id": CLIENT, "new_secret": SECRET, "enabled": "on"}
    here.post(reverse("admin:accounts_openidprovider_add"), form)
    row = OpenIDProvider.objects.get(name="Company")
    assert row.client_secret == SECRET
    page = here.get(reverse("admin:accounts_openidprovider_change", args=[row.pk])).content.decode()
    assert reverse("openid-sign-out", args=[row.pk]) in page and SECRET not in page
    test = "admin:accounts_openidprovider_test"
    assert "provider answers" in here.get(reverse(test, args=[row.pk]), follow=True).content.decode()


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"issuer": "https://another.example"}, "openid_issuer"),
        ({"jwks_uri": None}, "openid_unreachable"),
        ({"jwks_uri": "http://127.0.0.2:9/keys"}, "openid_unreachable"),  # a private address that nobody typed
        ({"jwks_uri": "http://169.254.169.254/latest"}, "openid_unreachable"),
        ({"id_token_signing_alg_values_supported": ["HS256"]}, "openid_algorithm"),
    ],
)
def test_a_provider_that_cannot_be_used_is_found_out(
    provider: Provider, row: OpenIDProvider, document: dict[str, Any], code: str
) -> None:
    provider.document = document
    with pytest.raises(ProductError) as error:
        read(row)
    assert error.value.code == code
    connection.forget(row)
    if code != "openid_algorithm":
        here, answer = browser(), None
        answer = here.get(reverse("login-openid", args=[row.pk]))
        assert answer.status_code in (302, 502)
