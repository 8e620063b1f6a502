"""One process of the cluster: its command, its log, its id; signals reach it with all that it has started."""

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
KEPT_FROM_US = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class ClusterError(Exception):
    """The cluster cannot be started; the sentence says what to do."""


@dataclass
class Process:
    """`directory` gets its log. `environment` is all it gets of ours beside KEPT_FROM_US."""

    name: str
    command: Sequence[str]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    wanted: bool = False
    _running: "subprocess.Popen[bytes] | None" = None
    _ended: float | None = None  # when it was seen to have ended by itself

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
        """From the main thread alone: it dies with the thread that has started it. `environment`: what differs now."""
        self.wanted, self._ended = True, None
        kept = {name: os.environ[name] for name in KEPT_FROM_US if name in os.environ}
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env={**kept, "PYTHONUNBUFFERED": "1", **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def tend(self) -> bool:
        """Starts it again, a little after it has ended without being asked to; whether it did."""
        if not self.wanted or self.alive:
            return False
        self._ended = self._ended or time.monotonic()
        if time.monotonic() - self._ended < RESTARTED_AFTER:
            return False
        self.start()
        return True

    def signal(self, number: signal.Signals) -> None:
        for each in self._family():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def kill(self) -> None:
        """It and all it has started; it is not started again until somebody asks for it or `wanted` says so."""
        family, running = self._family(), self._running  # which may soon be another one, see `tend`
        self.signal(signal.SIGKILL)
        psutil.wait_procs(family, timeout=10)
        if running is not None:
            running.wait(10)

    def ask_to_end(self) -> None:
        """As systemd does (KillMode=mixed): it alone hears of it, not what it has started."""
        self.wanted = False
        if self._running is not None and self.alive:
            self._running.send_signal(self.stop_signal)

    def stop(self, seconds: float = 20.0) -> None:
        if self._running is None or not self.alive:
            self.wanted = False
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
