"""One turn, from the question to the stored answer."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.application import Application
from tests.conftest import Person
from tests.product import Caller, Product, Server, until
from tests.scripted_model import expected_text


def test_an_answer_streams_in_order_and_is_stored_as_it_was_sent(caller: Caller) -> None:
    script = {"tokens": 120, "interval": 0.002, "ttft": 0.02}
    turn = caller.ask("Count.", script)
    events = list(caller.events(turn["id"]))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "RUN_STARTED" and events[-1]["type"] == "RUN_FINISHED"
    text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert text == expected_text(script)
    stored = caller.turn(turn["id"])
    assert (stored["status"], stored["text"]) == ("done", text)
    assert stored["usage"]["output"] > 0


def test_many_answers_at_once_arrive_whole_and_in_order(caller: Caller, product: Product) -> None:
    script = {"tokens": 100, "interval": 0.02, "ttft": 0.05}
    whole_text = expected_text(script)
    places = [caller.conversation() for _ in range(40)]

    def one(place: str) -> tuple[bool, bool]:
        own = Caller(product, caller.token)
        turn = own.ask("Count.", script, place)
        events = list(own.events(turn["id"]))
        text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
        in_order = [event.get("seq") for event in events] == list(range(1, len(events) + 1))
        return in_order, text == whole_text == own.ended(turn["id"])["text"]

    with ThreadPoolExecutor(len(places)) as pool:
        assert list(pool.map(one, places)) == [(True, True)] * len(places)


def test_the_model_gets_the_system_prompt_and_the_whole_conversation(caller: Caller, application: Application) -> None:
    conversation = caller.conversation()
    first = caller.ask("My name is Ada.", {"text": "Hello Ada."}, conversation)
    caller.ended(first["id"])
    second = caller.ask("What is my name?", None, conversation)
    caller.ended(second["id"])
    record = application.model.finished("What is my name?")[0]
    roles = [message["role"] for message in record.body["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert record.body["messages"][2]["content"] == "Hello Ada."
    assert json.dumps(record.body).count("My name is Ada.") == 1


def test_reasoning_is_kept_apart_from_the_answer_and_never_replayed(caller: Caller, application: Application) -> None:
    conversation = caller.conversation()
    first = caller.ask("Think.", {"reasoning": "private thoughts", "text": "Done thinking."}, conversation)
    stored = caller.ended(first["id"])
    assert [part["type"] for part in stored["parts"]] == ["reasoning", "text"]
    assert stored["text"] == "Done thinking."
    caller.ended(caller.ask("And now, after the thinking?", None, conversation)["id"])
    replayed = application.model.finished("after the thinking")[0].body["messages"]
    assert [message["content"] for message in replayed if message["role"] == "assistant"] == ["Done thinking."]


def test_a_reader_who_comes_back_gets_only_what_it_missed(caller: Caller) -> None:
    turn = caller.ask("Count.", {"tokens": 40, "interval": 0.01})
    seen = list(caller.events(turn["id"]))
    middle = len(seen) // 2
    assert list(caller.events(turn["id"], after=middle)) == seen[middle:]


@pytest.mark.parametrize("interval", [0.005, 0.02, 0.05, 0.2])
def test_stop_ends_the_answer_keeps_its_text_and_closes_the_providers_connection(
    caller: Caller, application: Application, interval: float
) -> None:
    check_stop(caller, application, interval)


def test_a_stop_that_the_web_process_takes_ends_the_answer_of_a_worker(caller: Caller, product: Product) -> None:
    check_stop(caller, product, 0.02)


def check_stop(caller: Caller, server: Server, interval: float) -> None:
    """Stop an answer at its first words, and look at its events, its row and the call of the model."""
    question = f"Stop me at {interval}, {uuid4()}."
    script = {"tokens": 5000, "interval": interval}
    turn = caller.ask(question, script)
    for event in caller.events(turn["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            caller.post(f"turns/{turn['id']}/stop/")
    assert event["type"] == "RUN_STOPPED"
    stored = caller.turn(turn["id"])
    assert stored["status"] == "stopped" and stored["error"] is None
    assert stored["text"] and expected_text(script).startswith(stored["text"])
    assert server.model.finished(question)[0].ended == "client_closed"


def test_stop_ends_a_model_that_is_still_silent(caller: Caller, application: Application) -> None:
    turn = caller.ask("Silence, please.", {"ttft": 600, "text": "never"})
    application.model.arrived("Silence, please.")
    caller.post(f"turns/{turn['id']}/stop/")
    assert caller.ended(turn["id"])["status"] == "stopped"
    assert application.model.finished("Silence, please.")[0].ended == "client_closed"


def test_two_sends_at_once_make_one_turn_and_one_conflict(caller: Caller, application: Application) -> None:
    place = caller.conversation()
    barrier = threading.Barrier(2)

    def send(number: int) -> int:
        own = Caller(application, caller.token)
        barrier.wait()
        body = {"text": f"Number {number}\nscript: {json.dumps({'ttft': 0.5, 'text': 'ok'})}"}
        return own.http.post(f"conversations/{place}/turns/", json=body).status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(send, range(2))) == [202, 409]
    until(lambda: caller.get(f"conversations/{place}/")["state"] == "idle", "the turn ends")
    assert len(caller.get(f"conversations/{place}/messages/")["results"]) == 2


def test_the_same_idempotency_key_again_is_the_same_turn(caller: Caller) -> None:
    place = caller.conversation()
    headers: Any = {"Idempotency-Key": "once-only"}
    first = caller.post(f"conversations/{place}/turns/", {"text": "Hello"}, **headers)
    again = caller.post(f"conversations/{place}/turns/", {"text": "Hello"}, **headers)
    caller.ended(first["turns"][0]["id"])
    later = caller.post(f"conversations/{place}/turns/", {"text": "Hello"}, **headers)
    assert first["turns"][0]["id"] == again["turns"][0]["id"] == later["turns"][0]["id"]


def test_three_models_answer_side_by_side_and_a_failing_one_leaves_the_others(
    caller: Caller, application: Application, committed: None, scripted_model_row: object
) -> None:
    names = [
        application.model.set_script("side-a", {"text": "From A."}),
        application.model.set_script("side-b", {"error": {"status": 500}}),
        application.model.set_script("side-c", {"text": "From C."}),
    ]
    provider = scripted_model_row.provider  # type: ignore[attr-defined]  # the fixture's row
    ids = [str(provider.models.get_or_create(name=name, context_window=8192)[0].pk) for name in names]
    place = caller.conversation()
    turns = caller.post(f"conversations/{place}/turns/", {"text": "All of you.", "models": ids})["turns"]
    ended = [caller.ended(turn["id"]) for turn in turns]
    assert [turn["status"] for turn in ended] == ["done", "failed", "done"]
    assert [turn["text"] for turn in ended] == ["From A.", "", "From C."]
    assert ended[1]["error"]["code"] == "provider_overloaded"


def test_a_failed_answer_says_why_and_try_again_works(caller: Caller) -> None:
    script = {"error": {"status": 429, "message": "slow down"}, "error_times": 1, "note": "fails once"}
    turn = caller.ask("Fail once.", {"steps": [{**script, "text": "Now it works."}]})
    events = list(caller.events(turn["id"]))
    assert events[-1]["type"] == "RUN_ERROR" and events[-1]["code"] == "rate_limited"
    failed = caller.turn(turn["id"])
    assert failed["status"] == "failed" and "try again" in failed["error"]["detail"].lower()
    again = caller.post(f"messages/{failed['message']}/regenerate/")["turns"][0]
    assert caller.ended(again["id"])["text"] == "Now it works."


def test_a_connection_cut_in_the_middle_keeps_what_came(caller: Caller) -> None:
    script = {"tokens": 50, "interval": 0.005, "cut_after": 20}
    stored = caller.ended(caller.ask("Cut.", script)["id"])
    assert stored["status"] == "failed" and stored["error"]["code"] == "stream_cut"
    assert stored["text"] and expected_text(script).startswith(stored["text"])


def test_a_model_that_says_nothing_is_an_error_and_not_an_empty_answer(caller: Caller) -> None:
    stored = caller.ended(caller.ask("Nothing.", {"text": ""})["id"])
    assert stored["status"] == "failed" and stored["error"]["code"] == "empty_answer"


def test_bad_messages_are_refused_in_words_and_change_nothing(caller: Caller) -> None:
    place = caller.conversation()
    for body, code in [
        ({"text": "   "}, "empty_message"),
        ({}, "invalid"),
        ({"text": "x", "models": ["not-a-uuid"]}, "invalid"),
        ({"text": "x", "models": ["01900000-0000-7000-8000-000000000000"]}, "not_found"),
        ({"text": "x", "parent": "01900000-0000-7000-8000-000000000000"}, "not_found"),
    ]:
        response = caller.http.post(f"conversations/{place}/turns/", json=body)
        assert response.status_code in (400, 404), response.text
        assert response.headers["content-type"] == "application/problem+json"
        problem = response.json()
        assert problem["code"] == code and problem["detail"] and problem["request_id"]
    json_type = {"Content-Type": "application/json"}
    broken = caller.http.post(f"conversations/{place}/turns/", content=b"{", headers=json_type)
    assert broken.status_code == 400 and broken.json()["code"] == "parse_error"
    assert caller.get(f"conversations/{place}/messages/")["results"] == []


def test_text_with_a_nul_or_half_a_character_does_not_break_the_turn(caller: Caller) -> None:
    stored = caller.ended(caller.ask("Odd bytes.", {"text": "before\x00after \ud83d end"})["id"])
    assert stored["status"] == "done" and stored["text"].startswith("before")
    response = caller.http.post(f"conversations/{caller.conversation()}/turns/", json={"text": "nul \x00 here"})
    assert response.status_code == 400


def test_somebody_elses_rows_do_not_exist(caller: Caller, stranger: Person) -> None:
    place = caller.conversation()
    turn = caller.ask("Mine.", None, place)
    caller.ended(turn["id"])
    other = stranger.caller
    for path in (f"conversations/{place}/", f"conversations/{place}/messages/", f"turns/{turn['id']}/",
                 f"messages/{turn['message']}/", f"turns/{turn['id']}/events/"):  # fmt: skip
        assert other.http.get(path).status_code == 404, path
    regenerate = f"messages/{turn['message']}/regenerate/"
    for path, body in (
        (f"conversations/{place}/turns/", {"text": "x"}),
        (f"turns/{turn['id']}/stop/", None),
        (regenerate, {}),
    ):
        assert other.http.post(path, json=body).status_code == 404, path
    assert other.get("conversations/")["results"] == []
