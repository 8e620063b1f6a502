"""Run PostgreSQL's programs for the rows of a backup: pg_dump writes them, pg_restore loads them.

They come from the wheel with the server of `make run`, or from PATH. The command lines have no connection data. The
settings are in a service file that only its owner may read, the password is in the environment. The rights of the role
that owns the database are enough.
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

GZIP_LEVEL = "1"  # with 1, a processor compresses as fast as a disk writes
MAX_JOBS = 4
SERVICE = "glasshouse"
# Restoring owners, privileges and comments may need a superuser, or roles that do not exist here.
_WITHOUT_ROLES = ("--no-owner", "--no-privileges", "--no-comments")
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
# Since version 17, pg_restore sends this to every server. Older servers reject it, which is harmless.
_HARMLESS_STATEMENT = "Command was: SET transaction_timeout = 0;"
_ERROR = "pg_restore: error: "


class BackupRefused(Exception):
    """Raised if a backup or restore cannot continue. The message has the reason and the remedy."""


@dataclass(frozen=True)
class PostgresProgram:
    path: str
    major: int


def server_major() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int / 10000")
        return int(cursor.fetchone()[0])


def find_program(name: str, min_major: int) -> PostgresProgram:
    """Return the oldest program of this name that supports the version `min_major` of PostgreSQL.

    Raises BackupRefused if no program does.
    """
    programs = sorted(_programs(name), key=lambda each: each.major)
    for each in programs:
        if each.major >= min_major:
            return each
    problem = f"{name} is of version {programs[-1].major}" if programs else f"{name} is not installed"
    raise BackupRefused(
        f"{problem}, and PostgreSQL {min_major} or later is needed. Install the client programs of PostgreSQL "
        f"{min_major} on this machine (postgresql-client), so that PATH leads to them."
    )


def _programs(name: str) -> Iterator[PostgresProgram]:
    try:
        paths = [binary(WHEEL, f"{BINARIES}/{name}")]
    except StartError:
        paths = []
    if path := shutil.which(name):
        paths.append(path)
    for each in paths:
        result = subprocess.run([each, "--version"], capture_output=True, text=True, check=False)
        if version := _VERSION.search(result.stdout):
            yield PostgresProgram(each, int(version[1]))


def dump(program: PostgresProgram, target: Path) -> None:
    """Write a consistent snapshot of all tables. Raises BackupRefused with the error of pg_dump."""
    open_private(target).close()
    schema = _select("quote_ident(current_schema())")  # `--schema` takes a pattern, so the name is quoted
    result = _run([program.path, "-Fc", f"-Z{GZIP_LEVEL}", f"--schema={schema}", *_WITHOUT_ROLES, f"--file={target}"])
    if result.returncode:
        raise BackupRefused(f"pg_dump could not write the rows: {_first_error(result.stderr)}")


def load(program: PostgresProgram, source: Path, jobs: int) -> None:
    """Replace all tables of the dump. Other tables stay. Raises BackupRefused with the error of pg_restore."""
    options = [f"--schema={_select('current_schema()')}", *_WITHOUT_ROLES, "--clean", "--if-exists", f"--jobs={jobs}"]
    result = _run([program.path, *options, f"--dbname=service={SERVICE}", str(source)])
    harmless = result.stderr.count(_HARMLESS_STATEMENT)
    if result.returncode and not 0 < result.stderr.count(_ERROR) == harmless:
        raise BackupRefused(
            f"pg_restore could not load the rows: {_first_error(result.stderr)} Fix that and run the command again."
        )


def jobs() -> int:
    return min(MAX_JOBS, os.cpu_count() or 1)


def _select(expression: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {expression}")
        return str(cursor.fetchone()[0])


def _run(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    with _service() as environment:
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, errors="replace", check=False)


@contextmanager
def _service() -> Iterator[dict[str, str]]:
    """Yield environment variables that let libpq connect to the database by a service name."""
    libpq_keywords = {option.keyword.decode() for option in Conninfo.get_defaults()}
    parameters = connection.get_connection_params()
    password = parameters.pop("password", None)
    settings = {name: value for name, value in parameters.items() if name in libpq_keywords and value not in (None, "")}
    environment = {**os.environ, "PGSERVICE": SERVICE, "LC_ALL": "C", "LANGUAGE": "C"}
    if password:
        environment["PGPASSWORD"] = password
    with TemporaryDirectory(prefix="glasshouse-backup-") as directory:  # only its owner may enter it
        path = Path(directory) / "service"
        lines = [f"[{SERVICE}]", *(f"{name}={value}" for name, value in settings.items()), ""]
        with open_private(path) as file:
            file.write("\n".join(lines).encode())
        environment["PGSERVICEFILE"] = str(path)
        yield environment


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line and "transaction_timeout" not in line]
    return (errors or lines or ["it ended without a message"])[0].rstrip(".") + "."
