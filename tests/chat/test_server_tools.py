"""Tools of an MCP server in a turn: a process that the worker starts, as an admin sets it up."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from llm.models import Model, ToolServer
from personas.models import Persona
from tests.application import Application
from tests.chat.documents import ask_and_wait
from tests.conftest import Person
from tests.llm.sums import SERVER


@pytest.fixture
def sums(application: Application, committed: None, tmp_path: Path) -> Iterator[ToolServer]:
    program = tmp_path / "sums.py"
    program.write_text(SERVER)
    command = shlex.join([sys.executable, str(program)])
    row = ToolServer.objects.create(name=f"s{uuid4().hex[:8]}", kind="stdio", command=command, approval_required=False)
    yield row
    row.delete()


def scope_of(person: Person, *tools: str) -> str:
    persona = Persona.objects.create(owner=person.user, name="Sums", instructions="Count.", tools=list(tools))
    return str(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"])


def test_a_persona_calls_the_tools_it_names_and_no_others(
    application: Application, person: Person, sums: ToolServer, caller_of_tools: Model
) -> None:
    mark = uuid4().hex
    call = {"tool_calls": [{"name": f"{sums.name}__add", "arguments": {"a": 2, "b": 40}}]}
    script = json.dumps({"steps": [call, {"text": "It is 42."}]})
    place = scope_of(person, f"{sums.name}__add")
    ask_and_wait(person, place, f"Add {mark}\nscript: {script}", models=[str(caller_of_tools.pk)])
    first, second = (record.body for record in application.model.finished(mark))
    assert [tool["function"]["name"] for tool in first["tools"]] == ["read_result", f"{sums.name}__add"]
    assert first["tools"][1]["function"]["description"] == "Adds two numbers."
    assert "Adds two numbers." not in json.dumps(first["messages"])
    assert [message["content"] for message in second["messages"] if message["role"] == "tool"] == ["42"]


def test_a_star_means_all_of_a_servers_tools(
    application: Application, person: Person, sums: ToolServer, caller_of_tools: Model
) -> None:
    mark = uuid4().hex
    ask_and_wait(person, scope_of(person, f"{sums.name}__*"), f"All {mark}", models=[str(caller_of_tools.pk)])
    offered = [tool["function"]["name"] for tool in application.model.finished(mark)[0].body["tools"]]
    assert offered == ["read_result", f"{sums.name}__add", f"{sums.name}__multiply"]


def test_a_server_that_does_not_start_is_noted_in_the_report_and_the_turn_goes_on(
    person: Person, sums: ToolServer, caller_of_tools: Model
) -> None:
    ToolServer.objects.filter(pk=sums.pk).update(command="/no/such/program")
    place = scope_of(person, f"{sums.name}__*", "gone__*")
    turn = ask_and_wait(person, place, "Is anybody there?", models=[str(caller_of_tools.pk)])
    notes = person.caller.get(f"turns/{turn['id']}/report/")["notes"]
    assert len(notes) == 2 and any(sums.name in note for note in notes) and any("gone" in note for note in notes)
