"""Addresses that a model opens: those that need a decision, remembered decisions, and requests without a person."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from django.test import Client
from django.urls import reverse
from openai import OpenAI

from accounts.services import change_preferences
from chat.models import Conversation, ToolPermission
from chat.tools.permission import ASK_FIRST, NOBODY_TO_ASK, RUNS, CallVerdict, Gate
from core.net.url_safety import FetchRefused
from llm.models import Model, ToolServer, WebAccess
from personas.models import Persona
from tests.application import Application
from tests.chat.tool_servers import Diary
from tests.conftest import Person
from workspace.services import change_settings

CLOSED = "127.0.0.1 is not on the public internet, so it is not opened."  # what is said of a call that has run
REFUSED = "The user did not allow this call."
MADE_UP = "http://127.0.0.1/c?d=SECRET"


def calling(url: str) -> dict[str, Any]:
    """A step that opens an address which does not stand in the message that holds the script."""
    hidden = "".join(f"\\u{ord(character):04x}" for character in url)
    return {"tool_calls": [{"name": "open_url", "arguments": f'{{"url": "{hidden}"}}'}]}


class Asking:
    """A conversation in which the model opens addresses."""

    def __init__(self, application: Application, person: Person, model: Model) -> None:
        self.application, self.person, self.model = application, person, model
        self.place = person.caller.conversation()

    def begin(self, *steps: dict[str, Any], text: str = "Read on") -> tuple[str, str]:
        mark = uuid4().hex
        script = {"steps": [*steps, {"text": "So be it."}]}
        turn = self.person.caller.ask(f"{text} {mark}", script, self.place, models=[str(self.model.pk)])
        return str(turn["id"]), mark

    def waiting(self, turn: str) -> str:
        for event in self.person.caller.events(turn):
            if event["type"] == "TOOL_CALL_APPROVAL" and event["state"] == "waiting":
                return str(event["call"])
        raise AssertionError("no call asked")

    def decide(self, turn: str, **body: Any) -> None:
        self.person.caller.post(f"turns/{turn}/approvals/", {"call": self.waiting(turn), **body}, expect=202)

    def results(self, turn: str, mark: str) -> list[str]:
        self.person.caller.ended(turn)
        messages = self.application.model.finished(mark)[-1].body["messages"]
        newest = next(index for index, message in enumerate(messages) if mark in str(message["content"]))
        return [message["content"] for message in messages[newest:] if message["role"] == "tool"]

    def permissions(self) -> list[dict[str, Any]]:
        return list(self.person.caller.get(f"conversations/{self.place}/permissions/")["results"])


@pytest.fixture
def asking(application: Application, person: Person, search: None, caller_of_tools: Model) -> Asking:
    return Asking(application, person, caller_of_tools)


def test_an_address_that_nobody_named_is_opened_only_once_it_is_allowed(asking: Asking) -> None:
    for allow, words in ((False, REFUSED), (True, CLOSED)):
        turn, mark = asking.begin(calling(MADE_UP))
        asking.decide(turn, allow=allow)
        assert asking.results(turn, mark) == [words]
    assert asking.permissions() == []  # each was for once


def test_an_address_that_the_person_wrote_is_opened_at_once_but_not_with_more_in_its_query(asking: Asking) -> None:
    turn, mark = asking.begin(calling("http://127.0.0.1/c"), text="Read 127.0.0.1/c or http://127.0.0.1/c.")
    assert asking.results(turn, mark) == [CLOSED]
    turn, mark = asking.begin(calling(MADE_UP), text="And now?")
    asking.decide(turn, allow=False)
    assert asking.results(turn, mark) == [REFUSED]


def test_a_result_of_a_search_is_opened_at_once_in_its_turn_and_later(asking: Asking) -> None:
    url = "https://example.org/tides"
    gate = gate_of(asking)
    assert verdict(gate, url) == ASK_FIRST
    searching = {"tool_calls": [{"name": "web_search", "arguments": {"queries": ["tides"]}}]}
    turn, mark = asking.begin(searching)
    asking.results(turn, mark)
    assert verdict(gate_of(asking), url) == RUNS
    assert verdict(gate_of(asking), f"{url}?d=SECRET") == ASK_FIRST
    gate.learn([url])  # as a search of the same turn does
    assert verdict(gate, url) == RUNS


def test_a_decision_for_the_conversation_holds_for_the_host_and_can_be_taken_back(asking: Asking) -> None:
    turn, mark = asking.begin(calling(MADE_UP), calling("http://127.0.0.1/another"))
    asking.decide(turn, allow=True, remember=True)
    assert asking.results(turn, mark) == [CLOSED, CLOSED]
    [permission] = asking.permissions()
    assert (permission["tool"], permission["host"], permission["allowed"]) == ("open_url", "127.0.0.1", True)
    forget(asking.person, f"conversations/{asking.place}/permissions/{permission['id']}/", 204)
    turn, mark = asking.begin(calling(MADE_UP))
    asking.decide(turn, allow=False)
    assert asking.results(turn, mark) == [REFUSED]


def test_never_is_remembered_and_the_model_is_told(asking: Asking) -> None:
    turn, mark = asking.begin(calling(MADE_UP), calling(MADE_UP))
    asking.decide(turn, allow=False, remember=True)
    client = Client()
    client.force_login(asking.person.user)
    never = "The person does not want 127.0.0.1 to be reached in this conversation. Do not ask for it again."
    assert asking.results(turn, mark) == [REFUSED, never]
    [permission] = asking.permissions()
    assert permission["allowed"] is False
    assert "127.0.0.1 is never allowed: ask again" in client.get(f"/c/{asking.place}/organise/").content.decode()
    client.post(f"/c/{asking.place}/permissions/{permission['id']}/")
    assert asking.permissions() == []


def test_calls_that_wait_for_the_same_host_are_decided_together(asking: Asking) -> None:
    together = {"tool_calls": [*calling(MADE_UP)["tool_calls"], *calling("http://127.0.0.1/d")["tool_calls"]]}
    turn, mark = asking.begin(together)
    waiting = 0
    for event in asking.person.caller.events(turn):
        waiting += event["type"] == "TOOL_CALL_APPROVAL" and event["state"] == "waiting"
        if waiting == 2:
            break
    asking.decide(turn, allow=True, remember=True)
    assert asking.results(turn, mark) == [CLOSED, CLOSED]


def test_a_tool_that_is_marked_is_remembered_by_its_name(guarded: Diary) -> None:
    steps = [{"tool_calls": [guarded.call("note", text=text)]} for text in ("one", "two")]
    turn = guarded.ask("Write", *steps, {"text": "So be it."})
    call = next(event["call"] for event in guarded.person.caller.events(turn["id"]) if "state" in event)
    body = {"call": call, "allow": True, "remember": True}
    guarded.person.caller.post(f"turns/{turn['id']}/approvals/", body, expect=202)
    guarded.person.caller.ended(turn["id"])
    assert guarded.lines() == ["one", "two"]
    assert ToolPermission.objects.get(conversation__pk=guarded.place).tool == f"{guarded.row.name}__note"


def test_nobody_else_reads_or_forgets_what_is_remembered(asking: Asking, stranger: Person) -> None:
    row = ToolPermission.objects.create(conversation_id=asking.place, tool="open_url", host="a.example", allowed=True)
    place = f"conversations/{asking.place}/permissions/"
    assert stranger.caller.get(place, expect=404)["code"] == "not_found"
    forget(stranger, f"{place}{row.pk}/", 404)
    other = asking.person.caller.conversation()
    forget(asking.person, f"conversations/{other}/permissions/{row.pk}/", 404)
    assert len(asking.permissions()) == 1


def test_a_program_that_speaks_openais_protocol_is_refused_at_once(asking: Asking, openai_client: OpenAI) -> None:
    mark = uuid4().hex
    script = json.dumps({"steps": [calling(MADE_UP), {"text": "So be it."}]})
    messages: Any = [{"role": "user", "content": f"Read {mark}\nscript: {script}"}]
    completion = openai_client.chat.completions.create(model=asking.model.name, messages=messages)
    assert completion.choices[0].message.content == "So be it."
    sent = asking.application.model.finished(mark)[-1].body["messages"]
    assert [message["content"] for message in sent if message["role"] == "tool"] == [NOBODY_TO_ASK]


def forget(person: Person, path: str, status: int) -> None:
    assert person.caller.http.delete(path).status_code == status


def gate_of(asking: Asking) -> Gate:
    return Gate(Conversation.objects.get(pk=asking.place))


def verdict(gate: Gate, url: str) -> CallVerdict:
    return asyncio.run(gate.verdict("open_url", {"url": url}))


def leads(gate: Gate, source: str, target: str) -> str:
    """Return the sentence with which a redirect is refused, or "" if it is followed."""
    try:
        asyncio.run(gate.follow(httpx2.URL(source), httpx2.URL(target)))
    except FetchRefused as refusal:
        return str(refusal)
    return ""


def test_a_redirect_leads_anywhere_only_from_an_address_that_was_named(asking: Asking) -> None:
    for host, allowed in (("shop.example", True), ("other.example", True), ("bad.example", False)):
        ToolPermission.objects.create(conversation_id=asking.place, tool="open_url", host=host, allowed=allowed)
    gate = gate_of(asking)
    gate.learn(["https://short.example/x"])
    made_up, away = "https://shop.example/go?to=evil", "https://evil.example/?d=SECRET"
    assert leads(gate, "https://short.example/x", away) == ""
    assert leads(gate, made_up, "https://shop.example/login") == ""
    assert leads(gate, made_up, "https://other.example/") == ""
    assert leads(gate, made_up, away) == (
        f"shop.example redirects to another host, {away}. To go there, call open_url with that address."
    )
    assert "does not want bad.example to be reached" in leads(gate, "https://short.example/x", "https://bad.example/")


def test_what_left_the_workspace_is_told_to_the_letter(asking: Asking) -> None:
    searching = {"tool_calls": [{"name": "web_search", "arguments": {"queries": ["tides today", "moon"]}}]}
    turn, mark = asking.begin(searching, calling("http://127.0.0.1/c"), text="http://127.0.0.1/c")
    asking.results(turn, mark)
    expected = [{"host": "127.0.0.1", "what": "tides today"}, {"host": "127.0.0.1", "what": "moon"}]
    parts = asking.person.caller.turn(turn)["parts"]
    # What was refused before it was sent has not left.
    assert [part.get("outgoing") for part in parts if part["type"] == "tool_result"] == [expected, None]
    sent = [{"tool": "web_search", **each} for each in expected]
    assert asking.person.caller.get(f"turns/{turn}/report/")["outgoing"] == sent
    client = Client()
    client.force_login(asking.person.user)
    page = client.get(f"/c/{asking.place}/").content.decode()
    assert page.count("<strong>127.0.0.1</strong>") == 2 and "tides today</code>" in page
    panel = client.get(reverse("chat:report", args=[turn])).content.decode()
    assert "What left the workspace" in panel and '<code dir="auto">moon</code>' in panel


def test_a_call_of_a_servers_tool_leaves_with_its_arguments(guarded: Diary) -> None:
    guarded.row.approval_required = False
    guarded.row.save()
    turn = guarded.ask("Write", {"tool_calls": [guarded.call("note", text="one")]}, {"text": "So be it."})
    ended = guarded.person.caller.ended(turn["id"])
    [result] = [part for part in ended["parts"] if part["type"] == "tool_result"]
    assert result["outgoing"] == [{"host": guarded.row.name, "what": '{"text": "one"}'}]


@pytest.fixture
def lists(committed: None) -> Iterator[WebAccess]:
    row = WebAccess.objects.create(allowed_hosts="*.open.example", denied_hosts="bad.example\n127.0.0.1")
    yield row
    row.delete()


def test_listed_hosts_never_ask_or_are_never_reached(asking: Asking, lists: WebAccess) -> None:
    gate, denied = gate_of(asking), "This workspace does not let {} be reached. Go on without it."
    assert verdict(gate, "https://docs.open.example/?q=1") == RUNS
    assert verdict(gate, "https://open.example/?q=1") == ASK_FIRST
    gate.learn(["https://bad.example/", "https://short.example/x"])
    ToolPermission.objects.create(conversation_id=asking.place, tool="open_url", host="bad.example", allowed=True)
    assert verdict(gate, "https://bad.example/") == CallVerdict(refusal=denied.format("bad.example"))
    assert leads(gate, "https://short.example/x", "https://bad.example/") == denied.format("bad.example")
    assert leads(gate, "https://docs.open.example/", "https://more.open.example/") == ""
    turn, mark = asking.begin(calling(MADE_UP), text="http://127.0.0.1/c?d=SECRET")
    assert asking.results(turn, mark) == [denied.format("127.0.0.1")]


def test_results_of_denied_hosts_never_reach_the_model_and_tool_and_report_say_so(
    asking: Asking, lists: WebAccess
) -> None:
    lists.denied_hosts = "example.org"
    lists.save()
    turn, mark = asking.begin({"tool_calls": [{"name": "web_search", "arguments": {"queries": ["tides"]}}]})
    [result] = asking.results(turn, mark)
    sentence = "2 results are from hosts that this workspace denies. They were left out."
    assert result == f"{sentence}\n\nNothing else was found. Try other words."
    assert "High water" not in json.dumps(asking.person.caller.ended(turn)["parts"])
    assert asking.person.caller.get(f"turns/{turn}/report/")["notes"] == [
        "2 results of searches are of hosts that the workspace denies; the model did not get them."
    ]


@pytest.mark.parametrize("named", [True, False], ids=["a persona that names them", "no persona"])
def test_a_project_without_the_web_has_no_tool_that_reaches_out_and_says_so(asking: Asking, named: bool) -> None:
    caller = asking.person.caller
    project = caller.post("projects/", {"name": "Quiet", "web": False}, expect=201)
    inside, outside = (
        ToolServer.objects.create(
            name=f"s{uuid4().hex[:8]}", command="false", kind="stdio", reaches_out=reaches_out,
            tools=[{"tool": "add", "name": "x__add", "description": "Adds.", "parameters": {}}],
        )
        for reaches_out in (False, True)
    )  # fmt: skip
    servers = [f"{server.name}__*" for server in (inside, outside)]
    tools = ["web_search", "open_url", *servers]
    persona = Persona.objects.create(owner=asking.person.user, name="Scout", instructions="Look.", tools=tools)
    body = {"project": project["id"], **({"persona": str(persona.pk)} if named else {})}
    place = caller.post("conversations/", body, expect=201)["id"]
    plan = caller.post(f"conversations/{place}/plan/", {"text": "Look.", "model": str(asking.model.pk)}, expect=200)
    off = "The project has the web switched off, so no tool that reaches out is there: {}."
    kept_in = [off.format(f"{outside.name}__*")] if named else []
    assert plan["notes"] == [off.format("web_search, open_url"), *kept_in]
    turn = caller.ask("Look.", {"text": "No."}, place, models=[str(asking.model.pk)])
    ended = caller.ended(turn["id"])
    report = caller.get(f"turns/{ended['id']}/report/")
    assert off.format("web_search, open_url") in report["notes"]
    for server in (inside, outside):
        server.delete()


SEARCH: dict[str, Any] = {"tool_calls": [{"name": "web_search", "arguments": {"queries": ["tides"]}}]}


@pytest.fixture
def workspace_asks(committed: None) -> Iterator[None]:
    change_settings(user=None, fields={"search_approval": True})
    yield
    change_settings(user=None, fields={"search_approval": False})


def test_a_search_asks_whoever_wants_to_be_asked(asking: Asking) -> None:
    caller = asking.person.caller
    turn, mark = asking.begin(SEARCH)
    assert "High water" in asking.results(turn, mark)[0]
    change_preferences(user=asking.person.user, fields={"asks_before_search": True})
    plan = caller.post(
        f"conversations/{asking.place}/plan/", {"text": "Look.", "model": str(asking.model.pk)}, expect=200
    )
    assert plan["tools_asking"] == ["open_url", "web_search"]
    turn, mark = asking.begin(SEARCH)
    asking.decide(turn, allow=False)
    assert asking.results(turn, mark) == [REFUSED]
    ended = caller.ended(turn)
    assert not [part for part in ended["parts"] if part.get("outgoing")]  # nothing has left
    turn, mark = asking.begin(SEARCH)
    asking.decide(turn, allow=True, remember=True)
    assert "High water" in asking.results(turn, mark)[0]
    turn, mark = asking.begin(SEARCH)  # a decision for the conversation, as for other tools
    assert "High water" in asking.results(turn, mark)[0]
    assert caller.get(f"turns/{turn}/report/")["tools_asking"] == ["open_url", "web_search"]


def test_the_workspace_asks_of_everybody_and_nobody_takes_that_back(asking: Asking, workspace_asks: None) -> None:
    change_preferences(user=asking.person.user, fields={"asks_before_search": False})
    turn, mark = asking.begin(SEARCH)
    asking.decide(turn, allow=False)
    assert asking.results(turn, mark) == [REFUSED]
    browser = Client()
    browser.force_login(asking.person.user)
    page = browser.get("/settings/").content.decode()
    assert "This workspace asks everybody." in page
    persona = Persona.objects.create(owner=asking.person.user, name="Scout", instructions="Look.", tools=["web_search"])
    shown = browser.get(f"/personas/{persona.pk}/").content.decode()
    assert "You are asked before each search." in shown
