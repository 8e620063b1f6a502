"""Files made to do harm: each ends in a clear state, and other people's uploads go on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.base import File as Content

from core.errors import ProductError
from files import services
from files.models import File, FileText
from readers.tests import samples
from tests.application import Application
from tests.conftest import Person
from tests.files.stored import settled

LAUGHING_WORD = f'{samples.LAUGHS}<w:document xmlns:w="w"><w:p><w:t>&a11;</w:t></w:p></w:document>'
LAUGHING_SHEET = f"{samples.LAUGHS}<sst><si><t>&a11;</t></si></sst>"
LAUGHING_IMAGE = (
    f"<?xml version='1.0'?>{samples.LAUGHS}<svg xmlns='http://www.w3.org/2000/svg'><text>&a11;</text></svg>"
)
NUMBERS = " ".join(map(str, range(3_500_000)))
DEEP = '<w:document xmlns:w="w">' + "<w:p>" * 500_000

HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "bomb.docx": (samples.bomb, "bomb"),
    "lying.docx": (samples.lying_bomb, "damaged"),
    "pages.pdf": (lambda: samples.pdf(["Words"], count=1_000_000), "too_large"),
    "laughs.docx": (lambda: samples.with_member(samples.word([]), "word/document.xml", LAUGHING_WORD), "entities"),
    "laughs.xlsx": (
        lambda: samples.with_member(samples.workbook({"a": [["b"]]}), "xl/sharedStrings.xml", LAUGHING_SHEET),
        "entities",
    ),
    "laughs.epub": (lambda: samples.with_member(samples.book(["a"]), "OPS/book.opf", LAUGHING_WORD), "entities"),
    "deep.docx": (lambda: samples.with_member(samples.word([]), "word/document.xml", DEEP), "damaged"),
    "cell.csv": (lambda: b"name,value\nlong," + b"x" * 99_000_000, "too_large"),
    "smaller-cell.csv": (lambda: b"name,value\nlong," + b"x" * 50_000_000, "too_large"),
    "cell.xlsx": (
        lambda: samples.with_member(
            samples.workbook({"a": [["b"]]}),
            "xl/worksheets/sheet1.xml",
            '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row>'
            '<c t="inlineStr"><is><t>'
            + " ".join(map(str, range(3_500_000)))
            + "</t></is></c></row></sheetData></worksheet>",
        ),
        "too_large",
    ),
    "pixels.png": (lambda: samples.image("PNG", 20_000, 6_000), "too_large"),
}


@pytest.fixture(autouse=True)
def _one_storage(application: Application, committed: None, settings: Any) -> None:
    settings.MEDIA_ROOT = application.directory / "files"


@pytest.mark.slow
def test_hostile_files_fail_clearly_and_other_uploads_go_on(person: Person, stranger: Person) -> None:
    files = {
        name: services.upload(user=person.user, name=name, content=ContentFile(make()))
        for name, (make, _) in HOSTILE.items()
    }
    other = services.upload(user=stranger.user, name="fine.txt", content=ContentFile(b"Still here."))
    assert settled(other).status == "ready"
    outcomes = {name: settled(file).error_code for name, file in files.items()}
    assert outcomes == {name: code for name, (_, code) in HOSTILE.items()}
    assert all(file.status == "failed" and file.error for file in files.values())


def test_scripts_in_html_and_svg_are_never_part_of_a_page(person: Person) -> None:
    html = b"<!doctype html><p>Read me</p><script>fetch('/steal')</script><img src=x onerror=steal()>"
    page = settled(services.upload(user=person.user, name="page.png", content=ContentFile(html)))
    assert (page.media_type, FileText.objects.get(file=page).text) == ("text/html", "Read me")
    drawing = settled(
        services.upload(user=person.user, name="laughs.svg", content=ContentFile(LAUGHING_IMAGE.encode()))
    )
    assert not drawing.is_image and "&a11;" in FileText.objects.get(file=drawing).text


def test_a_sparse_file_of_2_gb_is_refused_by_its_size_alone(person: Person, tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as sparse:
        sparse.truncate(2_000_000_000)
    with path.open("rb") as opened:
        with pytest.raises(ProductError) as caught:
            services.upload(user=person.user, name="sparse", content=Content(opened))
        assert caught.value.code == "file_too_large" and opened.tell() == 0
    assert not File.objects.filter(owner=person.user).exists()


def test_a_path_as_a_name_stays_inside_the_storage(person: Person, application: Application) -> None:
    content = ContentFile(b"Outside?")
    file = services.upload(user=person.user, name="../../../../tmp/evil.sh", content=content)
    assert settled(file).name == "evil.sh"
    assert Path(file.blob.path).resolve().is_relative_to(application.directory.resolve() / "files")
