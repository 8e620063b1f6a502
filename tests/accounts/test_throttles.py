"""Limits of requests a minute.

With a limit of N, 2 N + 1 requests have more than N in one minute of the clock. The tests can begin at any second."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_token
from core.api.rate_limit import RateAllowance
from tests.conftest import Person
from tests.product import Caller, Product, free_port

LIMIT = 3
ENOUGH = 2 * LIMIT + 1


@pytest.fixture
def olga(db: None) -> User:
    return User.objects.create_user("olga")


def program(user: User) -> Client:
    _, token = create_token(user=user, name="program")
    return Client(headers={"Authorization": f"Bearer {token}"})


def upload(client: Client) -> Any:
    return client.post("/api/v1/files/", {"file": SimpleUploadedFile("a.txt", b"words")})


def refused(responses: list[Any]) -> list[Any]:
    return [each for each in responses if each.status_code == 429]


def test_without_limits_nothing_is_counted(olga: User) -> None:
    answer = program(olga).get("/api/v1/conversations/")
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("RateLimit")]


def test_too_many_calls_are_refused_and_say_when_to_come_again(olga: User, settings: Settings) -> None:
    settings.API_RATES = {"chat": LIMIT}
    client = program(olga)
    answers = [client.get("/api/v1/conversations/") for _ in range(ENOUGH)]
    assert answers[0].status_code == 200
    last = refused(answers)[-1]
    assert last.headers["Content-Type"] == "application/problem+json"
    body = last.json()
    assert (body["code"], body["title"]) == ("throttled", "Too many requests")
    assert "Try again in" in body["detail"]
    assert 1 <= int(last.headers["Retry-After"]) <= 60
    assert last.headers["Retry-After"] == last.headers["RateLimit-Reset"]
    assert last.headers["RateLimit-Remaining"] == "0"


def test_as_many_calls_are_taken_as_the_limit_says() -> None:
    allowances = [RateAllowance(limit=3, used=used, reset=1, key="") for used in (2, 3, 4)]
    assert [each.exceeded for each in allowances] == [False, False, True]


def test_every_answer_says_how_much_is_left(olga: User, settings: Settings) -> None:
    settings.API_RATES = {"chat": 1_000}
    client = program(olga)
    answers = [
        client.get("/api/v1/conversations/"),
        client.post("/api/v1/conversations/"),
        client.get("/api/v1/turns/x/"),
    ]
    assert {each.headers["RateLimit-Limit"] for each in answers} == {"1000"}
    left = [int(each.headers["RateLimit-Remaining"]) for each in answers]
    assert left == [999, 998, 997] or max(left) == 999  # a minute may have ended between them


def test_kinds_of_calls_are_counted_apart(olga: User, settings: Settings) -> None:
    settings.API_RATES = {"chat": LIMIT, "files": 1_000, "uploads": LIMIT}
    client = program(olga)
    assert refused([client.get("/api/v1/conversations/") for _ in range(ENOUGH)])
    assert client.get("/api/v1/projects/").status_code == 200
    assert refused([upload(client) for _ in range(ENOUGH)])
    assert client.get("/api/v1/files/").status_code == 200


def test_another_token_makes_no_room_and_another_person_has_their_own(olga: User, settings: Settings) -> None:
    settings.API_RATES = {"chat": LIMIT}
    assert refused([program(olga).get("/api/v1/conversations/") for _ in range(ENOUGH)])
    somebody = User.objects.create_user("somebody")
    assert program(somebody).get("/api/v1/conversations/").status_code == 200


def test_streams_of_events_are_counted_too(committed: None, settings: Settings) -> None:
    settings.API_RATES = {"chat": LIMIT}
    user = User.objects.create_user("stream-of-events")
    try:
        client = program(user)
        url = "/api/v1/turns/01890000-0000-7000-8000-000000000000/events/"
        last = refused([client.get(url) for _ in range(ENOUGH)])[-1]
        assert last.json()["code"] == "throttled"
        assert int(last.headers["Retry-After"]) >= 1
    finally:
        user.delete()


def test_calls_are_taken_uncounted_while_redis_is_away(olga: User, settings: Settings) -> None:
    settings.API_RATES = {"chat": LIMIT}
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{free_port()}/0",
        }
    }
    client = program(olga)
    assert not refused([client.get("/api/v1/conversations/") for _ in range(ENOUGH)])


@pytest.fixture
def strict(product: Product, tmp_path: Path) -> Iterator[Product]:
    """Another web server of the product, behind a proxy, with small limits in its environment."""
    small = {"API_RATES": f"chat={LIMIT},files=0", "SIGN_IN_LIMITS": f"name={LIMIT}", "TRUSTED_PROXIES": "1"}
    environment = {**product.environment, **small}
    server = Product(f"http://127.0.0.1:{free_port()}", product.model, environment, tmp_path)
    server.start_web()
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.end("web")


@pytest.mark.product
def test_the_limits_come_from_the_environment(strict: Product, person: Person) -> None:
    caller = Caller(strict, person.token)
    assert refused([caller.http.get("conversations/") for _ in range(ENOUGH)])
    unlimited = [caller.http.get("files/") for _ in range(ENOUGH)]
    assert {each.status_code for each in unlimited} == {200}
    assert "RateLimit-Limit" not in unlimited[0].headers
    assert caller.http.get("projects/").headers["RateLimit-Limit"] == "3000"


@pytest.mark.product
def test_so_do_those_of_signing_in_and_the_proxies_in_front(strict: Product) -> None:
    with httpx.Client(base_url=strict.url, headers={"Referer": strict.url}) as browser:
        browser.get("/login/")
        form = {"username": uuid4().hex, "password": "guess", "csrfmiddlewaretoken": browser.cookies["csrftoken"]}

        def guess(address: str) -> httpx.Response:
            return browser.post("/login/", data=form, headers={"X-Forwarded-For": f"192.0.2.1, {address}"})

        last = refused([guess("203.0.113.7") for _ in range(ENOUGH)])[-1]
        assert 1 <= int(last.headers["Retry-After"]) <= 900
        assert guess("203.0.113.8").status_code == 200
