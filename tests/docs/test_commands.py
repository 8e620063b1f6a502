"""The commands of the guides run unchanged, on an installation of their own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from scripts.services import Services, use_migrated_database
from tests.docs.files import DOCS
from tests.product import ROOT, WAIT, Product, installed

pytestmark = pytest.mark.process

BLOCK = re.compile(r"(?P<comment><!-- not run: [^>]+ -->\n)?^```sh\n(?P<commands>.*?)^```$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^ *```(.*)$", re.MULTILINE)


def commands(page: Path) -> str:
    """Return the shell blocks of a page in order, without those that say why they cannot run."""
    return "\n".join(block["commands"] for block in BLOCK.finditer(page.read_text()) if not block["comment"])


PAGES = [page for folder in ("use", "admin", "api") for page in sorted((DOCS / folder).glob("*.md")) if commands(page)]


@pytest.fixture(scope="module")
def site() -> Iterator[Product]:
    services = Services()
    try:
        use_migrated_database(services.database)
        with installed(services.database, services.redis) as (product, caller):
            caller.ended(caller.ask("What the prompt lab plans again.", {"text": "An answer."})["id"])
            yield product
    finally:
        services.end()


@pytest.fixture
def token(site: Product) -> str:
    command = [sys.executable, "manage.py", "token", "admin", "--scopes", "chat", "files", "projects", "tasks", "admin"]
    return subprocess.run(
        command, cwd=ROOT, env=site.environment, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_the_commands_of_a_page_run(page: Path, site: Product, token: str, tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "manage.py").symlink_to(ROOT / "manage.py")
    ran = subprocess.run(
        [which("bash") or "bash", "-eu", "-o", "pipefail"],
        input=commands(page),
        cwd=tmp_path,
        env={**os.environ, **site.environment, "SITE": site.url, "TOKEN": token},
        capture_output=True,
        text=True,
        timeout=3 * WAIT,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("folder", ["use", "admin", "api"])
def test_shell_blocks_are_marked_as_such(folder: str) -> None:
    """Else nothing would run them. A file that a reader writes is marked as JSON."""
    languages = {language for page in (DOCS / folder).glob("*.md") for language in FENCE.findall(page.read_text())[::2]}
    assert languages <= {"sh", "python", "json"}


def test_pages_with_commands_are_looked_at() -> None:
    assert {"admin-limits", "api-rest"} <= {f"{page.parent.name}-{page.stem}" for page in PAGES}
