"""The lists of a document of Word 97 to 2003, and the numbers that Word gives their paragraphs."""

import struct
from collections.abc import Iterator

from readers.text.numbering import BULLET, LEVELS, Level, Numbering

_LISTS, _USES = 0x02E2, 0x02EA  # where a document says where its lists are, and which of them paragraphs name
_LIST, _LEVEL, _USE = 28, 28, 16  # bytes of one
_SIMPLE = 0x01  # of a list: it has one level instead of nine
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
    """Counts the paragraphs of all lists of a document (MS-DOC, sections 2.9.131, 2.9.147 and 2.9.150)."""

    def __init__(self, document: bytes, table: bytes) -> None:
        try:
            lists = dict(_lists(document, table))
            self._used = [lists.get(number) for number in _uses(document, table)]
        except (struct.error, IndexError):  # the text is there all the same
            self._used = []

    def label(self, number: int, level: int) -> str:
        """Of the next paragraph that names this list, counted from 1: `-` for a bullet, or a list that is not there."""
        numbering = self._used[number - 1] if 0 < number <= len(self._used) else None
        return numbering.next(min(level, LEVELS - 1)) if numbering else "-"


def _lists(document: bytes, table: bytes) -> Iterator[tuple[int, Numbering]]:
    """Each by its name, which is a number; their levels stand behind all of them."""
    start, size = struct.unpack_from("<2I", document, _LISTS)
    (count,) = struct.unpack_from("<H", table, start) if size else (0,)
    at = start + size
    for number in range(min(count, _MOST)):
        here = start + 2 + _LIST * number
        (name,) = struct.unpack_from("<I", table, here)
        levels: dict[int, Level] = {}
        for each in range(1 if table[here + 26] & _SIMPLE else 9):
            levels[each], at = _level(table, at)
        yield name, Numbering(levels)


def _level(table: bytes, at: int) -> tuple[Level, int]:
    """And where it ends. In its pattern a sign below 9 stands for the number of that level."""
    start, form = struct.unpack_from("<iB", table, at)
    text = at + _LEVEL + table[at + 24] + table[at + 25]  # behind its properties
    (length,) = struct.unpack_from("<H", table, text)
    said = table[text + 2 : text + 2 + 2 * length].decode("utf-16-le", "replace")
    pattern = "".join(f"%{ord(sign) + 1}" if sign < "\x09" else sign for sign in said)
    return Level(start, _FORMATS.get(form, "decimal"), pattern), text + 2 + 2 * length


def _uses(document: bytes, table: bytes) -> Iterator[int]:
    """The names of lists, in the order in which paragraphs count them."""
    start, size = struct.unpack_from("<2I", document, _USES)
    (count,) = struct.unpack_from("<I", table, start) if size else (0,)
    for number in range(min(count, _MOST)):
        yield struct.unpack_from("<I", table, start + 4 + _USE * number)[0]
