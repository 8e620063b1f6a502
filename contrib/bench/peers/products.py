"""What is measured: a product's processes, how it is installed and started, and the ways to ask it."""

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

from contrib.bench.peers.client import Exchange
from tests.product import ROOT, die_with_parent, free_port

HERE = Path(__file__).parent
READY = 180.0  # seconds a start may take
ENDED = 20.0  # seconds to end by itself

Ask = Callable[[str], Exchange]  # an exchange that sends this text


class Product:
    """One product's processes. `paths` are the ways to ask it, by the name of a column: each in a new conversation.

    `lengths` are ways to ask in a conversation that has so many messages already.
    """

    name = ""
    cwd: Path | None = None
    health = "/"  # answers 200 once it serves

    def __init__(self, directory: Path, model_url: str) -> None:
        self.directory = directory
        self.model_url = model_url
        self.port = free_port()
        # One for all: to make one takes tens of milliseconds of the processors that are measured.
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
        """Accounts and the model, after the first start; what a person's page does first, after each."""

    def people(self, count: int) -> None:
        """Makes so many accounts, where everybody needs one of their own."""

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
        """With all its processes."""
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
        """Seconds of user and system time of all processes so far, also of those that have ended."""
        return sum(sum(process.cpu_times()[:4]) for process in self._family())

    def processes(self) -> int:
        return len(self._family())

    def memory(self) -> float:
        """Megabytes of all processes, what they share counted once (PSS)."""
        return sum(process.memory_full_info().pss for process in self._family()) / 1e6


def environment_of(package: str) -> Path:
    """Where the peer is installed: in `BENCH_PEERS`, by default a folder of this tree that git ignores."""
    return Path(os.environ.get("BENCH_PEERS") or ROOT / ".peers").absolute() / package


def program(package: str) -> str:
    return str(environment_of(package) / "bin" / package)


def install(package: str) -> None:
    """Installs a peer with uv into its environment, unless it is there as its requirements say."""
    place, requirements = environment_of(package), HERE / f"requirements-{package}.txt"
    done = place / ".installed"
    if done.exists() and done.read_text() == requirements.read_text():
        return
    uv = str(Path(sys.executable).parent / "uv")
    print(f"Installing {package} into {place}; the first time this takes a minute or more.", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    command = [uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), "-r", str(requirements)]
    left_out = HERE / f"left-out-of-{package}.txt"
    subprocess.run([*command, *(["--override", str(left_out)] if left_out.exists() else [])], check=True)
    done.write_text(requirements.read_text())
