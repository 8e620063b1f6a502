"""`/metrics`: the right to see it, and numbers that follow the events."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from accounts.models import User
from chat.models import Conversation, Message, Turn
from core.background import TURNS
from core.logs import metrics
from files.models import File
from tests.accounts.programs import Program
from tests.application import Application
from tests.conftest import Person
from tests.product import free_port, until

OF_WORKSPACE = ("live", "turns", "tokens", "uploads", "uploaded", "oldest")  # and not of the process that is asked


def numbers(client: Client, **headers: str) -> dict[str, float]:
    """Return every sample by its name with labels. Fails on a line that is not in Prometheus' text format."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.content.decode())


def read(text: str) -> dict[str, float]:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {_named(each.name, each.labels): each.value for each in samples}


def _named(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name


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
        if after[name] != before.get(name) and name.startswith("glasshouse") and name.split("_")[1] in OF_WORKSPACE
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
    answers = [
        Program(person, scope).ask("GET", "/metrics") for person in (member, admin_user) for scope in ("chat", "admin")
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 403, 200]


@pytest.mark.django_db
def test_a_scraper_has_a_token_of_its_own_for_web_processes_and_workers(client: Client, settings: Settings) -> None:
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401
    settings.METRICS_TOKEN, settings.METRICS_PORT = "a-token-to-scrape-with", free_port()
    headers, address = {"Authorization": "Bearer a-token-to-scrape-with"}, f"http://127.0.0.1:{settings.METRICS_PORT}"
    assert client.get("/metrics", headers={"Authorization": "Bearer another"}).status_code == 401
    metrics.serve()
    metrics.serve()  # as another worker of the machine would
    of_second_worker = httpx.get(f"http://127.0.0.1:{settings.METRICS_PORT + 1}", headers=headers)
    assert httpx.get(address).status_code == 401 and "glasshouse_" in of_second_worker.text
    for values in (numbers(client, **headers), read(httpx.get(address, headers=headers).text)):
        assert values['glasshouse_database_connections{state="pool_size"}'] >= 1
        assert values['glasshouse_request_seconds_count{method="GET",status="4xx",view="metrics"}'] >= 2


def test_an_answer_is_counted_by_model_and_a_refusal_by_its_code(application: Application, person: Person) -> None:
    def counted(name: str) -> float:
        return sum(
            sample.value
            for family in REGISTRY.collect()
            for sample in family.samples
            if _named(sample.name, sample.labels) == name
        )

    host = application.model.openai_url.split("/")[2]
    names = [
        'glasshouse_turns_ended_total{status="done"}',
        'glasshouse_first_token_seconds_count{model="scripted"}',
        f'glasshouse_model_calls_total{{model="scripted",outcome="answered",server="{host}"}}',
        f'glasshouse_model_calls_total{{model="scripted",outcome="rate_limited",server="{host}"}}',
        'glasshouse_turns_ended_total{status="stopped"}',
        "glasshouse_stop_seconds_count",
    ]
    before = [counted(name) for name in names]
    person.caller.ended(person.caller.ask("One.", {"text": "Yes."})["id"])
    person.caller.ended(person.caller.ask("Two.", {"error": {"status": 429}, "error_times": 9})["id"])
    long = person.caller.ask("Three.", {"tokens": 4_000, "interval": 0.02})["id"]
    until(lambda: person.caller.turn(long)["text"], "it is being written")
    person.caller.post(f"turns/{long}/stop/")
    person.caller.ended(long)
    until(lambda: counted(names[-1]) > before[-1], "its end is counted")
    moved = [counted(name) - earlier for name, earlier in zip(names, before, strict=True)]
    assert moved[0] == 1 and moved[3] >= 1 and moved[4] == 1 and moved[1] >= 1 and moved[2] >= 1
    assert counted('glasshouse_tokens_total{kind="output",model="scripted"}') > 0


@pytest.mark.django_db
def test_being_staff_without_the_right_does_not_open_it(client: Client) -> None:
    staff = User.objects.create_user("staff-alone", is_staff=True)
    client.force_login(staff)
    answer = client.get("/metrics")
    assert answer.status_code == 403 and answer.json()["code"] == "right_missing"
    staff.user_permissions.add(Permission.objects.get(codename="view_modelcall"))
    assert client.get("/metrics").status_code == 200
