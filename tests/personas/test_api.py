"""The API of personas, and its rights."""

import shlex
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from chat.models import Conversation
from llm.models import Model, ToolServer
from personas.models import BudgetProfile, Persona, Reminder
from tests.application import Application
from tests.conftest import Person
from tests.llm.sums import SERVER
from tests.personas.programs import Program, create_persona, wrong


def test_a_persona_is_made_with_all_that_it_has(olga: Program, model: Model) -> None:
    profile = BudgetProfile.objects.create(name="Small")
    body = {
        "name": " Contract lawyer ",
        "description": "Reads contracts.",
        "instructions": "Name the clause.\n",
        "replaces_system_prompt": True,
        "model": str(model.pk),
        "budget_profile": str(profile.pk),
        "tools": ["web_search", "open_url", "web_search"],
        "reminder": "Name the clause.",
        "date_awareness": "minute",
        "starter_messages": ["Which clause limits the fee?"],
        "visibility": "workspace",
    }
    shown = olga.post("personas/", body)
    assert shown == olga.get(f"personas/{shown['id']}/")
    expected = body | {"name": "Contract lawyer", "tools": ["web_search", "open_url"]}
    assert {name: shown[name] for name in expected} == expected
    assert (shown["version"], shown["tokens"], shown["editable"]) == (1, 4, True)
    assert shown["owner"] == str(olga.user.pk)
    reminder = Persona.objects.get(pk=shown["id"]).reminders.get()
    assert (reminder.text, reminder.scope) == ("Name the clause.", Reminder.Scope.PERSONA)


def test_name_and_instructions_are_enough(olga: Program) -> None:
    shown = olga.post("personas/", {"name": "Plain", "instructions": ""})
    defaults: dict[str, object] = {
        "tools": [],
        "reminder": "",
        "model": None,
        "visibility": "private",
        "date_awareness": "day",
    }
    assert {name: shown[name] for name in defaults} == defaults


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nmae", "x", "There is no such field. The fields are: name, icon, colour, description, instructions"),
        ("owner", 1, "This field cannot be set."),
        ("version", 7, "This field cannot be set."),
        ("name", "", "may not be blank"),
        ("name", "n" * 101, "no more than 100 characters"),
        ("name", "a\x00b", "Null characters are not allowed"),
        ("instructions", None, "may not be null"),
        ("instructions", "x" * 100_001, "no more than 100000 characters"),
        ("model", "01a20000-0000-7000-8000-000000000000", "object does not exist"),
        ("budget_profile", "small", "valid UUID"),
        ("visibility", "public", "not a valid choice"),
        ("date_awareness", "second", "not a valid choice"),
        ("replaces_system_prompt", "perhaps", "Must be a valid boolean"),
        ("tools", "web_search", "Expected a list"),
        ("tools", ["web_serach"], "There is no tool “web_serach”. The tools are: web_search, open_url, search_files"),
        ("tools", ["gone__add"], "There is no tool “gone__add”"),
        ("tools", ["web_search"] + [f"t{number}" for number in range(100)], "at most 100 tools"),
        ("starter_messages", ["x"] * 13, "no more than 12 elements"),
        ("starter_messages.0", [""], "may not be blank"),
        ("reminder", "x" * 2_001, "no more than 2000 characters"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(olga: Program, field: str, value: object, sentence: str) -> None:
    body = {"name": "n", "instructions": "i", field.partition(".")[0]: value}
    problem = olga.post("personas/", body, expect=400)
    assert problem["code"] == "invalid"
    assert sentence in wrong(problem)[field]
    assert not Persona.objects.exists()


def test_every_wrong_field_is_named_at_once(olga: Program) -> None:
    problem = olga.post("personas/", {"name": "", "flavour": "red", "tokens": 3}, expect=400)
    assert set(wrong(problem)) == {"name", "instructions", "flavour", "tokens"}


def test_a_change_makes_a_version_and_no_change_makes_none(olga: Program) -> None:
    where = f"personas/{create_persona(olga, reminder='Be brief.')}/"
    assert olga.patch(where, {"instructions": "Cite.", "reminder": "Be brief."})["version"] == 1
    changed = olga.patch(where, {"instructions": "Cite every clause."})
    assert (changed["version"], changed["reminder"]) == (2, "Be brief.")
    assert changed["tokens"] == 5
    assert olga.patch(where, {"reminder": ""})["version"] == 3
    assert not Reminder.objects.exists()


def test_a_change_based_on_what_is_no_more_there_is_refused(olga: Program) -> None:
    created = olga.ask("POST", "personas/", {"name": "Legal", "instructions": "Cite."})
    where = f"personas/{created.json()['id']}/"
    first = created["ETag"]
    assert olga.ask("GET", where)["ETag"] == first
    changed = olga.ask("PATCH", where, {"name": "Law"}, match=first)
    second = changed["ETag"]
    assert (changed.status_code, olga.ask("GET", where)["ETag"]) == (200, second)
    assert second != first
    for stale in (first, f"W/{second}", '"nothing"', "nonsense"):
        refused = olga.patch(where, {"name": "Lost"}, expect=412, match=stale)
        assert refused["code"] == "changed_meanwhile"
        assert "Read it again" in refused["detail"]
        olga.delete(where, expect=412, match=stale)
    assert olga.get(where)["name"] == "Law"
    olga.patch(where, {"name": "Rights"}, match=f"{first}, {second}")
    olga.patch(where, {"name": "Any"}, match="*")
    olga.delete(where, match=olga.ask("GET", where)["ETag"])
    olga.get(where, expect=404)


def test_another_reminder_changes_the_etag_too(olga: Program) -> None:
    pk = create_persona(olga, reminder="Be brief.")
    before = olga.ask("GET", f"personas/{pk}/")["ETag"]
    reminder = olga.get("reminders/")["results"][0]["id"]
    olga.patch(f"reminders/{reminder}/", {"text": "Be exact."})
    assert olga.get(f"personas/{pk}/")["reminder"] == "Be exact."
    olga.patch(f"personas/{pk}/", {"name": "Lost"}, expect=412, match=before)


def test_others_see_what_is_shared_and_change_nothing(olga: Program, otto: Program) -> None:
    private, shared = (
        create_persona(olga, name="Diary"),
        create_persona(olga, name="House style", visibility="workspace"),
    )
    assert [each["name"] for each in otto.get("personas/")["results"]] == ["House style"]
    assert otto.get(f"personas/{shared}/")["editable"] is False
    for method in ("GET", "PATCH", "DELETE"):
        assert otto.ask(method, f"personas/{private}/", {"name": "Mine"}).status_code == 404
    for method in ("PATCH", "DELETE"):
        refused = otto.ask(method, f"personas/{shared}/", {"name": "Mine"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_owner")
        assert "Duplicate it" in refused.json()["detail"]
    assert Persona.objects.filter(name__in=["Diary", "House style"]).count() == 2


def test_nobody_sees_two_personas_of_one_name(olga: Program, otto: Program) -> None:
    pk = create_persona(olga, name="Editor", instructions="One.\r\nTwo.", reminder="Be\r\nbrief.")
    stored = olga.get(f"personas/{pk}/")
    assert (stored["instructions"], stored["reminder"]) == ("One.\nTwo.", "Be\nbrief.")
    twice = olga.post("personas/", {"name": "editor", "instructions": ""}, expect=409)
    assert twice["code"] == "name_taken"
    olga.patch(f"personas/{pk}/", {"name": "EDITOR"})
    other = create_persona(otto, name="Editor")  # which only he sees
    assert otto.patch(f"personas/{other}/", {"visibility": "workspace"})["visibility"] == "workspace"
    assert olga.post("personas/", {"name": "Editor", "instructions": ""}, expect=409)["code"] == "name_taken"
    olga.patch(f"personas/{pk}/", {"description": "Mine, and called so before his was shared."})


def test_an_administrators_program_changes_shared_personas_with_its_scope(olga: Program, admin: Program) -> None:
    shared, private = create_persona(olga, visibility="workspace"), create_persona(olga, name="Mine")
    assert admin.patch(f"personas/{shared}/", {"name": "Better"})["name"] == "Better"
    admin.patch(f"personas/{private}/", {"name": "Seen"}, expect=404)
    less = Program(admin.user, ["chat"])
    assert less.patch(f"personas/{shared}/", {"name": "Worse"}, expect=403)["code"] == "missing_scope"


def test_a_token_without_the_scope_chat_sees_nothing(olga: Program) -> None:
    files = Program(olga.user, ["files"])
    for path in ("personas/", "reminders/", "models/", "budget-profiles/"):
        assert files.get(path, expect=403)["code"] == "missing_scope"


def test_personas_are_searched_and_paged(olga: Program) -> None:
    for name in ("Lawyer", "Editor", "Teacher"):
        create_persona(olga, name=name, description=f"A good {name.lower()}")
    results = olga.get("personas/?search=LAW")["results"]
    assert [each["name"] for each in results] == ["Lawyer"]
    assert len(olga.get("personas/?search=good")["results"]) == 3
    first = olga.get("personas/?page_size=2")
    assert [each["name"] for each in first["results"]] == ["Teacher", "Editor"]
    rest = olga.get(first["next"].partition("/api/v1/")[2])
    assert [each["name"] for each in rest["results"]] == ["Lawyer"]


def test_conversations_go_on_without_a_deleted_persona(olga: Program) -> None:
    pk = create_persona(olga, reminder="Cite.")
    conversation = Conversation.objects.create(owner=olga.user, persona_id=pk)
    olga.delete(f"personas/{pk}/")
    conversation.refresh_from_db()
    assert conversation.persona is None
    assert not Reminder.objects.exists()


def test_a_model_that_was_switched_off_keeps_its_place_and_gets_no_new_persona(olga: Program, model: Model) -> None:
    pk = create_persona(olga, model=str(model.pk))
    Model.objects.update(enabled=False)
    assert olga.patch(f"personas/{pk}/", {"name": "Law", "model": str(model.pk)})["model"] == str(model.pk)
    refused = olga.post("personas/", {"name": "n", "instructions": "", "model": str(model.pk)}, expect=400)
    assert "model" in wrong(refused)


def test_the_tools_of_a_server_are_known_by_asking_it(olga: Program, tmp_path: Path) -> None:
    program = tmp_path / "sums.py"
    program.write_text(SERVER)
    server = ToolServer.objects.create(name="sums", kind="stdio", command=shlex.join([sys.executable, str(program)]))
    pk = create_persona(olga, tools=["sums__add", "sums__*", "search_files"])
    problem = olga.patch(f"personas/{pk}/", {"tools": ["sums__subtract"]}, expect=400)
    sentence = (
        "web_search, open_url, search_files, read_file, search_conversation, tasks, sums__*, sums__add, sums__multiply"
    )
    assert wrong(problem)["tools"] == f"There is no tool “sums__subtract”. The tools are: {sentence}."
    ToolServer.objects.filter(pk=server.pk).update(command=f"{sys.executable} -c pass")
    olga.patch(f"personas/{pk}/", {"tools": ["sums__add"]})  # it has it already, so nobody is asked
    away = olga.patch(f"personas/{pk}/", {"tools": ["sums__multiply"]}, expect=400)
    assert "cannot be reached" in wrong(away)["tools"]
    assert "sums__*" in wrong(away)["tools"]


def test_what_a_program_sets_is_what_the_model_gets(application: Application, person: Person) -> None:
    mark = uuid4().hex
    body = {"name": "Pirate", "instructions": f"Talk like {mark}.", "reminder": "Say ahoy.", "date_awareness": "off"}
    persona = person.caller.post("personas/", body, expect=201)["id"]
    other_conversation = person.caller.post("conversations/", {"persona": persona}, expect=201)["id"]
    person.caller.ended(person.caller.ask("Who are you?", conversation=other_conversation)["id"])
    messages = application.model.finished(mark)[0].body["messages"]
    assert messages[0]["content"].startswith("You are being tested.")
    assert messages[-1]["content"].endswith("Say ahoy.")
    assert any(f"Talk like {mark}." in message["content"] for message in messages[1:])
    changed = person.caller.http.patch(f"personas/{persona}/", json={"replaces_system_prompt": True})
    assert changed.json()["version"] == 2
    person.caller.ended(person.caller.ask("And now?", conversation=other_conversation)["id"])
    messages = application.model.finished(mark, count=2)[1].body["messages"]
    assert messages[0]["content"].startswith(f"Talk like {mark}.")
    assert not any("You are being tested." in message["content"] for message in messages)
