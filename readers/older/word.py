"""Documents of Word 97 to 2003 (MS-DOC): a text in pieces, and tables that say what its paragraphs are."""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import olefile

from readers.formats.result import MAX_CHARACTERS, Extracted, ReaderError, whole
from readers.older.lists import Lists
from readers.text.tables import Cell, markdown

_WORD_97 = 0xC1  # the first version whose documents are as below
_ENCRYPTED, _SECOND_TABLE = 0x0100, 0x0200
_LENGTHS = 0x4C  # where it says how many characters each part of the text has
_PROPERTIES, _PIECES = 0x0102, 0x01A2  # where it says where the two tables are
_PAGE = 512  # bytes, in which properties of paragraphs are kept
_PARTS = ("", "Footnotes:", "Headers and footers:", "", "Comments:", "Endnotes:", "Text boxes:")
_HEADINGS = range(1, 10)  # numbers of the styles "heading 1" to "heading 9", in every document
_IN_TABLE, _ROW_END, _LISTED, _DEPTH, _OUTLINE = 0x2416, 0x2417, 0x460B, 0x260A, 0x2640  # properties
_SIZES = (1, 1, 2, 4, 2, 2, 0, 3)  # bytes of the value of a property, by its kind; 0: it says so itself
_LONG = 0xD608  # which has two bytes for its length
_DEEPEST = 6
_CELL, _FIELD, _RESULT, _FIELD_END = "\x07", "\x13", "\x14", "\x15"
_END = re.compile("[\r\x07\x0c]")
_PICTURE = re.compile("[\x01\x08]")
_SIGNS = str.maketrans({"\x0b": "\n", "\x1e": "-", "\xa0": " ", **dict.fromkeys("\x01\x02\x03\x04\x05\x08\x1f", "")})


def read(path: Path, media_type: str) -> Extracted:
    """Raises `encrypted`, `damaged`, and `unsupported` for what older programs wrote."""
    try:
        with olefile.OleFileIO(path.read_bytes()) as file:
            document = file.openstream("WordDocument").read()
            version, flags = struct.unpack_from("<H6xH", document, 2)
            if flags & _ENCRYPTED:
                raise ReaderError("encrypted")
            if version < _WORD_97:
                raise ReaderError("unsupported", "doc")
            table = file.openstream("1Table" if flags & _SECOND_TABLE else "0Table").read()
        text = _Document(document, table)
        return whole(media_type, text.parts(), left_out={"pictures": text.pictures})
    except (OSError, struct.error, IndexError, ValueError) as error:  # what olefile and a damaged file raise
        raise ReaderError("damaged") from error


class _Style(NamedTuple):
    """`level` of a heading, 0 for none; `listed` is the number of its list, 0 for none, and `depth` how deep in it."""

    level: int = 0
    in_table: bool = False
    ends_row: bool = False
    listed: int = 0
    depth: int = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """Characters [start, end) of the text, from a byte of the document on; `wide` in two bytes each."""

    start: int
    end: int
    at: int
    wide: bool


class _Document:
    """`pictures`: how many stand in its text, where they are left out."""

    def __init__(self, document: bytes, table: bytes) -> None:
        self._document = document
        self._pieces = list(_pieces(document, table))
        self._text = "".join(map(self._of_piece, self._pieces))
        self.pictures = len(_PICTURE.findall(self._text))
        self._starts, self._styles = _styles(document, table)
        self._lists = Lists(document, table)

    def parts(self) -> Iterator[str]:
        """The text, then what stands beside it, as Markdown."""
        start = 0
        for title, length in zip(_PARTS, struct.unpack_from("<7I", self._document, _LENGTHS), strict=True):
            body = "".join(self._markdown(start, start + length)) if title or not start else ""
            start += length
            if title and (lines := [line for line in body.split("\n") if line.strip(" -#|")]):
                yield f"\n\n{title}\n" + "".join(f"- {line}\n" for line in lines)
            elif not title:
                yield body

    def _of_piece(self, piece: _Piece) -> str:
        size = (piece.end - piece.start) * (2 if piece.wide else 1)
        content = self._document[piece.at : piece.at + size]
        text = content.decode("utf-16-le" if piece.wide else "cp1252", "replace")
        return text.ljust(piece.end - piece.start)[: piece.end - piece.start]

    def _style(self, position: int) -> _Style:
        """Of the paragraph that ends with this character."""
        number = bisect_right(self._pieces, position, key=lambda piece: piece.start) - 1
        piece = self._pieces[number]
        at = piece.at + (position - piece.start) * (2 if piece.wide else 1)
        found = bisect_right(self._starts, at) - 1
        return self._styles[found] if found >= 0 else _Style()

    def _markdown(self, start: int, end: int) -> Iterator[str]:
        rows: list[list[Cell]] = []
        row: list[Cell] = []
        cell: list[str] = []
        for text, style, closes_cell in self._paragraphs(start, end):
            if style.ends_row:
                rows.append(row)
                row, cell = [], []
            elif style.in_table or closes_cell:
                cell.append(text)
                if closes_cell:
                    row.append(Cell(" ".join(cell)))
                    cell = []
            else:
                if rows or row:
                    yield f"\n{markdown([*rows, row])}\n"
                    rows, row = [], []
                yield self._line(text, style)
        if rows or row:
            yield f"\n{markdown([*rows, row])}\n"

    def _line(self, text: str, style: _Style) -> str:
        if not text:
            return "\n"
        label = self._lists.label(style.listed, style.depth) if style.listed else ""
        if style.level:
            number = f"{label} " if label not in ("", "-") else ""
            return f"\n{'#' * min(style.level, _DEEPEST)} {number}{' '.join(text.split())}\n\n"
        return f"{label} {text}\n" if label else f"{text}\n\n"

    def _paragraphs(self, start: int, end: int) -> Iterator[tuple[str, _Style, bool]]:
        """Each with its style, and whether it is the last one of a cell."""
        fields: list[bool] = []  # of each field that is open, whether its result has begun
        shown: list[str] = []
        for position in range(start, min(end, len(self._text))):
            sign = self._text[position]
            if sign == _FIELD:
                fields.append(False)
            elif sign == _RESULT and fields:
                fields[-1] = True
            elif sign == _FIELD_END and fields:
                fields.pop()
            elif _END.match(sign):
                yield "".join(shown).translate(_SIGNS).strip(), self._style(position), sign == _CELL
                shown = []
            elif all(fields):
                shown.append(sign)
        if shown:
            yield "".join(shown).translate(_SIGNS).strip(), _Style(), False


def _pieces(document: bytes, table: bytes) -> Iterator[_Piece]:
    """The piece table (MS-DOC, section 2.9.38)."""
    start, size = struct.unpack_from("<2I", document, _PIECES)
    content = table[start : start + size]
    at = 0
    while content[at] == 1:  # properties for pieces, which stand before it
        at += 3 + struct.unpack_from("<H", content, at + 1)[0]
    (length,) = struct.unpack_from("<I", content, at + 1)
    count = (length - 4) // 12
    places = struct.unpack_from(f"<{count + 1}I", content, at + 5)
    if places[-1] > MAX_CHARACTERS:
        raise ReaderError("too_large")
    for number in range(count):
        (place,) = struct.unpack_from("<2xI2x", content, at + 5 + 4 * (count + 1) + 8 * number)
        if places[number] < places[number + 1]:
            wide = not place & 0x40000000
            yield _Piece(places[number], places[number + 1], place if wide else (place & 0x3FFFFFFF) // 2, wide)


def _styles(document: bytes, table: bytes) -> tuple[list[int], list[_Style]]:
    """From which bytes of the document on paragraphs are of which style (MS-DOC, sections 2.8.25 and 2.9.176)."""
    start, size = struct.unpack_from("<2I", document, _PROPERTIES)
    count = max(0, (size - 4) // 8)
    found: list[tuple[int, _Style]] = []
    for number in struct.unpack_from(f"<{count}I", table, start + 4 * (count + 1)):
        page = document[(number & 0x3FFFFF) * _PAGE :][:_PAGE]
        runs = page[-1] if len(page) == _PAGE else 0
        places = struct.unpack_from(f"<{runs + 1}I", page)
        for run in range(runs):
            at = 2 * page[4 * (runs + 1) + 13 * run]
            found.append((places[run], _style(page, at) if at else _Style()))
    found.sort(key=lambda each: each[0])
    return [place for place, _ in found], [style for _, style in found]


def _style(page: bytes, at: int) -> _Style:
    size, begins = (2 * page[at] - 1, at + 1) if page[at] else (2 * page[at + 1], at + 2)
    content = page[begins : begins + size]
    number = struct.unpack_from("<H", content)[0] if len(content) > 1 else 0
    told = dict(_properties(content, 2))
    outline = told.get(_OUTLINE, 9) + 1
    level = number if number in _HEADINGS else outline if outline in _HEADINGS else 0
    listed = told.get(_LISTED, 0)
    return _Style(level, bool(told.get(_IN_TABLE)), bool(told.get(_ROW_END)), listed, told.get(_DEPTH, 0))


def _properties(content: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Each with the first byte of its value, or both where it has two (MS-DOC, section 2.2.5.1)."""
    while at + 3 <= len(content):
        (name,) = struct.unpack_from("<H", content, at)
        size = _SIZES[name >> 13]
        if name == _LONG:
            size = 1 + struct.unpack_from("<H", content, at + 2)[0] if at + 4 <= len(content) else 1
        elif not size:
            size = 1 + content[at + 2]
        yield name, int.from_bytes(content[at + 2 : at + 2 + (size if size <= 2 else 1)], "little")
        at += 2 + size
