"""Sessions with tool servers in the turns of a conversation."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from core.background import submit
from llm.models import Model, ToolServer
from llm.tools.mcp import close_sessions
from personas.models import Persona
from tests.application import Application
from tests.conftest import Person
from tests.llm.test_mcp_sessions import SERVER

ANSWER = {"text": "I have counted."}


@pytest.fixture
def counter(application: Application, committed: None, tmp_path: Path) -> Iterator[ToolServer]:
    (tmp_path / "counter.py").write_text(SERVER)
    command = shlex.join([sys.executable, str(tmp_path / "counter.py"), str(tmp_path)])
    row = ToolServer.objects.create(name=f"c{uuid4().hex[:8]}", kind="stdio", command=command, approval_required=False)
    yield row
    submit(close_sessions()).result(20)
    row.delete()


class Counting:
    """A conversation whose persona has the tools of the server."""

    def __init__(self, application: Application, person: Person, server: ToolServer, model: Model) -> None:
        self.application, self.person, self.server, self.model = application, person, server, model
        tools = [f"{server.name}__*"]
        persona = Persona.objects.create(owner=person.user, name="Counter", instructions="Count.", tools=tools)
        self.place = str(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"])

    def begin(self, *steps: str) -> dict[str, Any]:
        """Have the model call a tool in each step, then answer. Returns the turn, which goes on."""
        calls = [{"tool_calls": [{"name": f"{self.server.name}__{step}", "arguments": {}}]} for step in steps]
        self.mark = uuid4().hex
        script = {"steps": [*calls, ANSWER]}
        models = [str(self.model.pk)]
        turn: dict[str, Any] = self.person.caller.ask(f"Count {self.mark}", script, self.place, models=models)
        return turn

    def ask(self, *steps: str) -> dict[str, Any]:
        """Have the model call a tool in each step, then answer. Returns the turn, which has ended."""
        turn = self.begin(*steps)
        ended: dict[str, Any] = self.person.caller.ended(turn["id"])
        assert ended["status"] == "done", ended["error"]
        return ended

    def results(self, turn: dict[str, Any]) -> list[str]:
        message = self.person.caller.get(f"messages/{turn['message']}/")
        return [part["text"] for part in message["parts"] if part["type"] == "tool_result"]

    def offered(self) -> list[list[str]]:
        """Return the tools of the server that each request of the newest turn offers, without the server's name."""
        bodies = [record.body for record in self.application.model.finished(self.mark)]
        begins = f"{self.server.name}__"
        names = [[each["function"]["name"] for each in body.get("tools", ())] for body in bodies]
        return [[name.removeprefix(begins) for name in each if name.startswith(begins)] for each in names]


@pytest.fixture
def counting(application: Application, person: Person, counter: ToolServer, caller_of_tools: Model) -> Counting:
    return Counting(application, person, counter, caller_of_tools)


def test_a_server_keeps_its_state_within_a_turn_and_in_the_next_one(counting: Counting) -> None:
    assert counting.results(counting.ask("count", "count")) == ["1", "2"]
    assert counting.results(counting.ask("count")) == ["3"]


def test_the_report_says_that_a_session_ended_with_what_the_server_knew(counting: Counting) -> None:
    turn = counting.ask("count", "die", "count")
    first, lost, again = counting.results(turn)
    assert (first, again) == ("1", "1") and "cannot be reached or broke the connection" in lost
    notes = counting.person.caller.get(f"turns/{turn['id']}/report/?call=3")["notes"]
    assert any("had ended, so a new one began" in note for note in notes)


def test_the_next_step_offers_the_tools_that_a_call_has_added(counting: Counting) -> None:
    turn = counting.ask("grow", "count", "grown")
    assert counting.results(turn)[-1] == "I am new."
    assert "grown" not in counting.offered()[0] and "grown" in counting.offered()[-1]


def test_readers_of_the_answer_see_progress(counting: Counting) -> None:
    turn = counting.ask("work")
    events = [each for each in counting.person.caller.events(turn["id"]) if each["type"] == "TOOL_CALL_PROGRESS"]
    assert [each["text"] for each in events] == ["25 % · Reading"]


def form_of(counting: Counting, turn: str) -> dict[str, Any]:
    """Return the event with which a tool asks, read as a page does."""
    events = counting.person.caller.events(turn)
    return next(each for each in events if each["type"] == "TOOL_CALL_APPROVAL" and each["state"] == "waiting")


def test_a_tool_asks_with_a_form_and_gets_the_answer(counting: Counting, stranger: Person) -> None:
    turn = counting.begin("greet")["id"]
    asking = form_of(counting, turn)
    assert [each["name"] for each in asking["form"]["fields"]] == ["name"]
    path = f"turns/{turn}/approvals/"
    body = {"call": asking["call"], "allow": True, "content": {"name": "Ada"}}
    assert stranger.caller.post(path, body, expect=404)["code"] == "not_found"
    refused = counting.person.caller.post(path, {**body, "content": {}}, expect=400)
    assert refused["code"] == "bad_form" and "Name" in refused["detail"]
    flooded = counting.person.caller.post(path, {**body, "content": {str(n): "x" for n in range(31)}}, expect=400)
    assert flooded["code"] == "invalid" and "at most 30" in flooded["detail"]
    counting.person.caller.post(path, body, expect=202)
    ended = counting.person.caller.ended(turn)
    assert counting.results(ended) == ["Hello Ada."]
    report = counting.person.caller.get(f"turns/{turn}/report/")
    assert [each["what"] for each in report["outgoing"]] == ["{}", '{"name": "Ada"}']
    assert counting.person.caller.post(path, body, expect=409)["code"] == "already_decided"


def test_the_page_has_the_form_and_takes_its_answer(counting: Counting) -> None:
    turn = counting.begin("greet")["id"]
    asking = form_of(counting, turn)
    browser = Client()
    browser.force_login(counting.person.user)
    page = browser.get(f"/turns/{turn}/approvals/", {"call": asking["call"]}).content.decode()
    assert "Who are you?" in page and 'name="field name"' in page and "required" in page
    answer = {"call": asking["call"], "allow": "yes", "field name": "Ada"}
    assert browser.post(f"/turns/{turn}/approvals/", answer).status_code == 302
    assert counting.results(counting.person.caller.ended(turn)) == ["Hello Ada."]
    page = browser.get(f"/c/{counting.place}/").content.decode()
    assert "You answered the tool." in page


def test_a_form_may_be_declined(counting: Counting) -> None:
    turn = counting.begin("greet")["id"]
    body = {"call": form_of(counting, turn)["call"], "allow": False}
    counting.person.caller.post(f"turns/{turn}/approvals/", body, expect=202)
    assert counting.results(counting.person.caller.ended(turn)) == ["decline"]
