"""The embedded services one by one, on their real binaries."""

import asyncio
import io
import os
import re
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from django.core.management import call_command
from pytest_django.fixtures import Settings

from config.embedded import children as children_module
from config.embedded import paths
from config.embedded.children import STEADY_SECONDS, TRIES, BackOff, ChildProgram, Children
from config.embedded.paths import StartError
from config.embedded.services import MODEL_NAME, model_command, start_services
from config.management.commands.doctor import _open_to_others
from llm.models import Model, Provider
from tests.product import ROOT, WAIT, free_port, until

pytestmark = pytest.mark.process

FAST = ("fsync=off",)


class Supervised:
    """Runs the embedded services: `async with Supervised(data) as children`. Their output is in `output`."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.output = io.StringIO()
        self.stack = AsyncExitStack()

    async def __aenter__(self) -> Children:
        descriptor = self.stack.enter_context(paths.lock_data_dir(self.data))
        children = Children(descriptor, self.output)
        self.stack.push_async_callback(children.stop)
        return children

    async def __aexit__(self, *error: object) -> None:
        await self.stack.aclose()


def shell(name: str, script: str, stage: int = 0) -> ChildProgram:
    return ChildProgram(name, ["sh", "-c", script], stage, ready_line="up")


def test_every_process_gets_the_same_secret_key_from_the_first_moment(tmp_path: Path) -> None:
    code = f"from config.embedded.paths import *; print(secret_key(Path({str(tmp_path / 'data')!r})))"
    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(lambda _: subprocess.check_output([sys.executable, "-c", code], cwd=ROOT), range(4)))
    assert len(keys) == 1
    assert len(keys.pop()) > 50
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"secret_key", "files"}
    assert stat.S_IMODE((tmp_path / "data" / "secret_key").stat().st_mode) == 0o600


def test_the_urls_mean_the_socket_directory_whatever_its_name_holds() -> None:
    data = Path("/srv/a b%3F&c#d")
    assert psycopg.conninfo.conninfo_to_dict(paths.database_url(data))["host"] == str(data / "run")
    client = redis.Redis.from_url(paths.redis_url(data))
    assert client.connection_pool.connection_kwargs["path"] == str(data / "run" / "redis.sock")


def test_a_path_too_long_for_a_socket_gets_a_short_one_of_its_own() -> None:
    long = Path("/srv") / ("a" * 100)
    short = paths.socket_dir(long)
    assert len(str(short / paths.POSTGRES_SOCKET)) <= 107
    assert short != paths.socket_dir(long / "b")
    assert short == paths.socket_dir(long)


@pytest.mark.parametrize("trap", ["open to others", "a link"])
def test_a_short_socket_directory_that_is_not_ours_alone_is_refused(tmp_path: Path, trap: str) -> None:
    data = tmp_path / ("a" * 110)
    short = paths.socket_dir(data)
    if trap == "a link":
        short.symlink_to(tmp_path)
    else:
        short.mkdir()
        short.chmod(0o755)
    try:
        with pytest.raises(StartError, match="not a private directory"):
            paths.socket_dir(data)
    finally:
        short.unlink() if trap == "a link" else short.rmdir()


def test_what_people_uploaded_is_closed_to_others_wherever_it_lies(tmp_path: Path) -> None:
    """Such as on a mounted volume, which is open to all."""
    uploads = tmp_path / "files"
    uploads.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    paths.make_data_dir(tmp_path)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path, uploads)] == [0o755, 0o700]


def test_a_start_closes_all_that_is_ours_and_nothing_else(tmp_path: Path, settings: Settings) -> None:
    settings.DATA_DIR, settings.MEDIA_ROOT = tmp_path, tmp_path / "files"
    tmp_path.chmod(0o777)
    blob, schedule, own = tmp_path / "files/83/4f/834f", tmp_path / "celerybeat-schedule.db", tmp_path / "own/script"
    for path in (blob, schedule, own):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"private")
        path.chmod(0o755)
    (tmp_path / "files/elsewhere").symlink_to(own)
    details = {finding.subject.english: finding.detail.english for finding in _open_to_others()}
    assert details["Data directory"] == f"others on this machine can write {tmp_path}"
    assert {"files/83/4f/834f", "celerybeat-schedule.db"} <= set(re.findall(r"[\w./-]+", details["Stored files"]))
    paths.close_to_others(tmp_path)
    assert list(paths.find_open_paths(tmp_path)) == []
    assert {stat.S_IMODE(each.stat().st_mode) for each in (blob, blob.parent, blob.parents[2])} == {0o700}
    assert stat.S_IMODE(own.stat().st_mode) == 0o755
    tmp_path.chmod(0o755)
    assert not list(_open_to_others())


async def test_services_keep_their_data_from_one_start_to_the_next(tmp_path: Path) -> None:
    async with Supervised(tmp_path) as children:
        await start_services(children, tmp_path, settings=FAST)
        with psycopg.connect(paths.database_url(tmp_path)) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute("CREATE TABLE kept AS SELECT '[1,2]'::vector AS v")
        redis.Redis.from_url(paths.redis_url(tmp_path)).set("kept", "yes")
    async with Supervised(tmp_path) as children:
        await start_services(children, tmp_path, settings=FAST)
        with psycopg.connect(paths.database_url(tmp_path)) as connection:
            assert connection.execute("SELECT v::text FROM kept").fetchone() == ("[1,2]",)
        assert redis.Redis.from_url(paths.redis_url(tmp_path)).get("kept") == b"yes"


async def test_neither_half_a_cluster_nor_a_reused_process_id_stops_postgresql(tmp_path: Path) -> None:
    (tmp_path / "pg.new").mkdir()
    (tmp_path / "pg.new" / "PG_VERSION").write_text("18")
    async with Supervised(tmp_path) as children:
        await start_services(children, tmp_path, redis=False, settings=FAST)
    (tmp_path / "pg" / "postmaster.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "run" / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    async with Supervised(tmp_path) as children:
        await start_services(children, tmp_path, redis=False, settings=FAST)
        psycopg.connect(paths.database_url(tmp_path)).close()


async def test_only_the_owner_of_the_data_may_reach_the_services(tmp_path: Path) -> None:
    async with Supervised(tmp_path) as children:
        await start_services(children, tmp_path, settings=FAST)
        modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("run", "pg", "redis")}
        assert modes == {"run": 0o700, "pg": 0o700, "redis": 0o700}
        with psycopg.connect(paths.database_url(tmp_path)) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)


async def test_children_are_stopped_from_the_highest_stage_down(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path)
    loop = "trap 'echo down; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    async with supervised as children:
        for name, stage in (("first", 0), ("third", 2), ("second", 1)):
            await children.unless_one_fails(children.start(shell(name, loop, stage)).ready)
    downs = [line.split()[0] for line in supervised.output.getvalue().splitlines() if line.endswith("down")]
    assert downs == ["third", "second", "first"]


async def test_a_child_that_does_not_listen_is_killed_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children_module, "STOP_SECONDS", 0.2)
    supervised = Supervised(tmp_path)
    async with supervised as children:
        stubborn = "trap '' TERM; sleep 600 & echo $!; echo up; wait"
        await children.unless_one_fails(children.start(shell("stubborn", stubborn)).ready)
    grandchild = int(supervised.output.getvalue().split()[2])
    until(lambda: not running(grandchild), "the grandchild is gone")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_waiting_ends_with_a_sentence_when_a_server_never_gets_ready(tmp_path: Path, soon: None) -> None:
    supervised = Supervised(tmp_path)
    async with supervised as children:
        hopeless = children.start(shell("hopeless", "echo it is broken; exit 3"))
        sentence = r"^hopeless ended 3 times before it was ready \(last: exit status 3\), so everything was stopped"
        with pytest.raises(StartError, match=sentence):
            await children.unless_one_fails(hopeless.ready)
    assert supervised.output.getvalue().count("hopeless | it is broken") == TRIES
    assert supervised.output.getvalue().count("hopeless ended by itself (exit status 3); it is restarted") == TRIES - 1


def test_a_server_waits_longer_for_each_restart_until_it_has_run_well() -> None:
    back_off = BackOff()
    assert [back_off.pause(ran=0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [back_off.pause(ran) for ran in (STEADY_SECONDS - 1, STEADY_SECONDS, 0)] == [60, 1, 2]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts follow at once."""
    monkeypatch.setattr(children_module, "FIRST_PAUSE", 0.01)


async def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait as `until` does, while the test's event loop goes on."""
    await asyncio.to_thread(until, condition, what)


async def test_a_server_that_is_killed_is_started_again_with_its_leftovers_gone(tmp_path: Path, soon: None) -> None:
    supervised = Supervised(tmp_path)
    script = "sleep 600 & echo $$ $!; echo up; wait"
    async with supervised as children:
        first, other = children.start(shell("first", script)), children.start(shell("other", script))
        await children.unless_one_fails(asyncio.gather(first.ready, other.ready))
        started = [line.split()[2:] for line in supervised.output.getvalue().splitlines() if line.startswith("first")]
        leftover = int(started[0][1])
        os.kill(first.process.pid, signal.SIGKILL)

        def starts() -> int:
            return supervised.output.getvalue().count("first    | up")

        await eventually(lambda: starts() == 2, "it is up again")
        assert "up       | first was killed (SIGKILL); it is restarted in 0.01 s." in supervised.output.getvalue()
        assert not running(leftover) and running(other.process.pid)
        assert supervised.output.getvalue().count("other    | up") == 1


async def test_a_stop_starts_nothing_again(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path)
    async with supervised as children:
        server = children.start(shell("server", "echo up; sleep 600"))
        await children.unless_one_fails(server.ready)
        os.kill(server.process.pid, signal.SIGKILL)
        await eventually(lambda: "it is restarted" in supervised.output.getvalue(), "it waits for its restart")
    assert supervised.output.getvalue().count("server   | up") == 1


async def test_killed_services_come_back_with_their_data(tmp_path: Path, soon: None) -> None:
    """A killed PostgreSQL leaves a process that still computes, and no other server starts beside it."""
    supervised = Supervised(tmp_path)
    async with supervised as children:
        await start_services(children, tmp_path)
        busy = psycopg.connect(paths.database_url(tmp_path), autocommit=True)
        busy.execute("CREATE TABLE durable AS SELECT 42 AS answer")
        client: Any = redis.Redis.from_url(paths.redis_url(tmp_path))
        client.set("durable", "yes")
        client.waitaof(1, 0, 5_000)
        backend = busy.info.backend_pid
        busy.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1e12::bigint)")
        postgres = int((tmp_path / "pg/postmaster.pid").read_text().split()[0])
        for pid in (postgres, client.info("server")["process_id"]):
            os.kill(pid, signal.SIGKILL)

        def row_is_back() -> bool:
            with suppress(psycopg.OperationalError), psycopg.connect(paths.database_url(tmp_path)) as connection:
                return connection.execute("SELECT answer FROM durable").fetchall() == [(42,)]
            return False

        def key_is_back() -> bool:
            with suppress(redis.ConnectionError):
                return bool(client.get("durable") == b"yes")
            return False

        await eventually(row_is_back, "PostgreSQL is back")
        await eventually(key_is_back, "Redis is back")
        assert not running(backend)
        assert "postgres was killed (SIGKILL)" in supervised.output.getvalue()
        busy.close()


async def test_limits_of_memory_hold_for_what_is_started(tmp_path: Path) -> None:
    async with Supervised(tmp_path) as children:
        program = replace(shell("small", "echo up; sleep 600"), memory=1 << 30, oom_score=200)
        child = children.start(program)
        await children.unless_one_fails(child.ready)
        assert resource.prlimit(child.process.pid, resource.RLIMIT_DATA)[0] == 1 << 30
        badness = Path(f"/proc/{child.process.pid}/oom_score_adj")
        assert await asyncio.to_thread(badness.read_text) == "200\n"


def test_a_start_waits_for_the_last_process_of_an_earlier_one(tmp_path: Path) -> None:
    with paths.lock_data_dir(tmp_path) as descriptor:
        leftover = subprocess.Popen(["/bin/sleep", "1"], pass_fds=(descriptor,))
    with paths.lock_data_dir(tmp_path):
        assert not running(leftover.pid)
    leftover.wait()


@contextmanager
def served(key: str) -> "Iterator[tuple[str, subprocess.Popen[bytes]]]":
    """The address of the bundled model, loaded, and its process."""
    port = free_port()
    environment = {**os.environ, "BUNDLED_MODEL_KEY": key}
    process = subprocess.Popen(model_command(port), cwd=ROOT, env=environment)

    def loaded() -> bool:
        with suppress(httpx.TransportError):
            headers = {"Authorization": f"Bearer {key}"}
            return httpx.get(f"http://127.0.0.1:{port}/llm/health", headers=headers).status_code == 200
        return False

    try:
        until(loaded, "the model is loaded")
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def test_the_bundled_model_answers_who_has_its_key_and_ends_in_the_middle_of_an_answer() -> None:
    with served("made-by-the-supervisor") as (url, process):
        for headers in ({}, {"Host": "attacker.example"}, {"Authorization": "Bearer none"}):
            for path in (
                "props",
                "health",
                "slots",
                "models",
                "v1/models",
                "api/tags",
                "v1/chat/completions",
                "completion",
            ):
                refused = [httpx.request(method, f"{url}/llm/{path}", headers=headers) for method in ("GET", "POST")]
                assert {each.status_code for each in refused} == {401}, path
            outside = [httpx.get(f"{url}/{path}", headers=headers) for path in ("v1/models", "health", "props", "")]
            assert {each.status_code for each in outside} <= {401, 404}
            assert "SmolLM2" not in "".join(each.text for each in outside)
        allowed = {"Authorization": "Bearer made-by-the-supervisor"}
        listed = httpx.get(f"{url}/llm/v1/models", headers=allowed)
        assert [each["id"] for each in listed.json()["data"]] == [MODEL_NAME]
        assert "site-packages" not in listed.text
        body = {"messages": [{"role": "user", "content": "Tell me a long story."}], "stream": True, "max_tokens": 2000}
        request = httpx.stream("POST", f"{url}/llm/v1/chat/completions", json=body, timeout=WAIT, headers=allowed)
        with request as answer:
            assert next(answer.iter_lines()).startswith("data: ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT) == 0


@pytest.mark.django_db
def test_the_row_of_the_bundled_model_follows_the_address_and_key_of_each_start(settings: Settings) -> None:
    old = Provider.objects.create(name="Bundled model", kind="openai", base_url="http://127.0.0.1:1/v1", api_key="none")
    Model.objects.create(provider=old, name=MODEL_NAME, context_window=2_048, max_output=512, enabled=False)
    for start in ("first", "second"):
        settings.BUNDLED_MODEL_URL, settings.BUNDLED_MODEL_KEY = f"http://127.0.0.1/{start}/v1", f"key of the {start}"
        call_command("seed", stdout=io.StringIO())
        row = Provider.objects.get(pk=old.pk)
        assert (row.base_url, row.api_key) == (settings.BUNDLED_MODEL_URL, settings.BUNDLED_MODEL_KEY)
    assert list(row.models.values_list("name", "enabled")) == [(MODEL_NAME, False)]
