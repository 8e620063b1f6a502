"""People leave their tasks out of prompts: everywhere, or in one conversation."""

import json
from typing import Any
from uuid import uuid4

from django.test import Client

from personas.texts import BUILT_IN
from tests.application import Application
from tests.chat.documents import ask_and_wait, sent
from tests.conftest import Person

Tasks = list[tuple[str, str, str | None]]


def signed_in(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def send_tasks(person: Person, *, along: bool) -> None:
    """Change the switch in the person's settings, through the API."""
    body = {"tasks_in_prompts": along}
    answer = signed_in(person).patch("/api/v1/me/", body, content_type="application/json")
    assert answer.json()["tasks_in_prompts"] is along


def tasks_of(report: dict[str, Any]) -> Tasks:
    """Return code, state and reason of each task in a plan or report."""
    return [(each["id"], each["state"], each["reason"]) for each in report["sources"] if each["kind"] == "task"]


def seen(application: Application, person: Person, place: str, text: str = "Hello.") -> Tasks:
    """Plan and ask; return the tasks, which plan and report must agree on. No prompt may show one that is left out."""
    mark = uuid4().hex
    question = f"{text} {mark}"
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": question}, expect=200)
    turn = ask_and_wait(person, place, question)
    report = person.caller.get(f"turns/{turn['id']}/report/")
    rows = tasks_of(plan)
    assert rows == tasks_of(report)
    messages = [message["content"] for message in sent(application, mark)]
    systems = [text for text in messages if text.startswith("# Tasks")]
    assert bool(systems) == ("tasks" in plan["sections"]) == any(state == "full" for _, state, _ in rows)
    return rows


def make(person: Person, title: str, **fields: Any) -> str:
    row = person.caller.post("tasks/", {"title": title, "level": "task", **fields}, expect=201)
    return str(row["code"])


def test_a_person_leaves_tasks_out_of_one_conversation_and_of_all(application: Application, person: Person) -> None:
    today = make(person, "Buy cacao")
    place, other = person.caller.conversation(), person.caller.conversation()
    assert seen(application, person, place) == [(today, "full", None)]
    changed = person.caller.http.patch(f"conversations/{place}/", json={"tasks_in_prompts": False})
    assert changed.status_code == 200 and changed.json()["tasks_in_prompts"] is False
    assert seen(application, person, place) == [(today, "left_out", "tasks_off_here")]
    assert seen(application, person, other) == [(today, "full", None)]
    send_tasks(person, along=False)
    assert seen(application, person, other) == [(today, "left_out", "tasks_off")]
    send_tasks(person, along=True)
    assert seen(application, person, other) == [(today, "full", None)]


def test_a_mentioned_task_that_is_left_out_is_named_to_person_and_model(
    application: Application, person: Person
) -> None:
    old = make(person, "Old", date="2020-01-01")
    send_tasks(person, along=False)
    place = person.caller.conversation()
    mark = uuid4().hex
    question = f"How far is @{old}? {mark}"
    line = signed_in(person).post(f"/c/{place}/plan/", {"text": question}).content.decode()
    assert f"“{old} Old” is not sent: tasks are left out" in line
    assert seen(application, person, place, question) == [(old, "left_out", "mention_off")]
    note = BUILT_IN.fill("tasks_hidden", tasks=f"@{old}")
    assert note in json.dumps(sent(application, mark), ensure_ascii=False)
    assert seen(application, person, place) == [(old, "left_out", "tasks_off")]


def test_what_a_person_leaves_out_does_not_clutter_the_line_of_the_plan(
    application: Application, person: Person
) -> None:
    make(person, "Buy cacao")
    client = signed_in(person)
    assert client.post("/settings/", {"timezone": "UTC"}).status_code == 302  # the box is not ticked
    person.user.refresh_from_db()
    assert person.user.tasks_in_prompts is False
    line = client.post("/plan/", {"text": "Hello"}).content.decode()
    assert "Everything you gave fits" in line and "go along with your messages" not in line
    panel = client.post("/plan/?panel", {"text": "Hello"}).content.decode()
    assert "Buy cacao" in panel and "your settings leave tasks out" in panel


def test_a_person_is_told_once_that_tasks_go_along(application: Application, person: Person) -> None:
    client = signed_in(person)
    notice = "go along with your messages"
    assert notice not in client.post("/plan/", {"text": "Hello"}).content.decode()
    make(person, "Buy cacao")
    assert notice in client.post("/plan/", {"text": "Hello"}).content.decode()
    hidden = client.post("/settings/tasks-notice/", headers={"HX-Request": "true"})
    assert hidden.status_code == 204 and "planchange" in hidden["HX-Trigger"]
    assert notice not in client.post("/plan/", {"text": "Hello"}).content.decode()


def test_the_options_of_a_conversation_leave_tasks_out_and_take_them_in_again(
    application: Application, person: Person
) -> None:
    place = person.caller.conversation()
    client = signed_in(person)
    for label, value in (("Leave my tasks out", "no"), ("Send my tasks along", "yes")):
        assert label in client.get(f"/c/{place}/organise/").content.decode()
        response = client.post(f"/c/{place}/tasks/", {"tasks": value}, headers={"HX-Request": "true"})
        assert response.status_code == 204 and "planchange" in response["HX-Trigger"]
    assert person.caller.get(f"conversations/{place}/")["tasks_in_prompts"] is True
