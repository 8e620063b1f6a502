"""Run an installed program on a file, in a folder of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from readers.formats.result import ReaderError

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 150
UNCONFINED = 77  # exit status of `readers.launch` if the system cannot confine the program


def find(*names: str) -> str:
    """Return the path of the first of these programs that is installed; "" if none is."""
    return next(filter(None, map(shutil.which, names)), "")


def run(folder: Path, program: str, *arguments: str) -> bytes:
    """Return the program's standard output.

    Raises `machine_busy`, `damaged` if the program fails, and `unsupported` if the system cannot confine it.
    """
    environment = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "HOME": str(folder), "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "readers.launch", str(os.getpid()), str(folder), program, *arguments],
        cwd=ROOT,
        env={**environment, "OMP_THREAD_LIMIT": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ReaderError("machine_busy") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also ends the program's children
        process.wait()
    if process.returncode:
        raise ReaderError("unsupported" if process.returncode == UNCONFINED else "damaged")
    return output
