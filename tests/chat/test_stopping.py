"""Stops and killed workers around tool calls. The log of the tools' server proves which calls ran."""

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
def tool_diary(person: Person, scripted_model_row: Model, tmp_path: Path) -> Iterator[Diary]:
    tool_diary = diary(person, scripted_model_row, tmp_path)
    yield tool_diary
    tool_diary.row.delete()


def waits(tool_diary: Diary) -> int:
    """The process id of the tool that runs, once it does."""
    [line] = until(tool_diary.lines, "the tool runs")
    return int(line.removeprefix("waiting "))


def test_a_stop_ends_a_tool_that_runs_and_none_starts_after_it(application: Application, tool_diary: Diary) -> None:
    mark = uuid4().hex
    calls = [{"tool_calls": [tool_diary.call("wait")]}, {"tool_calls": [tool_diary.call("note", text="after")]}]
    turn = tool_diary.ask(f"Wait {mark}", *calls)
    pid = waits(tool_diary)
    tool_diary.person.caller.post(f"turns/{turn['id']}/stop/")
    ended = tool_diary.person.caller.ended(turn["id"])  # within a minute, where the tool would take ten
    assert ended["status"] == "stopped" and [part["type"] for part in ended["parts"]] == ["tool_call"]
    until(lambda: not is_running(pid), "the tool's process has ended")
    row = Turn.objects.get(pk=turn["id"])
    assert row.first_token_ms is not None and row.finished and row.stop_asked and row.stop_asked < row.finished
    assert tool_diary.lines() == [f"waiting {pid}"] and len(application.model.finished(mark)) == 1


def test_a_stop_while_the_model_writes_its_calls_lets_none_of_them_run(
    application: Application, tool_diary: Diary
) -> None:
    calls = [tool_diary.call("note", text=f"number {number} of many") for number in range(8)]
    turn = tool_diary.ask("Write much", {"tool_calls": calls, "interval": 0.1})
    for event in tool_diary.person.caller.events(turn["id"]):
        if event["type"] == "TOOL_CALL_START":
            tool_diary.person.caller.post(f"turns/{turn['id']}/stop/")
    assert event["type"] == "RUN_STOPPED"
    barrier = tool_diary.ask(
        "And now?", {"tool_calls": [tool_diary.call("note", text="afterwards")]}, {"text": "Done."}
    )
    assert tool_diary.person.caller.ended(barrier["id"])["status"] == "done"
    assert tool_diary.lines() == ["afterwards"]


@pytest.mark.product
def test_a_worker_killed_between_two_cycles_interrupts_the_turn_and_runs_no_tool_twice(
    product: Product, tool_diary: Diary
) -> None:
    turn = tool_diary.ask(
        "Write", {"tool_calls": [tool_diary.call("note", text="once")]}, {"text": "Never said.", "ttft": 600}
    )
    for event in tool_diary.person.caller.events(turn["id"]):
        if event["type"] == "TOOL_CALL_RESULT":
            kill_worker(product)
            product.start_worker()
    assert event["type"] == "RUN_ERROR" and event["status"] == "interrupted"
    ended = tool_diary.person.caller.turn(turn["id"])
    assert ended["status"] == "interrupted" and tool_diary.lines() == ["once"]
    assert [part["type"] for part in ended["parts"]] == ["tool_call", "tool_result"]
