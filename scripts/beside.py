"""Whether the code of an older commit runs beside the schema of today, as it does while a new version is rolled out.

    python -m scripts.beside COMMIT [what pytest takes …]

The commit's tree goes into a temporary directory. Today's migrations make a database, and the commit's own tests of one
process run on it without migrating; what starts the product, and what looks at migrations, is left out.
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

from scripts.services import Services

ROOT = Path(__file__).resolve().parents[1]
MIGRATED = "migrated"  # what `tests/conftest.py` copies where it is there, in the place of migrating
OTHERS = "not browser and not product"
ABOUT_MIGRATIONS = "not migrat and not backup and not restore"


def _unpack(commit: str, place: Path) -> None:
    tree = subprocess.run(
        [which("git") or "git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=BytesIO(tree)) as archive:
        archive.extractall(place, filter="data")
    if f"datname = '{MIGRATED}'" not in (place / "tests" / "conftest.py").read_text():
        sys.exit(f"The tests of {commit} would migrate a database of their own: it is too old to be tried so.")


def _migrate(services: Services) -> None:
    """Today's schema in a database that the tests copy."""
    with psycopg.connect(services.database, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {MIGRATED}")
    url = urlsplit(services.database)._replace(path=f"/{MIGRATED}").geturl()
    environment = {**os.environ, "DATABASE_URL": url, "REDIS_URL": services.redis, "SECRET_KEY": "of-a-test"}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)


def main(commit: str, more: list[str]) -> int:
    services = Services()
    try:
        with tempfile.TemporaryDirectory(prefix="glasshouse-beside-") as directory:
            place = Path(directory)
            _unpack(commit, place)
            if (place / "config" / "browser_packages.py").exists():
                subprocess.run([sys.executable, "-m", "config.browser_packages"], cwd=place, check=True)
            _migrate(services)
            environment = {**os.environ, "DATABASE_URL": services.database, "REDIS_URL": services.redis}
            what = ["-m", OTHERS, "-k", ABOUT_MIGRATIONS, "-q", *more]
            return subprocess.run([sys.executable, "-m", "pytest", *what], cwd=place, env=environment).returncode
    finally:
        services.end()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
