"""How a text of PowerPoint 97 to 2003 lists its paragraphs: dashes, numbers, and how deep (MS-PPT, 2.9.44 and 2.9.67).

The text itself has none of that. A record behind it has runs of paragraphs and of characters; the numbers came with
PowerPoint 2000 and stand in a second record, of which runs of characters name an entry.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from readers.text.numbering import Steps

_SIZE_2, _COLOUR, _TABS = 0xFDD0, 0x20, 0x100000  # which fields of a paragraph are there: two bytes each, but for these
_FLAGS, _BULLET = 0x0F, 0x01
_BEHIND_TABS = (0x10000, 0xE0000, 0x200000)
_FONT_STYLE, _ENTRY = 0xFFFF, 0x3C00  # of characters: fields that share two bytes, and those that name an entry
_HALF_ROUND = 8
_CHARACTER_2, _CHARACTER_4 = (0x10000, 0x200000, 0x400000, 0x800000, 0x20000, 0x80000), (0x40000,)
_PICTURE, _NUMBERED, _SCHEME = 0x800000, 0x2000000, 0x1000000  # of an entry
_MORE_CHARACTERS = 0x100000
_LANGUAGE_2, _LANGUAGE_4, _SMART_TAGS = (0x01, 0x02, 0x04, 0x40), (0x20,), 0x200
_SCHEMES = (
    *("alphaLcPeriod", "alphaUcPeriod", "arabicParenR", "arabicPeriod", "romanLcParenBoth", "romanLcParenR"),
    *("romanLcPeriod", "romanUcPeriod", "alphaLcParenBoth", "alphaLcParenR", "alphaUcParenBoth", "alphaUcParenR"),
    *("arabicParenBoth", "arabicPlain", "romanUcParenBoth", "romanUcParenR"),
)
_USUAL = "arabicPeriod"  # the scheme of what is numbered and does not say how
_DEEPEST = 4  # level
Value = TypeVar("Value")
_SIGNS = str.maketrans({"\x0b": " ", "\x07": ""})  # a line's end within a paragraph, and a bell


class _Entry(NamedTuple):
    """The scheme is empty where paragraphs have no number."""

    scheme: str = ""
    start: int = 1


class _Bytes:
    """Numbers that stand one after the other. Raises `struct.error` where they end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._content)

    def next(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._content, self._at)
        self.skip(struct.calcsize(form))
        return int(value)

    def skip(self, count: int) -> None:
        self._at += count

    def skip_fields(self, masks: int, size: int, fields: tuple[int, ...]) -> None:
        self.skip(size * sum(bool(masks & field) for field in fields))


def lines(text: str, style: bytes, numbers: bytes, *, bulleted: bool) -> list[str]:
    """Of paragraphs that returns part, without the empty ones. `style` and `numbers` are what the two records have,
    empty for none; `bulleted`: whether paragraphs have a dash where they do not say."""
    paragraphs = text.split("\r")
    try:
        marks = list(_marks(paragraphs, style, _entries(numbers)))
    except struct.error:  # the text is there all the same
        marks = []
    marks += [(0, None, _Entry())] * (len(paragraphs) - len(marks))
    steps, found = Steps(), []
    bulleted = bulleted and sum(bool(each.strip()) for each in paragraphs) > 1
    for paragraph, (level, says, entry) in zip(paragraphs, marks, strict=True):
        if said := paragraph.translate(_SIGNS).strip():
            marked = bulleted if says is None else says
            label = steps.label(level, entry.scheme, entry.start) if marked and entry.scheme else ""
            if not label:
                steps.end(level)
            found.append(f"{'  ' * level}{label or '-'} {said}" if marked else said)
    return found


def _marks(paragraphs: list[str], style: bytes, entries: list[_Entry]) -> Iterator[tuple[int, bool | None, _Entry]]:
    """Of each paragraph its level, whether it says to be listed, and how it is numbered."""
    if not style:
        return
    sizes = [len(each.encode("utf-16-le", "surrogatepass")) // 2 + 1 for each in paragraphs]
    content = _Bytes(style)
    of_paragraphs = list(_paragraph_runs(content, sum(sizes)))
    of_characters = list(_character_runs(content, sum(sizes))) if entries else []
    at = 0
    for size in sizes:
        level, says = _at(at, of_paragraphs, (0, None))
        number = _at(at, of_characters, 0)
        yield level, says, entries[number] if number < len(entries) else _Entry()
        at += size


def _at(place: int, runs: list[tuple[int, Value]], usual: Value) -> Value:
    """What holds for a character; `runs` have where they end and what they say."""
    run = bisect_right(runs, place, key=lambda run: run[0])
    return runs[run][1] if run < len(runs) else usual


def _paragraph_runs(content: _Bytes, length: int) -> Iterator[tuple[int, tuple[int, bool | None]]]:
    end = 0
    while end < length:
        end += content.next("I")
        level, masks = content.next("H"), content.next("I")
        says = bool(content.next("H") & _BULLET) if masks & _FLAGS else None
        content.skip(2 * (masks & _SIZE_2).bit_count() + 4 * bool(masks & _COLOUR))
        if masks & _TABS:
            content.skip(4 * content.next("H"))
        content.skip_fields(masks, 2, _BEHIND_TABS)
        yield end, (min(level, _DEEPEST), says if masks & _BULLET else None)


def _character_runs(content: _Bytes, length: int) -> Iterator[tuple[int, int]]:
    """Which entry is theirs: a run has four bits for it, and after 15 the count goes on from 0."""
    end = before = rounds = 0
    while end < length:
        end += content.next("I")
        masks = content.next("I")
        style = content.next("H") if masks & _FONT_STYLE else 0
        content.skip_fields(masks, 2, _CHARACTER_2)
        content.skip_fields(masks, 4, _CHARACTER_4)
        entry = (style & _ENTRY) >> 10 if masks & _ENTRY else 0
        rounds += entry + _HALF_ROUND < before
        before = entry
        yield end, 16 * rounds + entry


def _entries(numbers: bytes) -> list[_Entry]:
    content, found = _Bytes(numbers), []
    while content:
        masks = content.next("I")
        content.skip_fields(masks, 2, (_PICTURE,))
        numbered = content.next("H") if masks & _NUMBERED else 0
        number, start = (content.next("H"), content.next("H")) if masks & _SCHEME else (-1, 1)
        content.skip_fields(content.next("I"), 4, (_MORE_CHARACTERS,))
        masks = content.next("I")
        content.skip_fields(masks, 2, _LANGUAGE_2)
        content.skip_fields(masks, 4, _LANGUAGE_4)
        if masks & _SMART_TAGS:
            content.skip(4 * content.next("I"))
        scheme = _SCHEMES[number] if 0 <= number < len(_SCHEMES) else _USUAL
        found.append(_Entry(scheme, start) if numbered else _Entry())
    return found
