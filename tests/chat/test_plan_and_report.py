"""The plan before sending agrees with the report after it, tools included."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from chat.models import Message
from llm.models import Model
from personas.models import Persona
from personas.tools import TASK_TOOLS
from tests.application import Application
from tests.chat.citing import ANSWER, CLAUSE, SEARCH, ask
from tests.chat.documents import ask_and_wait, upload
from tests.chat.tool_servers import diary
from tests.conftest import Person
from tests.product import until

SAME = ("used", "limit", "window", "tools_tokens", "tools", "sections")


def plan(person: Person, place: str, model: Model, text: str, **draft: Any) -> dict[str, Any]:
    body = {"text": text, "model": str(model.pk), **draft}
    return dict(person.caller.post(f"conversations/{place}/plan/", body, expect=200))


def report(person: Person, turn: dict[str, Any], call: int | None = None) -> dict[str, Any]:
    query = f"?call={call}" if call else ""
    return dict(person.caller.get(f"turns/{turn['id']}/report/{query}"))


def only(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in SAME}


@pytest.fixture
def busy_place(person: Person, place: str) -> str:
    """Files by search, tasks of today, a persona that may work on tasks, and a turn that has been."""
    persona = Persona.objects.create(owner=person.user, name="Helper", instructions="Help.", tools=[TASK_TOOLS])
    person.caller.http.patch(f"conversations/{place}/", json={"persona": str(persona.pk)})
    person.caller.post("tasks/", {"title": "Read the contract", "level": "task"}, expect=201)
    return place


def test_plan_and_report_agree_to_the_token_with_tools_and_tasks(
    person: Person, busy_place: str, caller_of_tools: Model
) -> None:
    ask(person, busy_place, caller_of_tools, "First?", SEARCH, ANSWER)
    text = f"And which clause limits the fee? {uuid4().hex}"
    planned = plan(person, busy_place, caller_of_tools, text)
    turn = ask_and_wait(person, busy_place, text, models=[str(caller_of_tools.pk)])
    seen = report(person, turn, 1)
    assert only(planned) == only(seen)
    assert {"search_files", "read_file", "list_tasks", "create_task"} <= set(seen["tools"])
    assert seen["tools_tokens"] > 500
    assert "tasks" in seen["sections"]
    kinds = [(each["kind"], each["state"], each.get("tokens")) for each in planned["sources"]]
    assert kinds == [(each["kind"], each["state"], each.get("tokens")) for each in seen["sources"]]


def test_a_file_that_goes_along_brings_its_tools_into_the_plan(person: Person, caller_of_tools: Model) -> None:
    file = upload(person, "contract.txt", CLAUSE.encode())
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "the file can be searched")
    place, text = person.caller.conversation(), "Which clause?"
    assert plan(person, place, caller_of_tools, text)["tools"] == []
    planned = plan(person, place, caller_of_tools, text, files=[file["id"]])
    turn = ask_and_wait(person, place, text, models=[str(caller_of_tools.pk)], files=[file["id"]])
    assert only(planned) == only(report(person, turn))
    assert planned["tools"] == ["search_files", "read_file"]


def test_the_plan_counts_the_tools_that_a_server_listed_last(
    person: Person, scripted_model_row: Model, tmp_path: Path
) -> None:
    tools = diary(person, scripted_model_row, tmp_path)
    first = plan(person, tools.place, tools.model, "Write.")
    assert first["notes"] == [f"The tools of the server {tools.row.name} are not known yet; they come on top."]
    assert first["tools"] == []
    ask_and_wait(person, tools.place, "Write.", models=[str(tools.model.pk)])
    text = f"And again. {uuid4().hex}"
    planned = plan(person, tools.place, tools.model, text)
    seen = report(person, ask_and_wait(person, tools.place, text, models=[str(tools.model.pk)]))
    assert only(planned) == only(seen)
    assert planned["notes"] == []
    assert planned["tools_tokens"] > 0
    assert planned["tools"] == ["read_result", f"{tools.row.name}__note", f"{tools.row.name}__wait"]
    tools.row.delete()


def test_every_model_call_of_a_turn_can_be_looked_at(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    ask(person, place, caller_of_tools, "Which?", SEARCH, ANSWER)
    turn = Message.objects.filter(conversation=UUID(place), role="assistant").latest("id").turn
    first, second = (person.caller.get(f"turns/{turn.pk}/report/?call={number}") for number in (1, 2))
    assert [first["cycle"], second["cycle"]] == [1, 2]
    assert [message["role"] for message in second["messages"]].count("tool") == 1
    assert [message["role"] for message in first["messages"]].count("tool") == 0
    assert person.caller.get(f"turns/{turn.pk}/report/") == second
    for wrong in ("3", "0", "x", "-1"):
        assert person.caller.http.get(f"turns/{turn.pk}/report/?call={wrong}").status_code == 404
