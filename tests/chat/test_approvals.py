"""Tool calls that a person has to allow, from the model's call to its result."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from django.test import Client
from pytest_django.fixtures import Settings

from llm.models import Model
from tests.application import Application
from tests.chat.tool_servers import Diary, diary
from tests.conftest import Person
from tests.product import until

SAID = {"text": "So be it."}


def waiting(tool_diary: Diary, turn: str, number: int = 1) -> list[str]:
    """The ids of the calls that wait, in the answer's order, once there are so many; read from its events, as a page
    does."""
    calls: dict[int, str] = {}
    for event in tool_diary.person.caller.events(turn):
        if event["type"] == "TOOL_CALL_APPROVAL" and event["state"] == "waiting":
            calls[event["part"]] = event["call"]
            if len(calls) == number:
                return [calls[part] for part in sorted(calls)]
    raise AssertionError(f"only {len(calls)} calls asked")


def decide(tool_diary: Diary, turn: str, call: str, *, allow: bool, expect: int = 202) -> Any:
    return tool_diary.person.caller.post(f"turns/{turn}/approvals/", {"call": call, "allow": allow}, expect=expect)


def states(turn: Any) -> list[str]:
    return [part["approval"] for part in turn["parts"] if part["type"] == "tool_call"]


def tool_results(application: Application, mark: str) -> list[str]:
    """Return the results of its calls that the model received."""
    messages = application.model.finished(mark)[1].body["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_a_call_runs_only_once_it_is_allowed(application: Application, guarded: Diary) -> None:
    mark = uuid4().hex
    turn = guarded.ask(f"Write {mark}", {"tool_calls": [guarded.call("note", text="one")]}, SAID)
    [call] = waiting(guarded, turn["id"])
    assert guarded.lines() == [] and guarded.person.caller.turn(turn["id"])["status"] == "running"
    decide(guarded, turn["id"], call, allow=True)
    ended = guarded.person.caller.ended(turn["id"])
    assert (ended["status"], ended["text"], states(ended)) == ("done", "So be it.", ["allowed"])
    assert guarded.lines() == ["one"] and tool_results(application, mark) == ["Written."]


def test_the_list_of_conversations_says_that_a_call_waits_until_it_is_decided(guarded: Diary) -> None:
    browser = Client()
    browser.force_login(guarded.person.user)

    def listed() -> str:
        return browser.get("/conversations/").content.decode()

    turn = guarded.ask("Write", {"tool_calls": [guarded.call("note", text="one")]}, SAID)
    [call] = waiting(guarded, turn["id"])
    until(lambda: "Waits for you:" in listed(), "the list says so")
    decide(guarded, turn["id"], call, allow=True)
    guarded.person.caller.ended(turn["id"])
    assert "Waits for you:" not in listed()


def test_a_refused_call_does_not_run_and_the_model_is_told(application: Application, guarded: Diary) -> None:
    mark = uuid4().hex
    turn = guarded.ask(f"Write {mark}", {"tool_calls": [guarded.call("note", text="one")]}, SAID)
    [call] = waiting(guarded, turn["id"])
    decide(guarded, turn["id"], call, allow=False)
    ended = guarded.person.caller.ended(turn["id"])
    result = next(part for part in ended["parts"] if part["type"] == "tool_result")
    assert (ended["text"], states(ended), result["error"]) == ("So be it.", ["refused"], True)
    assert guarded.lines() == [] and tool_results(application, mark) == ["The user did not allow this call."]


def test_calls_of_one_step_are_decided_one_by_one_also_when_they_ask_for_the_same(
    application: Application, guarded: Diary
) -> None:
    mark = uuid4().hex
    same = guarded.call("note", text="one")
    broken = {**same, "arguments": '{"text": '}
    turn = guarded.ask(f"Write {mark}", {"tool_calls": [broken, same, same, guarded.call("note", text="two")]}, SAID)
    calls = waiting(guarded, turn["id"], 3)
    for call, allow in zip(calls, (False, True, False), strict=True):
        decide(guarded, turn["id"], call, allow=allow)
    ended = guarded.person.caller.ended(turn["id"])
    refused = "The user did not allow this call."
    assert [part.get("approval") for part in ended["parts"] if part["type"] == "tool_call"] == [
        None, "refused", "allowed", "refused",
    ]  # fmt: skip
    assert tool_results(application, mark)[1:] == [refused, "Written.", refused] and guarded.lines() == ["one"]


def test_nobody_else_sees_or_decides_and_what_is_decided_stays(guarded: Diary, stranger: Person) -> None:
    turn = guarded.ask("Write", {"tool_calls": [guarded.call("note", text="one")]}, SAID)
    [call] = waiting(guarded, turn["id"])
    body = {"call": call, "allow": True}
    assert stranger.caller.post(f"turns/{turn['id']}/approvals/", body, expect=404)["code"] == "not_found"
    assert decide(guarded, turn["id"], "no-such-call", allow=True, expect=404)["code"] == "not_found"
    assert guarded.lines() == []
    decide(guarded, turn["id"], call, allow=False)
    assert decide(guarded, turn["id"], call, allow=True, expect=409)["code"] == "already_decided"
    guarded.person.caller.ended(turn["id"])
    assert decide(guarded, turn["id"], call, allow=True, expect=409)["code"] == "already_decided"
    assert guarded.lines() == []


def test_a_stop_ends_the_waiting_and_nothing_runs_any_more(application: Application, guarded: Diary) -> None:
    mark = uuid4().hex
    turn = guarded.ask(f"Write {mark}", {"tool_calls": [guarded.call("note", text="one")]}, SAID)
    [call] = waiting(guarded, turn["id"])
    guarded.person.caller.post(f"turns/{turn['id']}/stop/")
    assert guarded.person.caller.ended(turn["id"])["status"] == "stopped"
    assert decide(guarded, turn["id"], call, allow=True, expect=409)["code"] == "not_waiting"
    assert guarded.lines() == [] and len(application.model.finished(mark)) == 1


def test_who_comes_later_sees_what_waits_in_the_events_and_in_the_row(guarded: Diary) -> None:
    turn = guarded.ask("Write", {"tool_calls": [guarded.call("note", text="one")]}, SAID)
    [call] = waiting(guarded, turn["id"])
    assert waiting(guarded, turn["id"]) == [call]
    until(lambda: states(guarded.person.caller.turn(turn["id"])) == ["waiting"], "the row says that the call waits")
    decide(guarded, turn["id"], call, allow=True)
    seen = [event["state"] for event in guarded.person.caller.events(turn["id"]) if "state" in event]
    assert seen == ["waiting", "allowed"]


def test_without_an_answer_in_time_a_call_counts_as_refused(
    application: Application, guarded: Diary, settings: Settings
) -> None:
    mark = uuid4().hex
    settings.APPROVAL_SECONDS = 0.5
    turn = guarded.ask(f"Write {mark}", {"tool_calls": [guarded.call("note", text="one")]}, SAID)
    ended = guarded.person.caller.ended(turn["id"])
    assert (ended["status"], states(ended), guarded.lines()) == ("done", ["timed_out"], [])
    assert tool_results(application, mark) == ["The user did not allow this call."]


def test_other_tools_do_not_wait(
    application: Application, person: Person, scripted_model_row: Model, tmp_path: Path
) -> None:
    free = diary(person, scripted_model_row, tmp_path)
    turn = free.ask("Write", {"tool_calls": [free.call("note", text="one")]}, SAID)
    ended = person.caller.ended(turn["id"])
    assert free.lines() == ["one"] and "approval" not in ended["parts"][0]
    free.row.delete()
