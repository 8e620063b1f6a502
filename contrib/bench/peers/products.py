"""The base class of the measured products: installation, processes, and functions that ask a question."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from contrib.bench.peers.client import AnswerExchange
from tests.product import ROOT, die_with_parent, free_port

FOLDER = Path(__file__).parent
READY = 180.0  # seconds a start may take
ENDED = 20.0  # seconds that processes have to end after SIGTERM

Ask = Callable[[str], AnswerExchange]  # an exchange that sends this text


class Product:
    """A product and its processes. `paths` holds functions that ask in a new conversation, by the name of a column.

    `lengths` holds functions that take a number of messages, and return a function that asks in a conversation with
    so many messages.
    """

    name = ""
    cwd: Path | None = None
    health = "/"  # answers 200 once it serves

    def __init__(self, directory: Path, model_url: str) -> None:
        self.directory = directory
        self.model_url = model_url
        self.port = free_port()
        # One client for all requests, since a new one uses the measured processors for tens of milliseconds.
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60.0)
        self.paths: dict[str, Ask] = {}
        self.lengths: dict[str, Callable[[int], Ask]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def prepare(self) -> None:
        """Create accounts and the model after the first start. After each start, send the first requests of a page."""

    def people(self, count: int) -> None:
        """Create `count` accounts, if each parallel answer needs its own account."""

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.cwd or self.directory,
                env={**os.environ, **self.environment()},
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=die_with_parent,
            )
        self._wait()
        self.prepare()

    def _wait(self) -> None:
        deadline = time.monotonic() + READY
        while time.monotonic() < deadline:
            if self._process and self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended:\n{self._log()}")
            try:
                if self.http.get(self.health).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} was not ready within {READY:g} s:\n{self._log()}")

    def _log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def end(self) -> None:
        """End all processes. Processes that still run after `ENDED` seconds are killed."""
        if self._process and self._process.poll() is None:
            family = self._family()
            self._process.send_signal(signal.SIGTERM)
            _, alive = psutil.wait_procs(family, timeout=ENDED)
            for process in alive:
                process.kill()
            self._process.wait()
        self._process = None

    def _family(self) -> list[psutil.Process]:
        root = psutil.Process(self._process.pid if self._process else None)
        return [root, *root.children(recursive=True)]

    def cpu(self) -> float:
        """Return the user and system time of all processes so far, in seconds, including ended child processes."""
        return sum(sum(process.cpu_times()[:4]) for process in self._family())

    def processes(self) -> int:
        return len(self._family())

    def memory(self) -> float:
        """Return the memory of all processes in megabytes. Shared memory counts once (PSS)."""
        return sum(process.memory_full_info().pss for process in self._family()) / 1e6


def environment_of(package: str) -> Path:
    """Return the folder of a peer's virtual environment, in `BENCH_PEERS` or else in `.peers`, which git ignores."""
    return Path(os.environ.get("BENCH_PEERS") or ROOT / ".peers").absolute() / package


def program(package: str) -> str:
    return str(environment_of(package) / "bin" / package)


def install(package: str) -> None:
    """Install a peer with uv into its environment, unless its requirements have not changed since the last time."""
    place, requirements = environment_of(package), FOLDER / f"requirements-{package}.txt"
    done = place / ".installed"
    if done.exists() and done.read_text() == requirements.read_text():
        return
    uv = str(Path(sys.executable).parent / "uv")
    print(f"Installing {package} into {place}; the first time this takes a minute or more.", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    command = [uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), "-r", str(requirements)]
    left_out = FOLDER / f"left-out-of-{package}.txt"
    subprocess.run([*command, *(["--override", str(left_out)] if left_out.exists() else [])], check=True)
    done.write_text(requirements.read_text())
