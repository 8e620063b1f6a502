"""The start page of the admin: its numbers, the rights to see them, and their links."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.models import User
from chat.ledger import overview
from chat.ledger.models import ModelCall
from chat.ledger.overview import Days
from chat.models import Conversation, Message, Turn
from config.dashboard_admin import CHOICES, DOCTOR_KEY, UsageRow
from core.ids import id_at
from files.models import File
from llm.models import Model, Provider
from personas.models import Persona
from projects.planner.models import Run
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create as create_task
from tests.product import free_port

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _counted_anew() -> None:
    count_anew()


def count_anew() -> None:
    """Forget the counts of another test, which the page caches for a minute."""
    cache.delete_many(["admin:files", *(f"admin:people:{days}" for days in CHOICES)])


@pytest.fixture
def model() -> Model:
    return Model.objects.create(provider=Provider.objects.create(name=uuid4().hex), name="tiny")


def turn_of(person: User, model: Model | None, status: str = "done", **fields: Any) -> Turn:
    """`code`, `detail` and `parts` are the answer's."""
    of_answer = {"error_code": fields.pop("code", ""), "error_detail": fields.pop("detail", "")}
    place = Conversation.objects.create(owner=person, title="A private matter")
    question = Message.objects.create(conversation=place, role="user")
    answer = Message.objects.create(
        conversation=place, parent=question, depth=1, role="assistant", parts=fields.pop("parts", []), **of_answer
    )
    return Turn.objects.create(
        conversation=place, user_message=question, answer=answer, model=model, status=status, **fields
    )


def call_of(person: User, model: Model, *, days_ago: int = 0, **fields: Any) -> ModelCall:
    values = {"model": model, "model_name": model.name, "provider_name": model.provider.name, "input": 1_000}
    row = ModelCall.objects.create(person=person, purpose="answer", output=10, **(values | fields))
    ModelCall.objects.filter(pk=row.pk).update(created=timezone.now() - timedelta(days=days_ago))
    return row


@pytest.fixture
def used(admin_user: User, model: Model) -> Model:
    """Create turns: answers of two people, an answer that failed twice, and a running one."""
    other = User.objects.create_user("olga")
    private = Persona.objects.create(owner=other, name="My secret helper")
    call_of(admin_user, model, cost=Decimal("1.50"))
    call_of(other, model, persona=private, cost=Decimal("0.25"))
    call_of(other, model, number=2)
    call_of(other, model, days_ago=20, input=5)
    call_of(other, model, days_ago=100, input=7_777)
    for _ in range(2):
        turn_of(other, model, "failed", code="rate_limited", detail="The provider says: come back later.")
    turn_of(other, model, first_token_ms=1_500)
    now = timezone.now()
    turn_of(other, model, "stopped", stop_requested=True, stop_asked=now - timedelta(seconds=2), finished=now)
    turn_of(other, model, "running", parts=[{"type": "tool_call", "approval": "waiting"}])
    File.objects.create(owner=other, name="private.txt", size=2_000_000, sha256="0" * 64)
    return model


def named(rows: list[UsageRow]) -> list[tuple[str, int]]:
    return [(row.name, row.figures.calls) for row in rows]


def page_of(client: Client, **query: Any) -> str:
    return client.get("/admin/", query).content.decode()


def test_it_says_what_was_used_by_whom_and_what_it_cost(admin_client: Client, used: Model) -> None:
    context = admin_client.get("/admin/", {"days": 30}).context
    usage, total = context["usage"], context["usage"]["total"]
    assert (usage["people"], total.answers, total.input, total.cost) == (2, 3, 3_005, Decimal("1.75"))
    newest = usage["days"][0][0]
    assert (len(usage["days"]), newest.people, newest.figures.answers) == (30, 2, 2)
    assert named(usage["models"]) == [(f"{used.provider.name}: tiny", 4)]
    assert named(usage["personas"]) == [("No persona", 3), ("A private one", 1)]
    people = admin_client.get("/admin/people-who-used-most/", {"days": 30}).context["rows"]
    assert named(people) == [("admin", 1), ("olga", 3)]
    week = admin_client.get("/admin/", {"days": 7}).context["usage"]
    assert (week["total"].input, len(week["days"])) == (3_000, 7)
    assert admin_client.get("/admin/", {"days": "x"}).context["days"] == 30


def test_it_says_what_failed_how_long_people_wait_and_what_goes_on(admin_client: Client, used: Model) -> None:
    page = admin_client.get("/admin/")
    turns = page.context["turns"]
    (failure, _url), *rest = turns["failures"]
    assert (failure.code, failure.count, failure.model, rest) == ("rate_limited", 2, "tiny", [])
    assert "The provider says: come back later." in page.content.decode()
    ((first, _of_it),), stops = turns["first"], turns["stops"]
    assert (first.name, first.turns, first.half, first.most) == ("tiny", 1, 1.5, 1.5)
    assert (stops.turns, round(stops.half)) == (1, 2)
    assert (turns["live"].running, turns["live"].queued, turns["live"].asking) == (1, 0, 1)
    assert page.context["storage"]["size"] == 2_000_000


def test_every_number_leads_to_the_rows_it_counts(admin_client: Client, used: Model) -> None:
    context = admin_client.get("/admin/").context
    usage, turns = context["usage"], context["turns"]
    people = admin_client.get("/admin/people-who-used-most/").context["rows"]
    expected = {
        usage["url"]: 4,
        usage["days"][0][1]: 3,
        usage["models"][0].url: 4,
        next(row.url for row in people if row.name == "olga"): 3,
        next(row.url for row in usage["personas"] if row.name == "No persona"): 3,
        turns["failures"][0][1]: 2,
        turns["failures_url"]: 2,
        turns["running_url"]: 1,
        turns["asking_url"]: 1,
        turns["first"][0][1]: 1,
        turns["stops_url"]: 1,
    }
    counts = {url: len(admin_client.get(url).context["cl"].result_list) for url in expected}
    assert counts == expected
    assert parse_qs(urlsplit(turns["failures"][0][1]).query)["error"] == ["rate_limited"]


def test_what_people_wrote_and_called_their_own_is_not_there(admin_client: Client, used: Model) -> None:
    page = page_of(admin_client)
    assert [words for words in ("A private matter", "My secret helper", "private.txt") if words in page] == []


def test_runs_that_wait_are_counted(admin_client: Client, admin_user: User) -> None:
    task = create_task(actor=Actor(admin_user), new=NewTask("Write"))
    place = Conversation.objects.create(owner=admin_user)
    Run.objects.create(owner=admin_user, task=task, conversation=place, status="waiting", heartbeat=timezone.now())
    counts = {str(label): count for label, count, _ in admin_client.get("/admin/").context["runs"]}
    assert counts["Waiting for you"] == 1
    assert sum(counts.values()) == 1


PARTS = {"usage": "view_modelcall", "turns": "view_turn", "runs": "view_run", "storage": "view_file"}


@pytest.mark.parametrize("part", PARTS)
def test_staff_see_what_they_may_view_and_nothing_else(client: Client, used: Model, part: str) -> None:
    staff = User.objects.create_user("staff", is_staff=True)
    client.force_login(staff)
    assert client.get("/admin/").status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_persona"))
    assert "You have no right to see the usage of this workspace" in page_of(client)
    staff.user_permissions.add(Permission.objects.get(codename=PARTS[part]))
    context = client.get("/admin/").context
    assert {name for name in PARTS if context[name] is not None} == {part}
    assert client.get("/admin/doctor/").status_code == 403
    assert client.get("/admin/people-who-used-most/").status_code == (200 if part == "usage" else 403)


def test_it_makes_as_many_queries_for_much_as_for_nothing(
    admin_client: Client, admin_user: User, model: Model, django_assert_num_queries: Callable[[int], Any]
) -> None:
    call_of(admin_user, model, persona=Persona.objects.create(owner=admin_user, name="x"))
    turn_of(admin_user, model, "failed", code="rate_limited")
    admin_client.get("/admin/")  # what a process asks once
    count_anew()
    with CaptureQueriesContext(connection) as queries:
        admin_client.get("/admin/")
    for number in range(20):
        person = User.objects.create_user(f"p{number}")
        call_of(person, model, persona=Persona.objects.create(owner=person, name="x"), days_ago=number)
        turn_of(person, model, "failed", code=f"code_{number}")
    assert len(queries) < 30
    count_anew()
    with django_assert_num_queries(len(queries)):
        page = admin_client.get("/admin/", {"days": 90})
    assert len(page.content) < 150_000


@pytest.fixture
def no_cache(settings: Settings) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": f"redis://127.0.0.1:{free_port()}"}}


@pytest.mark.usefixtures("no_cache")
def test_without_redis_it_counts_all_the_same(admin_client: Client, used: Model) -> None:
    context = admin_client.get("/admin/").context
    assert (context["usage"]["people"], context["storage"]["count"]) == (2, File.objects.count())


def test_days_are_those_of_the_workspace() -> None:
    days = Days(7, timezone.get_default_timezone())
    assert (len(list(days)), next(iter(days)), list(days)[-1]) == (7, days.first, timezone.localdate())
    assert [row.day for row in overview.by_day(days)] == list(days)
    assert id_at(timezone.now() - timedelta(seconds=1)) < Turn().pk < id_at(timezone.now() + timedelta(seconds=1))


def test_the_checks_of_doctor_stand_on_the_page(admin_client: Client) -> None:
    cache.delete(DOCTOR_KEY)
    page = admin_client.get("/admin/doctor/", {"again": ""}).content.decode()
    assert "Add a provider and a model in the admin" in page
    assert "checks are fine" in page
    assert "Checked at" in admin_client.get("/admin/doctor/").content.decode()


@pytest.mark.usefixtures("no_cache")
def test_without_redis_the_checks_are_made_all_the_same(admin_client: Client) -> None:
    for query in ({}, {"again": ""}):
        assert "checks are fine" in admin_client.get("/admin/doctor/", query).content.decode()
