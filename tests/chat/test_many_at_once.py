"""Two hundred messages at once against one limit: each turn that begins is counted exactly once."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
from django.db import connection

from accounts.models import Limit, User
from chat.conversations.services import create_conversation
from chat.models import Conversation, Turn
from llm.models import Model, Provider
from tests.product import ROOT, database_url, die_with_parent

pytestmark = pytest.mark.process

AT_ONCE, PROCESSES = 200, 4
Process: TypeAlias = "subprocess.Popen[str]"
PROGRAM = "import django; django.setup(); from tests.chat.many_at_once import main; main()"


@pytest.fixture
def user(committed: None) -> Iterator[User]:
    person = User.objects.create_user(uuid4().hex)
    yield person
    Conversation.objects.filter(owner=person).delete()
    person.delete()


@pytest.fixture
def model(committed: None) -> Iterator[Model]:
    """Yield a model that is never called: no worker of this process takes turns."""
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1")
    prices = {"input_price": Decimal(1), "output_price": Decimal(1)}
    yield Model.objects.create(provider=provider, name="silent", context_window=8_000, **prices)
    provider.delete()


@pytest.fixture(scope="module")
def processes(django_db_setup: None) -> Iterator[list[Process]]:
    environment = {"DATABASE_URL": database_url(connection.settings_dict), "LIVE_TURNS": "0"}
    command, everything = [sys.executable, "-c", PROGRAM], {**os.environ, **environment}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    everything["DJANGO_SETTINGS_MODULE"] = "config.settings"
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, env=everything, preexec_fn=die_with_parent, **pipes)
            )
            for _ in range(PROCESSES)
        ]
        yield started
        for process in started:
            process.communicate()


def write_line(process: Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def read_line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(("unit", "amount"), [("turns", 20), ("tokens", 30_000), ("money", "0.03")])
def test_no_more_begin_than_the_limit_has_room_for(
    user: User, model: Model, processes: list[Process], unit: str, amount: object
) -> None:
    most = Decimal(str(amount))
    Limit.objects.create(user=user, unit=unit, per="month", amount=most)
    places = [create_conversation(user=user) for _ in range(AT_ONCE)]
    outcomes: Counter[str] = Counter()
    for number, process in enumerate(processes):
        write_line(process, json.dumps([str(model.pk), [str(place.pk) for place in places[number::PROCESSES]]]))
    assert [read_line(process) for process in processes] == ["ready\n"] * PROCESSES
    for process in processes:
        write_line(process, "")
    for process in processes:
        outcomes.update(json.loads(read_line(process)))
    assert outcomes.keys() == {"sent", "limit_reached"} and outcomes.total() == AT_ONCE
    turns = list(Turn.objects.filter(conversation__owner=user))
    of_each = {"turns": Decimal(1), "tokens": turns[0].reserved_tokens, "money": turns[0].reserved_cost}[unit]
    assert outcomes["sent"] == len(turns)
    reserved = Decimal(of_each or 0) * len(turns)
    assert most <= reserved < most + Decimal(of_each or 0)  # the last that begins may go over it
