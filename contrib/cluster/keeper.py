"""Run a program and end every process that it has started, however the program or its caller ends.

Servers start processes of their own, which outlive a killed server. This process adopts all orphans below it
(PR_SET_CHILD_SUBREAPER) and kills them at the end. If it is killed itself, the program gets SIGTERM.
"""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import psutil

PATIENCE = 40.0  # seconds for a program that was asked to end
ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # numbers of prctl(2)


def run_contained(program: Callable[[Path], int]) -> int:
    """Run the program with a new directory and return its status.

    A signal of `ASKED` becomes one KeyboardInterrupt in the program, and its status 1. The directory is removed.
    """
    _prctl(_SUBREAPER, 1)
    place = Path(tempfile.mkdtemp(prefix="glasshouse-cluster-"))
    place.chmod(0o711)  # PostgreSQL runs as another user
    sys.stdout.flush()
    keeper, signalled = os.getpid(), list[float]()
    for number in ASKED:
        signal.signal(number, lambda *_: signalled.append(time.monotonic()))
    if not (child := os.fork()):
        os._exit(_run(program, place, keeper))
    try:
        return _outcome(child, signalled)
    finally:
        _end_all()
        shutil.rmtree(place, ignore_errors=True)


def _run(program: Callable[[Path], int], place: Path, keeper: int) -> int:
    """Run the program in a session of its own: the signals of a terminal reach the keeper alone, which passes them."""
    status = 1
    os.setsid()
    try:
        for number in ASKED:
            signal.signal(number, _interrupt if number == signal.SIGTERM else signal.SIG_IGN)
        _prctl(_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() == keeper:
            status = program(place)
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        shutil.rmtree(place, ignore_errors=True)
        sys.stdout.flush()
        sys.stderr.flush()
    return status


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _outcome(child: int, signalled: list[float]) -> int:
    """Wait for the program and return its status. Adopted processes are reaped too, else they would stay zombies."""
    passed_on = False
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid and pid != child:
            continue
        if pid:
            return max(os.waitstatus_to_exitcode(status), 0) or (1 if os.WIFSIGNALED(status) else 0)
        if signalled and not passed_on:
            passed_on = True
            os.kill(child, signal.SIGTERM)
        if signalled and time.monotonic() - signalled[0] > PATIENCE:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.1)


def _end_all() -> None:
    """Kill all processes below until there is none: a process may start another one before it is killed."""
    while below := psutil.Process().children(recursive=True):
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)
