"""Stops and deaths of workers around tools, told by what the tools' server itself has written down."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from chat.models import Turn
from llm.models import Model
from tests.application import Application
from tests.chat.conversations import kill_worker
from tests.chat.tool_servers import Diary, diary, is_running
from tests.conftest import Person
from tests.product import Product, until


@pytest.fixture
def made(person: Person, scripted_model_row: Model, tmp_path: Path) -> Iterator[Diary]:
    made = diary(person, scripted_model_row, tmp_path)
    yield made
    made.row.delete()


def waits(made: Diary) -> int:
    """The process id of the tool that runs, once it does."""
    [line] = until(made.lines, "the tool runs")
    return int(line.removeprefix("waiting "))


def test_a_stop_ends_a_tool_that_runs_and_none_starts_after_it(application: Application, made: Diary) -> None:
    mark = uuid4().hex
    calls = [{"tool_calls": [made.call("wait")]}, {"tool_calls": [made.call("note", text="after")]}]
    turn = made.ask(f"Wait {mark}", *calls)
    pid = waits(made)
    made.person.caller.post(f"turns/{turn['id']}/stop/")
    ended = made.person.caller.ended(turn["id"])  # within a minute, where the tool would take ten
    assert ended["status"] == "stopped" and [part["type"] for part in ended["parts"]] == ["tool_call"]
    until(lambda: not is_running(pid), "the tool's process has ended")
    row = Turn.objects.get(pk=turn["id"])
    assert row.first_token_ms is not None and row.finished and row.stop_asked and row.stop_asked < row.finished
    assert made.lines() == [f"waiting {pid}"] and len(application.model.finished(mark)) == 1


def test_a_stop_while_the_model_writes_its_calls_lets_none_of_them_run(application: Application, made: Diary) -> None:
    calls = [made.call("note", text=f"number {number} of many") for number in range(8)]
    turn = made.ask("Write much", {"tool_calls": calls, "interval": 0.1})
    for event in made.person.caller.events(turn["id"]):
        if event["type"] == "TOOL_CALL_START":
            made.person.caller.post(f"turns/{turn['id']}/stop/")
    assert event["type"] == "RUN_STOPPED"
    barrier = made.ask("And now?", {"tool_calls": [made.call("note", text="afterwards")]}, {"text": "Done."})
    assert made.person.caller.ended(barrier["id"])["status"] == "done"
    assert made.lines() == ["afterwards"]


@pytest.mark.product
def test_a_worker_killed_between_two_cycles_interrupts_the_turn_and_runs_no_tool_twice(
    product: Product, made: Diary
) -> None:
    turn = made.ask("Write", {"tool_calls": [made.call("note", text="once")]}, {"text": "Never said.", "ttft": 600})
    for event in made.person.caller.events(turn["id"]):
        if event["type"] == "TOOL_CALL_RESULT":
            kill_worker(product)
            product.start_worker()
    assert event["type"] == "RUN_ERROR" and event["status"] == "interrupted"
    ended = made.person.caller.turn(turn["id"])
    assert ended["status"] == "interrupted" and made.lines() == ["once"]
    assert [part["type"] for part in ended["parts"]] == ["tool_call", "tool_result"]
