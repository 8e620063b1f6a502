"""Child processes that never outlive the process that started them."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, TextIO, TypeVar

from config.embedded.fork import Fork
from config.embedded.paths import PROJECT_ROOT, StartError

T = TypeVar("T")
STOP_SECONDS = 10.0
READ_BYTES = 65_536
PR_SET_PDEATHSIG = 1
COLOURS = (36, 35, 34, 33, 32, 96, 95, 94)

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Program:
    """What to run and how to end it: the command `argv`, or `main` in a fork of the supervisor.

    `stage` orders the end: the highest stage is stopped first. `says_when_ready`: words of the line in its output that
    tell it serves. `bereaved` is the signal the kernel sends it when the supervisor is gone. `waits`: its input stays
    open until `Child.release`; it has none otherwise. `niceness`: how far it gives way to the others.
    """

    name: str
    argv: Sequence[str]
    stage: int
    env: Mapping[str, str] = field(default_factory=dict)
    says_when_ready: str = ""
    stop_signal: signal.Signals = signal.SIGTERM
    bereaved: signal.Signals = signal.SIGKILL
    fds: Sequence[int] = ()
    waits: bool = False
    niceness: int = 0
    main: Callable[[], None] | None = None


class Child:
    def __init__(self, program: Program, process: "subprocess.Popen[bytes] | Fork") -> None:
        loop = asyncio.get_running_loop()
        self.program = program
        self.process = process
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self.unfinished_line = b""

    def release(self, text: str = "") -> None:
        """Gives it its input and closes that."""
        if stdin := self.process.stdin:
            with contextlib.suppress(BrokenPipeError), stdin:
                stdin.write(text.encode())

    async def status(self) -> int:
        """0 or a number as the system gave it. Unlike with a plain await, cancellation leaves the future alone."""
        await asyncio.wait({self.ended})
        return self.ended.result()


class Children:
    """The children of one supervisor, to be used in the main thread and inside its event loop.

    PR_SET_PDEATHSIG follows the thread that forked, not the process: a child started from a helper thread would be
    killed when that thread ends. Every child also gets the file descriptor `held`, so that a lock on it lasts until
    the last of them is gone. Their lines go to `output`.
    """

    def __init__(self, held: int, output: TextIO = sys.stdout) -> None:
        self._held = held
        self._output = output
        self._all: list[Child] = []
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[str] = self._loop.create_future()
        self._stopping = False
        self._loop.add_signal_handler(signal.SIGCHLD, self._collect)

    def start(self, program: Program) -> Child:
        """A server. Its end before `stop` makes `unless_one_ends` fail."""
        child = self._spawn(program, stdout=None)
        child.ended.add_done_callback(lambda status: self._note_end(child, status.result()))
        return child

    async def run(self, program: Program, text: str = "") -> str:
        """Runs a program to its end and returns what it wrote to stdout; raises StartError if it fails.

        `text` is the whole input of one that `waits`.
        """
        with tempfile.TemporaryFile() as output:
            child = self._spawn(program, stdout=output)
            child.release(text)
            status = await child.status()
            output.seek(0)
            written = output.read().decode(errors="replace")
        if status != 0:
            raise StartError(f"{program.name} failed ({_describe(status)}); the lines above say why.")
        return written

    async def unless_one_ends(self, work: Awaitable[T]) -> T:
        """The result of `work`; when a server ends by itself, cancels `work` and raises StartError."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._failure}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                raise StartError(self._failure.result())
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def stop(self) -> None:
        """Ends all, stage by stage: its stop signal, after `STOP_SECONDS` KILL, and KILL for what it leaves behind."""
        self._stopping = True
        for stage in sorted({child.program.stage for child in self._all}, reverse=True):
            await asyncio.gather(*(_end(child) for child in self._all if child.program.stage == stage))
        self._loop.remove_signal_handler(signal.SIGCHLD)

    def _spawn(self, program: Program, *, stdout: IO[bytes] | None) -> Child:
        """With `stdout`, only stderr is shown; without, both are."""
        if self._stopping:
            raise StartError(f"{program.name} was not started: everything is being stopped.")
        process = self._begin(program, stdout)
        niceness = max(program.niceness, os.getpriority(os.PRIO_PROCESS, 0))  # nobody may take theirs back
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        child = Child(program, process)
        self._all.append(child)
        for shown in filter(None, (process.stdout, process.stderr)):
            os.set_blocking(shown.fileno(), False)
            self._loop.add_reader(shown, self._show, child, shown)
        return child

    def _begin(self, program: Program, stdout: IO[bytes] | None) -> "subprocess.Popen[bytes] | Fork":
        bind = _bind_to_parent(program.bereaved)
        if program.main:
            return Fork(program.main, program.name, program.env, stdout, bind)
        return subprocess.Popen(
            program.argv,
            stdin=subprocess.PIPE if program.waits else subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **program.env},
            cwd=PROJECT_ROOT,  # where `-m celery -A config` finds the code
            process_group=0,  # Ctrl-C in the terminal reaches the supervisor alone
            preexec_fn=bind,
            pass_fds=(self._held, *program.fds),
        )

    def _collect(self) -> None:
        for child in self._all:
            if not child.ended.done() and (status := child.process.poll()) is not None:
                child.ended.set_result(status)

    def _note_end(self, child: Child, status: int) -> None:
        if not self._stopping and not self._failure.done():
            self._failure.set_result(
                f"{child.program.name} ended by itself ({_describe(status)}), so everything was stopped;"
                " the lines above say why. Start again when that is mended."
            )

    def _show(self, child: Child, stream: IO[bytes]) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(stream.fileno(), READ_BYTES)
            if not data:
                self._loop.remove_reader(stream)
                stream.close()
            *lines, rest = (child.unfinished_line + (data or b"\n")).split(b"\n")
            child.unfinished_line = rest if len(rest) < READ_BYTES else b""
            for line in lines:
                self._print(child, line.decode(errors="replace").rstrip())

    def _print(self, child: Child, line: str) -> None:
        words = child.program.says_when_ready
        if words and words in line and not child.ready.done():
            child.ready.set_result(None)
        if line:
            prefix = f"{child.program.name:<8} |"
            if self._output.isatty():
                prefix = f"\033[{COLOURS[self._all.index(child) % len(COLOURS)]}m{prefix}\033[0m"
            with contextlib.suppress(OSError):  # a closed terminal is no reason to stop in disorder
                self._output.write(f"{prefix} {line}\n")
                self._output.flush()


async def _end(child: Child) -> None:
    if not child.ended.done():
        child.process.send_signal(child.program.stop_signal)
        await asyncio.wait({child.ended}, timeout=STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    await child.status()


def _describe(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def _bind_to_parent(bereaved: signal.Signals) -> Callable[[], None] | None:
    if _libc is None:
        return None
    prctl, parent = _libc.prctl, os.getpid()

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, bereaved)
        if os.getppid() != parent:  # it died before the call above
            os.kill(os.getpid(), signal.SIGKILL)

    return bind
