"""PostgreSQL and Redis for a test run, in a temporary directory that goes with the run.

`python -m scripts.services` starts them, prints one line of JSON with their URLs, and ends with its input.
`python -m scripts.services --in DIR redis` starts only the named ones, in a directory that stays.
`python -m scripts.services manage.py …` runs a Python program with them, and ends with its status.

A test run copies a prepared PostgreSQL cluster from `var/tests/`, which holds a migrated database:
1. `schema_key` hashes all files that decide what a migrated database looks like.
2. `_prepared_cluster` returns the cluster of that key, or makes it, which takes some twenty seconds of processor time.
3. `_serve` copies it and starts PostgreSQL on the copy.
4. `tests.conftest` copies the database `migrated_database()` for each test process.
"""

import asyncio
import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

import psycopg
from psycopg import sql

from config.embedded.children import Children
from config.embedded.paths import DATABASE, StartError, database_url, lock_data_dir, redis_url
from config.embedded.services import start_services

UNLIMITED_PAGES = "sign-in=0,attempts=0,shared=0"  # PAGE_RATES
UNLIMITED = "chat=0,files=0,projects=0,tasks=0,admin=0,uploads=0"  # API_RATES
# The data need not survive a power cut. Each process of a test run has a product with connections of its own.
FOR_TESTS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=400")
REDIS_DATABASES = 64
ROOT = Path(__file__).resolve().parents[1]
PREPARED = ROOT / "var" / "tests"
PREPARED_KEPT = 3  # clusters of other branches
SCHEMA_FILES = ("*/migrations/*.py", "*/models.py", "*/models/**/*.py", "requirements*.txt")


def start() -> "Services | None":
    """Start services for this process without waiting for them. Return None if the environment names its own.

    A killed test process closes the pipe, and the services end with it.
    """
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return None
    services = Services(wait=False)
    os.environ["DATABASE_URL"], os.environ["REDIS_URL"] = services.database, services.redis
    atexit.register(services.end)
    return services


class Services:
    """A process that runs both services in a temporary directory, or the named ones in `directory`.

    `database` and `redis` are their URLs, which answer after `wait`.
    """

    def __init__(self, directory: Path | None = None, *names: str, wait: bool = True) -> None:
        place = directory or Path(tempfile.mkdtemp(prefix="glasshouse-tests-"))
        self.database, self.redis = database_url(place), redis_url(place)
        command = ["--in" if directory else "--temporary", str(place), *(names or ("postgres", "redis"))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.services", *command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Return when both answer. Raises RuntimeError."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError("PostgreSQL and Redis did not start; the lines above say why.")

    def end(self) -> None:
        """Stop both and wait until they have ended."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


async def _serve(data: Path, descriptor: int, log: TextIO, names: Sequence[str]) -> None:
    children = Children(descriptor, log)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    try:
        await children.unless_one_fails(
            start_services(
                children,
                data,
                postgres="postgres" in names,
                redis="redis" in names,
                settings=FOR_TESTS,
                databases=REDIS_DATABASES,
            )
        )
        sys.stdout.write(json.dumps({"database": database_url(data), "redis": redis_url(data)}) + "\n")
        sys.stdout.flush()
        await children.unless_one_fails(ended.wait())
    finally:
        await children.stop()


@cache
def schema_key() -> str:
    """Return a hash of the files that decide what a migrated database looks like: migrations, models, packages."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in SCHEMA_FILES for path in ROOT.glob(pattern)}):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def migrated_database() -> str:
    """Return the name of the database that test databases are copied from."""
    return f"migrated_{schema_key()}"


def copy_prepared_cluster(directory: Path) -> None:
    """Give new services in `directory` the prepared cluster. Call it before they start."""
    _copy(_prepared_cluster(), directory / "pg")


def use_migrated_database(database: str) -> None:
    """Replace the empty database of the URL `database`, in a copy of the prepared cluster, by the migrated one."""
    ours, migrated = sql.Identifier(DATABASE), sql.Identifier(migrated_database())
    with psycopg.connect(database.replace(f"/{DATABASE}?", "/postgres?"), autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE {}").format(ours))
        server.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(migrated, ours))


def _prepared_cluster() -> Path:
    """Return the directory of a stopped PostgreSQL cluster with the database `migrated_database()`; make it if needed.

    Two runs may make it at the same time. The first to finish keeps its own.
    """
    prepared = PREPARED / schema_key()
    if prepared.exists():
        return prepared
    sys.stderr.write("Preparing a migrated database for tests, once for each schema.\n")
    PREPARED.mkdir(parents=True, exist_ok=True)
    others = sorted(PREPARED.glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in others[PREPARED_KEPT - 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=PREPARED) as temporary:
        services = Services(Path(temporary), "postgres", "redis")
        try:
            _migrate(services)
        finally:
            services.end()
        if not prepared.exists():
            (Path(temporary) / "pg").rename(prepared)
    return prepared


def _migrate(services: Services) -> None:
    """Run all migrations in a new database `migrated_database()`."""
    with psycopg.connect(services.database, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(migrated_database())))
    name = f"/{DATABASE}?"
    urls = {"DATABASE_URL": services.database.replace(name, f"/{migrated_database()}?"), "REDIS_URL": services.redis}
    secret = {"SECRET_KEY": "only-for-the-schema-of-tests-only-for-the-schema-of-tests"}
    command = [sys.executable, "manage.py", "migrate", "-v0"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **secret, **urls}, check=True)


def _main(data: Path, names: Sequence[str]) -> None:
    """Run the services in `data` until standard input ends."""
    with lock_data_dir(data) as descriptor, (data / "log").open("w+") as log:
        try:
            asyncio.run(_serve(data, descriptor, log, names))
        except StartError as error:
            log.seek(0)
            sys.exit(f"{log.read()}{error}")


def _main_temporary(data: Path, names: Sequence[str]) -> None:
    """Run the services in `data` with a copy of the prepared cluster, and remove it when standard input ends."""
    try:
        if "postgres" in names:
            _copy(_prepared_cluster(), data / "pg")
        _main(data, names)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _copy(cluster: Path, to: Path) -> None:
    """Copy a stopped cluster with its owner and modes, which PostgreSQL checks."""
    subprocess.run(["/bin/cp", "-a", "--reflink=auto", str(cluster), str(to)], check=True)


def _run(arguments: list[str]) -> int:
    services = start()
    if services is not None:
        services.wait()
    return subprocess.run([sys.executable, *arguments]).returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            _main_temporary(Path(tempfile.mkdtemp(prefix="glasshouse-tests-")), ("postgres", "redis"))
        case ["--temporary", place, *chosen]:
            _main_temporary(Path(place), chosen)
        case ["--in", place, *chosen]:
            _main(Path(place), chosen)
        case command:
            sys.exit(_run(command))
