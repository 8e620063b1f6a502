"""Processes of `make cluster` end with it, however it ends, also those that have lost their parent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.product import ROOT, until

pytestmark = pytest.mark.process

# A program that starts a process which has left it for good, and waits.
PROGRAM = """
import subprocess, sys, time
from pathlib import Path
from contrib.cluster.keeper import run_contained

def program(place):
    leaves = "import os, sys, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\n"
    leaves += "print(os.getpid(), flush=True)\\ntime.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", leaves], stdout=subprocess.PIPE, text=True)
    print(child.stdout.readline().strip(), place, flush=True)
    time.sleep(600)
    return 0

sys.exit(run_contained(program))
"""


class Started:
    def __init__(self) -> None:
        self.keeper = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.keeper.stdout is not None
        left, place = self.keeper.stdout.readline().split()
        self.left, self.place = int(left), Path(place)
        # It has become a child of the keeper.
        first = [each.pid for each in psutil.Process(self.keeper.pid).children()]
        [self.program] = set(first) - {self.left}

    @property
    def all_ended(self) -> bool:
        return not (psutil.pid_exists(self.left) or psutil.pid_exists(self.program) or self.place.exists())


@pytest.fixture
def started() -> Iterator[Started]:
    processes = Started()
    yield processes
    for pid in (processes.keeper.pid, processes.program, processes.left):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    processes.keeper.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_end_it_leaves_nothing_behind(started: Started, number: signal.Signals) -> None:
    os.kill(started.keeper.pid, number)
    assert started.keeper.wait(60) == 1
    assert started.all_ended


def test_a_program_that_is_killed_leaves_nothing_behind(started: Started) -> None:
    os.kill(started.program, signal.SIGKILL)
    assert started.keeper.wait(60) == 1
    assert started.all_ended


def test_a_keeper_that_is_killed_has_its_program_end(started: Started) -> None:
    os.kill(started.keeper.pid, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(started.program), "the program has been asked to end, and did")
    assert not started.place.exists()
