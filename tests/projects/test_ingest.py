"""`manage.py ingest`, as an operator calls it, beside the running product."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Person
from tests.product import ROOT, WAIT, Product

pytestmark = pytest.mark.product


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deeper").mkdir()
    (tmp_path / ".hidden").write_text("not this")
    (tmp_path / "a.txt").write_text("The first file.")
    (tmp_path / "deeper" / "b.md").write_text("# The second file")
    return tmp_path


def ingest(product: Product, person: Person, path: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "manage.py", "ingest", str(path), "--project", "Archive", "--user", person.username]
    return subprocess.run(
        command, cwd=ROOT, env=product.environment, capture_output=True, text=True, timeout=WAIT, check=False
    )


def test_a_folder_goes_into_a_project_once(product: Product, person: Person, folder: Path) -> None:
    first = ingest(product, person, folder)
    assert (first.returncode, first.stdout.strip()) == (0, "Archive: 2 read, 0 there already, 0 failed"), first.stderr
    [project] = person.caller.get("projects/")["results"]
    files = person.caller.get(f"projects/{project['id']}/files/")["results"]
    assert [(file["name"], file["status"]) for file in files] == [("a.txt", "ready"), ("b.md", "ready")]
    (folder / "c.txt").write_text("The third file.")
    again = ingest(product, person, folder)
    assert (again.returncode, again.stdout.strip()) == (0, "Archive: 1 read, 2 there already, 0 failed")
    assert len(person.caller.get("files/")["results"]) == 3


def test_what_fails_is_listed_and_tried_again(product: Product, person: Person, folder: Path) -> None:
    broken = folder / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 and nothing more")
    (folder / "empty.txt").touch()
    for there in (0, 2):
        ended = ingest(product, person, folder)
        lines = ended.stdout.strip().splitlines()
        assert ended.returncode == 1
        assert lines[0] == f"Archive: {2 - there} read, {there} there already, 2 failed"
        assert sorted(line.strip().partition(": ")[0] for line in lines[1:]) == [str(broken), str(folder / "empty.txt")]
    assert len(person.caller.get("files/")["results"]) == 3


def test_a_path_or_person_that_is_not_there_is_an_error(product: Product, person: Person, folder: Path) -> None:
    ended = ingest(product, person, folder / "nothing")
    assert ended.returncode == 1
    assert "There is neither a file nor a folder" in ended.stderr
    assert person.caller.get("projects/")["results"] == []
