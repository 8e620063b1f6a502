"""Plans and reports name a persona, a project, a model, a file or a task that is gone."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Conversation
from chat.models.conversation_state import scope_of
from chat.models.queries import claim
from chat.prompts.turn_context import base_context, context_of_claimed_turn
from chat.turns.submit import Ask, submit
from files.models import File
from llm.models import Model, Provider
from personas.models import Persona, PersonaShare, Reminder
from personas.texts import BUILT_IN
from projects.models import Project
from tests.application import Application
from tests.chat.documents import ask_and_wait, sent, upload
from tests.conftest import Person
from tests.projects.members import join

Rows = list[tuple[str, str, str]]


def gone(report: dict[str, Any]) -> Rows:
    """Return kind, title and reason of each persona, project or task that is left out."""
    return [
        (each["kind"], each["title"], each["reason"])
        for each in report["sources"]
        if each["state"] == "left_out" and each["kind"] in ("persona", "project", "task")
    ]


def composer_line(person: Person, place: str, text: str) -> str:
    """Return the line under the composer for a draft."""
    client = Client()
    client.force_login(person.user)
    return client.post(f"/c/{place}/plan/", {"text": text}).content.decode()


def plan(person: Person, place: str, text: str = "And now?", **draft: object) -> dict[str, Any]:
    body = {"text": text, **draft}
    return dict(person.caller.post(f"conversations/{place}/plan/", body, expect=200))


def plan_then_ask(person: Person, place: str, text: str = "And now?") -> tuple[Rows, Rows]:
    """Return what the plan names as gone, and what the report of the answer does."""
    planned = gone(plan(person, place, text))
    turn = ask_and_wait(person, place, text)
    return planned, gone(person.caller.get(f"turns/{turn['id']}/report/"))


def test_a_deleted_persona_is_named_by_the_plan_and_by_the_next_report_once(
    application: Application, person: Person
) -> None:
    persona = person.caller.post("personas/", {"name": "Pirate", "instructions": "Arr."}, expect=201)
    place = person.caller.post("conversations/", {"persona": persona["id"]}, expect=201)["id"]
    turn = ask_and_wait(person, place, "Who are you?")
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert report["scope"]["persona"] == {"id": persona["id"], "name": "Pirate"} and gone(report) == []
    assert person.caller.http.delete(f"personas/{persona['id']}/").status_code == 204
    expected = [("persona", "Pirate", "deleted_persona")]
    line = composer_line(person, place, "And now?")
    assert "“Pirate” is not sent: the persona was deleted" in line
    assert plan_then_ask(person, place) == (expected, expected)
    assert plan_then_ask(person, place) == ([], [])


def test_a_persona_or_project_that_its_person_took_away_is_not_gone(application: Application, person: Person) -> None:
    persona = person.caller.post("personas/", {"name": "Pirate", "instructions": ""}, expect=201)
    project = person.caller.post("projects/", {"name": "Ship"}, expect=201)
    place = person.caller.post("conversations/", {"persona": persona["id"], "project": project["id"]}, expect=201)["id"]
    ask_and_wait(person, place, "Who are you?")
    response = person.caller.http.patch(f"conversations/{place}/", json={"persona": None, "project": None})
    assert response.status_code == 200
    assert gone(plan(person, place)) == []


def test_a_deleted_persona_of_a_project_is_named(application: Application, person: Person) -> None:
    persona = person.caller.post("personas/", {"name": "Captain", "instructions": ""}, expect=201)
    project = person.caller.post("projects/", {"name": "Ship", "persona": persona["id"]}, expect=201)
    place = person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"]
    ask_and_wait(person, place, "Who are you?")
    person.caller.http.delete(f"personas/{persona['id']}/")
    expected = [("persona", "Captain", "deleted_persona")]
    assert plan_then_ask(person, place) == (expected, expected)


def test_a_persona_that_is_no_longer_shared_is_named_by_the_plan(
    application: Application, person: Person, stranger: Person
) -> None:
    persona = Persona.objects.create(owner=stranger.user, name="Borrowed")
    share = PersonaShare.objects.create(persona=persona, user=person.user, username=person.user.username)
    place = person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"]
    ask_and_wait(person, place, "Who are you?")
    share.delete()
    assert gone(plan(person, place)) == [("persona", "Borrowed", "lost_persona")]


def test_a_project_that_is_deleted_or_closed_is_named(
    application: Application, person: Person, stranger: Person
) -> None:
    reasons = {}
    for name in ("Closed", "Deleted"):
        project = stranger.caller.post("projects/", {"name": name}, expect=201)
        join(project["id"], person.user)
        place = person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"]
        ask_and_wait(person, place, "Where are we?")
        if name == "Closed":
            Project.objects.get(pk=project["id"]).memberships.all().delete()
        else:
            stranger.caller.http.delete(f"projects/{project['id']}/")
        reasons[name] = plan_then_ask(person, place)
    closed, deleted = [("project", "Closed", "lost_project")], [("project", "Deleted", "deleted_project")]
    assert reasons == {"Closed": (closed, closed), "Deleted": (deleted, deleted)}


def test_a_removed_model_is_named_with_the_one_that_answers(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = Model.objects.create(
        provider=scripted_model_row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=8_000
    )
    place = person.caller.conversation()
    ask_and_wait(person, place, "Who are you?", models=[str(model.pk)])
    Model.objects.filter(pk=model.pk).delete()
    notes = plan(person, place)["notes"]
    assert f"{model.name} answered before and is no longer available, so" in notes[0]


def test_the_model_is_told_of_a_deleted_file_and_of_one_that_cannot_be_read_any_more(
    application: Application, person: Person
) -> None:
    names = ("fees.txt", "dates.txt", "both.txt")
    files = [upload(person, name, f"The fee of {name} is due in May.".encode()) for name in names]
    place = person.caller.conversation()
    mark = uuid4().hex
    ask_and_wait(person, place, f"When? {mark}-1", files=[file["id"] for file in files])
    assert person.caller.http.delete(f"files/{files[0]['id']}/").status_code == 204
    File.objects.filter(pk=files[1]["id"]).update(status=File.Status.FAILED)
    turn = ask_and_wait(person, place, f"What is in the files? {mark}-2")
    line = BUILT_IN.fill("file_missing", files="fees.txt, dates.txt")
    texts = [message["content"] for message in sent(application, f"{mark}-2")]
    place_of_question = next(number for number, text in enumerate(texts) if text.startswith("When?"))
    assert texts[place_of_question - 1] == line and "both.txt" in texts[place_of_question - 2]
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert [message["text"] for message in report["messages"]] == texts
    reasons = {each["title"]: each["reason"] for each in report["sources"] if each["kind"] == "file"}
    assert reasons == {"fees.txt": "deleted_file", "dates.txt": "failed_file", "both.txt": None}


def test_person_and_model_are_told_of_a_task_that_does_not_exist(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    mark = uuid4().hex
    question = f"How far is @D2020-01-01-T07? {mark}"
    expected = [("task", "@D2020-01-01-T07", "unknown_task")]
    line = composer_line(person, place, question)
    assert "“@D2020-01-01-T07” is not sent: there is no such task" in line
    assert plan_then_ask(person, place, question) == (expected, expected)
    note = BUILT_IN.fill("tasks_unknown", tasks="@D2020-01-01-T07")
    assert sum(note in message["content"] for message in sent(application, mark)) == 1
    assert plan_then_ask(person, place, f"Thanks. {mark}-2") == ([], [])
    assert note not in json.dumps(sent(application, f"{mark}-2"))


@pytest.mark.django_db
def test_the_reminders_of_a_projects_persona_apply_in_a_turn_as_in_its_plan() -> None:
    user = User.objects.create_user("olga")
    provider = Provider.objects.create(name="p", base_url="http://127.0.0.1:9/v1")
    model = Model.objects.create(provider=provider, name="m", context_window=8_000)
    Reminder.objects.create(text="Everywhere.")
    personas = [Persona.objects.create(owner=user, name=name) for name in ("Own", "Of the project")]
    for persona in personas:
        persona.reminders.add(Reminder.objects.create(text=f"{persona.name}.", scope=Reminder.Scope.PERSONA))
    off = Reminder.objects.create(text="Off.", scope=Reminder.Scope.PERSONA, enabled=False)
    personas[1].reminders.add(off)
    project = Project.objects.create(owner=user, name="P", persona=personas[1])
    for own, expected in ((False, "Of the project."), (True, "Own.")):
        chosen = personas[0] if own else None
        conversation = Conversation.objects.create(owner=user, persona=chosen, project=project)
        [turn] = submit(user=user, conversation=conversation, ask=Ask("Hi", models=[model.pk]))
        planned = base_context(user=user, model=model, scope=scope_of(conversation))
        claimed = claim(turn.pk)
        assert claimed is not None
        run = context_of_claimed_turn(claimed, model)
        assert [*planned.reminders] == [*run.reminders] == ["Everywhere.", expected]
