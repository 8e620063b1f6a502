"""The model's hand on its user's tasks, as the model calls it and as it is answered."""

import json
from datetime import date
from typing import Any
from uuid import uuid4

import pytest

from llm.models import Model
from tests.application import Application
from tests.chat.runs.working import DONE, MARK, SAID, script, tool_model, with_items, work
from tests.conftest import Person


@pytest.fixture
def model(application: Application, committed: None, scripted_model_row: Model) -> Model:
    return tool_model(scripted_model_row)


@pytest.fixture
def place(person: Person, model: Model) -> str:
    """Return a conversation whose persona has the tools for tasks."""
    body = {"name": "Secretary", "instructions": "", "tools": ["tasks"], "model": str(model.pk)}
    persona = person.caller.post("personas/", body, expect=201)["id"]
    return str(person.caller.post("conversations/", {"persona": persona}, expect=201)["id"])


def called(person: Person, place: str, name: str, **arguments: Any) -> tuple[str, bool]:
    """Have the model make this call. Return the text of the result, and whether it is an error."""
    steps = {"steps": [{"tool_calls": [{"name": name, "arguments": arguments}]}, SAID], "note": uuid4().hex}
    ended = person.caller.ended(person.caller.ask("Please.", steps, place)["id"])
    assert ended["status"] == "done"
    [result] = [part for part in ended["parts"] if part["type"] == "tool_result"]
    return result["text"], result["error"]


def make(person: Person, title: str, **fields: Any) -> dict[str, Any]:
    return dict(person.caller.post("tasks/", {"title": title, "level": "task", **fields}, expect=201))


def status_of(person: Person, task: dict[str, Any]) -> str:
    return str(person.caller.get(f"tasks/{task['id']}/")["status"])


def offered(application: Application, person: Person, place: str, **body: Any) -> list[str]:
    mark = uuid4().hex
    turn = person.caller.ask(f"Hello {mark}", None, place, **body)
    person.caller.ended(turn["id"])
    return [tool["function"]["name"] for tool in application.model.finished(mark)[0].body.get("tools", [])]


def test_they_are_offered_to_personas_that_name_them_with_strict_schemas(
    application: Application, person: Person, place: str, model: Model
) -> None:
    assert offered(application, person, place) == [
        "list_tasks",
        "create_task",
        "draft_checklist",
        "mark_item",
        "ask_user",
    ]
    assert offered(application, person, person.caller.conversation(), models=[str(model.pk)]) == []
    tools = next(r.body["tools"] for r in application.model.requests("Hello") if r.body.get("tools"))
    assert all(tool["function"]["parameters"]["additionalProperties"] is False for tool in tools)


def test_a_model_creates_drafts_lists_and_marks(person: Person, place: str, model: Model) -> None:
    output, error = called(person, place, "create_task", title="Ship it", archetype="model", notes="Soon.")
    [task] = person.caller.get("tasks/")["results"]
    assert not error and output.startswith(f"Created {task['code']}.") and task["notes"] == "Soon."
    items = [{"title": "Pack"}, {"title": "Send"}]
    output, error = called(person, place, "draft_checklist", task=f"@{task['code']}", items=items)
    assert (output, error) == (f"Drafted 2 items, {task['code']}.C01 to {task['code']}.C02.", False)
    output, error = called(person, place, "mark_item", item=f"{task['code']}.C01")
    assert (output, error) == (f"{task['code']}.C01 is done now.", False)
    output, _ = called(person, place, "list_tasks")
    shown = {each["code"][len(task["code"]) :]: each["status"] for each in json.loads(output)["tasks"]}
    assert shown == {"": "open", ".C01": "done", ".C02": "open"}
    output, _ = called(person, place, "list_tasks", code=task["code"])
    assert [each["title"] for each in json.loads(output)["tasks"]] == ["Ship it", "Pack", "Send"]
    assert called(person, place, "list_tasks", date="2020-01-01") == ("There are none.", False)
    objective = called(person, place, "create_task", title="Year", level="objective", horizon="year", date="2031-05-05")
    assert objective == ("Created Y2031-O01.", False)
    changes = person.caller.get(f"tasks/{task['id']}/changes/")["results"]
    assert {change["model"] for change in changes} == {model.name}


def test_the_users_own_tasks_and_standing_breakpoints_are_refused_in_a_sentence(person: Person, place: str) -> None:
    own = make(person, "Mine")
    output, error = called(person, place, "mark_item", item=own["code"])
    assert error and "the user's own" in output and status_of(person, own) == "open"
    both = make(person, "Ours", archetype="hybrid")
    body = {"items": [{"title": "Ask", "breakpoint": True, "needs": "a word"}, {"title": "Do"}]}
    first, second = person.caller.post(f"tasks/{both['id']}/draft/", body, expect=201)["items"]
    for item in (first, second, both):
        output, error = called(person, place, "mark_item", item=item["code"])
        assert error and "breakpoint" in output and status_of(person, item) == "open"
    output, error = called(person, place, "draft_checklist", task=both["code"], items=[{"title": "Other"}])
    assert error and "Only the user" in output
    person.caller.post(f"tasks/{first['id']}/clear/", expect=200)
    assert called(person, place, "mark_item", item=first["code"])[1] is False


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("mark_item", {}, "Say in “item”"),
        ("mark_item", {"item": "T01"}, "no code"),
        ("mark_item", {"item": "D2020-01-01-T01"}, "no such task"),
        ("mark_item", {"item": 7}, "must be a text"),
        ("mark_item", {"item": "D2020-01-01-T01", "status": "moved"}, "one of done, dropped, open"),
        ("mark_item", {"item": "D2020-01-01-T01", "clear": True}, "no argument “clear”"),
        ("create_task", {}, "“title” is missing"),
        ("create_task", {"title": " "}, "must not be empty"),
        ("create_task", {"title": "x" * 201}, "the most is 200"),
        ("create_task", {"title": "x", "date": "tomorrow"}, "must be a day"),
        ("create_task", {"title": "x", "archetype": "robot"}, "one of user, model, hybrid"),
        ("draft_checklist", {"items": [{"title": "x"}]}, "Say in “task”"),
        ("draft_checklist", {"task": "D2020-01-01-T01", "items": []}, "a list of 1 to 99"),
        ("draft_checklist", {"task": "D2020-01-01-T01", "items": ["x"]}, "must be an object"),
        ("draft_checklist", {"task": "D2020-01-01-T01", "items": [{"title": "x", "status": "done"}]}, "no argument"),
        ("draft_checklist", {"task": "D2020-01-01-T01", "items": [{"title": "x", "breakpoint": "no"}]}, "true or"),
        ("list_tasks", {"date": "2020-01-01", "code": "Y2020-O01"}, "not both"),
        ("ask_user", {"question": ""}, "must not be empty"),
    ],
)
def test_a_wrong_call_is_answered_with_what_is_wrong(
    person: Person, place: str, name: str, arguments: dict[str, Any], sentence: str
) -> None:
    answer, error = called(person, place, name, **arguments)
    assert error and sentence in answer


def test_other_peoples_tasks_do_not_exist_for_it(person: Person, stranger: Person, place: str) -> None:
    theirs = make(stranger, "Theirs", date="2020-01-01", archetype="model")
    answer, error = called(person, place, "mark_item", item=theirs["code"])
    assert error and "no such task" in answer and status_of(stranger, theirs) == "open"
    assert called(person, place, "list_tasks", date="2020-01-01") == ("There are none.", False)


def test_outside_a_run_a_question_becomes_the_answer(person: Person, place: str) -> None:
    answer, error = called(person, place, "ask_user", question="Which colour?")
    assert not error and "as your answer now" in answer


def test_in_a_run_there_are_only_those_of_the_step_and_they_are_about_its_item(
    application: Application, person: Person, model: Model
) -> None:
    wrong = [{"name": "mark_item", "arguments": {"item": "C02"}}, {"name": "create_task", "arguments": {"title": "x"}}]
    steps = {"tool_calls": wrong}
    scenario = with_items(work(person, application, model), [script(steps, MARK, SAID), script(*DONE)])
    run = scenario.begin()["id"]
    done = scenario.until(run, "done")
    assert scenario.sent_items() == [".C01", ".C02"]
    parts = person.caller.turn(done["steps"][0]["turn"])["parts"]
    results = [part["text"] for part in parts if part["type"] == "tool_result"]
    assert "is about" in results[0] and "no tool of this name" in results[1]
    first = application.model.requests(scenario.mark)[0].body
    assert [tool["function"]["name"] for tool in first["tools"]] == ["mark_item", "ask_user"]
    after = person.caller.ask("What was it?", None, done["conversation"], models=[str(model.pk)])
    person.caller.ended(after["id"])
    assert person.caller.get(f"tasks/?date={date.today()}&level=task")["results"][0]["code"] == scenario.task["code"]
    assert not application.model.requests("What was it?")[0].body.get("tools")


def test_a_model_task_is_drafted_without_breakpoints(application: Application, person: Person, place: str) -> None:
    task = make(person, "The model's", archetype="model")
    answer, error = called(
        person, place, "draft_checklist", task=task["code"], items=[{"title": "x", "breakpoint": True}]
    )
    assert error and "has no breakpoints" in answer
