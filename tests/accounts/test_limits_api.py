"""Limits over the API: administrators set them, and people see their own."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import ApiToken, Limit, PeopleGroup, User
from accounts.services import create_token
from core.errors import ProductError
from files.services import require_storage

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return User.objects.create_superuser(uuid4().hex)


@pytest.fixture
def olga() -> User:
    return User.objects.create_user(uuid4().hex)


def api(user: User, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any:
    _row, secret = create_token(user=user, name="robot", scopes=ApiToken.SCOPES)
    return call(secret, method, path, body, expect=expect)


def call(secret: str, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any:
    answer = Client().generic(
        method,
        f"/api/v1/{path}",
        json.dumps(body or {}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert answer.status_code == expect, answer.content
    return json.loads(answer.content) if answer.content else None


def test_an_administrator_sets_reads_changes_and_removes_a_limit(admin: User, olga: User) -> None:
    token, _secret = create_token(user=olga, name="of olga")
    group = PeopleGroup.objects.create(name=uuid4().hex)
    for whom in ("everyone", {"user": str(olga.pk)}, {"group": str(group.pk)}, {"token": str(token.pk)}):
        body = {"for": whom, "unit": "money", "per": "month", "amount": "12.50"}
        limit = api(admin, "POST", "limits/", body, expect=201)
        assert {name: limit[name] for name in body} == {**body, "amount": "12.5"}
    changed = api(admin, "PATCH", f"limits/{limit['id']}/", {"amount": 3})
    assert (changed["amount"], changed["for"]) == ("3", {"token": str(token.pk)})
    assert [each["amount"] for each in api(admin, "GET", "limits/")["results"]] == ["12.5", "12.5", "12.5", "3"]
    api(admin, "DELETE", f"limits/{limit['id']}/", expect=204)
    assert Limit.objects.count() == 3
    stored = api(admin, "POST", "limits/", {"for": "everyone", "unit": "storage", "amount": 5, "per": None}, expect=201)
    assert stored["per"] is None


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"for": {"user": str(uuid4())}}, "There is no user with this id."),
        ({"for": "everybody"}, 'Write \\"everyone\\", or an object'),
        ({"for": {"user": "x"}}, "UUID"),
        ({"for": None}, "null"),
        ({"amount": "much"}, "number"),
        ({"amount": -1}, "greater than or equal to 0"),
        ({"per": None}, "Choose a day or a month"),
        ({"unit": "sheep"}, "sheep"),
        ({"sheep": 1}, "There is no such field."),
    ],
)
def test_what_is_no_limit_is_refused_with_what_to_do(admin: User, wrong: dict[str, Any], sentence: str) -> None:
    body = {"for": "everyone", "unit": "turns", "per": "day", "amount": 5, **wrong}
    assert sentence in json.dumps(api(admin, "POST", "limits/", body, expect=400))


def test_nobody_else_sees_or_sets_limits(olga: User) -> None:
    row = Limit.objects.create(unit="turns", per="day", amount=5)
    api(olga, "GET", "limits/", expect=403)
    api(olga, "POST", "limits/", {"for": "everyone", "unit": "turns", "per": "day", "amount": 50}, expect=403)
    api(olga, "PATCH", f"limits/{row.pk}/", {"amount": 50}, expect=403)
    api(olga, "DELETE", f"limits/{row.pk}/", expect=403)


def test_a_person_is_told_what_holds_for_them_and_a_token_its_own_too(olga: User) -> None:
    token, secret = create_token(user=olga, name="robot", scopes=["chat"])
    Limit.objects.create(unit="tokens", per="day", amount=500)
    Limit.objects.create(unit="storage", amount=1_000, user=olga)
    Limit.objects.create(unit="live_turns", amount=3)
    Limit.objects.create(unit="turns", per="month", amount=7, token=token)
    Limit.objects.create(unit="turns", per="month", amount=1, user=User.objects.create_user(uuid4().hex))
    limits = call(secret, "GET", "me/")["limits"]
    assert [(each["unit"], each["per"], each["amount"], each["used"]) for each in limits] == [
        ("tokens", "day", "500", "0"),
        ("turns", "month", "7", "0"),
        ("storage", None, "1000", "0"),
        ("live_turns", None, "3", "0"),
    ]
    assert limits[0]["resets"] and limits[2]["resets"] is None
    page = Client()
    page.force_login(olga)
    shown = page.get("/usage/").content.decode()
    assert "Tokens a day" in shown and "Turns a month" not in shown and "Turns at once" in shown


def test_storage_is_held_to_at_the_upload(olga: User) -> None:
    Limit.objects.create(unit="storage", amount=1_000_000)
    require_storage(olga, 1_000_000)
    with pytest.raises(ProductError) as caught:
        require_storage(olga, 1_000_001)
    assert (caught.value.code, caught.value.status) == ("limit_reached", 429)
