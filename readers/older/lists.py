"""Read the lists of a document of Word 97 to 2003, and number their paragraphs."""

import struct
from collections.abc import Iterator

from readers.text.numbering import BULLET, LEVELS, ListLevel, Numbering

# Offsets of the places of the lists, and of the references by which paragraphs name them.
_LISTS = 0x02E2
_USES = 0x02EA
# Bytes of one list, level and reference.
_LIST = 28
_LEVEL = 28
_USE = 16
_SIMPLE = 0x01  # flag of a list with one level instead of nine
_MOST = 10_000  # lists
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
    """Counter of the paragraphs of all lists of a document (MS-DOC, sections 2.9.131, 2.9.147 and 2.9.150)."""

    def __init__(self, document: bytes, table: bytes) -> None:
        try:
            lists = dict(_lists(document, table))
            self._used = [lists.get(number) for number in _uses(document, table)]
        except (struct.error, IndexError):  # the text can still be read
            self._used = []

    def label(self, number: int, level: int) -> str:
        """Return the label of the next paragraph of list `number`, from 1; `-` for a bullet or a missing list."""
        numbering = self._used[number - 1] if 0 < number <= len(self._used) else None
        return numbering.next(min(level, LEVELS - 1)) if numbering else "-"


def _lists(document: bytes, table: bytes) -> Iterator[tuple[int, Numbering]]:
    """Yield each list with its name, which is a number. The levels stand behind all lists."""
    start, size = struct.unpack_from("<2I", document, _LISTS)
    (count,) = struct.unpack_from("<H", table, start) if size else (0,)
    at = start + size
    for number in range(min(count, _MOST)):
        here = start + 2 + _LIST * number
        (name,) = struct.unpack_from("<I", table, here)
        levels: dict[int, ListLevel] = {}
        for each in range(1 if table[here + 26] & _SIMPLE else 9):
            levels[each], at = _level(table, at)
        yield name, Numbering(levels)


def _level(table: bytes, at: int) -> tuple[ListLevel, int]:
    """Return a level and its end. In the pattern a sign below 9 stands for the number of that level."""
    start, form = struct.unpack_from("<iB", table, at)
    text = at + _LEVEL + table[at + 24] + table[at + 25]  # behind the properties of the level
    (length,) = struct.unpack_from("<H", table, text)
    template = table[text + 2 : text + 2 + 2 * length].decode("utf-16-le", "replace")
    pattern = "".join(f"%{ord(sign) + 1}" if sign < "\x09" else sign for sign in template)
    return ListLevel(start, _FORMATS.get(form, "decimal"), pattern), text + 2 + 2 * length


def _uses(document: bytes, table: bytes) -> Iterator[int]:
    """Yield the names of lists, in the order of the references."""
    start, size = struct.unpack_from("<2I", document, _USES)
    (count,) = struct.unpack_from("<I", table, start) if size else (0,)
    for number in range(min(count, _MOST)):
        yield struct.unpack_from("<I", table, start + 4 + _USE * number)[0]
