"""Read a file in a separate process, so that a hostile file cannot harm anything else."""

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

# A reader has 40 seconds of processor time (`confinement.CPU_SECONDS`). It takes longer than `WALL_SECONDS` only if it
# waits for the processor: at a load of 28 on two cores, 5 seconds of work took more than 45.
WALL_SECONDS = 150.0
# The product's environment has secrets, which a process that reads unknown bytes must not have.
ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
ROOT = Path(__file__).resolve().parents[1]
STATUS_LOCKED = 4  # exit status of `readers.render` if a PDF needs a password
_SIGNALS = {
    signal.SIGXCPU: "took_too_long",
    signal.SIGXFSZ: "too_large",
    signal.SIGKILL: "machine_full",  # sent by the kernel when the machine has no memory left
}
_MACHINE_ERRORS = ("machine_busy", "machine_full")  # not the file's fault, so it is tried once more
_NO_MEMORY = b"memory allocation of"  # message of a Rust library that aborts (`std::alloc::handle_alloc_error`)

logger = logging.getLogger(__name__)


def extract(path: Path, name: str, encoding: str = "", password: str = "") -> Extracted:
    """Return the text of a file. Raises `ReaderError`, and RuntimeError if the reading process itself fails.

    `name` only decides between kinds of text. `encoding`: the encoding of a text, detected if empty. `password`: the
    password of a protected file, one line at most.
    """
    status, output = _run(["readers", str(path.absolute()), name, str(os.getpid()), encoding], path, password)
    if status > 0:
        raise RuntimeError(f"the process that reads files ended with status {status}")
    return result.decode_result(output)


def draw_page(path: Path, number: int, password: str = "", *, turned: bool = False) -> tuple[int, bytes]:
    """Return the number of pages of a PDF, and page `number` (from 0) as PNG. Raises `ReaderError`.

    `turned`: the page is drawn upside down.
    """
    return _draw(path, number, "turned" if turned else "recognised", password, ("", 0, ()))


def draw_marked_page(
    path: Path, number: int, passage: str = "", before: int = 0, places: Sequence[Sequence[int]] = ()
) -> bytes:
    """Return page `number` (from 0) of a PDF as JPEG, with `places` and the passage marked. Raises `ReaderError`.

    `places`: see `readers.outside.places.WordPlace`. `before`: the number of letters and digits before the passage on
    the page, if known.
    """
    return _draw(path, number, "shown", "", (passage, before, places))[1]


def _draw(
    path: Path, number: int, purpose: str, password: str, marked: tuple[str, int, Sequence[Sequence[int]]]
) -> tuple[int, bytes]:
    command = ["readers.render", str(path.absolute()), str(os.getpid()), str(number), purpose]
    status, output = _run(command, path, password, json.dumps(marked))
    if status > 0:
        raise ReaderError("encrypted" if status == STATUS_LOCKED else "damaged")
    count, _, picture = output.partition(b"\n")
    return int(count), picture


def _run(command: list[str], path: Path, *input_lines: str) -> tuple[int, bytes]:
    """Run a module that reads the file at `path`. Return its exit status and output.

    The module reads the input lines from its standard input. Raises `ReaderError` if a signal ended it. A process that
    the machine had no time or no memory for is started once more.
    """
    try:
        return _run_once(command, path, input_lines)
    except ReaderError as error:
        if error.code not in _MACHINE_ERRORS:
            raise
        logger.warning("reading %s once more: %s", path.name, error.code)
        return _run_once(command, path, input_lines)


def _run_once(command: list[str], path: Path, input_lines: Iterable[str]) -> tuple[int, bytes]:
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
            _send(process, input_lines)
            status = _status(process)
        finally:
            _kill(process)
        output.seek(0)
        errors.seek(0)
        if messages := errors.read(4_000):
            logger.warning("reading %s: %s", path.name, messages.decode(errors="replace"))
        if status < 0:
            no_memory = _NO_MEMORY in messages
            raise ReaderError("too_much_memory" if no_memory else _SIGNALS.get(signal.Signals(-status), "damaged"))
        return status, output.read()


def active_layers() -> list[str]:
    """Return the layers of confinement that this system grants."""
    probe = [sys.executable, "-m", "readers.confinement"]
    finished = subprocess.run(probe, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=WALL_SECONDS)
    return list(json.loads(finished.stdout)) if finished.returncode == 0 else []


def _send(process: "subprocess.Popen[bytes]", input_lines: Iterable[str]) -> None:
    """Write lines to a process through its pipe: other users of the machine could see arguments and environments."""
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("".join(f"{line}\n" for line in input_lines).encode())
            process.stdin.flush()


def _status(process: "subprocess.Popen[bytes]") -> int:
    if process.stdin:
        poller = select.poll()
        poller.register(process.stdin, 0)  # wakes as soon as the process closes its end of the pipe
        poller.poll(WALL_SECONDS * 1000)  # `Popen.wait` would check every 50 ms
    try:
        return process.wait(1.0)
    except subprocess.TimeoutExpired as error:
        raise ReaderError("machine_busy") from error


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin:
        process.stdin.close()
