"""`/metrics`: who may see it, and that its numbers move with what happens."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Conversation, Message, Turn
from core.background import TURNS
from files.models import File
from tests.accounts.programs import Program

pytestmark = pytest.mark.django_db


def numbers(client: Client) -> dict[str, float]:
    """Every sample by its name with labels; fails on a line that is not of Prometheus' text format."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found, described = {}, set()
    for line in answer.content.decode().splitlines():
        if line.startswith("# "):
            described.add(line.split(" ")[2])
            continue
        name, value = line.rsplit(" ", 1)
        assert name.partition("{")[0] in described
        found[name] = float(value)
    return found


def turn(owner: User, **fields: Any) -> Turn:
    place = Conversation.objects.create(owner=owner)
    question = Message.objects.create(conversation=place, role="user", parts=[])
    answer = Message.objects.create(conversation=place, parent=question, depth=1, role="assistant", parts=[])
    return Turn.objects.create(conversation=place, user_message=question, answer=answer, **fields)


def test_the_numbers_move_with_what_happens(admin_client: Client, admin_user: User) -> None:
    before = numbers(admin_client)
    turn(admin_user, status="done", usage={"input": 100, "output": 20})
    turn(admin_user, status="failed")
    turn(admin_user, status="queued")
    File.objects.create(owner=admin_user, name="a.txt", size=7, sha256="0" * 64, status="ready")
    after = numbers(admin_client)
    moved = {
        name: after[name] - before[name]
        for name in after
        if after[name] != before.get(name) and not name.startswith("glasshouse_queue")
    }
    assert moved.pop("glasshouse_oldest_queued_turn_seconds") > 0
    assert moved == {
        'glasshouse_live_turns{status="queued"}': 1,
        'glasshouse_turns_last_hour{status="done"}': 1,
        'glasshouse_turns_last_hour{status="failed"}': 1,
        'glasshouse_turns_last_hour{status="queued"}': 1,
        'glasshouse_tokens_last_hour{kind="input"}': 100,
        'glasshouse_tokens_last_hour{kind="output"}': 20,
        'glasshouse_uploads_last_hour{status="ready"}': 1,
        "glasshouse_uploaded_bytes_last_hour": 7,
    }


def test_it_says_how_many_wait_in_each_queue(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, background = (f'glasshouse_queue_length{{queue="{name}"}}' for name in ("turns", "background"))
    before, waiting = numbers(admin_client), uuid4()
    assert {name for name in before if "queue_length" in name} == {turns, background}
    monkeypatch.setattr(TURNS, "key", f"turns:queue:{waiting}")  # that nobody takes from
    TURNS.put(waiting)
    assert numbers(admin_client)[turns] == 1
    TURNS.remove(waiting)
    assert numbers(admin_client)[turns] == 0


def test_only_staff_see_it_with_a_session_or_a_token_of_scope_admin(client: Client, admin_user: User) -> None:
    assert client.get("/metrics").status_code == 401
    member = User.objects.create_user("member")
    client.force_login(member)
    assert client.get("/metrics").status_code == 403
    asked = [
        Program(person, scope).ask("GET", "/metrics") for person in (member, admin_user) for scope in ("chat", "admin")
    ]
    assert [answer.status_code for answer in asked] == [403, 403, 403, 200]
