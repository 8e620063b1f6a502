"""Signing up, changing the e-mail address, passwords chosen by an administrator, and the ends of sessions."""

import re
from collections.abc import Iterator
from datetime import timedelta
from time import time
from typing import Any

import pytest
from django.core import signing
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.access.authentication import Credential, valid_credentials
from accounts.access.login import SIGNED_IN
from accounts.mailing import addresses
from accounts.models import ApiToken, Session, User
from accounts.services import create_token, save_password
from core.audit.models import Entry
from core.errors import ProductError
from tests.accounts.mail_server import MailServer, mailing
from tests.accounts.openid_browser import browser
from tests.conftest import PASSWORD
from workspace.models import Workspace
from workspace.services import change_settings

pytestmark = pytest.mark.django_db

NEW = "another long password"
EMAIL = "/settings/email/"
SITE = "http://testserver"


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mailing() as running:
        yield running


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga", email="olga@example.org", password=PASSWORD)


def at(person: User) -> Client:
    """Return a browser in which the person has just signed in."""
    here = browser()
    here.force_login(person)
    session = here.session
    session[SIGNED_IN] = int(time())
    session.save()
    return here


def link_in(text: str) -> str:
    match = re.search(r"http://testserver(/\S+)", text)
    assert match, text
    return match[1]


# A password that somebody else chose


def test_a_password_that_an_administrator_has_set_is_changed_first(olga: User) -> None:
    root = User.objects.create_superuser("root", password=PASSWORD)
    olga.set_password("Another person chose your current password")
    save_password(user=root, person=olga)
    here = browser()
    here.post("/login/", {"username": "olga", "password": "Another person chose your current password"})
    assert here.get("/files/")["Location"] == "/settings/password/?next=%2Ffiles%2F"
    assert here.get("/api/v1/me/").json()["code"] == "password_change_needed"
    assert here.post("/settings/tokens/", {}).status_code == 403
    person = User.objects.get(pk=olga.pk)
    assert valid_credentials([Credential.of_session(here.session, person)]) == set()
    page = here.get("/settings/password/?next=/files/").content.decode()
    assert "Choose your password" in page and "/settings/tokens/" not in page
    form = {
        "old_password": "Another person chose your current password",
        "new_password1": NEW,
        "new_password2": NEW,
        "next": "/files/",
    }
    assert here.post("/settings/password/", form)["Location"] == "/files/"
    assert here.get("/files/").status_code == 200
    _, token = create_token(user=person, name="program")
    assert browser().get("/api/v1/me/", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_who_sets_their_own_in_the_admin_is_not_asked_again() -> None:
    root = User.objects.create_superuser("root", password=PASSWORD)
    save_password(user=root, person=root)
    assert not User.objects.get(pk=root.pk).password_once


# The ends of sessions


@pytest.mark.parametrize(("days_ago", "left"), [(0, 14), (85, 5), (91, -1)])
def test_a_session_ends_so_many_days_after_the_sign_in_whether_used_or_not(
    olga: User, days_ago: int, left: int
) -> None:
    here = at(olga)
    session = here.session
    session["visit"] = {"began": int(time()) - days_ago * 86_400, "seen": int(time()), "agent": ""}
    session.save()
    row = Session.objects.get(session_key=session.session_key)
    assert abs(row.expire_date - timezone.now() - timedelta(days=left)) < timedelta(minutes=10)
    assert (here.get("/settings/").status_code == 200) == (left > 0)


def test_signing_out_everywhere_ends_tokens_where_asked(olga: User) -> None:
    create_token(user=olga, name="program")
    here, other = at(olga), at(olga)
    assert "Revoke my API tokens" in here.get("/settings/sessions/").content.decode()
    here.post("/settings/sessions/end/")
    assert other.get("/settings/").status_code == 302
    assert ApiToken.objects.visible_to(olga).usable().exists()
    here.post("/settings/sessions/end/", {"tokens": "on"})
    assert not ApiToken.objects.visible_to(olga).usable().exists()
    assert here.get("/settings/").status_code == 200


# One's own address


def test_another_address_is_ones_own_once_its_mail_was_read(olga: User, server: MailServer) -> None:
    here = at(olga)
    assert "on its way to new@example.org" in here.post(EMAIL, {"email": "new@example.org"}).content.decode()
    olga.refresh_from_db()
    assert olga.email == "olga@example.org" and server.received[0]["To"] == "new@example.org"
    link = link_in(server.text())
    other = at(User.objects.create_user("other", password=PASSWORD))
    assert other.get(link).status_code == 404
    assert here.get(link).status_code == 302
    olga.refresh_from_db()
    assert olga.email == "new@example.org" and olga.email_confirmed
    assert here.get(link).status_code == 404  # it works once
    addresses.mail_changed(person=olga, before="olga@example.org")  # what the worker does of it
    assert server.received[-1]["To"] == "olga@example.org"


def test_an_address_asks_for_a_fresh_sign_in(olga: User) -> None:
    here = at(olga)
    session = here.session
    session[SIGNED_IN] = 0
    session.save()
    assert here.get(EMAIL)["Location"].startswith("/login/again/")
    assert here.post(EMAIL, {"email": "thief@example.org"}).status_code == 403


def test_without_mails_an_address_stays_unconfirmed(olga: User) -> None:
    here = at(olga)
    assert here.post(EMAIL, {"email": "not an address"}).status_code == 422
    assert here.post(EMAIL, {"email": "new@example.org"}).status_code == 302
    olga.refresh_from_db()
    assert olga.email == "new@example.org" and not olga.email_confirmed
    assert "not confirmed" in here.get(EMAIL).content.decode()
    here.post(EMAIL, {"email": ""})
    olga.refresh_from_db()
    assert olga.email == "" and olga.email_confirmed


# Signing up


def open_up(**more: Any) -> None:
    change_settings(user=None, fields={"sign_up": True, **more})


def test_nobody_signs_up_unless_it_is_switched_on(server: MailServer) -> None:
    assert browser().get("/login/sign-up/").status_code == 404
    assert browser().post("/login/sign-up/", {"email": "a@example.org"}).status_code == 404
    key = signing.dumps({"email": "a@example.org"}, salt=addresses.SIGN_UP, compress=True)
    assert browser().get(reverse("sign-up-confirmed", query={"key": key})).status_code == 404
    assert "/login/sign-up/" not in browser().get("/login/").content.decode()


def test_it_is_switched_on_only_where_mails_are_sent() -> None:
    with pytest.raises(ProductError, match="EMAIL_URL"):
        open_up()
    assert not Workspace.objects.filter(sign_up=True).exists()


def test_who_signs_up_confirms_the_address_and_chooses_the_rest(server: MailServer) -> None:
    open_up(sign_up_domains="example.org, example.net")
    here = browser()
    assert "/login/sign-up/" in here.get("/login/").content.decode()
    assert here.post("/login/sign-up/", {"email": "a@evil.example"}).status_code == 422
    assert "on its way" in here.post("/login/sign-up/", {"email": "ada@Example.org"}).content.decode()
    assert addresses.mail_sign_up(email="ada@Example.org", origin=SITE)  # what the worker does of it
    link = link_in(server.text())
    User.objects.create_user("taken", password=PASSWORD)
    form = {"username": "Taken", "new_password1": NEW, "new_password2": NEW}
    answer = here.post(link, form)
    assert answer.status_code == 422 and "Somebody has this user name" in answer.content.decode()
    assert here.post(link, {**form, "username": "ada", "new_password2": "x"}).status_code == 422
    assert here.post(link, {**form, "username": "ada"}).status_code == 302
    ada = User.objects.get(username="ada")
    assert (ada.email, ada.email_confirmed, ada.is_staff, ada.is_superuser) == ("ada@example.org", True, False, False)
    entry = Entry.objects.get(action="person.added", object_id=str(ada.pk))
    assert (entry.actor_name, entry.changes) == ("ada", {"sign_up": True})
    assert here.get("/settings/").status_code == 200
    assert browser().post(link, {**form, "username": "eve"}).status_code == 404  # it works once


def test_who_has_an_account_gets_no_second_one(olga: User, server: MailServer) -> None:
    open_up()
    assert not addresses.mail_sign_up(email="OLGA@example.org", origin=SITE)
    assert "on its way" in browser().post("/login/sign-up/", {"email": olga.email}).content.decode()
    assert server.received == []


def test_domains_are_checked() -> None:
    with pytest.raises(ProductError, match="separated by commas"):
        change_settings(user=None, fields={"sign_up_domains": "no domain"})
