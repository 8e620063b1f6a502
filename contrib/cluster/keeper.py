"""Runs a program with all that it starts, and leaves nothing of that behind, however the program or its caller ends.

Servers start processes of their own, which outlive them where they are killed. This process takes in whatever has lost
its parent below it (PR_SET_CHILD_SUBREAPER), and ends that. Were it killed itself, the program is asked to end.
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


def kept(program: Callable[[Path], int]) -> int:
    """What the program returns, which gets a new directory that goes with it. It is asked to end by a
    KeyboardInterrupt, once; 1 where it ends by that."""
    _prctl(_SUBREAPER, 1)
    place = Path(tempfile.mkdtemp(prefix="glasshouse-cluster-"))
    place.chmod(0o711)  # PostgreSQL runs as another user
    sys.stdout.flush()
    keeper, asked = os.getpid(), list[float]()
    for number in ASKED:
        signal.signal(number, lambda *_: asked.append(time.monotonic()))
    if not (child := os.fork()):
        os._exit(_run(program, place, keeper))
    try:
        return _outcome(child, asked)
    finally:
        _end_all()
        shutil.rmtree(place, ignore_errors=True)


def _run(program: Callable[[Path], int], place: Path, keeper: int) -> int:
    """In a session of its own: what a terminal sends its processes reaches the keeper alone, which hands it on."""
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


def _outcome(child: int, asked: list[float]) -> int:
    """Of the program; others that have become children here are heard of, too, else they would stay in the lists."""
    told = False
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid and pid != child:
            continue
        if pid:
            return max(os.waitstatus_to_exitcode(status), 0) or (1 if os.WIFSIGNALED(status) else 0)
        if asked and not told:
            told = True
            os.kill(child, signal.SIGTERM)
        if asked and time.monotonic() - asked[0] > PATIENCE:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.1)


def _end_all() -> None:
    """Until there is none: what is killed may have started another one meanwhile."""
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
