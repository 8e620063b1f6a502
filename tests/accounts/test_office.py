"""An office of 300 people has one address, at which somebody guesses passwords. The limits are the default ones."""

from collections.abc import Iterator
from random import SystemRandom
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.hashers import make_password
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from tests.accounts.factors import code_of, with_app
from tests.accounts.openid_browser import row_of
from tests.accounts.openid_provider import providing
from tests.accounts.software_passkey import with_passkey
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db
PEOPLE = 300
PART = 5  # the slower ways are tried by a fifth of the office, with a fifth of the limits
LOGIN, SECOND = reverse("login"), reverse("login-second")
PASSKEY, SCRIPT = reverse("login-passkey"), {"Accept": "application/json"}
_random = SystemRandom()


@pytest.fixture(autouse=True)
def limits(settings: Settings) -> Settings:
    settings.SIGN_IN_LIMITS = {"name": 10, "address": 50, "crowd": 300, "codes": 200}
    settings.PAGE_RATES = {"sign-in": 3000, "attempts": 600, "openid": 600, "shared": 120}
    return settings


@pytest.fixture
def a_part(limits: Settings) -> int:
    """A fifth of the office with a fifth of what its address may do in a minute. Returns how many people that are."""
    limits.PAGE_RATES = {kind: rate // PART for kind, rate in limits.PAGE_RATES.items()}
    limits.SIGN_IN_LIMITS = {**limits.SIGN_IN_LIMITS, "crowd": limits.SIGN_IN_LIMITS["crowd"] // PART}
    return PEOPLE // PART


@pytest.fixture
def office() -> str:
    return f"10.{_random.randrange(256)}.{_random.randrange(256)}.{_random.randrange(256)}"


@pytest.fixture
def people() -> list[User]:
    stored = make_password(PASSWORD)
    rows = [User(username=f"{number}-{uuid4().hex[:8]}", password=stored) for number in range(PEOPLE)]
    return list(User.objects.bulk_create(rows))


def signed_in(here: Client) -> bool:
    return "_auth_user_id" in here.session


class Guesser:
    """Tries wrong passwords, for one name or for a new one each time, and records the answers."""

    def __init__(self, office: str, name: str = "") -> None:
        self.office, self.name = office, name
        self.answers: list[int] = []

    def guess(self, times: int = 1) -> None:
        here = Client(REMOTE_ADDR=self.office)
        for _ in range(times):
            here.get(LOGIN)
            sent = {"username": self.name or uuid4().hex, "password": "guess"}
            self.answers.append(here.post(LOGIN, sent).status_code)

    @property
    def looked_at(self) -> int:
        return self.answers.count(200)


@pytest.fixture
def guessers(office: str) -> list[Guesser]:
    """Return guessers of one account and of many. Both have used up their tries before anybody else signs in."""
    victim = User.objects.create_user(uuid4().hex, password=PASSWORD)
    both = [Guesser(office, victim.username), Guesser(office)]
    for each in both:
        each.guess(60)  # few enough for the audit's limit of rows a minute, which other tests need
    return both


@pytest.fixture
def one_window(guessers: list[Guesser]) -> Iterator[None]:
    """Repeat the guesses before and after the test: the clock's quarter of an hour may end once meanwhile."""
    yield
    one, many = guessers
    assert one.looked_at <= 2 * 10 and one.answers[-1] == 429
    assert one.looked_at + many.looked_at <= 2 * (50 + PEOPLE)
    many.guess(60)
    assert many.answers[-1] == 429


@pytest.mark.usefixtures("one_window")
def test_an_office_signs_in_by_password(office: str, people: list[User], guessers: list[Guesser]) -> None:
    browsers = [Client(REMOTE_ADDR=office) for _ in people]
    assert {here.get(LOGIN).status_code for here in browsers} == {200}  # all have the page open before one signs in
    for number, (here, person) in enumerate(zip(browsers, people, strict=True)):
        answer = here.post(LOGIN, {"username": person.username, "password": PASSWORD})
        assert answer.status_code == 302 and signed_in(here), answer.status_code
        if number % 10 == 0:
            guessers[0].guess()


@pytest.mark.slow
@pytest.mark.usefixtures("one_window")
def test_an_office_signs_in_by_passkey(office: str, a_part: int, people: list[User], guessers: list[Guesser]) -> None:
    for person in people[:a_part]:
        here, passkey = Client(REMOTE_ADDR=office), with_passkey(person)
        challenge = here.get(PASSKEY, headers=SCRIPT, secure=True).json()["request_options"]["publicKey"]
        answer = here.post(PASSKEY, {"credential": passkey.signed(challenge["challenge"])}, secure=True)
        assert signed_in(here), answer["Location"]
        guessers[0].guess()


@pytest.mark.slow
@pytest.mark.usefixtures("one_window")
def test_an_office_signs_in_through_a_provider(office: str, a_part: int, guessers: list[Guesser]) -> None:
    with providing() as provider:
        row = row_of(provider)
        browsers = [Client(REMOTE_ADDR=office) for _ in range(a_part)]
        redirects = [here.get(reverse("login-openid", args=[row.pk])) for here in browsers]
        for here, answer in zip(browsers, redirects, strict=True):
            assert answer.status_code == 302
            provider.person["sub"] = uuid4().hex
            assert here.get(provider.sign_in(answer["Location"])).status_code == 302
            assert signed_in(here)
            guessers[0].guess()


@pytest.mark.usefixtures("one_window")
def test_an_office_signs_in_with_a_second_factor(office: str, people: list[User], guessers: list[Guesser]) -> None:
    for person in people[:100]:
        here, (secret, _) = Client(REMOTE_ADDR=office), with_app(person)
        assert here.post(LOGIN, {"username": person.username, "password": PASSWORD})["Location"] == SECOND
        assert here.post(SECOND, {"code": code_of(secret)}).status_code == 302
        assert signed_in(here)


def test_unfinished_and_failed_attempts_are_not_without_end(office: str, limits: Any) -> None:
    """Each way to sign in is counted by itself. An attempt that is taken back is no credit for another way."""
    limits.PAGE_RATES = {"attempts": 5}
    here = Client(REMOTE_ADDR=office)
    answers = [
        here.get(PASSKEY, headers=SCRIPT).status_code for _ in range(12)
    ]  # of which six are in one minute of the clock
    assert answers[0] == 200 and 429 in answers
    junk = [here.post(PASSKEY, {"credential": "{}"}).status_code for _ in range(12)]
    assert 429 in junk
    person = User.objects.create_user(uuid4().hex, password=PASSWORD)
    assert (
        Client(REMOTE_ADDR=office).post(LOGIN, {"username": person.username, "password": PASSWORD}).status_code == 302
    )


def test_one_person_who_signs_in_again_and_again_is_counted(office: str, limits: Any) -> None:
    limits.PAGE_RATES = {"attempts": 5}
    person = User.objects.create_user(uuid4().hex, password=PASSWORD)
    sent = {"username": person.username, "password": PASSWORD}
    answers = [Client(REMOTE_ADDR=office).post(LOGIN, sent).status_code for _ in range(40)]
    assert answers[:10] == [302] * 10 and 429 in answers
