"""From the upload to the text, through the running worker."""

import io
import os
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.core.files.base import File as Content
from django.core.files.storage import Storage, default_storage
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from PIL import Image

from core.errors import NotFound, ProductError
from core.jobs import sweep
from files import ingest, passwords, services, storage
from files.models import Chunk, File, FileText
from llm import tokens
from llm.models import Model
from readers.tests import samples
from tests.application import Application
from tests.conftest import Person
from tests.files.stored import settled, upload
from tests.product import until


@pytest.fixture(autouse=True)
def _one_storage(application: Application, committed: None, settings: Any) -> None:
    settings.MEDIA_ROOT = application.directory / "files"  # where the product's worker looks


def refused(person: Person, content: Any, name: str = "a") -> ProductError:
    with pytest.raises(ProductError) as caught:
        services.upload(user=person.user, name=name, content=content)
    return caught.value


def test_an_uploaded_pdf_is_read_counted_and_becomes_searchable(person: Person) -> None:
    pages = [samples.page_of_text(number) for number in range(1, 8)]
    file = settled(upload(person, samples.pdf(pages), "harbour.pdf"))
    assert (file.status, file.media_type, file.pages, file.error) == ("ready", "application/pdf", 7, "")
    content = FileText.objects.get(file=file)
    assert [content.text[start:end] for start, end in content.spans] == pages
    assert file.tokens == {"o200k_base": tokens.count(content.text)}
    chunks = list(Chunk.objects.filter(file=file))
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.text == content.text[chunk.start : chunk.end]
        start, end = content.spans[chunk.page - 1]
        assert start <= chunk.start < end
    until(lambda: File.objects.get(pk=file.pk).searchable, "it is searchable")


@pytest.mark.parametrize("kind", ["TIFF", "BMP", "AVIF"])
def test_a_picture_that_models_do_not_take_is_shown_in_another_form(person: Person, kind: str) -> None:
    file = settled(upload(person, samples.image(kind, 64, 48), "drawn.png"))
    assert (file.status, file.media_type, file.width, file.height) == ("ready", f"image/{kind.lower()}", 64, 48)
    assert str(file.notes[0]).startswith("Models and browsers cannot show pictures of this kind")
    media_type, shown = services.open_shown(file=file)
    with shown, Image.open(shown) as picture:
        assert (media_type, picture.format, picture.size) == ("image/png", "PNG", (64, 48))
    name = storage.shown_blob_name(file.sha256)
    services.delete(user=person.user, file=file)
    until(lambda: not default_storage.exists(name), "it goes with the file")


def test_the_bytes_come_back_as_they_were(person: Person) -> None:
    content = samples.image("PNG", 640, 480)
    file = settled(upload(person, content, "photo.png"))
    with services.open_blob(file=file) as blob:
        assert blob.read() == content
    assert file.is_image and (file.width, file.height) == (640, 480)
    assert file.tokens == {"o200k_base": tokens.image_tokens(640, 480)}


def test_the_same_bytes_are_stored_once_and_go_with_their_last_row(person: Person, stranger: Person) -> None:
    content = f"Only here: {uuid4()}"
    mine, table, theirs = upload(person, content), upload(person, content, "copy.csv"), upload(stranger, content)
    blob = mine.blob.name
    assert blob is not None and {table.blob.name, theirs.blob.name} == {blob} and mine.sha256 in blob
    for file, owner in ((mine, person), (table, person)):
        services.delete(user=owner.user, file=settled(file))
        assert default_storage.exists(blob)
    services.delete(user=stranger.user, file=settled(theirs))
    assert not default_storage.exists(blob)


def test_uploads_and_deletions_of_one_content_at_once_never_lose_bytes_that_a_row_needs(person: Person) -> None:
    content = f"Contended: {uuid4()}"

    def again_and_again() -> None:
        for _ in range(10):
            services.delete(user=person.user, file=upload(person, content))
        upload(person, content)

    threads = [threading.Thread(target=again_and_again) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = list(File.objects.filter(owner=person.user))
    assert 1 <= len(left) <= 4  # an upload may return the row of another one
    for file in left:
        with services.open_blob(file=file) as blob:
            assert blob.read().decode() == content


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\notes.txt", "notes.txt"),
        ("a\x00b\r\n\u202etxt.exe", "abtxt.exe"),
        ("..", "file"),
        ("", "file"),
        ("x" * 400 + ".tar.gz", "x" * 252 + ".gz"),
        ("Gru\u0308ße.txt", "Grüße.txt"),
    ],
)
def test_a_name_is_only_a_name(name: str, cleaned: str) -> None:
    assert services.clean_name(name) == cleaned


def test_an_empty_file_and_one_above_the_limit_are_refused_and_leave_nothing(person: Person, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 1_000
    assert refused(person, ContentFile(b"")).code == "empty_file"
    error = refused(person, ContentFile(bytes(1_001)))
    assert (error.code, error.status) == ("file_too_large", 413)

    class Endless(ContentFile[bytes]):
        def chunks(self, chunk_size: int | None = None) -> Any:
            while True:
                yield bytes(100)

    assert refused(person, Endless(b"It says that it is short.")).code == "file_too_large"
    assert not File.objects.filter(owner=person.user).exists()


def test_a_failed_file_keeps_its_bytes_says_why_and_can_be_tried_again(person: Person) -> None:
    file = settled(upload(person, samples.protected_pdf(), "secret.pdf"))
    assert (file.status, file.error_code) == ("failed", "encrypted") and "password" in file.error
    with services.open_blob(file=file) as blob:
        assert blob.read() == samples.protected_pdf()
    services.retry(user=person.user, file=file)
    assert settled(file).error_code == "encrypted"


def test_a_password_opens_a_file_and_is_kept_nowhere(person: Person, caplog: pytest.LogCaptureFixture) -> None:
    file = settled(upload(person, samples.locked(samples.word(["The secret clause."]), "open sesame"), "secret.docx"))
    assert file.locked
    services.reread(user=person.user, file=file, password="guess")
    assert settled(file).error_code == "wrong_password"
    services.reread(user=person.user, file=file, password="open sesame")
    assert settled(file).status == "ready" and FileText.objects.get(file=file).text == "The secret clause."
    assert passwords.take(file) == "" and "sesame" not in caplog.text
    with pytest.raises(ProductError) as caught:
        services.reread(user=person.user, file=file, password="two\nlines")
    assert caught.value.code == "bad_password"


def test_passwords_open_one_file_after_another_in_an_archive(person: Person, caplog: pytest.LogCaptureFixture) -> None:
    members: dict[str, str | bytes] = {
        f"{name}.docx": samples.locked(samples.word([f"The secret of {name}."]), f"sesame {name}") for name in "ab"
    }
    file = settled(upload(person, samples.archive({**members, "c.txt": "Words."}), "all.zip"))
    api = partial(person.caller.get, f"files/{file.pk}/")
    assert (file.status, file.error_code, api()["locked"]) == ("ready", "locked_inside", True)
    assert (
        str(file.notes[0]) == "Files in it that still need a password: a.docx, b.docx. Enter the password on its page."
    )
    browser = Client()
    browser.force_login(person.user)
    page = browser.get(f"/files/{file.pk}/").content.decode()
    assert 'name="password"' in page and "the files in it that are still closed" in page
    person.caller.post(f"files/{file.pk}/reread/", {"password": "sesame a"})
    assert str(settled(file).notes[0]).startswith("Files in it that still need a password: b.docx.")
    services.reread(user=person.user, file=file, password="sesame b")
    assert (settled(file).error, file.error_code, api()["locked"]) == ("", "", False)
    text = FileText.objects.get(file=file).text
    assert "The secret of a." in text and "The secret of b." in text
    assert 'name="password"' not in browser.get(f"/files/{file.pk}/").content.decode()
    assert passwords.take(file) == "" and "sesame" not in caplog.text


def test_what_has_not_failed_cannot_be_tried_again(person: Person) -> None:
    file = settled(upload(person, "Fine."))
    until(lambda: File.objects.get(pk=file.pk).searchable, "it is searchable")
    with pytest.raises(ProductError) as caught:
        services.retry(user=person.user, file=file)
    assert caught.value.code == "not_failed"


def test_a_text_is_read_again_in_the_encoding_that_its_owner_says(person: Person) -> None:
    text = f"El señor viene mañana por la mañana, y el año que viene también. {uuid4()}"
    file = settled(upload(person, text.encode("cp1252")))
    services.reread(user=person.user, file=file, encoding="cp1250")
    assert (settled(file).encoding, FileText.objects.get(file=file).text.count("ń")) == ("cp1250", text.count("ñ"))
    services.reread(user=person.user, file=file)
    assert (settled(file).encoding, file.chosen_encoding) == ("cp1252", "")
    until(lambda: File.objects.get(pk=file.pk).searchable, "it is searchable")
    assert [chunk.text for chunk in Chunk.objects.filter(file=file)] == [text]


def test_what_is_being_read_is_not_read_again_and_no_encoding_is_made_up(person: Person) -> None:
    file = settled(upload(person, "Fine."))
    File.objects.filter(pk=file.pk).update(status="processing", heartbeat=timezone.now(), searchable=False)
    for encoding, code in (("", "being_read"), ("rot13", "unknown_encoding")):
        with pytest.raises(ProductError) as caught:
            services.reread(user=person.user, file=file, encoding=encoding)
        assert caught.value.code == code


def test_nobody_deletes_or_retries_the_file_of_another(person: Person, stranger: Person) -> None:
    file = settled(upload(person, samples.protected_pdf()))
    for action in (services.delete, services.retry, services.reread):
        with pytest.raises(NotFound):
            action(user=stranger.user, file=file)
    assert File.objects.get(pk=file.pk).status == "failed"


def test_scanned_pages_are_told(person: Person) -> None:
    file = settled(upload(person, samples.pdf(["Words", "", ""])))
    assert file.status == "ready" and str(file.notes[0]).startswith("2 of its 3 pages have no text")


def test_a_file_that_no_model_can_take_is_marked_too_long(person: Person) -> None:
    largest = max(model.window for model in Model.objects.usable())
    fits, too_long = largest - 1_064, largest - 1_063
    for count, status in ((fits, "ready"), (too_long, "too_long")):
        file = settled(upload(person, " a" * count))
        assert (file.tokens["o200k_base"], file.status) == (count, status)


def test_tokens_are_counted_once_for_each_tokenizer(person: Person) -> None:
    file = upload(person, "Grüße aus Köln")
    assert file.status == "uploaded" and services.get_token_count(file=file) is None
    settled(file)
    expected = tokens.count("Grüße aus Köln", "cl100k_base")
    assert services.get_token_count(file=file, tokenizer="cl100k_base") == expected
    FileText.objects.filter(file=file).delete()
    stored = File.objects.get(pk=file.pk)
    assert services.get_token_count(file=stored, tokenizer="cl100k_base") == expected
    assert stored.tokens["o200k_base"] == tokens.count("Grüße aus Köln")


def abandoned(person: Person, status: str, attempt: int) -> File:
    """A row as a dead worker leaves it, or as it is when the broker lost its task."""
    file = settled(upload(person, f"Left behind: {uuid4()}"))
    until(lambda: File.objects.get(pk=file.pk).searchable, "it is searchable")
    long_ago = timezone.now() - timedelta(minutes=2)
    File.objects.filter(pk=file.pk).update(status=status, attempt=attempt, heartbeat=long_ago, searchable=False)
    file.refresh_from_db()
    return file


@pytest.mark.parametrize(("status", "attempt"), [("uploaded", 0), ("processing", 1)])
def test_the_sweeper_finds_what_nobody_reads(person: Person, status: str, attempt: int) -> None:
    file = abandoned(person, status, attempt)
    Chunk.objects.filter(file=file).delete()
    sweep(ingest.READS)
    assert settled(file).status == "ready" and Chunk.objects.filter(file=file).exists()


def test_a_file_whose_reader_died_twice_has_failed(person: Person) -> None:
    file = abandoned(person, "processing", ingest.MAX_READS)
    sweep(ingest.READS)
    assert settled(file).error_code == "interrupted" and file.error


def test_the_sweeper_finds_what_nobody_indexed(person: Person) -> None:
    file = abandoned(person, "ready", 1)
    sweep(ingest.INDEXINGS)
    until(lambda: File.objects.get(pk=file.pk).searchable, "it is searchable")


def test_a_file_that_meets_no_free_slot_is_indexed_later_and_holds_no_thread(person: Person) -> None:
    file = settled(upload(person, f"Left behind: {uuid4()}"))
    until(lambda: File.objects.get(pk=file.pk).searchable, "it is searchable")
    for _ in range(ingest.INDEXING_SLOTS):
        ingest._indexing_slots.acquire()
    try:
        File.objects.filter(pk=file.pk).update(searchable=False, attempt=0, heartbeat=timezone.now())
        ingest.index_waiting(file.pk)  # returns, though nothing is indexed
        assert not File.objects.get(pk=file.pk).searchable
    finally:
        for _ in range(ingest.INDEXING_SLOTS):
            ingest._indexing_slots.release()
    ingest.index_waiting(file.pk)
    assert File.objects.get(pk=file.pk).searchable


def test_lost_bytes_are_told(person: Person) -> None:
    file = abandoned(person, "uploaded", 0)
    default_storage.delete(file.blob.name or "")
    sweep(ingest.READS)
    assert settled(file).error_code == "lost"
    with pytest.raises(ProductError) as caught:
        services.open_blob(file=file)
    assert caught.value.code == "file_lost"


def test_a_file_that_cannot_be_opened_does_not_hold_up_others(person: Person, stranger: Person) -> None:
    unreadable = settled(upload(person, f"Not to be opened: {uuid4()}"))
    path = Path(default_storage.path(unreadable.blob.name or ""))
    path.unlink()
    path.mkdir()
    other = abandoned(stranger, "uploaded", 0)
    waiting = {"status": "uploaded", "attempt": 0, "searchable": False, "heartbeat": other.heartbeat}
    File.objects.filter(pk=unreadable.pk).update(**waiting)
    list(ingest.read_waiting(unreadable.pk))
    assert settled(other).status == "ready"
    mine = File.objects.filter(pk=unreadable.pk).values_list("status", "attempt")
    until(lambda: mine.get() == ("uploaded", 0), "the file waits again")
    path.rmdir()
    services.delete(user=person.user, file=unreadable)


class Elsewhere(Storage):
    """Like object storage, it has no paths."""

    blobs: ClassVar[dict[str, bytes]] = {}

    def _save(self, name: str, content: "Content[Any]") -> str:
        self.blobs[name] = content.read()
        return name

    def _open(self, name: str, mode: str) -> "Content[Any]":
        return ContentFile(self.blobs[name])

    def exists(self, name: str) -> bool:
        return name in self.blobs


def test_bytes_that_are_stored_elsewhere_are_read_from_a_copy(person: Person, settings: Any) -> None:
    remote = {"BACKEND": "tests.files.test_ingest.Elsewhere"}
    settings.STORAGES = {**settings.STORAGES, "default": remote}
    file = upload(person, "Far away.")
    with storage.local_path(file) as path:
        assert path.read_text() == "Far away."
    assert not path.exists()


def test_many_uploads_at_once_are_all_read(person: Person, stranger: Person) -> None:
    files = [upload(owner, f"Number {n} {uuid4()}") for n in range(20) for owner in (person, stranger)]
    assert {settled(file).status for file in files} == {"ready"}


def slow_letter() -> bytes:
    """Return a letter that takes seconds to read: each line is compared with the ends of 400 parts."""
    parts = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n" for n in range(400))
    head = f"From: a@example.org\r\nSubject: {uuid4()}\r\nMIME-Version: 1.0\r\n"
    return (head + parts + "Content-Type: text/plain\r\n\r\n" + "x\n" * 100_000).encode()


def test_slow_files_of_one_person_leave_slots_to_others(person: Person, stranger: Person) -> None:
    slow = [upload(person, slow_letter(), "slow.eml") for _ in range(ingest.SLOTS + 1)]
    rows = File.objects.filter(pk__in=[file.pk for file in slow])
    until(lambda: rows.filter(status="processing").count() >= ingest.SLOTS_PER_PERSON, "the slow ones are being read")
    quick = [settled(upload(stranger, f"Quick: {uuid4()}")) for _ in range(2)]
    states = sorted(rows.values_list("status", flat=True))
    assert [file.status for file in quick] == ["ready", "ready"]
    assert states == ["processing"] * ingest.SLOTS_PER_PERSON + ["uploaded"] * (len(slow) - ingest.SLOTS_PER_PERSON)
    for file in slow:
        services.delete(user=person.user, file=file)


def test_the_content_may_come_as_any_stream(person: Person) -> None:
    content = io.BytesIO(b"From a stream.")
    file = services.upload(user=person.user, name="s.txt", content=Content(content, "s.txt"))
    assert settled(file).status == "ready" and file.size == 14


def test_a_file_may_be_deleted_while_it_is_read_and_indexed(person: Person) -> None:
    for number in range(10):
        file = upload(person, samples.pdf([samples.page_of_text(number)]))
        if number % 2:
            settled(file)
        services.delete(user=person.user, file=file)
    assert not File.objects.filter(owner=person.user).exists()


def test_a_persons_files_have_room_together(person: Person, settings: Any) -> None:
    settings.STORED_BYTES = 1_000
    services.upload(user=person.user, name="a.txt", content=ContentFile(b"a" * 600))
    error = refused(person, ContentFile(b"b" * 401))
    assert (error.code, error.status, error.headers) == ("storage_full", 429, {"Retry-After": "3600"})
    services.upload(user=person.user, name="b.txt", content=ContentFile(b"b" * 400))
    assert services.stored_bytes(person.user) == 1_000


def test_no_upload_waits_while_the_storage_takes_another_one_of_its_person(person: Person, settings: Any) -> None:
    settings.STORED_BYTES = 1_000
    with CaptureQueriesContext(connection) as queries:
        services.upload(user=person.user, name="a.txt", content=ContentFile(uuid4().bytes))
    locks = [each["sql"] for each in queries if "pg_advisory_xact_lock" in each["sql"]]
    assert [f"stored:{person.user.pk}" in sql for sql in locks] == [False, True]  # the first is of the bytes


def test_the_same_content_is_stored_once(person: Person, stranger: Person, settings: Any) -> None:
    settings.STORED_BYTES = 1_000
    content = f"{uuid4()} " * 20
    first = settled(upload(person, content, "plan.txt"))
    again = upload(person, content, "plan (1).txt")  # there is no room for a copy
    assert (again.pk, again.name, again.repeated) == (first.pk, "plan.txt", True)
    assert File.objects.get(pk=first.pk).uploaded_again is not None
    assert services.stored_bytes(person.user) == len(content)
    table, other = upload(person, content[:100], "plan.csv"), upload(person, content[:100], "plan.txt")
    assert table.pk != other.pk and not other.repeated  # the kind of the name decides how it is read
    assert upload(stranger, content, "plan.txt").pk != first.pk
    services.delete(user=person.user, file=first)
    assert upload(person, content, "plan.txt").pk != first.pk


def test_what_conversations_bring_again_is_not_the_owners_own(person: Person) -> None:
    def bring(content: bytes) -> File:
        return services.store(user=person.user, name="rain.txt", content=ContentFile(content), with_conversation=True)

    content = uuid4().bytes
    first, again = bring(content), bring(content)
    assert (again.pk, again.repeated) == (first.pk, True)
    assert File.objects.get(pk=first.pk).uploaded_again is None
    assert upload(person, content, "rain.txt").pk == first.pk  # the owner wants it for itself, too
    assert File.objects.get(pk=first.pk).uploaded_again is not None
    content = uuid4().bytes
    own = upload(person, content, "rain.txt")
    assert bring(content).pk == own.pk
    assert File.objects.get(pk=own.pk).uploaded_again is not None


def test_a_failed_file_that_is_uploaded_again_is_read_again(person: Person) -> None:
    broken = b"%PDF-1.7 and then nothing of the kind " + uuid4().bytes
    first = settled(upload(person, broken, "broken.pdf"))
    again = upload(person, broken, "broken.pdf")
    assert (first.status, again.pk, again.status) == ("failed", first.pk, "uploaded")
    assert settled(again).status == "failed"


def test_what_a_dead_process_had_received_goes_after_a_day(settings: Any, tmp_path: Path) -> None:
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    old, new = tmp_path / "x.upload.txt", tmp_path / "y.upload.txt"
    for path in (old, new):
        path.write_text("half of it")
    os.utime(old, (0, 0))
    storage.sweep_unfinished()
    assert (old.exists(), new.exists()) == (False, True)
