"""Many answers that wait for a silent model, far more than a worker has threads, do not delay others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest

from chat.models import Turn
from tests.conftest import Person
from tests.product import Caller, Product, until

pytestmark = pytest.mark.product

TURNS = 150
HANGS = {"text": "Never said.", "silent_after": 0}


def uploaded(caller: Caller) -> str:
    sent = caller.http.post("files/", files={"file": ("notes.txt", f"Harbour {uuid4()}".encode())})
    assert sent.status_code == 201, sent.text
    return str(sent.json()["id"])


def is_read(caller: Caller, file: str) -> bool:
    return bool(caller.get(f"files/{file}/")["status"] == "ready")


def test_hanging_answers_hold_up_no_answer_no_upload_and_no_readiness_and_all_stop(
    product: Product, person: Person, stranger: Person
) -> None:
    def hang(number: int) -> str:
        return str(person.caller.ask(f"Hang {number}", HANGS)["id"])

    def stop(turn: str) -> Any:
        person.caller.post(f"turns/{turn}/stop/")
        return person.caller.ended(turn)["status"]

    with ThreadPoolExecutor(8) as pool:
        turns = list(pool.map(hang, range(TURNS)))
        theirs = Turn.objects.filter(conversation__owner=person.user)
        until(lambda: theirs.filter(status=Turn.Status.RUNNING).count() == TURNS, "all hang")
        started = stranger.caller.ask("And me?", {"text": "You are answered."})
        assert stranger.caller.ended(started["id"])["text"] == "You are answered."
        file = uploaded(stranger.caller)
        until(lambda: is_read(stranger.caller, file), "the upload is ready")
        assert httpx.get(f"{product.url}/readyz").status_code == 200
        assert set(pool.map(stop, turns)) == {"stopped"}


@pytest.fixture
def without_workers(product: Product) -> Iterator[None]:
    product.end("worker")
    yield
    product.end("one of turns")
    product.end("one of background")
    product.start_worker()
    product.wait_until_ready()


@pytest.mark.usefixtures("without_workers")
def test_each_queue_may_have_workers_of_its_own_and_the_web_serves_without_any(
    product: Product, person: Person
) -> None:
    def start(queue: str) -> None:
        options = ("--concurrency", "2", "-Q", queue, "-n", f"{queue}@%h", "--without-gossip", "--without-mingle")
        product.start(f"one of {queue}", "celery", "-A", "config", "worker", *options)

    file, turn = uploaded(person.caller), person.caller.ask("First.", {"text": "One."})
    response = person.caller.http.put(f"conversations/{turn['conversation']}/next/", json={"text": "Second."})
    assert response.status_code in (200, 201), response.text
    assert httpx.get(f"{product.url}/readyz").status_code == 200
    start("turns")
    assert person.caller.ended(turn["id"])["text"] == "One."
    done = Turn.objects.filter(conversation=turn["conversation"], status=Turn.Status.DONE)
    until(lambda: done.count() == 2, "what waited for the answer is sent and answered too")
    assert not is_read(person.caller, file)
    start("background")
    until(lambda: is_read(person.caller, file), "the upload is read")
