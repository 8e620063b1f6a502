"""The Markdown of the repository that people read, as files."""

import re
import subprocess
from pathlib import Path
from shutil import which

from tests.product import ROOT

DOCS = ROOT / "docs"


def markdown() -> list[Path]:
    """Return every Markdown file under version control that is kept up to date.

    The demo project uploads texts of its own. The changelog names files as they were called then.
    """
    names = git("ls-files", "*.md").splitlines()
    return [ROOT / name for name in names if not name.startswith(("config/demo/", "CHANGELOG", "tests/"))]


def git(*arguments: str) -> str:
    """Return the output of a command of git."""
    command = [which("git") or "git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def is_translation(file: Path) -> bool:
    return re.fullmatch(r".+\.[a-z]{2}\.md", file.name) is not None
