"""PostgreSQL and Redis for a test run, in a temporary directory; nothing of them outlives the run.

`python -m scripts.services` starts them, prints one line of JSON with their URLs, and ends with its input.
`python -m scripts.services --in DIR redis` starts only what is named, in a directory that stays.
`python -m scripts.services manage.py …` runs a Python program with them, and ends with its status.
"""

import asyncio
import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from config.embedded.children import Children
from config.embedded.paths import StartError, database_url, held, redis_url
from config.embedded.services import start_services

UNLIMITED_PAGES = "sign-in=0,shared=0"  # PAGE_RATES
UNLIMITED = "chat=0,files=0,projects=0,tasks=0,admin=0,uploads=0"  # API_RATES: tests ask as often as they like
# Nothing here has to survive a power cut; each process of a test run has a product, with connections of its own.
FOR_TESTS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=400")
REDIS_DATABASES = 64


def start() -> tuple[str, str]:
    """(DATABASE_URL, REDIS_URL): those of the environment if both are set, else of services started for this process.

    A killed test process closes the pipe, and the services end with it.
    """
    given = os.environ.get("DATABASE_URL"), os.environ.get("REDIS_URL")
    if given[0] and given[1]:
        return given[0], given[1]
    process = Services()
    atexit.register(process.end)
    return process.database, process.redis


class Services:
    """A process that runs both services in a temporary directory, or the named ones in `directory`."""

    def __init__(self, directory: Path | None = None, *names: str) -> None:
        where = ["--in", str(directory), *names] if directory else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.services", *where],
            cwd=Path(__file__).resolve().parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError("PostgreSQL and Redis did not start; the lines above say why.")
        urls = json.loads(line)
        self.database, self.redis = urls["database"], urls["redis"]

    def end(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()


async def _serve(data: Path, descriptor: int, log: TextIO, names: Sequence[str]) -> None:
    children = Children(descriptor, log)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    try:
        await children.unless_one_ends(
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
        await children.unless_one_ends(ended.wait())
    finally:
        await children.stop()


def _main(directory: Path | None, names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="glasshouse-tests-") as temporary:
        data = directory or Path(temporary)
        with held(data) as descriptor, (data / "log").open("w+") as log:
            try:
                asyncio.run(_serve(data, descriptor, log, names))
            except StartError as error:
                log.seek(0)
                sys.exit(f"{log.read()}{error}")


def _run(arguments: list[str]) -> int:
    database, redis = start()
    urls = {"DATABASE_URL": database, "REDIS_URL": redis}
    return subprocess.run([sys.executable, *arguments], env={**os.environ, **urls}).returncode


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            _main(None, ("postgres", "redis"))
        case ["--in", place, *chosen]:
            _main(Path(place), chosen)
        case command:
            sys.exit(_run(command))
