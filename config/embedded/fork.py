"""Fork processes from the supervisor, so that they share the modules that it has loaded."""

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
_ARGUMENTS = slice(45, 47)  # fields after the name in /proc/self/stat: start and end addresses of the command line


class Fork:
    """A process that runs `main`, with the part of `subprocess.Popen` that `Child` needs.

    Create it in the main thread while no other thread runs. Like an executed program, it starts its own process group
    and has no input, no signal handlers and no event loop. Its output goes to `stdout` or, if that is None, to a pipe
    together with its errors. The new process calls `before_main` first.
    """

    stdin = None

    def __init__(
        self,
        main: Callable[[], None],
        name: str,
        env: Mapping[str, str],
        stdout: IO[bytes] | None,
        before_main: Callable[[], None] | None,
    ) -> None:
        reading, writing = os.pipe()

        def run() -> None:
            os.setpgid(0, 0)
            if before_main:
                before_main()
            _reset_inherited_state(stdout.fileno() if stdout else writing, writing)
            _set_title(f"up: {name}")
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


def _reset_inherited_state(output: int, errors: int) -> None:
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


def _set_title(title: str) -> None:
    """Overwrite the process's command line with the title, so that `ps` and `top` show it. A long title is cut off."""
    if sys.platform == "linux":
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = map(int, fields[_ARGUMENTS])
        room = end - begin
        ctypes.memmove(begin, title.encode()[: room - 1].ljust(room, b"\0"), room)
