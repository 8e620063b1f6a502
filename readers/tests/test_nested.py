"""Files in other files, and files behind a password."""

import base64
import gzip
import io
import struct
import tempfile
import zipfile
from contextlib import suppress
from email.message import EmailMessage
from pathlib import Path

import pytest

from readers.formats.result import ReaderError
from readers.nested import dispatch, memory
from readers.nested.closed import closed_names, closed_notice, with_opened
from readers.nested.outlook import decompress_rtf
from readers.older.slides import Record, Records
from readers.tests import samples
from readers.tests.reading import Read, pages, read, refusal

__all__ = ["read"]


def test_an_office_file_opens_with_its_password_and_with_no_other(read: Read) -> None:
    document = samples.locked(samples.word(["The secret clause."]), "tëst 1")
    assert refusal(read, document).code == "encrypted"
    assert refusal(read, document, password="tëst 2").code == "wrong_password"
    assert read(document, password="tëst 1").text == "The secret clause."


def test_a_pdf_whose_password_is_wrong_says_so(read: Read) -> None:
    assert refusal(read, samples.protected_pdf()).code == "encrypted"
    assert refusal(read, samples.protected_pdf(), password="guess").code == "wrong_password"


# Made by Info-ZIP in the old way, and by pyzipper in WinZip's, with the password "tëst 1".
PKZIP = (
    "P)h>@3IGWJ005Lad0mU&qf#0G000gE000F5003bwba-^7C!8Dh$kKA#dye52gnBJYgUUExPBw0~2T)4~2#epNQW^jN01f~E08mQ-0v-bj00{s90F"
    "*j;U5nqNQW^jN01f~E00jU500000009610HlEc0001CE_8TwP)h{{000000RRC2GXMYpO#lD@000"
)
WINZIP = (
    "P)h>@6aWDLV*r#od0hYi001-q0021v000F53jkp*ba-?DnFjy@06|3q2ms2c8aEPGxZm4Nn>w4i*T2Rx^HjkHw~1rv{ig0^C=*j#YB>f^l^ADNf!"
    "4)Td6JmLiz-k{0Rj{Q6aWDLV*r#od0hYi001-q0021v000F53jhEB00000004ji00000VJ>udbOD(M00IC(MFR)`P)h{{000000RRC2J^%m!VgLX"
    "D000"
)


@pytest.mark.parametrize(("packed", "notice"), [(PKZIP, "An old secret."), (WINZIP, "The secret clause. " * 3)])
def test_an_archive_opens_with_its_password(read: Read, packed: str, notice: str) -> None:
    content = base64.b85decode(packed)
    assert refusal(read, content).code == "encrypted"
    assert refusal(read, content, password="tëst 2").code == "wrong_password"
    assert read(content, password="tëst 1").text == f"# a.txt\n\n{notice.strip()}"


@pytest.mark.parametrize("whole", [False, True])
def test_a_text_of_libreoffice_opens_with_its_password(read: Read, whole: bool) -> None:
    plain = samples.open_document("text", "<office:text><text:p>The secret clause.</text:p></office:text>")
    content = samples.locked_open_document(plain, "tëst 1", whole=whole)
    assert refusal(read, content).code == "encrypted"
    assert refusal(read, content, password="tëst 2").code == "wrong_password"
    result = read(content, password="tëst 1")
    assert (result.media_type, result.text) == ("application/vnd.oasis.opendocument.text", "The secret clause.")


@pytest.mark.parametrize(
    ("whole", "attribute", "much"),
    [
        (False, 'iteration-count="1000"', 'iteration-count="900000000"'),
        (True, 'argon2-iterations="1"', 'argon2-iterations="900000000"'),
        (True, 'argon2-memory="64"', 'argon2-memory="900000000"'),
    ],
)
def test_a_key_that_would_take_for_ever_is_refused_at_once(read: Read, whole: bool, attribute: str, much: str) -> None:
    plain = samples.open_document("text", "<office:text><text:p>The secret clause.</text:p></office:text>")
    with zipfile.ZipFile(io.BytesIO(samples.locked_open_document(plain, "any", whole=whole))) as opened:
        members: dict[str, str | bytes] = {name: opened.read(name) for name in opened.namelist()}
        manifest = opened.read("META-INF/manifest.xml").decode()
    assert attribute in manifest
    hostile = samples.archive({**members, "META-INF/manifest.xml": manifest.replace(attribute, much)})
    assert refusal(read, hostile, password="any").code == "protected"


def test_a_key_of_office_that_would_take_for_ever_is_refused_at_once(read: Read) -> None:
    document = samples.locked(samples.word(["The secret clause."]), "any")
    much = document.replace(b'  <p:encryptedKey spinCount="100000"', b'<p:encryptedKey spinCount="90000000"')
    assert much != document
    assert refusal(read, much, password="any").code == "protected"


def test_an_archive_of_more_protected_files_than_are_read_is_not_opened(read: Read) -> None:
    content = bytearray(samples.archive({f"{number}.txt": "x" for number in range(1_200)}))
    content[content.index(b"PK\x03\x04") + 6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    assert refusal(read, bytes(content), password="any").code == "bomb"


def secrets(*, inner: bool = False) -> bytes:
    """An archive with a text, documents that two passwords protect, and with `inner` one within an archive in it."""
    members: dict[str, str | bytes] = {
        "a.docx": samples.locked(samples.word(["The first secret."]), "tëst 1"),
        "b.txt": "Words.",
        "c.xlsx": samples.locked(samples.word(["The second secret."]), "tëst 2"),
    }
    if inner:
        members["d.zip"] = samples.archive({"e.docx": members["a.docx"], "old.zip": base64.b85decode(PKZIP)})
    return samples.archive(members)


def test_a_password_opens_what_is_protected_in_an_archive_and_the_rest_is_named(read: Read) -> None:
    extracted = read(secrets())
    first, second, third = pages(extracted)
    assert first.endswith("password. Enter it on the page of the file that this one is in.]")
    assert second == "# b.txt\n\nWords."
    assert (closed_names(extracted), extracted.left_out) == (["a.docx", "c.xlsx"], {})
    assert (
        str(closed_notice(extracted))
        == "Files in it that still need a password: a.docx, c.xlsx. Enter the password on its page."
    )
    opened = read(secrets(), password="tëst 1")
    first, second, third = pages(opened)
    assert (first, second) == ("# a.docx\n\nThe first secret.", "# b.txt\n\nWords.")
    assert third.startswith("# c.xlsx\n\n[Not read: The password does not open it.")
    assert closed_names(opened) == ["c.xlsx"]


def test_what_a_password_has_opened_stays_open_when_another_one_is_tried(read: Read) -> None:
    before = read(secrets(), password="tëst 1")
    spans = [list(span) for span in before.spans]
    for password, names in (("tëst 2", []), ("guess", ["c.xlsx"]), ("", ["c.xlsx"])):
        merged = with_opened(read(secrets(), password=password), before.text, spans)
        assert pages(merged)[0] == "# a.docx\n\nThe first secret."
        assert closed_names(merged) == names
        assert merged.text[merged.spans[2][0] :].startswith("# c.xlsx\n\n")
    other = read(samples.archive({"x.txt": "Words.", "y.txt": "Words.", "z.txt": "Words."}))
    again = read(secrets())
    assert with_opened(again, other.text, [list(span) for span in other.spans]) == again


def test_a_password_opens_what_is_deeper_in_an_archive_too(read: Read) -> None:
    extracted = read(secrets(inner=True), password="tëst 1")
    assert pages(extracted)[3] == "# d.zip\n\n# e.docx\n\nThe first secret.\n\n# old.zip\n\n# a.txt\n\nAn old secret."
    assert closed_names(read(secrets(inner=True))) == ["a.docx", "c.xlsx", "e.docx", "a.txt"]


def test_an_archive_of_which_only_some_is_protected_is_read_without_that(read: Read) -> None:
    with zipfile.ZipFile(io.BytesIO(base64.b85decode(PKZIP))) as opened:
        locked = opened.infolist()[0]
    content = io.BytesIO(base64.b85decode(PKZIP))
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("b.txt", "Words.")
    assert locked.filename == "a.txt"
    assert closed_names(read(content.getvalue())) == ["a.txt"]
    assert pages(read(content.getvalue())).pop() == "# b.txt\n\nWords."
    assert read(content.getvalue(), password="tëst 1").text == "# a.txt\n\nAn old secret.\n\n# b.txt\n\nWords."


def test_nothing_but_what_another_password_closes_is_a_wrong_password(read: Read) -> None:
    only = samples.archive({"a.docx": samples.locked(samples.word(["Secret."]), "any")})
    assert refusal(read, only).code == "encrypted"
    assert refusal(read, only, password="other").code == "wrong_password"
    assert read(only, password="any").text == "# a.docx\n\nSecret."


def test_a_password_opens_what_is_attached_to_a_letter(read: Read) -> None:
    content = letter(**{"a.docx": samples.locked(samples.word(["The secret clause."]), "any")})
    extracted = read(content, "letter.eml")
    assert (closed_names(extracted), extracted.left_out) == (["a.docx"], {})
    assert "The secret clause." in read(content, "letter.eml", password="any").text


def test_of_more_protected_files_than_are_tried_the_others_stay_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", tempfile.TemporaryFile)  # which a confined reader replaces
    monkeypatch.setattr(dispatch, "_KEYS_PER_FILE", dispatch.MAX_KEYS)
    with memory.as_file(secrets(inner=True)) as path:
        extracted = dispatch.read(path, "all.zip", password="tëst 1")
    assert closed_names(extracted) == ["c.xlsx", "e.docx", "a.txt"]
    assert "and so are too many files with it. Upload it separately.]" in extracted.text


def test_what_cannot_be_opened_with_a_password_is_said_otherwise(read: Read) -> None:
    content = bytearray(samples.archive({"a.txt": "words"}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + at] |= 0x41  # PKWARE's own encryption
    assert refusal(read, bytes(content), password="any").code == "protected"


def letter(**attached: bytes) -> bytes:
    message = EmailMessage()
    message["From"], message["Subject"] = "ada@example.org", "Papers"
    message.set_content("See below.")
    for name, content in attached.items():
        message.add_attachment(content, maintype="application", subtype="octet-stream", filename=name.replace("_", "."))
    return message.as_bytes()


def test_documents_attached_to_a_letter_are_read(read: Read) -> None:
    result = read(
        letter(bill_pdf=samples.pdf(["Pay 42."]), list_docx=samples.word(["Ducks"]), odd_bin=bytes(range(256)))
    )
    assert "Attachment bill.pdf:\n\nPay 42." in result.text
    assert "Attachment list.docx:\n\nDucks" in result.text
    assert "Attachment odd.bin: [Not read: Files of this kind" in result.text
    assert result.left_out == {"attachments": 1}


def test_an_archive_is_read_as_a_folder_a_page_a_file(read: Read) -> None:
    members: dict[str, str | bytes] = {
        "b/notes.md": "# Notes",
        "a.docx": samples.word(["Ducks"]),
        "broken.pdf": b"%PDF-1.4 nothing",
        "__MACOSX/._a": "x",
        "shot.png": samples.image("PNG"),
    }
    result = read(samples.archive(members))
    assert (result.media_type, result.left_out) == ("application/zip", {"members": 1, "pictures": 1})
    assert [page.split("\n")[0] for page in pages(result)] == ["# a.docx", "# b/notes.md", "# broken.pdf", "# shot.png"]
    assert "[Not read: It is damaged" in pages(result)[2]


def test_archives_in_archives_end(read: Read) -> None:
    archive = samples.archive({"words.txt": "deep"})
    for depth in range(8):
        archive = samples.archive({f"{depth}.zip": archive})
    text = read(archive).text
    assert "[Not read" in text and "deep" not in text
    many = samples.archive({f"{number}.txt": "x" for number in range(1_200)})
    assert refusal(read, many).code == "bomb"
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("a.txt", bytes(150_000_000))
    assert refusal(read, zeros.getvalue()).code == "bomb"


def test_the_words_of_a_drawing_are_read(read: Read) -> None:
    drawn = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><title>Lake</title><path d="M0 0"/>'
    assert read(f"{drawn}<g><text>Twelve <tspan>ducks</tspan></text></g></svg>").text == "Lake\nTwelve ducks"


def test_a_packed_body_of_outlook_is_unpacked() -> None:
    # The worked example of MS-OXRTFCP, section 4.1.1.
    packed = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )
    assert decompress_rtf(packed) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
    assert decompress_rtf(packed[:12] + b"\0\0\0\0" + b"\xff\xff\xff") == b""
    assert decompress_rtf(struct.pack("<4I", 30, 4, 0x414C454D, 0) + b"{\\rtf1}") == b"{\\rtf1}"


def older(name: str) -> bytes:
    return gzip.decompress((Path(__file__).parent / f"{name}.gz").read_bytes())


def test_a_document_of_word_97_keeps_headings_lists_and_tables(read: Read) -> None:
    result = read(older("harbour.doc"))
    table = "| Name | Berth |\n| --- | --- |\n| Ada | 12 |"
    expected = f"# The harbour\n\nShips come in at noon.\n\n- First point\n\n{table}\n\nGrüße – Việt Nam."
    assert (result.media_type, result.text) == ("application/msword", expected)


def test_a_document_of_word_97_has_the_numbers_of_its_lists(read: Read) -> None:
    first, _, rest = read(older("clauses.doc")).text.partition("Between.")
    assert [line.strip() for line in first.split("\n") if line] == [
        *("# The contract", "1. Duties", "a. To pay", "b. To deliver", "2. Terms"),
    ]
    assert rest.split("\n") == ["", "", "- A ship", "III. Third", "IV. Fourth"]


def test_lists_of_a_document_of_word_97_that_are_not_there_take_nothing_of_its_text(read: Read) -> None:
    damaged = bytearray(older("clauses.doc"))
    at = damaged.index(b"\xec\xa5") + 0x02E2  # where it says where its lists are
    damaged[at : at + 8] = b"\xff" * 8
    assert "- To deliver" in read(bytes(damaged)).text


def test_a_presentation_of_powerpoint_97_gives_its_slides_and_notes(read: Read) -> None:
    result = read(older("deck.ppt"))
    first, second = (result.text[start:end] for start, end in result.spans)
    assert first == "# The harbour\n\n- Ships\n- Boats\n\nNotes:\n\nSay hello."
    assert second == "# The end\n\n- Thanks"


def test_a_table_of_powerpoint_97_is_told_from_where_its_cells_stand() -> None:
    def record(kind: int, content: bytes, head: int = 0xF) -> bytes:
        return struct.pack("<HHI", head, kind, len(content)) + content

    def cell(left: int, top: int, right: int, bottom: int, text: str) -> bytes:
        shape_text = record(3999, struct.pack("<I", 4), 0) + record(4008, text.encode("cp1252"), 0)
        return record(
            0xF004, record(0xF00F, struct.pack("<4i", left, top, right, bottom), 0) + record(0xF00D, shape_text)
        )

    table = record(0xF004, record(0xF122, struct.pack("<HIHI", 0x3BF, 7, 0x39F, 1), 0x23))
    cells = cell(0, 0, 20, 10, "Both") + cell(0, 10, 10, 20, "Grüße") + cell(10, 10, 20, 20, "b")
    content = record(0xF002, record(0xF003, table + cells))
    [text] = Records(content).texts(Record(0, 0, 0, len(content), True))
    assert text.text == "| Both | Both |\n| --- | --- |\n| Grüße | b |"


@pytest.mark.parametrize("name", ["harbour.doc", "deck.ppt"])
def test_a_document_of_old_office_that_is_cut_off_or_altered_is_damaged_at_most(read: Read, name: str) -> None:
    content = bytearray(older(name))
    assert refusal(read, bytes(content[: len(content) // 2])).code in ("damaged", "unsupported")
    for at in range(1_536, len(content), len(content) // 12):
        content[at : at + 8] = b"\xff" * 8
        with suppress(ReaderError):
            read(bytes(content))


@pytest.mark.parametrize("name", ["WordDocument", "PowerPoint Document"])
def test_what_only_calls_itself_an_old_document_is_damaged(read: Read, name: str) -> None:
    mark = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + name.encode("utf-16-le") + bytes(4)
    assert refusal(read, mark).code == "damaged"
