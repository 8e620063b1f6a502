"""The Markdown of the repository that people read, as files."""

import re
import subprocess
from pathlib import Path

from tests.product import ROOT

DOCS = ROOT / "docs"


def markdown() -> list[Path]:
    """Return every Markdown file under version control that is kept up to date.

    The demo project uploads texts of its own. The changelog names files as they were called then.
    """
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines() if not name.startswith(("config/demo/", "CHANGELOG", "tests/"))]


def is_translation(file: Path) -> bool:
    return re.fullmatch(r".+\.[a-z]{2}\.md", file.name) is not None
