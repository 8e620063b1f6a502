"""Reads a file in a process of its own, so that a hostile one takes down nothing else."""

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from readers.formats import result
from readers.formats.result import Extracted, ReaderError

WALL_SECONDS = 45.0
# Secrets of the product are in its environment; whoever reads unknown bytes has no need of them.
ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
ROOT = Path(__file__).resolve().parents[1]
LOCKED = 4  # the status of `readers.render` where a PDF needs a password
_SIGNALS = {
    signal.SIGXCPU: "took_too_long",
    signal.SIGXFSZ: "too_large",
    signal.SIGKILL: "too_much_memory",  # the kernel's, when the machine has none left
}

logger = logging.getLogger(__name__)


def extract(path: Path, name: str, encoding: str = "", password: str = "") -> Extracted:
    """Raises `ReaderError`; RuntimeError when the reading process itself is broken.

    The name only tells kinds of text apart. `encoding` is that of a text if somebody has said it; else it is found.
    `password` is that of a protected file, a line at most.
    """
    status, output = _run(["readers", str(path.absolute()), name, str(os.getpid()), encoding], path, password)
    if status > 0:
        raise RuntimeError(f"the process that reads files ended with status {status}")
    return result.decoded(output)


def page_of(path: Path, number: int, password: str = "", *, turned: bool = False) -> tuple[int, bytes]:
    """How many pages a PDF has, and this one, counted from 0, as PNG; `turned`: upside down. Raises
    `ReaderError`."""
    return _drawn(path, number, "turned" if turned else "recognised", password, ("", 0, ()))


def shown_page(
    path: Path, number: int, passage: str = "", before: int = 0, places: Sequence[Sequence[int]] = ()
) -> bytes:
    """A page of a PDF, counted from 0, as JPEG, with `places` marked on it, as `outside.places.Place`, and the passage
    where it is found in its text. Raises `ReaderError`.

    `before` is how many letters and digits stand before the passage on the page, as far as is known.
    """
    return _drawn(path, number, "shown", "", (passage, before, places))[1]


def _drawn(
    path: Path, number: int, purpose: str, password: str, marked: tuple[str, int, Sequence[Sequence[int]]]
) -> tuple[int, bytes]:
    command = ["readers.render", str(path.absolute()), str(os.getpid()), str(number), purpose]
    status, output = _run(command, path, password, json.dumps(marked))
    if status > 0:
        raise ReaderError("encrypted" if status == LOCKED else "damaged")
    count, _, picture = output.partition(b"\n")
    return int(count), picture


def _run(command: list[str], path: Path, *told: str) -> tuple[int, bytes]:
    """The status and the output of a module that reads the file at `path`; raises what a signal to it means.

    It reads `told` from its standard input, a line each.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            _tell(process, told)
            status = _status(process)
        finally:
            _end(process)
        output.seek(0)
        errors.seek(0)
        if said := errors.read(4_000).decode(errors="replace"):
            logger.warning("reading %s: %s", path.name, said)
        if status < 0:
            raise ReaderError(_SIGNALS.get(signal.Signals(-status), "damaged"))
        return status, output.read()


def layers_that_hold() -> list[str]:
    """Which of the layers of confinement this system grants."""
    probe = [sys.executable, "-m", "readers.confinement"]
    told = subprocess.run(probe, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=WALL_SECONDS)
    return list(json.loads(told.stdout)) if told.returncode == 0 else []


def _tell(process: "subprocess.Popen[bytes]", told: Iterable[str]) -> None:
    """By a pipe: arguments and environment of a process are seen by others of the machine."""
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("".join(f"{line}\n" for line in told).encode())
            process.stdin.flush()


def _status(process: "subprocess.Popen[bytes]") -> int:
    if process.stdin:
        poller = select.poll()
        poller.register(process.stdin, 0)  # nothing is written: this reports when the other end is closed, at once
        poller.poll(WALL_SECONDS * 1000)  # where Popen.wait would look every 50 ms
    try:
        return process.wait(1.0)
    except subprocess.TimeoutExpired as error:
        raise ReaderError("took_too_long") from error


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin:
        process.stdin.close()
