"""The kind of a container is read from its directory; each refusal says what is true of the file."""

import io
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from readers.formats.archive import MAX_MEMBERS, Archive
from readers.formats.result import ReaderError
from readers.tests import office_97, samples
from readers.tests.reading import Read, pages, read, refusal

__all__ = ["read"]


def renamed(document: bytes, old: str, new: str) -> bytes:
    """Return an archive with this part of all names, also in the content of the members, replaced."""
    with zipfile.ZipFile(io.BytesIO(document)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    return samples.archive(
        {name.replace(old, new): content.replace(old.encode(), new.encode()) for name, content in members.items()}
    )


@pytest.mark.parametrize(
    ("package", "old", "new", "text"),
    [
        (samples.word(["The clause."], [["a", "b"]]), "document.xml", "document2.xml", "The clause."),
        (samples.word(["The clause."]), "word/", "body/", "The clause."),
        (samples.slides(["Alpha"]), "presentation.xml", "pres.xml", "# Alpha"),
        (samples.workbook({"Bills": [["Ada", 1]]}), "xl/", "book/", "# Bills\nAda\t1"),
    ],
)
def test_a_package_of_office_is_told_by_its_own_statement(
    read: Read, package: bytes, old: str, new: str, text: str
) -> None:
    expected = read(package)
    result = read(renamed(package, old, new))
    assert (result.media_type, result.text) == (expected.media_type, expected.text)
    assert result.text.startswith(text)


def test_names_of_parts_may_have_other_slashes_and_another_case(read: Read) -> None:
    package = samples.workbook({"Bills": [["Ada"]]})
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        members = {name.replace("/", "\\").replace("xl", "XL"): opened.read(name) for name in opened.namelist()}
    assert read(samples.archive(members)).text == "# Bills\nAda"


def test_an_archive_that_only_holds_a_document_is_an_archive(read: Read) -> None:
    result = read(samples.archive({"a/word/document.docx": samples.word(["The clause."]), "b.txt": "words"}))
    assert (result.media_type, len(result.spans)) == ("application/zip", 2)


def test_a_file_of_libreoffice_or_a_book_without_its_first_member_is_known(read: Read) -> None:
    text = samples.open_document("text", "<office:text><text:p>The clause.</text:p></office:text>")
    manifest = (
        '<m:manifest xmlns:m="m"><m:file-entry m:full-path="/" m:media-type="application/vnd.oasis.opendocument.text"/>'
        "</m:manifest>"
    )
    assert read(samples.without_member(samples.with_member(text, "META-INF/manifest.xml", manifest), "mimetype")).text
    container = '<container><rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></container>'
    book = samples.with_member(samples.book(["<p>Dawn.</p>"]), "META-INF/container.xml", container)
    assert read(samples.without_member(book, "mimetype")).media_type == "application/epub+zip"


def test_ids_that_are_no_ids_or_stand_twice_do_no_harm(read: Read) -> None:
    body = '<office:text><text:p xml:id="1">One</text:p><text:p xml:id="1">Two</text:p></office:text>'
    assert read(samples.open_document("text", body)).text == "One\n\nTwo"


def message(**attached: bytes) -> bytes:
    """Return a letter of Outlook with these attachments."""
    streams = {
        "__properties_version1.0": bytes(32),
        "__substg1.0_0037001F": "The offer".encode("utf-16-le"),
        "__substg1.0_1000001F": "See below.".encode("utf-16-le"),
    }
    for number, (name, content) in enumerate(attached.items()):
        folder = f"__attach_version1.0_#{number:08}"
        streams[f"{folder}/__substg1.0_3707001F"] = name.encode("utf-16-le")
        streams[f"{folder}/__substg1.0_37010102"] = content
    return office_97.compound(streams)


def test_a_locked_attachment_does_not_lock_its_letter(read: Read) -> None:
    locked = samples.locked(samples.word(["The secret."]), "own")
    outlook = read(message(secret=locked, note=samples.word(["Read me."])))
    assert outlook.media_type == "application/vnd.ms-outlook"
    assert "See below." in outlook.text and "Read me." in outlook.text and "The secret." not in outlook.text
    assert "Attachment secret: [Not read: It is protected with a password." in outlook.text
    assert "The secret." in read(message(secret=locked), password="own").text
    letter = EmailMessage()
    letter["From"] = "ada@example.org"
    letter["Subject"] = "Offer"
    letter.set_content("See below.")
    letter.add_attachment(locked, maintype="application", subtype="octet-stream", filename="secret")
    assert "See below." in read(letter.as_bytes()).text


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (samples.word([]), "wordless", "It has no text"),
        (samples.word_of("<w:p><w:r><w:drawing><a:blip xmlns:a='a'/></w:drawing></w:r></w:p>"), "no_text", "pictures"),
        (samples.open_document("text", "<office:text><text:p/></office:text>"), "wordless", "no pictures"),
        (samples.archive({}), "empty", "nothing in it"),
        (samples.with_member(samples.word(["x"]), "word/document.xml", samples.LAUGHS), "entities", "XML defines"),
        (office_97.compound({"EncryptedPackage": b"x"}), "encrypted", "password"),
        (office_97.compound({"VisioDocument": b"x"}), "unsupported", "Visio"),
        (office_97.compound({"PP40": b"x"}), "unsupported", "before PowerPoint 97"),
        (office_97.compound({"Contents": b"x"}), "unsupported", "cannot be read"),
        (b"\xdb\xa5\x2d\x00" + bytes(600), "unsupported", "before Word 97"),
    ],
)
def test_each_refusal_is_true(read: Read, content: bytes, code: str, words: str) -> None:
    error = refusal(read, content)
    assert error.code == code and words in str(error.sentence)


def test_a_text_with_a_stray_nul_is_a_text(read: Read) -> None:
    assert read(b"The name\0 of the rose.").text == "The name of the rose."
    assert refusal(read, bytes(range(256)) * 8).code == "unsupported"


def test_parts_of_an_archive_may_say_nothing(read: Read) -> None:
    assert pages(read(samples.archive({"a.txt": "words", "b.txt": ""}))) == [
        "# a.txt\n\nwords", "# b.txt\n\n[Not read: There is nothing in it.]",
    ]  # fmt: skip


def test_an_archive_has_a_greatest_number_of_members(tmp_path: Path) -> None:
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for number in range(MAX_MEMBERS):
            opened.writestr(f"{number}.txt", b"")
    assert len(Archive(path).names) == MAX_MEMBERS
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("one more.txt", b"")
    with pytest.raises(ReaderError) as refused:
        Archive(path)
    assert refused.value.code == "bomb"
