"""What stays true when a process dies or a service is away in the middle of an answer."""

import signal

import pytest

from tests.product import Caller, Product
from tests.scripted_model import expected_text

pytestmark = pytest.mark.product

LONG = {"tokens": 4000, "interval": 0.02}


def texts(events: list[dict[str, object]]) -> str:
    return "".join(str(event["delta"]) for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def test_a_killed_worker_leaves_an_interrupted_answer_with_all_that_was_shown_and_try_again_works(
    caller: Caller, product: Product
) -> None:
    turn = caller.ask("Die in the middle.", LONG)
    seen = []
    for event in caller.events(turn["id"]):
        seen.append(event)
        if len(seen) == 60:
            product.end("worker", signal.SIGKILL)
            product.start_worker()
    assert seen[-1]["type"] == "RUN_ERROR" and seen[-1]["status"] == "interrupted"
    stored = caller.turn(turn["id"])
    assert stored["status"] == "interrupted" and stored["error"]["code"] == "interrupted"
    assert stored["text"] == texts(seen) and expected_text(LONG).startswith(stored["text"])
    assert caller.get(f"conversations/{turn['conversation']}/")["state"] == "idle"
    again = caller.post(f"messages/{stored['message']}/regenerate/")["turns"][0]
    for event in caller.events(again["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            caller.post(f"turns/{again['id']}/stop/")
    assert event["type"] == "RUN_STOPPED"


def test_a_worker_asked_to_end_finishes_short_answers_and_interrupts_long_ones(
    caller: Caller, product: Product
) -> None:
    short = caller.ask("Short.", {"tokens": 60, "interval": 0.02})
    long = caller.ask("Long.", LONG)
    for event in caller.events(long["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            break
    product.end("worker", signal.SIGTERM)
    product.start_worker()
    assert caller.ended(short["id"])["status"] == "done"
    ended = caller.ended(long["id"])
    assert ended["status"] == "interrupted" and expected_text(LONG).startswith(ended["text"]) and ended["text"]


def test_a_turn_that_no_worker_took_waits_and_can_be_stopped(caller: Caller, product: Product) -> None:
    product.end("worker", signal.SIGKILL)
    try:
        waiting, stopped = caller.ask("Wait for a worker."), caller.ask("Never mind.")
        caller.post(f"turns/{stopped['id']}/stop/")
        assert [event["type"] for event in caller.events(stopped["id"])] == ["RUN_STOPPED"]
        assert caller.turn(stopped["id"])["status"] == "stopped"
        assert caller.turn(waiting["id"])["status"] == "queued"
    finally:
        product.start_worker()
    assert caller.ended(waiting["id"])["status"] == "done"
    assert caller.turn(stopped["id"])["status"] == "stopped"
