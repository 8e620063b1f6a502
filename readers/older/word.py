"""Read documents of Word 97 to 2003 (MS-DOC): text in pieces, and tables with the styles of paragraphs."""

import re
import struct
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import olefile

from readers.formats.result import MAX_CHARACTERS, Extracted, ReaderError, unpaged_result
from readers.older.lists import Lists
from readers.text import hidden
from readers.text.tables import Cell, markdown

_WORD_97 = 0xC1  # the first version with this format
_ENCRYPTED = 0x0100
_SECOND_TABLE = 0x0200
_LENGTHS = 0x4C  # offset of the lengths of the text's parts
# Offsets of the pointers to the three tables.
_CHARACTERS = 0x00FA
_PROPERTIES = 0x0102
_PIECES = 0x01A2
_PAGE_BYTES = 512  # bytes per page of properties
_PARTS = ("", "Footnotes:", "Headers and footers:", "", "Comments:", "Endnotes:", "Text boxes:")
_HEADINGS = range(1, 10)  # numbers of the styles "heading 1" to "heading 9", in every document
# Properties of paragraphs.
_IN_TABLE = 0x2416
_ROW_END = 0x2417
_LISTED = 0x460B
_DEPTH = 0x260A
_OUTLINE = 0x2640
# Properties of characters, and the numbers that they have in a piece (Prm0, MS-DOC section 2.9.215).
_DELETED = 0x0800
_VANISH = 0x083C
_SHORT_NAMES = {0x41: _DELETED, 0x5C: _VANISH}
_SWITCHED_ON = (0x01, 0x81)  # on, and the opposite of the style, which seldom hides text
# Marks of characters.
_IS_DELETED = 1
_IS_HIDDEN = 2
_SIZES = (1, 1, 2, 4, 2, 2, 0, 3)  # bytes in a property's value, by kind; 0: the value begins with its size
_LONG_PROPERTY = 0xD608  # this property has two bytes for its length
_MAX_DEPTH = 6
_CELL = "\x07"
_FIELD = "\x13"
_RESULT = "\x14"
_FIELD_END = "\x15"
_END = re.compile("[\r\x07\x0c]")
_PICTURE = re.compile("[\x01\x08]")
_CONTROL_CHARACTERS = str.maketrans(
    {"\x0b": "\n", "\x1e": "-", "\xa0": " ", **dict.fromkeys("\x01\x02\x03\x04\x05\x08\x1f", "")}
)


def read(path: Path, media_type: str) -> Extracted:
    """Return the text. Raises `encrypted`, `damaged`, and `unsupported` (a file from an older program)."""
    try:
        with olefile.OleFileIO(path.read_bytes()) as file:
            document = file.openstream("WordDocument").read()
            version, flags = struct.unpack_from("<H6xH", document, 2)
            if flags & _ENCRYPTED:
                raise ReaderError("encrypted")
            if version < _WORD_97:
                raise ReaderError("unsupported", "doc")
            table = file.openstream("1Table" if flags & _SECOND_TABLE else "0Table").read()
        text = _DocDocument(document, table)
        return unpaged_result(media_type, text.parts(), left_out=text.left_out)
    except (OSError, struct.error, IndexError, ValueError) as error:  # errors of olefile and of a damaged file
        raise ReaderError("damaged") from error


class _DocStyle(NamedTuple):
    """A style. `level`: heading level, or 0. `listed`: the number of its list, or 0. `depth`: level in the list."""

    level: int = 0
    in_table: bool = False
    ends_row: bool = False
    listed: int = 0
    depth: int = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """Characters [start, end) of the text.

    `at`: their first byte in the document. `wide`: two bytes per character. `marks`: bits of `_IS_DELETED` and
    `_IS_HIDDEN`.
    """

    start: int
    end: int
    at: int
    wide: bool
    marks: int = 0

    def place(self, at: int) -> int:
        """Return the character at this byte of the document, within the piece."""
        return min(max(self.start + (at - self.at) // (2 if self.wide else 1), self.start), self.end)


class _DocDocument:
    """A document. `left_out` counts pictures and hidden text."""

    def __init__(self, document: bytes, table: bytes) -> None:
        self._document = document
        self._pieces = list(_pieces(document, table))
        self._text = "".join(map(self._piece_text, self._pieces))
        self.left_out = Counter({"pictures": len(_PICTURE.findall(self._text))})
        self._marks = self._character_marks(document, table)
        self._starts, self._styles = _styles(document, table)
        self._lists = Lists(document, table)

    def parts(self) -> Iterator[str]:
        """Yield the text, then its other parts, such as notes, as Markdown."""
        start = 0
        for title, length in zip(_PARTS, struct.unpack_from("<7I", self._document, _LENGTHS), strict=True):
            body = "".join(self._markdown(start, start + length)) if title or not start else ""
            start += length
            if title and (lines := [line for line in body.split("\n") if line.strip(" -#|")]):
                yield f"\n\n{title}\n" + "".join(f"- {line}\n" for line in lines)
            elif not title:
                yield body

    def _piece_text(self, piece: _Piece) -> str:
        size = (piece.end - piece.start) * (2 if piece.wide else 1)
        content = self._document[piece.at : piece.at + size]
        text = content.decode("utf-16-le" if piece.wide else "cp1252", "replace")
        return text.ljust(piece.end - piece.start)[: piece.end - piece.start]

    def _character_marks(self, document: bytes, table: bytes) -> bytearray:
        """Return the marks of each character. The text leaves out characters that a tracked change has deleted."""
        marks = bytearray(len(self._text))
        try:
            runs = sorted(_marked_runs(document, table))
        except (struct.error, IndexError):  # the text can still be read
            runs = []
        starts = [start for start, _, _ in runs]
        for piece in self._pieces:
            if piece.marks:
                marks[piece.start : piece.end] = bytes([piece.marks]) * (piece.end - piece.start)
            last = piece.at + (piece.end - piece.start) * (2 if piece.wide else 1)
            first = max(bisect_right(starts, piece.at) - 1, 0)
            for start, end, mark in runs[first : bisect_left(starts, last)]:
                if end > piece.at:
                    for position in range(piece.place(start), piece.place(end)):
                        marks[position] |= mark
        return marks

    def _style(self, position: int) -> _DocStyle:
        """Return the style of the paragraph that ends with this character."""
        number = bisect_right(self._pieces, position, key=lambda piece: piece.start) - 1
        piece = self._pieces[number]
        at = piece.at + (position - piece.start) * (2 if piece.wide else 1)
        index = bisect_right(self._starts, at) - 1
        return self._styles[index] if index >= 0 else _DocStyle()

    def _markdown(self, start: int, end: int) -> Iterator[str]:
        rows: list[list[Cell]] = []
        row: list[Cell] = []
        cell: list[str] = []
        for text, style, closes_cell in self._paragraphs(start, end):
            if style.ends_row:
                rows.append(row)
                row = []
                cell = []
            elif style.in_table or closes_cell:
                cell.append(text)
                if closes_cell:
                    row.append(Cell(" ".join(cell)))
                    cell = []
            else:
                if rows or row:
                    yield f"\n{markdown([*rows, row])}\n"
                    rows = []
                    row = []
                yield self._line(text, style)
        if rows or row:
            yield f"\n{markdown([*rows, row])}\n"

    def _line(self, text: str, style: _DocStyle) -> str:
        if not text:
            return "\n"
        label = self._lists.label(style.listed, style.depth) if style.listed else ""
        if style.level:
            number = f"{label} " if label not in ("", "-") else ""
            return f"\n{'#' * min(style.level, _MAX_DEPTH)} {number}{' '.join(text.split())}\n\n"
        return f"{label} {text}\n" if label else f"{text}\n\n"

    def _paragraphs(self, start: int, end: int) -> Iterator[tuple[str, _DocStyle, bool]]:
        """Yield each paragraph with its style, and whether it is the last one of a cell."""
        fields: list[bool] = []  # for each open field, whether its result has begun
        shown: list[str] = []
        hidden_characters: list[str] = []  # hidden characters that are not in `shown` yet
        for position in range(start, min(end, len(self._text))):
            sign = self._text[position]
            mark = self._marks[position]
            if hidden_characters and (not mark & _IS_HIDDEN or _END.match(sign)):
                shown.append(self._hidden_text(hidden_characters))
                hidden_characters = []
            if sign == _FIELD:
                fields.append(False)
            elif sign == _RESULT and fields:
                fields[-1] = True
            elif sign == _FIELD_END and fields:
                fields.pop()
            elif mark & _IS_DELETED and sign != _CELL:
                continue
            elif _END.match(sign):
                yield "".join(shown).translate(_CONTROL_CHARACTERS).strip(), self._style(position), sign == _CELL
                shown = []
            elif all(fields):
                (hidden_characters if mark & _IS_HIDDEN else shown).append(sign)
        shown.append(self._hidden_text(hidden_characters))
        if any(shown):
            yield "".join(shown).translate(_CONTROL_CHARACTERS).strip(), _DocStyle(), False

    def _hidden_text(self, signs: list[str]) -> str:
        """Return hidden characters with their mark."""
        text = "".join(signs).translate(_CONTROL_CHARACTERS)
        self.left_out[hidden.HIDDEN_KEY] += bool(text.strip())
        return hidden.hidden_text(text)


def _pieces(document: bytes, table: bytes) -> Iterator[_Piece]:
    """Yield the pieces of the piece table (MS-DOC, section 2.9.38)."""
    start, size = struct.unpack_from("<2I", document, _PIECES)
    content = table[start : start + size]
    at = 0
    piece_properties: list[bytes] = []
    while content[at] == 1:  # properties of pieces come before the table
        (length,) = struct.unpack_from("<H", content, at + 1)
        piece_properties.append(content[at + 3 : at + 3 + length])
        at += 3 + length
    (length,) = struct.unpack_from("<I", content, at + 1)
    count = (length - 4) // 12
    places = struct.unpack_from(f"<{count + 1}I", content, at + 5)
    if places[-1] > MAX_CHARACTERS:
        raise ReaderError("too_large")
    for number in range(count):
        place, own = struct.unpack_from("<2xIH", content, at + 5 + 4 * (count + 1) + 8 * number)
        if places[number] < places[number + 1]:
            wide = not place & 0x40000000
            start = place if wide else (place & 0x3FFFFFFF) // 2
            yield _Piece(places[number], places[number + 1], start, wide, _piece_marks(own, piece_properties))


def _piece_marks(own: int, piece_properties: list[bytes]) -> int:
    """Return the marks that a piece sets. `own`: one property in two bytes, or the number of a list of properties."""
    if own & 1:
        return _marks(piece_properties[own >> 1]) if own >> 1 < len(piece_properties) else 0
    name = _SHORT_NAMES.get(own >> 1 & 0x7F, 0)
    return _marks(struct.pack("<HB", name, own >> 8)) if name else 0


def _marks(properties: bytes) -> int:
    """Return the marks that properties set on characters."""
    values = dict(_properties(properties, 0))
    return _IS_DELETED * (values.get(_DELETED, 0) in _SWITCHED_ON) + _IS_HIDDEN * (
        values.get(_VANISH, 0) in _SWITCHED_ON
    )


def _marked_runs(document: bytes, table: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the first and the last byte of each run of deleted or hidden characters (MS-DOC, section 2.9.33)."""
    start, size = struct.unpack_from("<2I", document, _CHARACTERS)
    count = max(0, (size - 4) // 8)
    for number in struct.unpack_from(f"<{count}I", table, start + 4 * (count + 1)):
        page = document[(number & 0x3FFFFF) * _PAGE_BYTES :][:_PAGE_BYTES]
        runs = page[-1] if len(page) == _PAGE_BYTES else 0
        places = struct.unpack_from(f"<{runs + 1}I", page)
        for run in range(runs):
            at = 2 * page[4 * (runs + 1) + run]
            if at and (mark := _marks(page[at + 1 : at + 1 + page[at]])):
                yield places[run], places[run + 1], mark


def _styles(document: bytes, table: bytes) -> tuple[list[int], list[_DocStyle]]:
    """Return the offsets of paragraphs in the document, and their styles (MS-DOC, sections 2.8.25 and 2.9.176)."""
    start, size = struct.unpack_from("<2I", document, _PROPERTIES)
    count = max(0, (size - 4) // 8)
    styled: list[tuple[int, _DocStyle]] = []
    for number in struct.unpack_from(f"<{count}I", table, start + 4 * (count + 1)):
        page = document[(number & 0x3FFFFF) * _PAGE_BYTES :][:_PAGE_BYTES]
        runs = page[-1] if len(page) == _PAGE_BYTES else 0
        places = struct.unpack_from(f"<{runs + 1}I", page)
        for run in range(runs):
            at = 2 * page[4 * (runs + 1) + 13 * run]
            styled.append((places[run], _style(page, at) if at else _DocStyle()))
    styled.sort(key=lambda each: each[0])
    return [place for place, _ in styled], [style for _, style in styled]


def _style(page: bytes, at: int) -> _DocStyle:
    size, begins = (2 * page[at] - 1, at + 1) if page[at] else (2 * page[at + 1], at + 2)
    content = page[begins : begins + size]
    number = struct.unpack_from("<H", content)[0] if len(content) > 1 else 0
    values = dict(_properties(content, 2))
    outline = values.get(_OUTLINE, 9) + 1
    level = number if number in _HEADINGS else outline if outline in _HEADINGS else 0
    listed = values.get(_LISTED, 0)
    return _DocStyle(level, bool(values.get(_IN_TABLE)), bool(values.get(_ROW_END)), listed, values.get(_DEPTH, 0))


def _properties(content: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield each property with its value (MS-DOC, section 2.2.5.1).

    The value is that of a property of two bytes, else the first byte.
    """
    while at + 3 <= len(content):
        (name,) = struct.unpack_from("<H", content, at)
        size = _SIZES[name >> 13]
        if name == _LONG_PROPERTY:
            size = 1 + struct.unpack_from("<H", content, at + 2)[0] if at + 4 <= len(content) else 1
        elif not size:
            size = 1 + content[at + 2]
        yield name, int.from_bytes(content[at + 2 : at + 2 + (size if size <= 2 else 1)], "little")
        at += 2 + size
