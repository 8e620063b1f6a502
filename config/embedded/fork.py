"""Processes that are forked from the supervisor, with the modules that it has loaded."""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO

_fork = multiprocessing.get_context("fork")
_ARGUMENTS = slice(45, 47)  # fields of /proc/self/stat behind the name: begin and end of the command line in memory


class Fork:
    """`main` in its own process, with the part of `subprocess.Popen` that `Child` needs.

    Create it in the main thread while there is no other. Like an executed program it begins a process group, has no
    input, no signal handlers and no event loop. Its output goes to `stdout`, or to a pipe together with its stderr.
    `first` is called in the new process before anything else.
    """

    stdin = None

    def __init__(
        self,
        main: Callable[[], None],
        name: str,
        env: Mapping[str, str],
        stdout: IO[bytes] | None,
        first: Callable[[], None] | None,
    ) -> None:
        reading, writing = os.pipe()

        def run() -> None:
            os.setpgid(0, 0)
            if first:
                first()
            _stand_alone(stdout.fileno() if stdout else writing, writing)
            _show_as(f"up: {name}")
            os.environ.update(env)
            main()

        self._process = _fork.Process(target=run, name=name)
        self._process.start()
        os.close(writing)
        pipe = os.fdopen(reading, "rb", buffering=0)
        self.stdout: BinaryIO | None = None if stdout else pipe
        self.stderr: BinaryIO | None = pipe if stdout else None
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _stand_alone(output: int, errors: int) -> None:
    """Reset the inherited state that an executed program would not have."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio.set_event_loop_policy(None)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]  # a terminal's or a pipe's


def _show_as(title: str) -> None:
    """Write the title over the supervisor's command line, as far as it has room: `ps` and `top` show it."""
    if sys.platform == "linux":
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = map(int, fields[_ARGUMENTS])
        room = end - begin
        ctypes.memmove(begin, title.encode()[: room - 1].ljust(room, b"\0"), room)
