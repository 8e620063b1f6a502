"""The running product for tests: a web server, a worker and beat as real processes on the test database."""

import ctypes
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import httpx
from django.db import connection

from scripts.services import UNLIMITED, UNLIMITED_PAGES
from tests.scripted_model import ScriptedModel

Result = TypeVar("Result")

ROOT = Path(__file__).resolve().parents[1]
PORTS = range(10_000, 32_000)
WAIT = 60.0  # seconds; the bound of every wait in tests, far above what a loaded machine needs
START = 180.0  # seconds; the product loads three times over, while other test processes load too
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading those of the system costs each client 30 ms


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_port() -> int:
    """Return a free port below those of outgoing connections, one of which could take it before its server starts."""
    while True:
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server(Protocol):
    """A server that answers a test's requests. `directory` holds its files."""

    url: str
    model: ScriptedModel
    directory: Path

    def http(self, path: str = "/", **options: Any) -> httpx.Client:
        """Return a client for the paths below `path`."""


@dataclass
class Product:
    """The processes of a product. Each was started with `environment`."""

    url: str
    model: ScriptedModel
    environment: dict[str, str]
    directory: Path
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _last_answer: str = ""

    def http(self, path: str = "/", **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url + path, timeout=WAIT, verify=NO_AUTHORITIES, **options)

    def start(self, name: str, *command: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def start_worker(self) -> None:
        """One for everything, with far fewer threads than tests have answers in the making."""
        options = ("--pool", "threads", "--concurrency", "16", "-Q", "turns,background")
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        self.start("worker", "celery", "-A", "config", "worker", *options, *quiet)

    def start_web(self) -> None:
        port = self.url.rpartition(":")[2]
        self.start("web", "config.web", "-b", "127.0.0.1", "-p", port)

    def start_beat(self) -> None:
        self.start("beat", "celery", "-A", "config.beat", "beat", "-s", str(self.directory / "beat"))

    def end(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(WAIT)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def wait_until_ready(self) -> None:
        try:
            until(self._is_ready, "the product is ready", START)
        except AssertionError as error:
            logs = "\n".join(f"{name}:\n{self.log(name)[-3000:]}" for name in self.processes)
            raise RuntimeError(f"{error}\n{self._last_answer}\n{logs}") from error

    def _is_ready(self) -> bool:
        """The web process serves, and it has heard of a worker."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended:\n{self.log(name)}")
        try:
            response = httpx.get(self.url + "/readyz", timeout=5)
            self._last_answer = response.text[:2000]
            return response.status_code == 200 and response.json()["worker"] == "ok"
        except httpx.TransportError:
            return False


def until(condition: Any, what: str, seconds: float = WAIT) -> Any:
    """Wait until `condition()` is true and return its value. Fails with `what` after `seconds`.

    It asks less often the longer it waits, to leave the processor to the work that it waits for.
    """
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds:
        value = condition()
        if value:
            return value
        time.sleep(min(0.2, 0.02 + waited / 10))
    raise AssertionError(f"it did not happen within {seconds:g} s that {what}")


def database_url(settings: dict[str, Any]) -> str:
    """The libpq URL of a Django database setting, for the processes."""
    login = quote(settings["USER"]) + (f":{quote(settings['PASSWORD'])}" if settings["PASSWORD"] else "")
    host = settings["HOST"]
    if host.startswith("/"):
        return f"postgresql://{login}@/{settings['NAME']}?host={quote(host)}"
    return f"postgresql://{login}@{host}:{settings['PORT'] or 5432}/{settings['NAME']}"


@contextmanager
def running(scripted: ScriptedModel | None = None, /, **environment: str) -> Iterator[Product]:
    """Run the product in our environment and the given variables.

    The caller creates the rows, also that of the scripted model. Without a given model the product gets its own."""
    own = tempfile.TemporaryDirectory(prefix="glasshouse-product-")
    with own as directory, nullcontext(scripted) if scripted else ScriptedModel() as model:
        limits = {"API_RATES": UNLIMITED, "PAGE_RATES": UNLIMITED_PAGES, "LIVE_TURNS": "0", "DRAIN_SECONDS": "5"}
        environment = {**limits, **os.environ, "DATA_DIR": directory, **environment}
        product = Product(f"http://127.0.0.1:{free_port()}", model, environment, Path(environment["DATA_DIR"]))
        try:
            product.start_web()
            product.start_worker()
            product.start_beat()
            product.wait_until_ready()
            yield product
        finally:
            for name in list(product.processes):
                product.end(name)


@contextmanager
def installed(
    database: str, redis: str, model: str = "scripted", provider: str = "Scripted"
) -> "Iterator[tuple[Product, Caller]]":
    """The product on empty services, set up with its own commands as an operator would; and its admin's program."""
    with tempfile.TemporaryDirectory(prefix="glasshouse-installed-") as data:
        place = {"DATABASE_URL": database, "REDIS_URL": redis, "DATA_DIR": data}

        def manage(*arguments: str, **more: str) -> str:
            command, environment = [sys.executable, "manage.py", *arguments], {**os.environ, **place, **more}
            done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            return done.stdout

        manage("migrate", "-v0")
        manage("seed")
        with running(**place) as product:
            endpoint = ("--base-url", product.model.openai_url, "--model", f"{model}:128000", "--default")
            manage("provider", provider, *endpoint, PROVIDER_API_KEY="secret-of-the-scripted-provider")
            yield product, Caller(product, manage("token", "admin").strip())


class Caller:
    """A program that uses the REST API as one person; every method returns the response's JSON."""

    def __init__(self, server: Server, token: str) -> None:
        self.server = server
        self.url = server.url
        self.token = token
        self.http = server.http("/api/v1/", headers={"Authorization": f"Bearer {token}"})

    def get(self, path: str, expect: int = 200) -> Any:
        return self._checked(self.http.get(path), expect)

    def post(self, path: str, body: Any = None, expect: int = 202, **headers: str) -> Any:
        return self._checked(self.http.post(path, json=body or {}, headers=headers), expect)

    @staticmethod
    def _checked(response: httpx.Response, expect: int) -> Any:
        assert response.status_code == expect, f"{response.status_code}: {response.text}"
        return response.json() if response.content else None

    def conversation(self) -> str:
        return str(self.post("conversations/", expect=201)["id"])

    def ask(self, text: str, script: dict[str, Any] | None = None, conversation: str | None = None, **more: Any) -> Any:
        """Send a message with a script for the model, and return the first turn."""
        full = text if script is None else f"{text}\nscript: {json.dumps(script)}"
        place = conversation or self.conversation()
        return self.post(f"conversations/{place}/turns/", {"text": full, **more})["turns"][0]

    def turn(self, turn: str) -> Any:
        return self.get(f"turns/{turn}/")

    def ended(self, turn: str, seconds: float = WAIT) -> Any:
        def look() -> Any:
            state = self.turn(turn)
            return state if state["status"] not in ("queued", "running") else None

        return until(look, f"turn {turn} ends", seconds)

    def events(self, turn: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """The turn's events over SSE, until its last."""
        headers = {"Last-Event-ID": str(after)}
        with self.http.stream("GET", f"turns/{turn}/events/", headers=headers) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    yield event
                    if event["type"] in ("RUN_FINISHED", "RUN_STOPPED", "RUN_ERROR") or (
                        event["type"] == "SNAPSHOT" and event["status"] not in ("queued", "running")
                    ):
                        return


def in_thread(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread and return its result: Django refuses the database in the thread of an event loop."""

    def then_close() -> Result:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(then_close).result()
