"""A run as pages and administrators see it, without a browser."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from llm.models import Model
from tests.application import Application
from tests.chat.runs.working import DONE, MARK, SAID, script, tool_model, with_items, work
from tests.conftest import Person

OK = script(*DONE)
SLOW = script({"tokens": 4_000, "interval": 0.02})
ASK = script({"tool_calls": [{"name": "ask_user", "arguments": {"question": "Which colour?"}}]}, SAID)
HTMX = {"HX-Request": "true"}


@pytest.fixture
def model(application: Application, committed: None, scripted_model_row: Model) -> Model:
    return tool_model(scripted_model_row)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def fragment(client: Client, task: dict[str, Any], **query: str) -> Any:
    return client.get(f"/tasks/{task['id']}/run/", query, headers=HTMX)


def test_a_task_without_a_run_offers_one_and_what_cannot_be_run_does_not(
    application: Application, person: Person, model: Model
) -> None:
    client = signed_in(person.user)
    assert "Have the model do it" in fragment(client, work(person, application, model).task).content.decode()
    assert (
        "Have the model do it" not in fragment(client, work(person, application, model, "user").task).content.decode()
    )


def test_a_refusal_is_a_sentence_in_its_place(application: Application, person: Person, model: Model) -> None:
    scenario = with_items(work(person, application, model), [OK])
    client = signed_in(person.user)
    refused = client.post(f"/tasks/{scenario.task['id']}/run/", headers=HTMX)  # the usual model calls no tools
    assert refused.status_code == 409 and "cannot. Choose a persona" in refused.content.decode()
    assert refused["HX-Retarget"] == f"#run-{scenario.task['id']}"
    run = scenario.begin()["id"]
    scenario.until(run, "done")
    again = client.post(f"/runs/{run}/retry/", headers=HTMX)
    assert again.status_code == 409 and "running or done" in again.content.decode()


def test_a_fragment_that_has_not_changed_is_not_sent_again(
    application: Application, person: Person, model: Model
) -> None:
    scenario = with_items(work(person, application, model), [ASK])
    run = scenario.begin()["id"]
    scenario.until(run, "waiting")
    client = signed_in(person.user)
    first = fragment(client, scenario.task).content.decode()
    seen = first.partition("?seen=")[2].partition('"')[0]
    assert "Which colour?" in first and fragment(client, scenario.task, seen=seen).status_code == 204
    scenario.caller.post(f"runs/{run}/stop/")
    changed = fragment(client, scenario.task, seen=seen)
    assert changed["HX-Trigger"] == "taskschange" and "Stopped" in changed.content.decode()


def test_item_by_item_it_leads_to_what_the_model_did_and_saw(
    application: Application, person: Person, model: Model
) -> None:
    title = script({**MARK, "note": uuid4().hex[:4]}, SAID)
    scenario = with_items(work(person, application, model), [title, OK])
    done = scenario.until(scenario.begin()["id"], "done")
    page = fragment(signed_in(person.user), scenario.task).content.decode()
    for step in done["steps"]:
        assert f"/c/{done['conversation']}/#m-{step['message']}" in page
        assert f"/turns/{step['turn']}/report/" in page
    assert page.count('<li class="done"') == 2 and "2 of 50 steps" in page


def test_without_scripts_the_conversation_comes_back(application: Application, person: Person, model: Model) -> None:
    scenario = with_items(work(person, application, model), [SLOW])
    run = scenario.begin()
    client = signed_in(person.user)
    place = f"/c/{run['conversation']}/"
    shown = client.get(place).content.decode()
    assert f"/runs/{run['id']}/stop/" in shown
    assert client.post(f"/runs/{run['id']}/stop/", {"compact": "1"})["Location"] == place
    assert client.post(f"/runs/{run['id']}/retry/")["Location"] == f"/tasks/{scenario.task['id']}/run/"
    assert "(waiting)" not in client.get(place).content.decode().partition("</title>")[0]
    scenario.caller.post(f"runs/{run['id']}/stop/")


def test_nobody_else_sees_or_touches_it(
    application: Application, person: Person, stranger: Person, model: Model
) -> None:
    scenario = with_items(work(person, application, model), [SLOW])
    run = scenario.begin()["id"]
    client = signed_in(stranger.user)
    assert fragment(client, scenario.task).status_code == 404
    for what in ("start", "stop", "answer", "retry"):
        assert client.post(f"/runs/{run}/{what}/").status_code == 404
    assert scenario.caller.get(f"runs/{run}/")["status"] == "running"
    scenario.caller.post(f"runs/{run}/stop/")


def test_an_administrator_sees_a_run_without_its_words_and_stops_it(
    application: Application, person: Person, model: Model
) -> None:
    scenario = with_items(work(person, application, model), [SLOW])
    run = scenario.begin()
    admin = signed_in(User.objects.create_superuser(f"admin-{uuid4().hex}"))
    page = reverse("admin:chat_run_change", args=[run["id"]])
    shown = admin.get(page).content.decode()
    assert scenario.task["code"] in shown and scenario.mark not in shown
    admin.post(reverse("admin:chat_run_stop", args=[run["id"]]), {"_form_submitted": "on"})
    assert scenario.until(run["id"], "stopped")["code"] == "stopped"
    assert scenario.caller.ended(run["steps"][0]["turn"])["status"] == "stopped"
