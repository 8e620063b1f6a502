"""One turn, from the question to the stored answer, through the running product."""

import json

import pytest

from tests.product import Caller, Product
from tests.scripted_model import expected_text

pytestmark = pytest.mark.product


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


def test_the_model_gets_the_system_prompt_and_the_whole_conversation(caller: Caller, product: Product) -> None:
    conversation = caller.conversation()
    first = caller.ask("My name is Ada.", {"text": "Hello Ada."}, conversation)
    caller.ended(first["id"])
    second = caller.ask("What is my name?", None, conversation)
    caller.ended(second["id"])
    record = product.model.finished("What is my name?")[0]
    roles = [message["role"] for message in record.body["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert record.body["messages"][2]["content"] == "Hello Ada."
    assert json.dumps(record.body).count("My name is Ada.") == 1
