"""The prompt lab's page: its rights, the private texts that it hides, and the job of its worker."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from chat.lab import services
from chat.lab.models import Replay, ReplayedTurn
from chat.ledger.models import ModelCall
from chat.models import Turn
from core.jobs import sweep
from llm.models import Model
from personas.models import BudgetProfile
from tests.application import Application
from tests.conftest import Person
from tests.product import until

SECRET = "a private matter"
ADD = reverse("admin:chat_replay_add")


@pytest.fixture
def admin(committed: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser(f"admin-{uuid4().hex[:8]}"))
    return client


def talked(person: Person, questions: int = 3) -> str:
    place = person.caller.conversation()
    for number in range(questions):
        turn = person.caller.ask(f"{SECRET} {number}", {"text": f"{SECRET} answered"}, place)
        assert person.caller.ended(turn["id"])["status"] == "done"
    return place


def form(place: str = "", **fields: Any) -> dict[str, Any]:
    return {"conversation_id": place, "most": 50, "layout": "", "policy": "", **fields}


def started(client: Client, body: dict[str, Any]) -> Replay:
    """The row, once a worker has carried it out."""
    answer = client.post(ADD, body)
    assert answer.status_code == 302, answer.content.decode()
    pk = UUID(answer["Location"].rstrip("/").split("/")[-2])
    until(lambda: not Replay.objects.get(pk=pk).live, "it has been carried out")
    return Replay.objects.get(pk=pk)


def page_of(client: Client, job: Replay) -> str:
    return client.get(reverse("admin:chat_replay_change", args=[job.pk])).content.decode()


def test_turns_are_planned_again_and_shown_without_a_word_of_them(
    application: Application, person: Person, admin: Client
) -> None:
    place = talked(person)
    profile = BudgetProfile.objects.create(name=uuid4().hex, window=3_000)
    forms = {"note_form": "tags", "reminder_place": "above", "citation_reminder": "always"}
    job = started(admin, form(place, profile=str(profile.pk), layout="all_first", **forms))
    assert {name: getattr(job, name) for name in forms} == forms
    assert (job.status, job.planned, job.total) == ("done", 3, 3)
    assert job.totals["compared"] == 3 and job.totals["sent"]["tokens"] > 0
    page = page_of(admin, job)
    assert all(str(turn.pk) in page for turn in Turn.objects.filter(conversation=UUID(place)))
    shown = [f"{job.totals['sent']['tokens']:,}", profile.name, "3 of 3 turns", "3 of them can be compared"]
    shown += ["Above the newest message", "Whenever documents are in the prompt"]
    assert [each for each in shown if each not in page] == []
    assert SECRET not in page and SECRET not in json.dumps([list(job.turns.values_list("changes", "problems"))])
    assert SECRET not in admin.get(reverse("admin:chat_replay_changelist")).content.decode()


def test_a_turn_that_cannot_be_compared_says_why(application: Application, person: Person, admin: Client) -> None:
    place = talked(person, 1)
    deleted_model = Model.objects.create(provider=Model.objects.get(name="scripted").provider, name=uuid4().hex)
    person.caller.ended(person.caller.ask("Once more.", None, place, models=[str(deleted_model.pk)])["id"])
    deleted_model.delete()
    job = started(admin, form(place))
    assert (job.totals["turns"], job.totals["compared"]) == (2, 1)
    assert f"The model {deleted_model.name} was deleted." in page_of(admin, job)


def test_both_answers_are_shown_to_whose_conversation_it_is_alone(
    application: Application, person: Person, admin: Client
) -> None:
    User.objects.filter(pk=person.user.pk).update(is_staff=True, is_superuser=True)
    own = Client()
    own.force_login(User.objects.get(pk=person.user.pk))
    place = talked(person, 1)
    answers = application.model.set_script(uuid4().hex, {"text": "Quite another answer."})
    other = Model.objects.create(
        provider=Model.objects.get(name="scripted").provider, name=answers, input_price=1, output_price=1
    )
    body = form(place, most=5, model=str(other.pk), asks="on")
    refused = admin.post(ADD, body).content.decode()
    assert "belongs to another person" in refused
    job = started(own, body)
    page = page_of(own, job)
    assert "Quite another answer." in page and f"{SECRET} answered" in page
    others = page_of(admin, job)
    assert "Quite another answer." not in others and SECRET not in others and "can read it" in others
    call = ModelCall.objects.get(purpose="replay", conversation=UUID(place))
    assert (call.person, call.model) == (person.user, other)
    Turn.objects.filter(conversation=UUID(place)).delete()
    assert not ReplayedTurn.objects.filter(replay=job).exists()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"conversation_id": "nonsense"}, "There is no such conversation"),
        ({"conversation_id": str(uuid4())}, "There is no such conversation"),
        ({"most": 0}, "from 1 to 1,000"),
        ({"most": 1_001}, "from 1 to 1,000"),
        ({"most": "many"}, "whole number"),
        ({"layout": "sideways"}, "not one of the available choices"),
        ({"model": str(uuid4())}, "not one of the available choices"),
        ({"turn": "nonsense"}, "There is no such turn"),
        ({"turn": str(uuid4())}, "There is no such turn"),
        ({"asks": "on", "most": 21}, "at most 20 turns"),
        ({"asks": "on", "most": 20}, "no complete answer"),
    ],
)
def test_bad_input_is_said_and_nothing_is_begun(
    application: Application, person: Person, admin: Client, fields: dict[str, Any], sentence: str
) -> None:
    talked(person, 1)
    before = Replay.objects.count()
    page = admin.post(ADD, {**form(), **fields})
    assert page.status_code == 200 and sentence in page.content.decode().replace("&#x27;", "'")
    assert Replay.objects.count() == before


def test_one_turn_is_planned_again_from_its_page(application: Application, person: Person, admin: Client) -> None:
    place = talked(person, 2)
    turn = Turn.objects.filter(conversation=UUID(place)).order_by("pk").first()
    assert turn is not None
    start = admin.get(reverse("admin:chat_turn_change", args=[turn.pk])).content.decode()
    assert "Plan it again with" in start
    page = admin.get(ADD, {"turn": str(turn.pk)}).content.decode()
    assert str(turn.pk) in page and "conversation_id" not in page
    job = started(admin, {**form(), "turn": str(turn.pk)})
    assert (job.total, job.turn_id, [row.turn_id for row in job.turns.all()]) == (1, turn.pk, [turn.pk])


def test_only_who_has_the_right_may_begin_one(application: Application, person: Person) -> None:
    User.objects.filter(pk=person.user.pk).update(is_staff=True)
    client = Client()
    client.force_login(User.objects.get(pk=person.user.pk))
    assert client.get(ADD).status_code == 403 and client.post(ADD, form()).status_code == 403
    assert client.get(reverse("admin:chat_replay_changelist")).status_code == 403


def test_the_page_of_a_conversation_leads_there(application: Application, person: Person, admin: Client) -> None:
    place = talked(person, 1)
    page = admin.get(reverse("admin:chat_conversation_change", args=[place])).content.decode()
    assert "Plan its turns again" in page
    assert place in admin.get(ADD, {"conversation_id": place}).content.decode()


def test_a_replay_that_keeps_losing_its_worker_is_given_up_and_stays_so(committed: None, person: Person) -> None:
    job = Replay.objects.create(author=person.user, status="running", attempt=services.MAX_ATTEMPTS)
    Replay.objects.filter(pk=job.pk).update(heartbeat=timezone.now() - timedelta(seconds=31))
    sweep(services.REPLAYS)
    job.refresh_from_db()
    assert (job.status, job.code) == ("failed", "replay_gave_up")
    services.run_replay(job.pk)
    job.refresh_from_db()
    assert job.status == "failed" and job.detail
