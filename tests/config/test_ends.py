"""A process of the image's commands ends by itself after SIGTERM, whatever hangs in it."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from celery import current_app
from django.db import connection, transaction

from chat.models import Conversation, Turn
from tests.conftest import Person
from tests.hanging import QUEUE
from tests.product import WAIT, Caller, Product, free_port, until
from tests.sockets import socket_of

pytestmark = pytest.mark.product

HANGS = {"tokens": 100, "interval": 3_600}  # seconds


@pytest.fixture
def another(product: Product, tmp_path: Path) -> Iterator[Product]:
    """Yield further processes of the product, on the same rows."""
    unlimited = {"DRAIN_SECONDS": "1", "STATEMENT_TIMEOUT": "0", "ALIVE_FILE": str(tmp_path / "alive")}
    port, environment = free_port(), {**product.environment, **unlimited}
    own = replace(product, url=f"http://127.0.0.1:{port}", environment=environment, directory=tmp_path, processes={})
    yield own
    for name in list(own.processes):
        own.end(name)


def asked_to_end(product: Product, name: str) -> int:
    process = product.processes.pop(name)
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(WAIT)
    finally:
        process.kill()


@pytest.mark.usefixtures("committed")
def test_a_web_process_ends_with_a_socket_streams_a_hanging_answer_and_a_request_that_hangs_in_the_database(
    another: Product, person: Person
) -> None:
    another.start_web()
    another.wait_until_ready()
    caller = Caller(another, person.token)
    mark, locked = f"hang {uuid4()}", caller.conversation()
    turn = caller.ask(mark, HANGS)
    question = {"model": "scripted", "messages": [{"role": "user", "content": f"{mark}\nscript: {json.dumps(HANGS)}"}]}
    began = threading.Event()

    def hang(method: str, address: str, **body: object) -> None:
        with suppress(httpx.TransportError), caller.http.stream(method, address, **body) as answer:  # type: ignore[arg-type]  # json
            for _ in answer.iter_raw():
                began.set()

    requests = [
        threading.Thread(target=hang, args=("GET", f"turns/{turn['id']}/events/")),
        threading.Thread(target=hang, args=("POST", f"{another.url}/v1/chat/completions"), kwargs={"json": question}),
        threading.Thread(target=hang, args=("PATCH", f"conversations/{locked}/"), kwargs={"json": {"title": "New"}}),
    ]
    with socket_of(another, person) as socket, transaction.atomic():
        Conversation.objects.select_for_update().get(pk=locked)
        for each in requests:
            each.start()
        assert began.wait(WAIT)
        until(waits_for_a_lock, "a request waits for the row")
        until(lambda: len(another.model.requests(mark)) == 2, "both answers hang at the model")
        assert asked_to_end(another, "web") == 0
        assert socket.close_code() == 1012
    for each in requests:
        each.join(WAIT)
    assert Turn.objects.get(pk=turn["id"]).status == "running"  # its worker is another process


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


@pytest.mark.usefixtures("committed")
def test_a_worker_ends_with_a_job_that_hangs(another: Product) -> None:
    options = ("--pool", "threads", "--concurrency", "1", "-Q", QUEUE, "-I", "tests.hanging", "-n", f"{uuid4()}@here")
    another.start("worker", "celery", "-A", "config", "worker", *options)
    line = str(uuid4())
    current_app.send_task("tests.hang", [line], queue=QUEUE)
    until(lambda: line in another.log("worker"), "the job is begun")
    until((another.directory / "alive").exists, "the worker shows that it takes work")
    assert asked_to_end(another, "worker") == 0


@pytest.mark.usefixtures("committed")
def test_beat_ends(another: Product) -> None:
    another.start_beat()
    until(lambda: hears(another.processes["beat"].pid, signal.SIGTERM), "beat hears that it is to end")
    assert asked_to_end(another, "beat") == 0


def hears(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, as Linux says."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(caught and int(caught[1], 16) >> number - 1 & 1)
