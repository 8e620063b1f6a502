"""One process of the cluster, with its command and its log. Signals reach its children too."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.product import ROOT, die_with_parent

RESTARTED_AFTER = 2.0  # seconds, as RestartSec in deploy/systemd and Debian's units have it
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class ClusterError(Exception):
    """The cluster cannot run. The message says what to do."""


@dataclass
class Process:
    """A process that can be started again. Its log is in `directory`.

    The process gets `environment`, and from the variables of this process only `INHERITED`. `should_run`: `tend`
    restarts it.
    """

    name: str
    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    should_run: bool = False
    _running: "subprocess.Popen[bytes] | None" = None
    _ended: float | None = None  # time of the check that found it ended by itself

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        return self._running.pid if self.alive and self._running else None

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.poll() is None

    def start(self, **environment: str) -> None:
        """Start the process with extra variables. Call it in the main thread: the process dies with this thread."""
        self.should_run, self._ended = True, None
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env={**inherited, "PYTHONUNBUFFERED": "1", **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def tend(self) -> bool:
        """Restart the process `RESTARTED_AFTER` seconds after it ended by itself. Return whether it was restarted."""
        if not self.should_run or self.alive:
            return False
        self._ended = self._ended or time.monotonic()
        if time.monotonic() - self._ended < RESTARTED_AFTER:
            return False
        self.start()
        return True

    def signal(self, number: signal.Signals) -> None:
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        """Kill the process and its children. `tend` restarts it if `should_run` is true."""
        family, running = self._family(), self._running  # `tend` may replace the process soon
        self.signal(signal.SIGKILL)
        psutil.wait_procs(family, timeout=10)
        if running is not None:
            running.wait(10)

    def ask_to_end(self) -> None:
        """Send the stop signal to the process but not to its children, as systemd does (KillMode=mixed)."""
        self.should_run = False
        if self._running is not None and self.alive:
            self._running.send_signal(self.stop_signal)

    def stop(self, seconds: float = 20.0) -> None:
        if self._running is None or not self.alive:
            self.should_run = False
            return
        self.signal(signal.SIGCONT)
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self._running.wait(seconds)
        if self.alive:
            self.kill()

    def tail(self, characters: int = 2_000) -> str:
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def _family(self) -> list[psutil.Process]:
        if self._running is None or not self.alive:
            return []
        try:
            first = psutil.Process(self._running.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
