"""Read the lists of a document of Word 97 to 2003, and number their paragraphs."""

import struct
from collections.abc import Iterator

from readers.text.numbering import BULLET, LEVELS, ListLevel, Numbering

# Offsets in the file header: the position of the lists, and of the references through which paragraphs name lists.
_LISTS = 0x02E2
_REFERENCES = 0x02EA
# Sizes in bytes of one list, one level and one reference.
_LIST_BYTES = 28
_LEVEL_BYTES = 28
_REFERENCE_BYTES = 16
_SIMPLE = 0x01  # flag of a list with one level instead of nine
_MAX_LISTS = 10_000  # lists
_FORMATS = {
    0: "decimal",
    1: "upperRoman",
    2: "lowerRoman",
    3: "upperLetter",
    4: "lowerLetter",
    22: "decimalZero",
    23: BULLET,
    255: "none",
}


class Lists:
    """Numbering of the paragraphs of all lists of a document (MS-DOC, sections 2.9.131, 2.9.147 and 2.9.150)."""

    def __init__(self, document: bytes, table: bytes) -> None:
        try:
            lists = dict(_lists(document, table))
            self._used = [lists.get(number) for number in _references(document, table)]
        except (struct.error, IndexError):  # the text can still be read
            self._used = []

    def label(self, number: int, level: int) -> str:
        """Return the label of the next paragraph of list `number` (from 1); `-` for a bullet or a missing list."""
        numbering = self._used[number - 1] if 0 < number <= len(self._used) else None
        return numbering.next(min(level, LEVELS - 1)) if numbering else "-"


def _lists(document: bytes, table: bytes) -> Iterator[tuple[int, Numbering]]:
    """Yield each list with its id. The levels of all lists follow after the last list."""
    start, size = struct.unpack_from("<2I", document, _LISTS)
    (count,) = struct.unpack_from("<H", table, start) if size else (0,)
    level_offset = start + size
    for number in range(min(count, _MAX_LISTS)):
        offset = start + 2 + _LIST_BYTES * number
        (list_id,) = struct.unpack_from("<I", table, offset)
        levels: dict[int, ListLevel] = {}
        for level in range(1 if table[offset + 26] & _SIMPLE else 9):
            levels[level], level_offset = _level(table, level_offset)
        yield list_id, Numbering(levels)


def _level(table: bytes, at: int) -> tuple[ListLevel, int]:
    """Return a level and the offset of its end. A character below 9 in its template stands for that level's number."""
    start, number_format = struct.unpack_from("<iB", table, at)
    text = at + _LEVEL_BYTES + table[at + 24] + table[at + 25]  # after the properties of the level
    (length,) = struct.unpack_from("<H", table, text)
    template = table[text + 2 : text + 2 + 2 * length].decode("utf-16-le", "replace")
    pattern = "".join(f"%{ord(character) + 1}" if character < "\x09" else character for character in template)
    return ListLevel(start, _FORMATS.get(number_format, "decimal"), pattern), text + 2 + 2 * length


def _references(document: bytes, table: bytes) -> Iterator[int]:
    """Yield the list id of each reference, in order."""
    start, size = struct.unpack_from("<2I", document, _REFERENCES)
    (count,) = struct.unpack_from("<I", table, start) if size else (0,)
    for number in range(min(count, _MAX_LISTS)):
        yield struct.unpack_from("<I", table, start + 4 + _REFERENCE_BYTES * number)[0]
