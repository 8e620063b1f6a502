"""Read binary workbooks of Excel (XLSB, MS-XLSB): records instead of XML, in the parts of a package."""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from readers.formats.archive import Archive, main_part, related_members, relation_targets
from readers.formats.result import Extracted, limit_characters, paged_result
from readers.text.number_formats import BUILT_IN, GENERAL, format_number, format_text
from readers.text.office_parts import comment_item
from readers.text.sheet_rows import (
    MergedCell,
    SheetEntry,
    SheetRow,
    SheetText,
    cell_reference,
    comment_list,
    merged_cell,
    one_line,
)

_WORKBOOK = "xl/workbook.bin"  # the usual name of the main part
# Types of records.
_ROW = 0
_CELL_SMALL = 2
_CELL_ERROR = 3
_CELL_BOOL = 4
_CELL_NUMBER = 5
_CELL_TEXT = 6
_CELL_SHARED = 7
_FORMULA_TEXT = 8
_FORMULA_NUMBER = 9
_FORMULA_BOOL = 10
_FORMULA_ERROR = 11
_SHARED = 19
_FORMAT = 44
_STYLE = 47
_COLUMNS = 60
_CELL_RICH = 62
_PROPERTIES = 153
_SHEET = 156
_MERGED = 176
_STYLES_BEGIN = 617
_STYLES_END = 618
_AUTHOR = 632
_COMMENT = 635
_COMMENT_TEXT = 637
_HIDDEN_ROW = 0x10  # in the byte at 11 of a row
_SINCE_1904 = 0x01
_ERRORS = {
    0x00: "#NULL!",
    0x07: "#DIV/0!",
    0x0F: "#VALUE!",
    0x17: "#REF!",
    0x1D: "#NAME?",
    0x24: "#NUM!",
    0x2A: "#N/A",
    0x2B: "#GETTING_DATA",
}
_MAX_COLUMNS = 16_384


class _Record(NamedTuple):
    kind: int
    data: bytes


def read(path: Path, media_type: str) -> Extracted:
    """Return one page for each sheet: its name, its rows, then its comments.

    Raises struct.error and IndexError for a damaged workbook.
    """
    archive = Archive(path)
    left_out: Counter[str] = Counter()
    main = main_part(archive)
    book = _BinaryBook(archive, main.name if main else archive.member_name(_WORKBOOK))
    pages = ("".join(limit_characters(_sheet(archive, book, each, left_out))) for each in book.sheets)
    return paged_result(media_type, pages, left_out=left_out)


def _records(source: IO[bytes]) -> Iterator[_Record]:
    while first := source.read(1):
        kind = first[0]
        if kind & 0x80:
            kind = (kind & 0x7F) | source.read(1)[0] << 7
        size = 0
        for shift in range(0, 28, 7):
            byte = source.read(1)[0]
            size |= (byte & 0x7F) << shift
            if not byte & 0x80:
                break
        yield _Record(kind, source.read(size))


def _string(data: bytes, at: int) -> tuple[str, int]:
    """Return a string and the offset of its end. A length of all ones is a missing string."""
    (length,) = struct.unpack_from("<I", data, at)
    if length == 0xFFFFFFFF:
        return "", at + 4
    end = at + 4 + 2 * length
    return data[at + 4 : end].decode("utf-16-le", "replace"), end


class _BinaryBook:
    """The parts that all sheets share: the list of sheets, strings and styles."""

    def __init__(self, archive: Archive, name: str) -> None:
        self.sheets: list[SheetEntry] = []
        self.since_1904 = False
        targets = relation_targets(archive, name)
        for kind, data in _records(archive.open(name)):
            if kind == _PROPERTIES:
                self.since_1904 = bool(data[0] & _SINCE_1904)
            elif kind == _SHEET:
                (state,) = struct.unpack_from("<I", data)
                relation, end = _string(data, 8)
                self.sheets.append(SheetEntry(_string(data, end)[0], targets.get(relation, ""), bool(state)))
        self.strings = [
            _string(data, 1)[0]
            for part in related_members(archive, name, "sharedStrings")
            for kind, data in _records(archive.open(part))
            if kind == _SHARED
        ]
        self._number_formats = [
            code for part in related_members(archive, name, "styles") for code in _number_formats(archive.open(part))
        ]

    def code(self, style: int) -> str:
        return self._number_formats[style] if style < len(self._number_formats) else GENERAL


def _number_formats(source: IO[bytes]) -> Iterator[str]:
    """Yield the number format of each style of cells."""
    own: dict[int, str] = {}
    inside = False
    for kind, data in _records(source):
        if kind == _FORMAT:
            own[struct.unpack_from("<H", data)[0]] = _string(data, 2)[0]
        elif kind in (_STYLES_BEGIN, _STYLES_END):
            inside = kind == _STYLES_BEGIN
        elif kind == _STYLE and inside:
            (number,) = struct.unpack_from("<H", data, 2)
            yield own.get(number) or BUILT_IN.get(number, GENERAL)


def _sheet(archive: Archive, book: _BinaryBook, entry: SheetEntry, left_out: Counter[str]) -> Iterator[str]:
    present = entry.part in archive.names
    merged = _merged(archive.open(entry.part)) if present else ()
    sheet = SheetText(entry.name, left_out, is_hidden=entry.hidden, merged=merged)
    rows = _rows(archive.open(entry.part), book, sheet.hidden_columns) if present else ()
    comments = (
        [line for part in related_members(archive, entry.part, "comments") for line in _comments(archive.open(part))]
        if present
        else []
    )
    yield from sheet.text(rows, [comment_list(comments)])


def _merged(source: IO[bytes]) -> Iterator[MergedCell]:
    for kind, data in _records(source):
        if kind == _MERGED:
            top, bottom, left, right = struct.unpack_from("<4I", data)
            yield merged_cell(left, top + 1, right, bottom + 1)


def _rows(source: IO[bytes], book: _BinaryBook, hidden_columns: set[int]) -> Iterator[SheetRow]:
    """Yield the rows. Adds the hidden columns, which the file names before its rows."""
    row: SheetRow | None = None
    for kind, data in _records(source):
        if kind == _COLUMNS:
            first, last, _, _, flags = struct.unpack_from("<4IH", data)
            if flags & 1:
                hidden_columns.update(range(first, min(last + 1, _MAX_COLUMNS)))
        elif kind == _ROW:
            if row:
                yield row
            (number,) = struct.unpack_from("<I", data)
            row = SheetRow(number + 1, {}, bool(data[11] & _HIDDEN_ROW))
        elif row and (kind <= _FORMULA_ERROR or kind == _CELL_RICH):
            column, style = struct.unpack_from("<2I", data)
            if text := one_line(_cell_text(kind, data, book, book.code(style & 0xFFFFFF))):
                row.cells[column] = text
    if row:
        yield row


def _cell_text(kind: int, data: bytes, book: _BinaryBook, code: str) -> str:
    if kind in (_CELL_NUMBER, _FORMULA_NUMBER):
        return format_number(struct.unpack_from("<d", data, 8)[0], code, since_1904=book.since_1904)
    if kind == _CELL_SMALL:
        return format_number(_small_number(data[8:12]), code, since_1904=book.since_1904)
    if kind in (_CELL_TEXT, _FORMULA_TEXT):
        return format_text(_string(data, 8)[0], code)
    if kind == _CELL_RICH:
        return format_text(_string(data, 9)[0], code)
    if kind == _CELL_SHARED:
        (number,) = struct.unpack_from("<I", data, 8)
        return format_text(book.strings[number], code) if number < len(book.strings) else ""
    if kind in (_CELL_BOOL, _FORMULA_BOOL):
        return "TRUE" if data[8] else "FALSE"
    return _ERRORS.get(data[8], "") if kind in (_CELL_ERROR, _FORMULA_ERROR) else ""


def _small_number(data: bytes) -> float:
    """Return a number of 30 bits (RkNumber): a whole number or the upper bits of a float, also in hundredths."""
    (bits,) = struct.unpack("<i", data)
    number = float(bits >> 2) if bits & 2 else struct.unpack("<d", bytes(4) + struct.pack("<i", bits & ~3))[0]
    return number / 100 if bits & 1 else number


def _comments(source: IO[bytes]) -> Iterator[str]:
    authors: list[str] = []
    place = ""
    for kind, data in _records(source):
        if kind == _AUTHOR:
            authors.append(_string(data, 0)[0])
        elif kind == _COMMENT:
            number, row, _, column = struct.unpack_from("<4I", data)
            author = authors[number] if number < len(authors) else ""
            place = f"{cell_reference(column, row + 1)} {author}".strip()
        elif kind == _COMMENT_TEXT and (text := one_line(_string(data, 1)[0])):
            yield comment_item(text, place)
