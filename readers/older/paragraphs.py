"""Add the dashes, numbers and levels of paragraphs to a text of PowerPoint 97 to 2003 (MS-PPT, 2.9.44 and 2.9.67).

The text itself does not contain them. The style record after the text has runs of paragraphs and runs of characters.
PowerPoint 2000 added a second record with the numbering. Runs of characters refer to its entries.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from readers.text.numbering import SlideNumbering

# Masks of the fields of a paragraph, which say which fields follow. The fields have two bytes, except colour and tabs.
_TWO_BYTE_FIELDS = 0xFDD0
_COLOUR = 0x20
_TABS = 0x100000
_FLAGS = 0x0F
_BULLET = 0x01
_FIELDS_AFTER_TABS = (0x10000, 0xE0000, 0x200000)
# Masks of the fields of characters: those that share two bytes, and those that refer to an entry.
_FONT_STYLE = 0xFFFF
_ENTRY = 0x3C00
_HALF_ROUND = 8
_CHARACTER_2 = (0x10000, 0x200000, 0x400000, 0x800000, 0x20000, 0x80000)
_CHARACTER_4 = (0x40000,)
# Masks of the fields of an entry.
_PICTURE = 0x800000
_NUMBERED = 0x2000000
_SCHEME = 0x1000000
_MORE_CHARACTERS = 0x100000
_LANGUAGE_2 = (0x01, 0x02, 0x04, 0x40)
_LANGUAGE_4 = (0x20,)
_SMART_TAGS = 0x200
_SCHEMES = (
    *("alphaLcPeriod", "alphaUcPeriod", "arabicParenR", "arabicPeriod", "romanLcParenBoth", "romanLcParenR"),
    *("romanLcPeriod", "romanUcPeriod", "alphaLcParenBoth", "alphaLcParenR", "alphaUcParenBoth", "alphaUcParenR"),
    *("arabicParenBoth", "arabicPlain", "romanUcParenBoth", "romanUcParenR"),
)
_DEFAULT_SCHEME = "arabicPeriod"  # default scheme of numbered paragraphs
_MAX_DEPTH = 4  # the lowest level
Value = TypeVar("Value")
_CONTROL_CHARACTERS = str.maketrans({"\x0b": " ", "\x07": ""})  # a line break within a paragraph, and a bell


class _Entry(NamedTuple):
    """Numbering of paragraphs. The scheme is empty for paragraphs without a number."""

    scheme: str = ""
    start: int = 1


class _ByteReader:
    """Reader of consecutive numbers. Raises `struct.error` at the end of the content."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._value_at = 0

    def __bool__(self) -> bool:
        return self._value_at < len(self._content)

    def next(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._content, self._value_at)
        self.skip(struct.calcsize(form))
        return int(value)

    def skip(self, count: int) -> None:
        self._value_at += count

    def skip_fields(self, masks: int, size: int, fields: tuple[int, ...]) -> None:
        self.skip(size * sum(bool(masks & field) for field in fields))


def lines(text: str, style: bytes, numbers: bytes, *, bulleted: bool) -> list[str]:
    """Return the lines of the non-empty paragraphs. Carriage returns separate paragraphs in `text`.

    `style`, `numbers`: contents of the two records; empty if the record is missing. `bulleted`: whether paragraphs have
    a dash by default.
    """
    paragraphs = text.split("\r")
    try:
        marks = list(_paragraph_marks(paragraphs, style, _entries(numbers)))
    except struct.error:  # the text can still be read
        marks = []
    marks += [(0, None, _Entry())] * (len(paragraphs) - len(marks))
    steps = SlideNumbering()
    listed: list[str] = []
    bulleted = bulleted and sum(bool(each.strip()) for each in paragraphs) > 1
    for paragraph, (level, bullet, entry) in zip(paragraphs, marks, strict=True):
        if words := paragraph.translate(_CONTROL_CHARACTERS).strip():
            is_listed = bulleted if bullet is None else bullet
            label = steps.label(level, entry.scheme, entry.start) if is_listed and entry.scheme else ""
            if not label:
                steps.end(level)
            listed.append(f"{'  ' * level}{label or '-'} {words}" if is_listed else words)
    return listed


def _paragraph_marks(
    paragraphs: list[str], style: bytes, entries: list[_Entry]
) -> Iterator[tuple[int, bool | None, _Entry]]:
    """Yield for each paragraph its level, whether it is marked as a list item (None: unmarked), and its numbering."""
    if not style:
        return
    sizes = [len(each.encode("utf-16-le", "surrogatepass")) // 2 + 1 for each in paragraphs]
    content = _ByteReader(style)
    paragraph_runs = list(_paragraph_runs(content, sum(sizes)))
    character_runs = list(_character_runs(content, sum(sizes))) if entries else []
    start = 0
    for size in sizes:
        level, bullet = _value_at(start, paragraph_runs, (0, None))
        number = _value_at(start, character_runs, 0)
        yield level, bullet, entries[number] if number < len(entries) else _Entry()
        start += size


def _value_at(position: int, runs: list[tuple[int, Value]], default: Value) -> Value:
    """Return the value of the run with this character, else the default. `runs`: the end and the value of each run."""
    run = bisect_right(runs, position, key=lambda run: run[0])
    return runs[run][1] if run < len(runs) else default


def _paragraph_runs(content: _ByteReader, length: int) -> Iterator[tuple[int, tuple[int, bool | None]]]:
    end = 0
    while end < length:
        end += content.next("I")
        level = content.next("H")
        masks = content.next("I")
        bullet = bool(content.next("H") & _BULLET) if masks & _FLAGS else None
        content.skip(2 * (masks & _TWO_BYTE_FIELDS).bit_count() + 4 * bool(masks & _COLOUR))
        if masks & _TABS:
            content.skip(4 * content.next("H"))
        content.skip_fields(masks, 2, _FIELDS_AFTER_TABS)
        yield end, (min(level, _MAX_DEPTH), bullet if masks & _BULLET else None)


def _character_runs(content: _ByteReader, length: int) -> Iterator[tuple[int, int]]:
    """Yield the end and the entry of each run. A run has four bits for the entry, which wrap around after 15."""
    end = previous = rounds = 0
    while end < length:
        end += content.next("I")
        masks = content.next("I")
        style = content.next("H") if masks & _FONT_STYLE else 0
        content.skip_fields(masks, 2, _CHARACTER_2)
        content.skip_fields(masks, 4, _CHARACTER_4)
        entry = (style & _ENTRY) >> 10 if masks & _ENTRY else 0
        rounds += entry + _HALF_ROUND < previous
        previous = entry
        yield end, 16 * rounds + entry


def _entries(numbers: bytes) -> list[_Entry]:
    content = _ByteReader(numbers)
    entries = []
    while content:
        masks = content.next("I")
        content.skip_fields(masks, 2, (_PICTURE,))
        is_numbered = content.next("H") if masks & _NUMBERED else 0
        number, start = (content.next("H"), content.next("H")) if masks & _SCHEME else (-1, 1)
        content.skip_fields(content.next("I"), 4, (_MORE_CHARACTERS,))
        masks = content.next("I")
        content.skip_fields(masks, 2, _LANGUAGE_2)
        content.skip_fields(masks, 4, _LANGUAGE_4)
        if masks & _SMART_TAGS:
            content.skip(4 * content.next("I"))
        scheme = _SCHEMES[number] if 0 <= number < len(_SCHEMES) else _DEFAULT_SCHEME
        entries.append(_Entry(scheme, start) if is_numbered else _Entry())
    return entries
