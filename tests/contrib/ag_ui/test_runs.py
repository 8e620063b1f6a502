"""AG-UI through the running application, read with the types of its package."""

from typing import Any

import pytest
from django.test import Client

from chat.models import Message, Turn
from tests.chat.tool_servers import Diary
from tests.conftest import Person
from tests.contrib.ag_ui.client import WEATHER, custom, messages, props, ran, read_events, result, run_input, user


def test_a_thread_is_a_conversation_that_goes_on(person: Person) -> None:
    step = {"text": "Hello there.", "reasoning": "Greet.", "usage": {"input": 9, "output": 4}}
    first = run_input(user("Hi", step))
    events = ran(person, first)
    assert [(each["role"], each["text"]) for each in messages(events)] == [
        ("reasoning", "Greet."),
        ("assistant", "Hello there."),
    ]
    [usage] = events[-1].usage
    assert (usage.input_tokens, usage.output_tokens) == (9, 4)
    [turn], [report] = custom(events, "turn"), custom(events, "context_report")
    assert person.caller.http.get(turn["url"]).json()["text"] == "Hello there."
    assert person.caller.http.get(report["url"]).json()["used"] == report["used"]
    second = ran(person, run_input(user("Hi"), user("And?", {"text": "So."}), thread=first["threadId"]))
    seen = person.caller.http.get(custom(second, "context_report")[0]["url"]).json()["messages"]
    assert "Hello there." in [message["text"] for message in seen]
    assert person.caller.get(f"conversations/{first['threadId']}/")["leaf"] == custom(second, "turn")[0]["message"]


def test_a_client_that_goes_away_does_not_stop_the_answer(person: Person) -> None:
    body = run_input(user("Long", {"text": "One two three four five six.", "interval": 0.1}))
    with person.caller.http.stream("POST", "ag-ui/", json=body) as response:
        turn = next(event for event in read_events(response.iter_lines()) if event.type.value == "CUSTOM").value["turn"]
    ended = person.caller.ended(turn)
    assert (ended["status"], ended["text"]) == ("done", "One two three four five six.")


def test_a_model_that_fails_is_a_run_error_and_a_stop_is_a_cancelled_run(person: Person) -> None:
    failed = ran(person, run_input(user("Fail", {"error": {"status": 400, "message": "no"}})))[-1]
    assert failed.type.value == "RUN_ERROR" and failed.code and failed.message
    body, stopped = run_input(user("Long", {"tokens": 5000, "interval": 0.02})), None
    with person.caller.http.stream("POST", "ag-ui/", json=body) as response:
        for event in read_events(response.iter_lines()):
            stopped = event
            if event.type.value == "TEXT_MESSAGE_START":
                turn = event.message_id.partition(":")[0]
                person.caller.post(f"turns/{Turn.objects.get(answer=turn).pk}/stop/")
    assert stopped and stopped.type.value == "RUN_FINISHED" and stopped.outcome.type == "cancelled"


def test_a_run_with_the_same_key_is_the_same_answer(person: Person) -> None:
    body, key = run_input(user("Hi", {"text": "Once."})), {"Idempotency-Key": "once"}
    first, second = ran(person, body, **key), ran(person, {**body, "runId": "again"}, **key)
    assert messages(first) == messages(second) and custom(first, "turn") == custom(second, "turn")


def test_a_tool_of_the_program_is_run_between_two_runs(person: Person, guarded: Diary) -> None:
    call = {"name": "weather", "arguments": {"town": "Conwy"}}
    question = user("Weather?", {"text": "Let me look.", "tool_calls": [call]}, {"text": "It rains."})
    first = run_input(question, tools=[WEATHER], forwardedProps=props(guarded))
    events = ran(person, first)
    [message] = messages(events)
    [called] = message["calls"]
    assert (message["text"], called["name"], called["arguments"]) == ("Let me look.", "weather", '{"town": "Conwy"}')
    assert events[-1].outcome.pending_tool_call_ids == [called["id"]]
    body = run_input(question, result(called["id"], "rain"), thread=first["threadId"], tools=[WEATHER])
    assert [each["text"] for each in messages(ran(person, body))] == ["It rains."]
    browser = Client()
    browser.force_login(person.user)
    page = browser.get(f"/c/{first['threadId']}/").content.decode()
    assert "weather" in page and "It rains." in page
    assert Message.objects.filter(conversation=first["threadId"]).count() == 3


@pytest.mark.parametrize("allow", [True, False])
def test_a_call_that_must_be_allowed_interrupts_and_is_decided_by_the_next_run(
    person: Person, guarded: Diary, allow: bool
) -> None:
    steps = ({"tool_calls": [guarded.call("note", text="one")]}, {"text": "Done."})
    first = run_input(user("Write", *steps), forwardedProps=props(guarded))
    asking = ran(person, first)
    assert asking[-1].outcome.type == "interrupt", messages(asking)
    [interrupt] = asking[-1].outcome.interrupts
    assert guarded.lines() == []
    resume = [{"interruptId": interrupt.id, "status": "resolved", "payload": {"allow": allow}}]
    events = ran(person, run_input(thread=first["threadId"], resume=resume))
    result_message, answer = messages(events)
    assert result_message["call"] == interrupt.tool_call_id and answer["text"] == "Done."
    assert guarded.lines() == (["one"] if allow else [])
    assert events[-1].outcome.type == "success"


@pytest.mark.parametrize(
    ("count", "length", "code"), [(5_001, 1, "too_many_messages"), (4, 1_000_001, "messages_too_long")]
)
def test_a_request_brings_so_many_messages_and_characters_at_most(
    person: Person, count: int, length: int, code: str
) -> None:
    body = run_input(*(user("x" * length) for _ in range(count)))
    answer = person.caller.http.post("ag-ui/", json=body)
    assert (answer.status_code, answer.json()["code"]) == (413, code)
    assert not Message.objects.filter(conversation=body["threadId"]).exists()


@pytest.mark.parametrize(
    ("member", "value", "code"),
    [
        ("context", [{"description": "a", "value": "b"}] * 10_001, "too_many_items"),
        ("context", [{"description": "a", "value": "b" * 4_000_000}], "input_too_long"),
        ("resume", [{"interruptId": "x", "status": "cancelled"}] * 101, "too_many_items"),
        (
            "messages",
            [{**user(""), "content": [{"type": "text", "text": "a"}] * 2_049}],
            "too_many_items",
        ),
    ],
)
def test_every_list_and_text_of_a_request_has_a_bound(person: Person, member: str, value: Any, code: str) -> None:
    answer = person.caller.http.post("ag-ui/", json={**run_input(user("Hi")), member: value})
    assert (answer.status_code, answer.json()["code"]) == (413, code)
