"""The answer loop with tools, cycle by cycle: the requests to the model, and the stored answer."""

import json
from typing import Any
from uuid import uuid4

import pytest

from llm.models import Model
from personas.models import Persona, Reminder
from personas.texts import TEXTS
from tests.application import Application
from tests.chat.citing import ANSWER, CLAUSE, SEARCH, ask
from tests.chat.documents import ask_and_wait, upload
from tests.conftest import Person

STUB = "This tool result is no longer available."


def bodies(application: Application, mark: str) -> list[dict[str, Any]]:
    """The request of each cycle, in order."""
    return [record.body for record in application.model.finished(mark)]


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def test_a_search_is_followed_by_the_citation_rules_and_gone_with_the_turn(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    mark = uuid4().hex
    ask(person, place, caller_of_tools, f"Which clause? {mark}", SEARCH, ANSWER)
    first, second = bodies(application, mark)
    assert "# Tools" in first["messages"][0]["content"] and "# Citations" in first["messages"][0]["content"]
    assert roles(first)[-1] == "user" and mark in first["messages"][-1]["content"]
    assert roles(second)[-4:] == ["user", "assistant", "tool", "user"]
    assert "# Citations" in second["messages"][0]["content"]
    assert second["messages"][-1]["content"] == (
        f"{TEXTS['reminder_heading'].built_in}\n{TEXTS['citation_reminder'].built_in}"
    )
    document = json.loads(second["messages"][-2]["content"])["documents"][0]
    assert (document["document"], document["title"], document["contents"]) == (1, "contract.txt", CLAUSE)
    later = uuid4().hex
    ask(person, place, caller_of_tools, f"And then? {later}", {"text": "Then nothing."})
    messages = bodies(application, later)[0]["messages"]
    assert "[1]" not in messages[-1]["content"]
    assert [m["content"] for m in messages if m["role"] == "tool"] == [STUB]
    call = next(m["tool_calls"][0]["function"] for m in messages if m.get("tool_calls"))
    used = json.loads(call["arguments"])
    assert (used["query"], used["variants"][0]) == ("fee limit", "maximum fee")
    assert used["variants"][1].startswith(f"Which clause? {mark}")
    assert messages[-1]["role"] == "user" and later in messages[-1]["content"]


def test_a_model_that_imitates_its_own_search_is_understood(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    mark = uuid4().hex
    ask(person, place, caller_of_tools, f"{'Pasted text. ' * 60} Which clause? {mark}", SEARCH, ANSWER)
    again = json.loads(bodies(application, mark)[1]["messages"][-3]["tool_calls"][0]["function"]["arguments"])
    assert mark in again["variants"][1] and again["variants"][2].startswith("Pasted text.")
    later = uuid4().hex
    imitated = {"tool_calls": [{"name": "search_files", "arguments": again}]}
    ask(person, place, caller_of_tools, f"And the rest? {later}", imitated, SEARCH, ANSWER)
    messages = bodies(application, later)[2]["messages"]
    calls = [json.loads(m["tool_calls"][0]["function"]["arguments"]) for m in messages if m.get("tool_calls")]
    assert calls[0] == again
    assert calls[1]["variants"][:3] == again["variants"]
    assert f"And the rest? {later}" in calls[1]["variants"][-1]
    assert calls[2] == {"query": "fee limit", "variants": ["maximum fee"]}
    assert json.loads(messages[-2]["content"])["documents"][0]["contents"] == CLAUSE


def test_the_reminder_of_the_persona_and_the_citation_reminder_stand_together_at_the_end(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    persona = Persona.objects.create(owner=person.user, name="P", instructions="Be a lawyer.")
    persona.reminders.add(Reminder.objects.create(text="Answer in one line.", scope=Reminder.Scope.PERSONA))
    person.caller.http.patch(f"conversations/{place}/", json={"persona": str(persona.pk)})
    mark = uuid4().hex
    ask(person, place, caller_of_tools, f"Which? {mark}", SEARCH, SEARCH, ANSWER)
    cycles = bodies(application, mark)
    assert len(cycles) == 3
    assert cycles[0]["messages"][-1]["content"].endswith(":\nAnswer in one line.")
    for body in cycles[1:]:
        assert [m["content"] for m in body["messages"]].count("# Persona “P”\nBe a lawyer.") == 1
        last = body["messages"][-1]["content"]
        assert "Cite the documents" in last and last.endswith("Answer in one line.")
    assert roles(cycles[2])[-6:] == ["user", "assistant", "tool", "assistant", "tool", "user"]


def test_citations_become_links_also_when_they_come_in_pieces(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    text = "It is limited [1], see [[1]] and [1, 9]. Not a source: [9]."
    script = {"steps": [SEARCH, {"text": text, "interval": 0.01}]}
    body = {"text": f"Cite.\nscript: {json.dumps(script)}", "models": [str(caller_of_tools.pk)]}
    turn = person.caller.post(f"conversations/{place}/turns/", body)["turns"][0]
    events = list(person.caller.events(turn["id"]))
    cited = [event for event in events if event["type"] == "CITATION"]
    assert [(event["number"], event["title"]) for event in cited] == [(1, "contract.txt")]
    placed: dict[int, str] = {}
    for event in events:
        placed.update(dict(event.get("blocks", [])))
    html = "".join(placed.values())
    assert html.count('class="citation"') == 3 and "[9]" in html
    assert f"/files/{cited[0]['href'].split('/')[2]}/?start=0&amp;end={len(CLAUSE)}" in html
    stored = person.caller.ended(turn["id"])
    assert stored["text"] == text
    assert next(part for part in stored["parts"] if part["type"] == "text")["citations"][0]["number"] == 1


def test_a_model_that_calls_for_ever_is_made_to_answer_in_its_last_step(
    application: Application, person: Person, place: str, caller_of_tools: Model
) -> None:
    mark = uuid4().hex
    body = {"text": f"For ever {mark}\nscript: {json.dumps(SEARCH)}", "models": [str(caller_of_tools.pk)]}
    turn = person.caller.post(f"conversations/{place}/turns/", body)["turns"][0]
    person.caller.ended(turn["id"])
    cycles = bodies(application, mark)
    assert len(cycles) == 7
    assert [body.get("tool_choice") == "none" for body in cycles] == [False] * 5 + [True, False]
    for last in cycles[-2:]:
        assert "last step" in last["messages"][-1]["content"]
        assert "# Tools" not in last["messages"][0]["content"]
    assert ["tools" in body for body in cycles] == [True] * 6 + [False]


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ([{"name": "no_such_tool", "arguments": {}}], "There is no tool of this name"),
        ([{"name": "search_files", "arguments": '{"query": "half'}], "not valid JSON"),
        ([{"name": "search_files", "arguments": {"query": 7}}], "must be a text"),
        ([{"name": "search_files", "arguments": {"query": "x" * 1_000_000}}], "longer than"),
        ([{"name": "read_file", "arguments": {"file": "01900000-0000-7000-8000-000000000000"}}], "no such file"),
        ([{"name": "search_files", "arguments": {"query": "fee"}}] * 500, "Only 16 calls"),
    ],
)
def test_a_call_that_cannot_run_tells_the_model_why_and_the_turn_goes_on(
    application: Application,
    person: Person,
    place: str,
    caller_of_tools: Model,
    calls: list[dict[str, Any]],
    sentence: str,
) -> None:
    mark = uuid4().hex
    name = application.model.set_script(f"odd-{mark}", {"steps": [{"tool_calls": calls}, {"text": "Never mind."}]})
    model = Model.objects.create(provider=caller_of_tools.provider, name=name, context_window=128_000, tools=True)
    ended = ask_and_wait(person, place, f"Odd calls {mark}", models=[str(model.pk)])
    assert ended["text"] == "Never mind."
    results = [m["content"] for m in bodies(application, mark)[1]["messages"] if m["role"] == "tool"]
    assert len(results) == len(calls) and sentence in results[-1]


def test_somebody_elses_file_cannot_be_read_by_its_id(
    application: Application, person: Person, stranger: Person, place: str, caller_of_tools: Model
) -> None:
    secret = upload(stranger, "secret.txt", b"The password is swordfish.")
    mark = uuid4().hex
    read = {"tool_calls": [{"name": "read_file", "arguments": {"file": secret["id"]}}]}
    ask(person, place, caller_of_tools, f"Read it {mark}", read, {"text": "No."})
    assert "swordfish" not in json.dumps(bodies(application, mark))


def test_a_model_that_cannot_call_tools_is_offered_none(application: Application, person: Person, place: str) -> None:
    mark = uuid4().hex
    ask_and_wait(person, place, f"No tools {mark}")
    assert "tools" not in bodies(application, mark)[0]
