"""PostgreSQL with a synchronous replica, and PgBouncer in front of the primary.

The binaries come from the wheel that `make run` uses, since not every Debian release has pgvector.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg

from config.embedded.services import BINARIES, WHEEL, as_user, binary, server_user
from contrib.cluster.process import ClusterError, Process
from contrib.cluster.wire import Wire
from tests.product import ROOT, free_port

ROLE = DATABASE = "glasshouse"
SUPERUSER = "postgres"
CONNECTIONS = 100
POOL = 20  # connections to the server that PgBouncer opens
QUERY_WAIT_TIMEOUT = 10  # seconds that PgBouncer lets a statement wait for a server
WAIT = 60.0  # seconds


def program(name: str) -> str:
    return binary(WHEEL, f"{BINARIES}/{name}")


class Postgres:
    """The primary `first` and its replica `second`. `fail_over` swaps them. `wired`: their line can be cut."""

    def __init__(self, directory: Path, *, wired: bool) -> None:
        self.directory, self.wired = directory, wired
        self.line: Wire | None = None
        self.first, self.second = (self._server(name, free_port()) for name in ("postgres-a", "postgres-b"))

    def _server(self, name: str, port: int) -> "Server":
        return Server(name, self.directory, port)

    def create(self) -> None:
        self.first.create()
        self.first.start()
        with self.first.connected() as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN")
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
        with self.first.connected(DATABASE) as connection:
            connection.execute("CREATE EXTENSION vector")
        self.follow()

    def start(self) -> None:
        self.first.start()
        self.second.start()

    def follow(self) -> None:
        """Make `second` a new replica. All later commits wait for it."""
        port = self.first.port
        if self.wired:
            if self.line is not None:
                self.line.process.stop()
            self.line = Wire(self.directory, "replica", port)
            self.line.process.start()
            port = self.line.port
            answers(port, WAIT)
        self.second.copy(port)
        self.second.start()
        self.wait_for_replica()

    def wait_for_replica(self) -> None:
        """Make each commit wait for the replica."""
        self._synchronous("'*'")

    def go_alone(self) -> None:
        """Let commits go on without the replica, also commits that wait for it now."""
        self._synchronous("''")

    def fail_over(self) -> None:
        """Promote the replica after the primary has ended."""
        self.first.process.should_run = False
        self.first, self.second = self.second, self.first
        with self.first.connected() as connection:
            connection.execute("SELECT pg_promote(true, 30)")
        self.go_alone()

    def _synchronous(self, names: str) -> None:
        with self.first.connected() as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = {names}")
            connection.execute("SELECT pg_reload_conf()")


class Server:
    def __init__(self, name: str, directory: Path, port: int) -> None:
        self.port, self.data, self._user = port, directory / name, server_user(directory / name)
        options = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": CONNECTIONS,
            "cluster_name": name.replace("-", "_"),
            # Commits wait for the replica. By default it checks only every five seconds whether the primary is back.
            "wal_retrieve_retry_interval": "1s",
        }
        set_to = [each for key, value in options.items() for each in ("-c", f"{key}={value}")]
        self.process = Process(
            name, as_user(self._user, [program("postgres"), "-D", str(self.data), *set_to]), directory
        )

    def create(self) -> None:
        self._made()
        self._run(
            "initdb", "-D", str(self.data), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"
        )

    def copy(self, port: int) -> None:
        """Replace the data with a copy from the server at `port`."""
        self.process.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        self._made()
        dsn = f"host=127.0.0.1 port={port} user={SUPERUSER}"
        self._run("pg_basebackup", "-D", str(self.data), "-d", dsn, "-R", "-c", "fast", "-X", "stream")

    def start(self) -> None:
        self.process.start()
        until = time.monotonic() + WAIT
        while True:
            try:
                self.connected().close()
                return
            except psycopg.Error as error:
                if time.monotonic() > until or not self.process.alive:
                    raise ClusterError(f"{self.process.name}: {error}\n{self.process.tail()}") from error
                time.sleep(0.1)

    def connected(self, database: str = SUPERUSER) -> "psycopg.Connection[Any]":
        dsn = f"host=127.0.0.1 port={self.port} user={SUPERUSER} dbname={database}"
        return psycopg.connect(dsn, autocommit=True, connect_timeout=5)

    def _made(self) -> None:
        self.data.mkdir(mode=0o700)
        if self._user:
            os.chown(self.data, self._user.pw_uid, self._user.pw_gid)

    def _run(self, name: str, *arguments: str) -> None:
        command = as_user(self._user, [program(name), *arguments])
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(f"{name} failed:\n{done.stderr}")


class PgBouncer:
    """PgBouncer in transaction mode. `point` directs it to another server without a restart."""

    def __init__(self, directory: Path) -> None:
        self.port, self._home = free_port(), directory / "pgbouncer"
        user = server_user(self._home)
        self._home.mkdir(mode=0o755)
        self._file = self._home / "pgbouncer.ini"
        (self._home / "users.txt").write_text(f'"{ROLE}" ""\n')
        self.process = Process("pgbouncer", as_user(user, ["pgbouncer", str(self._file)]), directory)

    @property
    def url(self) -> str:
        return url(self.port)

    def point(self, port: int) -> None:
        lines = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self._home / "users.txt",
            "admin_users": ROLE,
            "pool_mode": "transaction",
            "max_client_conn": 500,
            "default_pool_size": POOL,
            "ignore_startup_parameters": "options,extra_float_digits",
            # Retry an unavailable server soon, and fail the clients that wait for it.
            "server_login_retry": 1,
            "server_connect_timeout": 3,
            "query_wait_timeout": QUERY_WAIT_TIMEOUT,
            "tcp_user_timeout": 5_000,
        }
        text = f"[databases]\n{DATABASE} = host=127.0.0.1 port={port} dbname={DATABASE}\n[pgbouncer]\n"
        self._file.write_text(text + "".join(f"{name} = {value}\n" for name, value in lines.items()))
        self.process.signal(signal.SIGHUP)


def answers(port: int, seconds: float) -> None:
    """Wait until a server listens at the port. Raises OSError after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def url(port: int, database: str = DATABASE) -> str:
    return f"postgresql://{ROLE}@127.0.0.1:{port}/{database}"
