"""How often passwords may be tried. The clock's quarter of an hour may end within a test: so tries go on until one is
refused, and there are more of them than two quarters allow together."""

import logging
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.hashers import make_password
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils.translation import deactivate
from pytest_django.fixtures import Settings

from accounts.access.login_throttle import WINDOW
from accounts.models import User
from tests.product import free_port

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
LIMIT = 3
ENOUGH = 2 * LIMIT + 1
LOGIN, ADMIN = reverse("login"), reverse("admin:login")
TOO_MANY = "Too many attempts have failed. Try again in"
WRONG = "The user name or the password is wrong"
_random = SystemRandom()


@pytest.fixture(autouse=True)
def limits(settings: Settings) -> Settings:
    settings.SIGN_IN_LIMITS = {"name": LIMIT, "address": 1_000}
    return settings


@pytest.fixture
def olga() -> User:
    return User.objects.create(username=uuid4().hex, password=make_password(PASSWORD), is_staff=True)


def somewhere() -> str:
    """An address that no other test counts for."""
    return f"10.{_random.randrange(256)}.{_random.randrange(256)}.{_random.randrange(256)}"


# Not the address of this machine: what is counted here would hold up the browsers of other tests.
HERE = somewhere()


def tried(name: str, password: str, *, url: str = LOGIN, **more: Any) -> Any:
    return Client(REMOTE_ADDR=more.pop("address", HERE), headers=more).post(
        url, {"username": name, "password": password}
    )


def refused(attempt: Callable[[], Any], most: int = ENOUGH) -> Any:
    """The first answer that takes no more tries."""
    for _ in range(most):
        answer = attempt()
        if answer.status_code == 429:
            return answer
    raise AssertionError(f"none of {most} tries was refused")


def signed_in(answer: Any) -> bool:
    return bool(answer.status_code == 302)


@pytest.mark.parametrize("url", [LOGIN, ADMIN])
def test_after_too_many_wrong_passwords_the_right_one_is_not_looked_at(olga: User, url: str) -> None:
    answer = refused(lambda: tried(olga.username, "guess", url=url))
    assert 1 <= int(answer["Retry-After"]) <= 900
    assert TOO_MANY in answer.content.decode()
    assert WRONG not in answer.content.decode()
    again = refused(lambda: tried(olga.username, PASSWORD, url=url), 1)
    assert "sessionid" not in again.cookies


def test_both_forms_count_together(olga: User) -> None:
    refused(lambda: tried(olga.username, "guess"))
    assert refused(lambda: tried(olga.username, PASSWORD, url=ADMIN), 1)


def test_up_to_the_limit_a_wrong_password_is_only_wrong(olga: User) -> None:
    answers = [tried(olga.username, "guess") for _ in range(LIMIT)]
    assert {answer.status_code for answer in answers} == {200}
    assert all(WRONG in answer.content.decode() for answer in answers)


def test_a_name_that_nobody_has_is_refused_in_the_same_words(olga: User) -> None:
    nobody = uuid4().hex
    pages = [refused(lambda: tried(olga.username, "guess")), refused(lambda: tried(nobody, "guess"))]
    sentences = [page.content.decode().split('role="alert"')[1].split("Try again")[0] for page in pages]
    assert sentences[0] == sentences[1]


def test_somebody_else_and_another_address_are_not_held_up(olga: User) -> None:
    somebody = User.objects.create_user(uuid4().hex, password=PASSWORD)
    refused(lambda: tried(olga.username, "guess"))
    assert signed_in(tried(somebody.username, PASSWORD))
    assert signed_in(tried(olga.username, PASSWORD, address=somewhere()))


def test_a_success_lets_the_count_begin_anew(olga: User) -> None:
    for _ in range(2 * LIMIT):
        assert [tried(olga.username, "guess").status_code for _ in range(LIMIT - 1)] == [200] * (LIMIT - 1)
        assert signed_in(tried(olga.username, PASSWORD))


def test_an_address_that_tries_many_names_has_one_try_a_name_left(olga: User, limits: Settings) -> None:
    """Other people at the guesser's address can sign in, and the guesser has one try for each name."""
    limits.SIGN_IN_LIMITS = {"name": 1_000, "address": LIMIT, "crowd": 1_000}
    address = somewhere()
    refused(lambda: tried(uuid4().hex, "guess", address=address))
    victim, other = User.objects.create_user(uuid4().hex, password=PASSWORD), uuid4().hex
    for name in (victim.username, other):  # whether anybody has the name or not
        answer = tried(name, "guess", address=address)
        assert (
            answer.status_code == 429 and TOO_MANY in answer.content.decode() and WRONG not in answer.content.decode()
        )
    assert refused(lambda: tried(victim.username, PASSWORD, address=address), 1)
    for _ in range(2):  # whoever was right may come in again
        assert signed_in(tried(olga.username, PASSWORD, address=address))
    assert refused(lambda: tried(uuid4().hex, "guess", address=address), 1)


def test_the_single_tries_of_an_address_end_as_well(olga: User, limits: Settings) -> None:
    limits.SIGN_IN_LIMITS = {"name": 1_000, "address": 1, "crowd": LIMIT}
    address = somewhere()
    for _ in range(2 * (LIMIT + 2)):  # in two quarters of an hour, at most
        tried(uuid4().hex, "guess", address=address)
    assert refused(lambda: tried(olga.username, PASSWORD, address=address), 1)


def test_who_comes_in_gives_a_failure_of_the_address_back_once(olga: User, limits: Settings) -> None:
    limits.SIGN_IN_LIMITS = {"name": 1_000, "address": 1_000}
    address = somewhere()

    def failures() -> Any:
        window = int(time.time()) // WINDOW
        return cache.get(f"sign-in:address:{address}:{window}")

    for _ in range(3):
        tried(uuid4().hex, "guess", address=address)
    before = failures()
    assert signed_in(tried(olga.username, PASSWORD, address=address))
    assert signed_in(tried(olga.username, PASSWORD, address=address))
    assert (before, failures()) in ((3, 2), (None, None))  # or the clock's quarter of an hour has ended


def test_who_signs_in_often_uses_up_nobodys_tries(olga: User, limits: Settings) -> None:
    limits.SIGN_IN_LIMITS = {"name": LIMIT, "address": LIMIT}
    address = somewhere()
    assert all(signed_in(tried(olga.username, PASSWORD, address=address)) for _ in range(2 * ENOUGH))


def test_whoever_is_refused_by_name_uses_up_no_tries_of_the_address(olga: User, limits: Settings) -> None:
    limits.SIGN_IN_LIMITS = {"name": LIMIT, "address": 3 * ENOUGH}
    address = somewhere()
    for _ in range(6 * ENOUGH):
        tried("stubborn", "guess", address=address)
    assert signed_in(tried(olga.username, PASSWORD, address=address))


def test_one_household_of_ipv6_addresses_is_one_address(limits: Settings) -> None:
    limits.SIGN_IN_LIMITS = {"name": 0, "address": LIMIT}
    network = f"2001:db8:{_random.randrange(65536):x}:{_random.randrange(65536):x}"
    refused(lambda: tried(uuid4().hex, "guess", address=f"{network}::{_random.randrange(65536):x}"))
    assert tried(uuid4().hex, "guess", address="2001:db9::1").status_code == 200


def test_a_forwarded_address_that_is_not_trusted_changes_nothing(olga: User) -> None:
    refused(lambda: tried(olga.username, "guess", **{"X-Forwarded-For": somewhere()}))


def test_behind_proxies_of_ours_the_address_that_they_saw_counts(olga: User, limits: Settings) -> None:
    limits.TRUSTED_PROXIES = 2
    mine, other = somewhere(), somewhere()

    def forwarded(client: str, password: str) -> Any:
        invented = f"{somewhere()}, {client}, 10.0.0.2"
        return tried(olga.username, password, **{"X-Forwarded-For": invented})

    refused(lambda: forwarded(mine, "guess"))
    assert refused(lambda: forwarded(mine, PASSWORD), 1)
    assert signed_in(forwarded(other, PASSWORD))


def test_zero_is_no_limit(olga: User, limits: Settings) -> None:
    limits.SIGN_IN_LIMITS = {"name": 0, "address": 0}
    assert {tried(olga.username, "guess").status_code for _ in range(ENOUGH)} == {200}


def test_while_redis_is_away_people_sign_in_and_the_log_says_so(
    olga: User, limits: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    limits.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{free_port()}/0",
        }
    }
    with caplog.at_level(logging.WARNING, logger="accounts.access.login_throttle"):
        assert {tried(olga.username, "guess").status_code for _ in range(ENOUGH)} == {200}
        assert signed_in(tried(olga.username, PASSWORD))
    assert "Redis is unavailable: tries of passwords are not counted" in caplog.messages


def test_the_log_names_the_address_and_not_what_was_typed(olga: User, caplog: pytest.LogCaptureFixture) -> None:
    address = somewhere()
    with caplog.at_level(logging.WARNING, logger="accounts.access.login_throttle"):
        refused(lambda: tried(olga.username, "guess", address=address))
    lines = [record.getMessage() for record in caplog.records if record.name == "accounts.access.login_throttle"]
    assert lines == [f"{LIMIT} wrong passwords from {address} for one name: further ones are not checked for now"]
    assert olga.username not in caplog.text


def test_the_old_password_is_not_guessed_in_the_settings_either(olga: User) -> None:
    browser = Client()
    browser.force_login(olga)
    url, new = reverse("settings:password"), "an even longer staple"

    def change(old: str) -> Any:
        return browser.post(url, {"old_password": old, "new_password1": new, "new_password2": new})

    answer = refused(lambda: change("guess"))
    assert TOO_MANY in answer.content.decode() and int(answer["Retry-After"]) >= 1
    assert change(PASSWORD).status_code == 429
    olga.refresh_from_db()
    assert olga.check_password(PASSWORD)


def test_the_admins_own_page_for_it_leads_to_the_settings(admin_client: Client) -> None:
    answer = admin_client.get(reverse("admin:password_change"))
    assert answer["Location"] == reverse("settings:password")


def test_the_sentence_is_in_the_readers_language() -> None:
    name = uuid4().hex
    try:
        answer = refused(lambda: tried(name, "guess", **{"Accept-Language": "vi"}))
    finally:
        deactivate()
    assert answer["Content-Language"] == "vi"
    assert "Hãy thử lại sau" in answer.content.decode()
    assert TOO_MANY not in answer.content.decode()
