"""Workbooks of all four kinds: what a person sees of their cells, what is hidden, and odd files."""

import io
import struct
from datetime import date, timedelta

import openpyxl
from msoffcrypto.format.ooxml import OOXMLFile
from openpyxl.comments import Comment

from readers.tests import office_97, samples
from readers.tests.office_97 import OldSheet
from readers.tests.reading import Read, pages, read, refusal

__all__ = ["read"]

FORMATS: tuple[tuple[float | timedelta, str], ...] = (
    (0.075, "0.0%"),
    (1234.5, '"$"#,##0.00'),
    (1067, "00000"),
    (timedelta(hours=30, minutes=5), "[h]:mm"),
)


def book() -> bytes:
    """Return a workbook with formats, a hidden row and column, a hidden sheet, a comment and a cell in the last row."""
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    assert sheet is not None
    sheet.title = "Sums"
    for number, (value, code) in enumerate(FORMATS, 1):
        sheet.cell(number, 1, value).number_format = code
        sheet.cell(number, 2, f"note {number}")
    sheet.row_dimensions[3].hidden = True
    sheet.column_dimensions["B"].hidden = True
    sheet["A1048576"] = "last"
    sheet["A1"].comment = Comment("Too low?", "Ann")
    hidden = workbook.create_sheet("Plans")
    hidden.sheet_state = "veryHidden"
    hidden["A1"] = date(2026, 11, 21)
    out = io.BytesIO()
    workbook.save(out)
    return out.getvalue()


def test_a_workbook_is_read_as_a_person_sees_it_and_what_is_hidden_is_marked(read: Read) -> None:
    result = read(book())
    assert pages(result) == [
        "# Sums\n7.5%\t[Hidden column] note 1\n$1,234.50\tnote 2\n[Hidden row] 01067\tnote 3\n30:05\tnote 4\n"
        "[1048571 blank rows]\nlast\n\nComments:\n- A1 Ann: Too low?",
        "# Plans [Hidden sheet]\n2026-11-21",
    ]
    assert list(map(str, result.notes)) == [
        "Parts that the document hides, such as text, rows, sheets or slides: 3. Their text is marked as hidden."
    ]


def test_a_workbook_of_excel_97_is_read_in_the_same_way(read: Read) -> None:
    cells: dict[tuple[int, int], tuple[float | str, str]] = {
        (0, 0): (0.075, "0.0%"), (0, 1): ("note", "@"), (1, 0): (1234.5, '"$"#,##0.00'), (65_535, 0): ("last", "@"),
    }  # fmt: skip
    first = OldSheet("Sums", cells, hidden_rows=[1], hidden_columns=[1], comments={(0, 0): ("Ann", "Ann:\nToo low?")})
    stream = office_97.workbook(first, OldSheet("Plans", {(0, 0): (46_347, "d/m/yyyy")}, state=2))
    texts = [
        "# Sums\n7.5%\t[Hidden column] note\n[Hidden row] $1,234.50\n[65533 blank rows]\nlast\n\nComments:\n"
        "- A1 Ann: Too low?",
        "# Plans [Hidden sheet]\n2026-11-21",
    ]
    for name in ("Workbook", "WORKBOOK", "Book"):
        result = read(office_97.compound({name: stream, "MBD0/WordDocument": b"a document in the workbook"}))
        assert (result.media_type, pages(result), result.left_out) == ("application/vnd.ms-excel", texts, {"hidden": 3})
    assert read(stream).media_type == "application/vnd.ms-excel"  # before Excel 5 there were no compound files


def records(*parts: tuple[int, bytes]) -> bytes:
    """Return records of a binary workbook."""
    out = b""
    for kind, data in parts:
        head = bytes([kind]) if kind < 128 else bytes([kind & 0x7F | 0x80, kind >> 7])
        out += head + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data
    return out


def wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def binary_workbook() -> bytes:
    def cell(column: int, style: int, value: bytes) -> bytes:
        return struct.pack("<2I", column, style) + value

    def row(number: int, hidden: bool = False) -> tuple[int, bytes]:
        return 0, struct.pack("<2IHBB", number, 0, 300, 0, 0x10 * hidden) + bytes(5)

    relation = '<Relationship Id="{}" Type="http://x/relationships/{}" Target="{}"/>'
    relations = '<Relationships xmlns="r">{}</Relationships>'
    sheet = records(
        (60, struct.pack("<4IH", 1, 1, 0, 0, 1)), row(0), (5, cell(0, 1, struct.pack("<d", 0.075))),
        (7, cell(1, 0, struct.pack("<I", 0))), row(2, hidden=True), (2, cell(0, 0, struct.pack("<I", 123 << 2 | 3))),
        row(1_048_575), (6, cell(0, 0, wide("last"))),
    )  # fmt: skip
    comments = records((632, wide("Ann")), (635, struct.pack("<5I16x", 0, 0, 0, 0, 0)), (637, b"\0" + wide("Too low?")))
    return samples.archive(
        {
            "[Content_Types].xml": '<Types xmlns="t"><Default Extension="bin"'
            ' ContentType="application/vnd.ms-excel.sheet.binary.macroEnabled.main"/></Types>',
            "_rels/.rels": relations.format(relation.format("a", "officeDocument", "xl/book1.bin")),
            "xl/book1.bin": records((153, bytes(8)), (156, struct.pack("<2I", 1, 1) + wide("s") + wide("Plans"))),
            "xl/_rels/book1.bin.rels": relations.format(
                relation.format("s", "worksheet", "sheets/one.bin")
                + relation.format("t", "sharedStrings", "strings.bin")
                + relation.format("u", "styles", "styles.bin")
            ),
            "xl/strings.bin": records((19, b"\0" + wide("note"))),
            "xl/styles.bin": records(
                (44, struct.pack("<H", 170) + wide("0.0%")), (617, bytes(4)), (47, struct.pack("<2H12x", 0, 0)),
                (47, struct.pack("<2H12x", 0, 170)), (618, b""),
            ),
            "xl/sheets/one.bin": sheet,
            "xl/sheets/_rels/one.bin.rels": relations.format(relation.format("c", "comments", "../comments.bin")),
            "xl/comments.bin": comments,
        }
    )  # fmt: skip


def test_a_binary_workbook_is_read_in_the_same_way(read: Read) -> None:
    result = read(binary_workbook())
    assert result.text == (
        "# Plans [Hidden sheet]\n7.5%\t[Hidden column] note\n\n[Hidden row] 1.23\n[1048572 blank rows]\nlast\n\n"
        "Comments:\n- A1 Ann: Too low?"
    )
    assert result.left_out == {"hidden": 3}


def test_a_sheet_of_libreoffice_has_its_comments_and_says_what_is_hidden(read: Read) -> None:
    styles = '<style:style style:name="ta2"><style:table-properties table:display="false"/></style:style>'
    note = "<office:annotation><dc:creator>Ann</dc:creator><text:p>Too low?</text:p></office:annotation>"
    body = f"""<office:spreadsheet><table:table table:name="Sums"><table:table-column/>
    <table:table-column table:visibility="collapse"/><table:table-row><table:table-cell>{note}<text:p>7.5%</text:p>
    </table:table-cell><table:table-cell><text:p>note</text:p></table:table-cell></table:table-row>
    <table:table-row table:number-rows-repeated="2000"><table:table-cell/></table:table-row>
    <table:table-row table:visibility="filter"><table:table-cell office:value="12"/></table:table-row>
    <table:table-row table:number-rows-repeated="300"><table:table-cell><text:p>same</text:p></table:table-cell>
    </table:table-row></table:table><table:table table:name="Plans" table:style-name="ta2"><table:table-row>
    <table:table-cell><text:p>secret</text:p></table:table-cell></table:table-row></table:table></office:spreadsheet>"""
    result = read(samples.open_document("spreadsheet", body, styles))
    first, second = pages(result)
    assert first.startswith("# Sums\n7.5%\t[Hidden column] note\n[2000 blank rows]\n[Hidden row] 12\nsame\n")
    assert first.count("same") == 100 and first.endswith("Comments:\n- A1 Ann: Too low?")
    assert second == "# Plans [Hidden sheet]\nsecret"
    assert result.left_out == {"hidden": 3, "copies": 1}


def test_a_workbook_with_odd_styles_is_read(read: Read) -> None:
    workbook = book()
    assert pages(
        read(samples.with_member(workbook, "xl/styles.xml", "<styleSheet><fills><fill/></fills></styleSheet>"))
    )[0].startswith("# Sums\n0.075\t")
    result = read(samples.with_member(workbook, "xl/styles.xml", "<styleSheet"))
    assert result.left_out["formats"] == 1 and "Its number formats cannot be read" in str(result.notes[0])


def test_what_the_first_reader_refuses_a_second_one_reads(read: Read) -> None:
    workbook = samples.with_member(
        samples.workbook({"Bills": [["Ada", 0.5]]}), "xl/worksheets/_rels/sheet1.xml.rels", "<odd"
    )
    result = read(workbook)
    assert (result.text, result.left_out) == ("# Bills\nAda\t0.5", {"formats": 1})


def test_a_workbook_that_excel_opens_unasked_opens(read: Read) -> None:
    out = io.BytesIO()
    OOXMLFile(io.BytesIO(samples.workbook({"Bills": [["Ada"]]}))).encrypt("VelvetSweatshop", out)
    assert read(out.getvalue()).text == "# Bills\nAda"
    locked = samples.locked(samples.workbook({"Bills": [["Ada"]]}), "own")
    assert refusal(read, locked).code == "encrypted"
    assert refusal(read, locked, password="other").code == "wrong_password"
