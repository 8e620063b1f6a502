"""Run the tests of an older commit on today's schema, where its code runs while a new version is rolled out.

    python -m scripts.beside COMMIT [arguments of pytest …]

1. The commit's tree goes into a temporary directory.
2. Today's migrations make a database with the name that the commit's tests look for. They copy it and do not migrate.
3. The commit's tests of one process run. Tests that start the product, and tests about migrations, are left out.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from shutil import which
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from scripts.services import Services, migrated_database

ROOT = Path(__file__).resolve().parents[1]
PRINT_NAME = "from scripts.services import migrated_database; print(migrated_database())"
IN_ONE_PROCESS = "not browser and not product"
NOT_ABOUT_MIGRATIONS = "not migrat and not backup and not restore"


def _unpack(commit: str, place: Path) -> None:
    tree = subprocess.run(
        [which("git") or "git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=BytesIO(tree)) as archive:
        archive.extractall(place, filter="data")


def _migrated_name(commit: str, place: Path) -> str:
    """Return the name of the database that the commit's tests copy. Exits for a commit whose tests migrate."""
    if "def migrated_database" not in (place / "scripts" / "services.py").read_text():
        sys.exit(f"The tests of {commit} would migrate a database of their own. Choose a newer commit.")
    command = [sys.executable, "-c", PRINT_NAME]
    return subprocess.run(command, cwd=place, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _migrate(services: Services, name: str) -> None:
    """Make a database of this name with today's schema."""
    with psycopg.connect(services.database, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = urlsplit(services.database)._replace(path=f"/{name}").geturl()
    environment = {**os.environ, "DATABASE_URL": url, "REDIS_URL": services.redis, "SECRET_KEY": "of-a-test"}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)


def main(commit: str, more: list[str]) -> int:
    """Run the tests with further arguments of pytest, and return its exit code."""
    services = Services()
    try:
        with tempfile.TemporaryDirectory(prefix="glasshouse-beside-") as directory:
            place = Path(directory)
            _unpack(commit, place)
            name = _migrated_name(commit, place)
            if (place / "config" / "browser_packages.py").exists():
                subprocess.run([sys.executable, "-m", "config.browser_packages"], cwd=place, check=True)
            if name != migrated_database():  # the services bring the one of today's schema
                _migrate(services, name)
            environment = {**os.environ, "DATABASE_URL": services.database, "REDIS_URL": services.redis}
            options = ["-m", IN_ONE_PROCESS, "-k", NOT_ABOUT_MIGRATIONS, "-q", *more]
            return subprocess.run([sys.executable, "-m", "pytest", *options], cwd=place, env=environment).returncode
    finally:
        services.end()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
