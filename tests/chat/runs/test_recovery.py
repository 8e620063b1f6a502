"""Runs after a worker is killed, and many runs on two workers. The tests count the model's requests."""

import signal
from collections.abc import Iterator

import pytest

from llm.models import Model
from tests.chat.conversations import kill_worker
from tests.chat.runs.working import DONE, MARK, SAID, script, tool_model, with_items, work
from tests.conftest import Person
from tests.product import Product, until

pytestmark = pytest.mark.product

OK = script(*DONE)
LONG = script({"tokens": 150, "interval": 0.02, **MARK}, SAID)
MARKED_THEN_LONG = script({**MARK, "text": ""}, {"tokens": 4_000, "interval": 0.02})


@pytest.fixture
def model(product: Product, committed: None, scripted_model_row: Model) -> Model:
    return tool_model(scripted_model_row)


@pytest.fixture
def second_worker(product: Product) -> Iterator[None]:
    options = ("--pool", "threads", "--concurrency", "60", "-Q", "turns,background")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    product.start("worker2", "celery", "-A", "config", "worker", "-n", "two@%h", *options, *quiet)
    until(lambda: "[queues]" in product.log("worker2"), "the second worker is there")
    yield
    product.end("worker2")


def test_a_worker_killed_in_the_middle_of_a_run_leaves_nothing_undone_and_nothing_done_twice(
    product: Product, person: Person, model: Model
) -> None:
    writes = script({"tokens": 4_000, "interval": 0.02})
    cut = with_items(work(person, product, model), [OK, writes, OK])
    marked = with_items(work(person, product, model), [MARKED_THEN_LONG, OK])
    runs = [cut.begin()["id"], marked.begin()["id"]]
    until(
        lambda: cut.sent_items() == [".C01", ".C02"] and marked.items()[0]["status"] == "done", "both are in the middle"
    )
    turn = person.caller.get(f"runs/{runs[0]}/")["steps"][1]["turn"]
    until(lambda: person.caller.turn(turn)["text"], "the second item is being written")
    kill_worker(product)
    person.caller.http.patch(f"tasks/{cut.items()[1]['id']}/", json={"title": OK})  # its second try is a short one
    product.start_worker()
    done = [cut.until(runs[0], "done", seconds=120), marked.until(runs[1], "done", seconds=120)]
    assert cut.sent_items() == [".C01", ".C02", ".C02", ".C03"]  # what was cut off is done again
    assert marked.sent_items() == [".C01", ".C02"]  # what was marked before it was cut off is not
    assert [step["status"] for step in done[0]["steps"]] == ["done", "interrupted", "done", "done"]
    assert [step["status"] for step in done[1]["steps"]] == ["done", "done"]


def test_a_run_that_no_worker_takes_begins_when_one_is_there(product: Product, person: Person, model: Model) -> None:
    product.end("worker", signal.SIGKILL)
    try:
        scenario = with_items(work(person, product, model), [OK, OK])
        run = scenario.begin()
        assert run["status"] == "running" and scenario.sent_items() == []
    finally:
        product.start_worker()
    scenario.until(run["id"], "done", seconds=120)
    assert scenario.sent_items() == [".C01", ".C02"]


@pytest.mark.usefixtures("second_worker")
def test_ten_runs_at_once_on_two_workers_do_each_item_once_and_in_order(
    product: Product, person: Person, model: Model
) -> None:
    works = [with_items(work(person, product, model), [LONG, OK, OK, OK]) for _ in range(10)]
    runs = [scenario.begin()["id"] for scenario in works]
    for scenario, run in zip(works, runs, strict=True):
        scenario.until(run, "done", seconds=180)
        assert scenario.sent_items() == [".C01", ".C02", ".C03", ".C04"]
        assert [row["status"] for row in scenario.items()] == ["done"] * 4
