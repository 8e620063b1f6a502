"""`manage.py ingest`, with the words of an operator."""

from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.conftest import Person


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deeper").mkdir()
    (tmp_path / ".hidden").write_text("not this")
    (tmp_path / "a.txt").write_text("The first file.")
    (tmp_path / "deeper" / "b.md").write_text("# The second file")
    return tmp_path


@dataclass(frozen=True)
class Ingestion:
    """The status that the command ended with, and its output."""

    status: object
    stdout: str


def ingest(person: Person, path: Path) -> Ingestion:
    stdout = StringIO()
    status: object = 0
    try:
        call_command("ingest", str(path), "--project", "Archive", "--user", person.username, stdout=stdout)
    except SystemExit as ended:
        status = ended.code
    return Ingestion(status, stdout.getvalue().strip())


def test_a_folder_goes_into_a_project_once(person: Person, folder: Path) -> None:
    first = ingest(person, folder)
    assert first == Ingestion(0, "Archive: 2 read, 0 already there, 0 failed")
    [project] = person.caller.get("projects/")["results"]
    files = person.caller.get(f"projects/{project['id']}/files/")["results"]
    assert [(file["name"], file["status"]) for file in files] == [("a.txt", "ready"), ("b.md", "ready")]
    (folder / "c.txt").write_text("The third file.")
    again = ingest(person, folder)
    assert again == Ingestion(0, "Archive: 1 read, 2 already there, 0 failed")
    assert len(person.caller.get("files/")["results"]) == 3


def test_what_fails_is_listed_and_tried_again(person: Person, folder: Path) -> None:
    broken = folder / "broken.pdf"
    broken.write_bytes(b"%PDF-1.4 and nothing more")
    (folder / "empty.txt").touch()
    for skipped in (0, 2):
        ended = ingest(person, folder)
        lines = ended.stdout.splitlines()
        assert ended.status == 1
        assert lines[0] == f"Archive: {2 - skipped} read, {skipped} already there, 2 failed"
        assert sorted(line.strip().partition(": ")[0] for line in lines[1:]) == [str(broken), str(folder / "empty.txt")]
    assert len(person.caller.get("files/")["results"]) == 3


def test_a_path_or_person_that_is_not_there_is_an_error(person: Person, folder: Path) -> None:
    with pytest.raises(CommandError, match="There is neither a file nor a folder"):
        ingest(person, folder / "nothing")
    assert person.caller.get("projects/")["results"] == []
