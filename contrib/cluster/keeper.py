"""Run a program and kill every process that it has started, no matter how the program or its caller ends.

Servers start child processes, which outlive a killed server. This process adopts all orphans below it
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

EXIT_TIMEOUT = 40.0  # seconds that a signalled program has to end before it is killed
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # numbers of prctl(2)


def run_contained(program: Callable[[Path], int]) -> int:
    """Run the program with a new directory and return its exit status. The directory is removed at the end.

    Signals in `ASKED` raise one KeyboardInterrupt in the program, and the status is 1.
    """
    _prctl(_SUBREAPER, 1)
    directory = Path(tempfile.mkdtemp(prefix="glasshouse-cluster-"))
    directory.chmod(0o711)  # PostgreSQL runs as another user
    sys.stdout.flush()
    keeper, signalled = os.getpid(), list[float]()
    for number in END_SIGNALS:
        signal.signal(number, lambda *_: signalled.append(time.monotonic()))
    if not (child := os.fork()):
        os._exit(_run(program, directory, keeper))
    try:
        return _outcome(child, signalled)
    finally:
        _end_all()
        shutil.rmtree(directory, ignore_errors=True)


def _run(program: Callable[[Path], int], place: Path, keeper: int) -> int:
    """Run the program in its own session, so that a terminal signals only the keeper, which passes the signal on."""
    status = 1
    os.setsid()
    try:
        for number in END_SIGNALS:
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
    """Wait for the program and return its exit status. Also reaps adopted processes, which would stay zombies."""
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
        if signalled and time.monotonic() - signalled[0] > EXIT_TIMEOUT:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.1)


def _end_all() -> None:
    """Kill all descendants until none is left. It repeats, since a process may start another before it is killed."""
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
