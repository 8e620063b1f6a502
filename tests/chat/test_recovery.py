"""Recovery after a process dies or a service is away in the middle of an answer."""

import json
import signal
from uuid import UUID, uuid4

import pytest

from chat.ledger.models import ModelCall
from chat.models import Turn
from personas.texts import TEXTS
from tests.chat.books import book, heading, notes, small_model
from tests.chat.conversations import kill_worker
from tests.chat.documents import upload
from tests.conftest import Person
from tests.product import WAIT, Caller, Product, until
from tests.scripted_model import expected_text

pytestmark = pytest.mark.product

LONG = {"tokens": 4000, "interval": 0.02}


def texts(events: list[dict[str, object]]) -> str:
    return "".join(str(event["delta"]) for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


@pytest.mark.smoke
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
    stopped(caller, went_on(caller, turn))
    again = caller.post(f"messages/{stored['message']}/regenerate/")["turns"][0]
    assert stopped(caller, again["id"]) == "RUN_STOPPED"


def test_what_a_worker_has_asked_that_is_killed_at_once_is_in_the_ledger(caller: Caller, product: Product) -> None:
    """The worker is killed when its second request has reached the provider, before it reports anything."""
    tool = {"name": "get_tasks", "arguments": {}}
    steps = [{"tool_calls": [tool], "usage": {"input": 900, "output": 30}}, {"text": "Never said.", "ttft": 600}]
    words = uuid4().hex
    turn = caller.ask(words, {"steps": steps})
    product.model.arrived(words, count=2)
    kill_worker(product)
    row = Turn.objects.get(pk=UUID(turn["id"]))
    assert [each["cycle"] for each in row.asked] == [1, 2]
    Turn.objects.filter(pk=row.pk).update(report={})
    product.start_worker()
    until(lambda: Turn.objects.get(pk=row.pk).status == "interrupted", "another worker ends it")
    first, second = ModelCall.objects.filter(turn=row).order_by("number")
    assert all(each.counted and each.person_id == row.conversation.owner_id for each in (first, second))
    assert [each.input for each in (first, second)] == [each["used"] + each["tools_tokens"] for each in row.asked]
    assert second.output == 0 < first.input < second.input


def went_on(caller: Caller, turn: dict[str, str]) -> str:
    """Return the turn that continues an interrupted one by itself."""

    def look() -> str:
        turns = Turn.objects.filter(conversation=UUID(turn["conversation"]))
        newest = turns.select_related("user_message").latest("pk")
        return str(newest.pk) if newest.user_message.text == TEXTS["continue"].built_in else ""

    return str(until(look, "the interrupted answer goes on"))


def stopped(caller: Caller, turn: str) -> str:
    """The type of its last event, once it is stopped at its first word."""
    for event in caller.events(turn):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            caller.post(f"turns/{turn}/stop/")
    return str(event["type"])


def test_a_worker_asked_to_end_finishes_short_answers_and_interrupts_long_ones_which_go_on_elsewhere(
    caller: Caller, product: Product
) -> None:
    short = caller.ask("Short.", {"tokens": 60, "interval": 0.02})
    long = caller.ask("Long.", LONG)
    for event in caller.events(long["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            break
    product.end("worker", signal.SIGTERM)
    assert caller.turn(short["id"])["status"] == "done"
    ended = caller.turn(long["id"])
    assert ended["status"] == "interrupted" and expected_text(LONG).startswith(ended["text"]) and ended["text"]
    product.start_worker()
    assert stopped(caller, went_on(caller, long)) == "RUN_STOPPED"


def test_a_web_process_asked_to_end_lets_go_of_those_who_follow_and_completes_what_it_gives(
    caller: Caller, product: Product
) -> None:
    turn, script = caller.ask("Followed.", LONG), {"tokens": 60, "interval": 0.02}
    body = {"text": f"Given.\nscript: {json.dumps(script)}"}
    accept = {"Accept": "text/event-stream"}
    follows = caller.http.stream("GET", f"turns/{turn['id']}/events/", headers=accept)
    asks = caller.http.stream("POST", f"conversations/{caller.conversation()}/turns/", json=body, headers=accept)
    with follows as followed, asks as answer:
        lines = answer.iter_lines()
        until(lambda: "TEXT_MESSAGE_CONTENT" in next(lines), "the answer is being given")
        product.processes["web"].send_signal(signal.SIGTERM)
        assert not any("RUN_" in line and "STARTED" not in line for line in followed.iter_lines())
        assert "RUN_FINISHED" in "".join(lines)
    assert product.processes.pop("web").wait(WAIT) == 0
    product.start_web()
    product.wait_until_ready()
    assert stopped(caller, turn["id"]) == "RUN_STOPPED"


def test_a_killed_worker_leaves_a_reading_that_another_goes_on_with(
    person: Person, product: Product, committed: None
) -> None:
    text = book(*[notes(number) for number in range(1, 5)], notes(5, hangs_times=1))
    file, model = upload(person, "book.md", text.encode())["id"], small_model(product)
    body = {"file": file, "question": 'How much?\nscript: {"text": "Ten kg [1]."}\n\n', "model": str(model.pk)}
    body["calls"] = person.caller.post("readings/plan/", body, expect=200)["calls"]
    address = f"readings/{person.caller.post('readings/', body)['id']}/"

    def waiting() -> list[str]:
        return [each["state"] for each in person.caller.get(address)["parts"] if each["state"] != "done"]

    until(lambda: waiting() == ["waiting"], "all is read but what hangs")
    kill_worker(product)
    product.start_worker()
    reading = until(lambda: (got := person.caller.get(address))["status"] == "done" and got, "it is done")
    assert (reading["answer"], reading["coverage"]["percent"]) == ("Ten kg [1].", 100)
    assert [len(product.model.requests(heading(text, chapter))) for chapter in (1, 5)] == [1, 2]
    model.provider.delete()


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
