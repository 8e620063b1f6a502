"""Run child processes that never outlive the supervisor. Servers are restarted when they end."""

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO, TypeVar

from config.embedded.fork import Fork
from config.embedded.paths import PROJECT_ROOT, StartError

T = TypeVar("T")
STOP_SECONDS = 10.0
READ_BYTES = 65_536
FIRST_PAUSE = 1.0  # seconds between the end of a server and its first restart
MAX_PAUSE = 60.0  # seconds between the end of a server and its restart
STEADY_SECONDS = 60.0  # a server that ran for this long is restarted after the first pause again
TRIES = 3  # starts of a server before it counts as failed, if it was never ready
OWN_NAME = "up"  # the name of the supervisor in the output
PR_SET_PDEATHSIG = 1
COLOURS = (36, 35, 34, 33, 32, 96, 95, 94)

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class ChildProgram:
    """A program to run: the command `argv`, or `main` in a fork of the supervisor.

    `stage`: programs with the highest stage are stopped first. `ready_line`: words in the output line that reports that
    the server is ready. `parent_death_signal`: the signal that the kernel sends it when the supervisor has died.
    `reads_input`: its input stays open until `Child.release`; otherwise it has no input. `niceness`: its nice value.
    `memory`: bytes that it may allocate (RLIMIT_DATA), 0 for no limit. `oom_score`: its `oom_score_adj`, 0 to 1,000.
    """

    name: str
    argv: Sequence[str]
    stage: int
    env: Mapping[str, str] = field(default_factory=dict)
    ready_line: str = ""
    stop_signal: signal.Signals = signal.SIGTERM
    parent_death_signal: signal.Signals = signal.SIGKILL
    fds: Sequence[int] = ()
    reads_input: bool = False
    niceness: int = 0
    memory: int = 0
    oom_score: int = 0
    main: Callable[[], None] | None = None


class Child:
    """A running process.

    A server and its restarts share the future `ready`, which is done once any of them was ready.
    """

    def __init__(
        self,
        program: ChildProgram,
        process: "subprocess.Popen[bytes] | Fork",
        *,
        colour: int,
        ready: "asyncio.Future[None] | None" = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.program = program
        self.process = process
        self.colour = colour
        self.start_time = loop.time()
        self.ready: asyncio.Future[None] = ready or loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self.unfinished_line = b""

    def set_ready(self) -> None:
        """Mark a server as ready. For a server whose output does not report it."""
        if not self.ready.done():
            self.ready.set_result(None)

    def release(self, text: str = "") -> None:
        """Write `text` to the input of a program that `reads_input`, and close the input."""
        if stdin := self.process.stdin:
            with contextlib.suppress(BrokenPipeError), stdin:
                stdin.write(text.encode())

    async def status(self) -> int:
        """Wait for the end and return the exit status. Cancelling this does not cancel the shared future `ended`."""
        await asyncio.wait({self.ended})
        return self.ended.result()


class BackOff:
    """The pause before a server's restart: 1 s, twice as long each time, 60 s at most."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def pause(self, ran: float) -> float:
        """Return the seconds before the next start of a server that ran for `ran` seconds.

        The pause is short again after a run of `STEADY_SECONDS`.
        """
        pause = FIRST_PAUSE if ran >= STEADY_SECONDS else self._next
        self._next = min(2 * pause, MAX_PAUSE)
        return pause


class Children:
    """The children of one supervisor. Use it only in the main thread, inside its event loop.

    PR_SET_PDEATHSIG is bound to the thread that forked, not to the process: a child that a helper thread started would
    be killed when that thread ends. Every child inherits the file descriptor `lock`, so a lock on it lasts until the
    last child has ended. The lines of all children go to `output`.
    """

    def __init__(self, lock: int, output: TextIO = sys.stdout) -> None:
        self._lock = lock
        self._output = output
        self._all: list[Child] = []
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[str] = self._loop.create_future()
        self._restarting: list[asyncio.Task[None]] = []
        self._started = 0
        self._stopping = False
        self._loop.add_signal_handler(signal.SIGCHLD, self._collect)

    def start(self, program: ChildProgram, prepare: Callable[[], Awaitable[None]] | None = None) -> Child:
        """Start a server, and restart it whenever it ends, until `stop`. Await `prepare` before each restart.

        If a server ends `TRIES` times before it was ever ready, `unless_one_fails` raises.
        """
        child = self._spawn(program, stdout=None)
        task = asyncio.create_task(self._keep_running(child, prepare))
        task.add_done_callback(self._note_error)
        self._restarting.append(task)
        return child

    async def run(self, program: ChildProgram, text: str = "") -> str:
        """Run a program to its end and return its stdout. Raises StartError if it fails.

        `text`: the whole input, for a program that `reads_input`.
        """
        with tempfile.TemporaryFile() as output:
            child = self._spawn(program, stdout=output)
            child.release(text)
            status = await child.status()
            self._remove(child)
            output.seek(0)
            written = output.read().decode(errors="replace")
        if status != 0:
            raise StartError(f"{program.name} failed ({_describe(status)}); the lines above say why.")
        return written

    async def unless_one_fails(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. If a server cannot be started, cancel `work` and raise StartError."""
        task = asyncio.ensure_future(work)
        try:
            futures: set[asyncio.Future[Any]] = {task, self._failure}
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                raise StartError(self._failure.result())
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def stop(self) -> None:
        """Stop all children, stage by stage.

        Each child gets its stop signal. After `STOP_SECONDS`, or when it has ended, its process group gets SIGKILL.
        """
        self._stopping = True
        for task in self._restarting:
            task.cancel()
        await asyncio.gather(*self._restarting, return_exceptions=True)
        for stage in sorted({child.program.stage for child in self._all}, reverse=True):
            await asyncio.gather(*(_stop(child) for child in self._all if child.program.stage == stage))
        self._loop.remove_signal_handler(signal.SIGCHLD)

    async def _keep_running(self, child: Child, prepare: Callable[[], Awaitable[None]] | None) -> None:
        """Restart a server whenever it ends. Return only if it was never ready in `TRIES` starts."""
        back_off = BackOff()
        tries = 1
        while True:
            status = await child.status()
            ran = self._loop.time() - child.start_time
            self._remove(child)
            if not child.ready.done() and tries == TRIES:
                self._fail(child.program.name, _describe(status))
                return
            tries += 1
            end = f"{'was killed' if status < 0 else 'ended by itself'} ({_describe(status)})"
            child = await self._restart(child, prepare, back_off, end, ran)

    async def _restart(
        self,
        child: Child,
        prepare: Callable[[], Awaitable[None]] | None,
        back_off: BackOff,
        end: str,
        ran: float,
    ) -> Child:
        """Start a server again after a pause. Try again after a longer pause if it cannot start (no memory)."""
        while True:
            pause = back_off.pause(ran)
            self._say(f"{child.program.name} {end}; it is restarted in {pause:g} s.")
            await asyncio.sleep(pause)
            try:
                if prepare:
                    await prepare()
                return self._spawn(child.program, stdout=None, ready=child.ready, colour=child.colour)
            except (OSError, StartError) as error:
                end = f"could not be started ({str(error).rstrip('.')})"
                ran = 0.0

    def _fail(self, name: str, end: str) -> None:
        if not self._stopping and not self._failure.done():
            self._failure.set_result(
                f"{name} ended {TRIES} times before it was ready (last: {end}), so everything was stopped;"
                " the lines above say why. Start again when that is fixed."
            )

    def _note_error(self, task: "asyncio.Task[None]") -> None:
        """Report an error in the restart task. Without this, nothing would restart the server."""
        if not task.cancelled() and (error := task.exception()) and not self._failure.done():
            self._failure.set_exception(error)

    def _remove(self, child: Child) -> None:
        """Remove an ended child and kill the rest of its process group now, since the system may reuse its id later."""
        self._all.remove(child)
        _kill_group(child)

    def _spawn(
        self,
        program: ChildProgram,
        *,
        stdout: IO[bytes] | None,
        ready: "asyncio.Future[None] | None" = None,
        colour: int | None = None,
    ) -> Child:
        """Start a process and show its output. With `stdout`, only its stderr is shown."""
        if self._stopping:
            raise StartError(f"{program.name} was not started: everything is being stopped.")
        process = self._start_process(program, stdout)
        niceness = max(program.niceness, os.getpriority(os.PRIO_PROCESS, 0))  # a process cannot lower its niceness
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        _set_memory_limits(process.pid, program)
        if colour is None:
            colour = COLOURS[self._started % len(COLOURS)]
            self._started += 1
        child = Child(program, process, colour=colour, ready=ready)
        self._all.append(child)
        for stream in filter(None, (process.stdout, process.stderr)):
            os.set_blocking(stream.fileno(), False)
            self._loop.add_reader(stream, self._show, child, stream)
        return child

    def _start_process(self, program: ChildProgram, stdout: IO[bytes] | None) -> "subprocess.Popen[bytes] | Fork":
        bind = _bind_to_parent(program.parent_death_signal)
        if program.main:
            return Fork(program.main, program.name, program.env, stdout, bind)
        return subprocess.Popen(
            program.argv,
            stdin=subprocess.PIPE if program.reads_input else subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **program.env},
            cwd=PROJECT_ROOT,  # `-m celery -A config` finds the code here
            process_group=0,  # Ctrl-C in the terminal reaches only the supervisor
            preexec_fn=bind,
            pass_fds=(self._lock, *program.fds),
        )

    def _collect(self) -> None:
        for child in self._all:
            if not child.ended.done() and (status := child.process.poll()) is not None:
                child.ended.set_result(status)

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
        words = child.program.ready_line
        if words and words in line:
            child.set_ready()
        if line:
            self._write(child.program.name, line, child.colour)

    def _say(self, sentence: str) -> None:
        self._write(OWN_NAME, sentence)

    def _write(self, name: str, line: str, colour: int | None = None) -> None:
        prefix = f"{name:<8} |"
        if colour is not None and self._output.isatty():
            prefix = f"\033[{colour}m{prefix}\033[0m"
        with contextlib.suppress(OSError):  # a closed terminal must not stop the supervisor
            self._output.write(f"{prefix} {line}\n")
            self._output.flush()


async def _stop(child: Child) -> None:
    if not child.ended.done():
        child.process.send_signal(child.program.stop_signal)
        await asyncio.wait({child.ended}, timeout=STOP_SECONDS)
    _kill_group(child)
    await child.status()


def _kill_group(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)


def _set_memory_limits(pid: int, program: ChildProgram) -> None:
    """Set the memory limits of a process, on Linux only. A lower inherited limit stays."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):
        if program.memory:
            soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
            if soft == resource.RLIM_INFINITY or soft > program.memory:
                resource.prlimit(pid, resource.RLIMIT_DATA, (program.memory, hard))
        if program.oom_score:
            Path(f"/proc/{pid}/oom_score_adj").write_text(f"{program.oom_score}")


def _describe(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def _bind_to_parent(parent_death_signal: signal.Signals) -> Callable[[], None] | None:
    if _libc is None:
        return None
    prctl = _libc.prctl
    parent = os.getpid()

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, parent_death_signal)
        if os.getppid() != parent:  # the parent died before the call above
            os.kill(os.getpid(), signal.SIGKILL)

    return bind
