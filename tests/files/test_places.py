"""A scan in the product: its page opens at a passage, and the places of its words go with it."""

import io
from pathlib import Path

from django.test import Client
from PIL import Image

from files.models import FileText, RecognisedPage
from readers.tests.test_page_pictures import marked
from readers.tests.test_places import SPRING, near, sheet, table
from readers.tests.test_scans import on_the_machine, tesseract
from tests.conftest import Person
from tests.projects.uploads import read, uploaded

__all__ = ["on_the_machine"]


def test_a_scan_opens_at_its_passage_and_its_places_go_with_it(
    on_the_machine: Path, person: Person, tmp_path: Path
) -> None:
    tesseract(on_the_machine, f"cat <<'END'\n{table()}END")
    path, caller, browser = tmp_path / "scan.pdf", person.caller, Client()
    browser.force_login(person.user)
    sheet().save(path, "PDF")
    file = uploaded(caller, "scan.pdf", path.read_bytes())["id"]
    start = FileText.objects.get(file=file).text.index("spring.")
    passage = f"?start={start}&end={start + len('spring.')}"
    picture = caller.http.get(f"files/{file}/pages/1/picture/{passage}")
    assert near(marked(Image.open(io.BytesIO(picture.content)).convert("RGB")), SPRING)
    page = browser.get(f"/files/{file}/{passage}").content.decode()
    assert 'alt="Page 1, on which is marked: spring."' in page and "cannot be marked" not in page
    caller.post(f"files/{file}/reread/", {})
    read(caller, file)
    assert RecognisedPage.objects.filter(file=file).count() == 1  # those of the reading before are gone
    sheet().rotate(90, expand=True).save(tmp_path / "turned.pdf", "PDF")
    turned = uploaded(caller, "turned.pdf", (tmp_path / "turned.pdf").read_bytes())["id"]
    assert RecognisedPage.objects.filter(file__owner=person.user).count() == 2
    assert caller.http.delete(f"files/{turned}/").status_code == 204
    assert RecognisedPage.objects.filter(file__owner=person.user).count() == 1
    RecognisedPage.objects.filter(file=file).delete()
    page = browser.get(f"/files/{file}/{passage}").content.decode()
    assert 'alt="Page 1"' in page and "The passage cannot be marked" in page
