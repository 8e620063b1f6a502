"""A stalled worker: a real one on a queue of its own, whose loop is cut off from its sockets."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import current_app
from django.db import connection

from tests.product import ROOT, database_url, die_with_parent, until

pytestmark = pytest.mark.process

DEAF = """
import sys
from celery.signals import worker_ready
from config.celery import app
from core import consumer

consumer.EVERY, consumer.DEAF_AFTER = 0.1, 0.5

@worker_ready.connect(weak=False)
def cut_off(sender, **kwargs):
    def cut():
        sender.hub.on_tick.clear()
        for number in list(sender.hub.readers):
            sender.hub.remove(number)
        print("cut off", flush=True)
    sender.hub.call_soon(cut)

app.worker_main(["worker", "--pool", "threads", "--concurrency", "2", "-Q", sys.argv[1], "--without-mingle"])
"""


@pytest.fixture
def queue(django_db_setup: None) -> Iterator[str]:
    name = f"deaf-{uuid4().hex}"
    environment = {**os.environ, "DATABASE_URL": database_url(connection.settings_dict)}
    with subprocess.Popen(
        [sys.executable, "-c", DEAF, name],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=die_with_parent,
    ) as worker:
        assert worker.stdout is not None
        lines = []
        for line in worker.stdout:
            lines.append(line)
            if "cut off" in line:
                break
        else:
            pytest.fail("".join(lines))
        yield name
        worker.kill()


def size(queue: str) -> int:
    with current_app.connection_for_read() as broker:
        channel: Any = broker.default_channel
        return int(channel.client.llen(queue))


def test_a_worker_that_receives_nothing_although_a_message_waits_connects_anew(queue: str) -> None:
    current_app.send_task("chat.tasks.send_next", [str(uuid4())], queue=queue)
    assert size(queue) == 1
    until(lambda: size(queue) == 0, "the message is received")
