"""Pages that are pictures, read by the workspace's model: the requests, the stored text, and the ledger."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from chat.ledger.models import ModelCall
from core.errors import ProductError
from files import services
from files.models import File, FileText
from llm.models import Model, Provider
from readers.tests.test_scans import scanned
from tests.application import Application
from tests.conftest import Person
from tests.files.stored import settled, upload
from workspace import services as workspace
from workspace.models import Workspace

WRITTEN = "# Minutes\n\nTwelve ducks on the lake."


@pytest.fixture
def reader(application: Application) -> Iterator[Model]:
    provider = Provider.objects.create(name=uuid4().hex, kind="openai", base_url=application.model.openai_url)
    name = application.model.set_script(uuid4().hex[:8], {"text": WRITTEN})
    model = Model.objects.create(provider=provider, name=name, context_window=32_000, vision=True)
    others = Workspace.objects.exists()
    workspace.change_settings(user=None, fields={"page_reader": model})
    yield model
    workspace.change_settings(user=None, fields={"page_reader": None})
    if not others:  # tests that make the row themselves are run in this process, too
        Workspace.objects.all().delete()


def calls(person: Person) -> list[ModelCall]:
    return list(ModelCall.objects.filter(person=person.user))


def test_each_page_is_a_call_of_the_files_owner(person: Person, reader: Model, tmp_path: Path) -> None:
    file = settled(upload(person, scanned(tmp_path).read_bytes(), "scan.pdf"))
    assert (file.status, file.pages) == (File.Status.READY, 2)
    assert FileText.objects.get(file=file).text.count(f"[Recognised on a picture: {reader.name}]\n\n{WRITTEN}") == 2
    assert str(file.notes[0]) == "The text of 2 of its 2 pages was recognised on pictures (OCR). It may have errors."
    rows = [(call.purpose, call.model_name, call.conversation_id) for call in calls(person)]
    assert rows == [("reading", reader.name, None)] * 2


def test_a_scan_at_which_the_model_fails_can_be_tried_again(
    application: Application, person: Person, reader: Model, tmp_path: Path
) -> None:
    script = reader.name.rpartition(":")[2]
    application.model.set_script(script, {"error": {"status": 400}})
    file = settled(upload(person, scanned(tmp_path).read_bytes(), "scan.pdf"))
    assert (file.status, file.error_code, calls(person)) == (File.Status.FAILED, "scan_unread", [])
    application.model.set_script(script, {"text": WRITTEN})
    services.retry(user=person.user, file=file)
    assert settled(file).status == File.Status.READY


def test_a_page_without_text_stays_empty(
    application: Application, person: Person, reader: Model, tmp_path: Path
) -> None:
    application.model.set_script(reader.name.rpartition(":")[2], {"text": "."})
    file = settled(upload(person, scanned(tmp_path, words="Typed.").read_bytes(), "scan.pdf"))
    assert FileText.objects.get(file=file).text.strip() == "Typed."
    assert (
        str(file.notes[0])
        == "1 of its 2 pages have no text, like scans. Run text recognition (OCR) on it, then upload it again."
    )


@pytest.mark.django_db
def test_a_model_that_sees_nothing_cannot_be_chosen() -> None:
    provider = Provider.objects.create(name="Blind", kind="openai", base_url="http://127.0.0.1:1")
    blind = Model.objects.create(provider=provider, name="blind", context_window=32_000)
    with pytest.raises(ProductError) as caught:
        workspace.change_settings(user=None, fields={"page_reader": blind})
    assert caught.value.code == "invalid_setting"
    assert "sees images" in caught.value.detail
