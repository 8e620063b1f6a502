"""`make docs` builds a site that loads nothing from other hosts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.product import ROOT

LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)|<link[^>]* rel="?stylesheet"?[^>]* href="(https?:[^"]+)'
)
PICTURE = re.compile(r'<img[^>]* src="?([^" >]*pictures/[^" >]+)')


@pytest.mark.process
def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    pages = list(tmp_path.rglob("*.html"))
    assert (tmp_path / "use" / "sharing" / "index.html") in pages
    assert (tmp_path / "search" / "search_index.json").exists()
    pictures = [page.parent / source for page in pages for source in PICTURE.findall(page.read_text())]
    assert pictures
    assert [picture for picture in pictures if not picture.exists()] == []
    assert {match for page in pages for match in LOADED.findall(page.read_text())} == set()
