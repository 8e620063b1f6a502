"""PostgreSQL's own programs for the rows of a backup: pg_dump writes them, pg_restore loads them.

They come from the wheel of the server of `make run`, else from PATH. No connection data is on a command line: the
settings are in a service file for the owner alone, the password is in the environment. The rights of the role that owns
the database are enough.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db import connection
from psycopg.pq import Conninfo

from config.embedded.paths import StartError
from config.embedded.services import BINARIES, WHEEL, binary
from core.private_files import open_private

PACKED = "1"  # level of gzip: a processor packs as fast as a disk writes
MOST_JOBS = 4
SERVICE = "glasshouse"
_PLAIN = ("--no-owner", "--no-privileges", "--no-comments")  # only a superuser, or nobody here, may restore these
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
# From version 17 on pg_restore sends this to every server; older servers do not know it. It changes nothing there.
_UNKNOWN_TO_OLDER = "Command was: SET transaction_timeout = 0;"
_ERROR = "pg_restore: error: "


class BackupRefused(Exception):
    """A backup or restore that cannot go on; the message says why, and what to do."""


@dataclass(frozen=True)
class PostgresProgram:
    path: str
    major: int


def server_major() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int / 10000")
        return int(cursor.fetchone()[0])


def find_program(name: str, least: int) -> PostgresProgram:
    """Return the oldest program of this name that supports the version `least` of PostgreSQL.

    Raises BackupRefused where none does.
    """
    programs = sorted(_programs(name), key=lambda each: each.major)
    for each in programs:
        if each.major >= least:
            return each
    problem = f"{name} is of version {programs[-1].major}" if programs else f"{name} is not installed"
    raise BackupRefused(
        f"{problem}, and PostgreSQL {least} or later is needed. Install the client programs of PostgreSQL {least} on "
        "this machine (postgresql-client), so that PATH leads to them."
    )


def _programs(name: str) -> Iterator[PostgresProgram]:
    try:
        paths = [binary(WHEEL, f"{BINARIES}/{name}")]
    except StartError:
        paths = []
    if path := shutil.which(name):
        paths.append(path)
    for each in paths:
        answer = subprocess.run([each, "--version"], capture_output=True, text=True, check=False)
        if version := _VERSION.search(answer.stdout):
            yield PostgresProgram(each, int(version[1]))


def dump(program: PostgresProgram, target: Path) -> None:
    """Write all tables at one moment. Raises BackupRefused with the words of pg_dump."""
    open_private(target).close()
    schema = _current("quote_ident(current_schema())")  # a pattern
    result = _run([program.path, "-Fc", f"-Z{PACKED}", f"--schema={schema}", *_PLAIN, f"--file={target}"])
    if result.returncode:
        raise BackupRefused(f"pg_dump could not write the rows: {_last_words(result.stderr)}")


def load(program: PostgresProgram, source: Path, jobs: int) -> None:
    """Replace all tables of the dump. Other tables stay. Raises BackupRefused with the words of pg_restore."""
    options = [f"--schema={_current('current_schema()')}", *_PLAIN, "--clean", "--if-exists", f"--jobs={jobs}"]
    result = _run([program.path, *options, f"--dbname=service={SERVICE}", str(source)])
    harmless = result.stderr.count(_UNKNOWN_TO_OLDER)
    if result.returncode and not 0 < result.stderr.count(_ERROR) == harmless:
        raise BackupRefused(
            f"pg_restore could not load the rows: {_last_words(result.stderr)} Mend that and run the command again."
        )


def jobs() -> int:
    return min(MOST_JOBS, os.cpu_count() or 1)


def _current(expression: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {expression}")
        return str(cursor.fetchone()[0])


def _run(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    with _service() as environment:
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, errors="replace", check=False)


@contextmanager
def _service() -> Iterator[dict[str, str]]:
    """Yield an environment in which libpq reaches the database by the name of a service."""
    of_libpq = {option.keyword.decode() for option in Conninfo.get_defaults()}
    parameters = connection.get_connection_params()
    password = parameters.pop("password", None)
    settings = {name: value for name, value in parameters.items() if name in of_libpq and value not in (None, "")}
    environment = {**os.environ, "PGSERVICE": SERVICE, "LC_ALL": "C", "LANGUAGE": "C"}
    if password:
        environment["PGPASSWORD"] = password
    with TemporaryDirectory(prefix="glasshouse-backup-") as directory:  # others may not enter it
        path = Path(directory) / "service"
        lines = [f"[{SERVICE}]", *(f"{name}={value}" for name, value in settings.items()), ""]
        with open_private(path) as file:
            file.write("\n".join(lines).encode())
        environment["PGSERVICEFILE"] = str(path)
        yield environment


def _last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line and "transaction_timeout" not in line]
    return (errors or lines or ["it ended without a word"])[0].rstrip(".") + "."
