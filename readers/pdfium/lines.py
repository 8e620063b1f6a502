"""The lines of a page: what they say, how large and bold they are, where they stand."""

import ctypes
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pypdfium2
from pypdfium2 import raw

from readers.text.grids import Box, Glyph
from readers.text.headings import Line

_BOLD = 600  # of 100 to 900
_BOLD_NAME = re.compile(rb"bold|black|heavy|(?:CM|SF)BX|medium|-Medi", re.I)
_LONGEST_NAME = 80  # bytes of a font's name
_LONGEST_HEADING = 500  # characters
_VOWELS = frozenset("aeiouy")
_LETTERS, _SHARE_OF_VOWELS, _FEW = 0.6, 0.2, 5  # of the signs; of Latin letters, unless there are just a few
_BREAK = "\r\n"
_MOST_BOXES = 5_000  # of a page


def lines(content: pypdfium2.PdfTextPage) -> tuple[list[Line], bool]:
    """In reading order; and whether they are in fonts that do not say which letters they show, and read like it."""
    text = content.get_text_range()
    # PDFium counts the text in units of UTF-16.
    measured = max(text, default="") < "\U00010000"
    found, start, unmapped, words = [], 0, 0, 0
    for line in text.split(_BREAK):
        shown = line.strip() if measured else ""
        first = start + len(line) - len(line.lstrip())
        # The first letter, the last one and one in the middle: a line of which only a part is bold is no heading.
        letters = _letters(shown) if len(line) < _LONGEST_HEADING else set()
        thirds = _indexes(content, {first + at for at in letters})
        ends = _indexes(content, {first, first + len(shown) - 1} if shown else ())
        boxes = {index: _box(content, index) for index in (*thirds, *ends)}
        size = min((boxes[index].top - boxes[index].bottom for index in thirds), default=0.0)
        bold = bool(thirds) and all(_is_bold(content, index) for index in thirds)
        found.append(Line(line, size, bold, _around([boxes[index] for index in ends])))
        words += bool(ends)
        unmapped += any(raw.FPDFText_HasUnicodeMapError(content, index) == 1 for index in ends)
        start += len(line) + len(_BREAK)
    return found, unmapped * 2 > words and not _plausible(text)


def _letters(text: str) -> set[int]:
    """Where its first, its last and its middle letter or digit stand; nothing where it has none."""
    middle = len(text) // 2
    ways = (range(len(text)), range(len(text) - 1, -1, -1), range(middle, len(text)))
    found = (next((at for at in way if text[at].isalnum()), -1) for way in ways)
    return {at for at in found if at >= 0}


def _plausible(text: str) -> bool:
    """Whether it may be a text of some language: most signs are letters and digits, and Latin letters have vowels.

    Many fonts do not say which letters they show and number them as everybody does.
    """
    signs = unicodedata.normalize("NFD", "".join(text.split()).lower())
    written = sum(map(str.isalnum, signs)) + sum(map(bool, map(unicodedata.combining, signs)))
    latin = [sign for sign in signs if "a" <= sign <= "z"]
    vowels = sum(map(_VOWELS.__contains__, latin))
    return written >= _LETTERS * len(signs) and (len(latin) < _FEW or vowels >= _SHARE_OF_VOWELS * len(latin))


def glyphs(content: pypdfium2.PdfTextPage, on_page: Sequence[Line], wanted: Iterable[int]) -> Iterator[Glyph]:
    """The signs of the lines with these numbers."""
    starts, start = [], 0
    for line in on_page:
        starts.append(start)
        start += len(line.text) + len(_BREAK)
    for number in wanted:
        box = on_page[number].box
        for at, sign in enumerate(on_page[number].text):
            index = -1 if sign.isspace() else raw.FPDFText_GetCharIndexFromTextIndex(content, starts[number] + at)
            box = _box(content, index) if index >= 0 else box
            if box:
                yield Glyph(sign, box, number)


def boxes(content: pypdfium2.PdfTextPage) -> list[Box]:
    """Where words stand, several of them together if nothing divides them."""
    return rectangles(content, 0, -1)


def rectangles(content: pypdfium2.PdfTextPage, first: int, count: int) -> list[Box]:
    """Where the `count` signs from PDFium's number `first` on stand, those of a line together; -1: all that follow."""
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    found = []
    for number in range(min(raw.FPDFText_CountRects(content, first, count), _MOST_BOXES)):
        raw.FPDFText_GetRect(content, number, left, top, right, bottom)
        found.append(Box(left.value, bottom.value, right.value, top.value))
    return found


def _indexes(content: pypdfium2.PdfTextPage, places: Iterable[int]) -> list[int]:
    """PDFium's numbers of the signs at these places of the text."""
    found = (raw.FPDFText_GetCharIndexFromTextIndex(content, place) for place in sorted(places))
    return [index for index in found if index >= 0]


def _box(content: Any, index: int) -> Box:
    """As high as the line of the sign is, whatever the page is scaled by; the font's size alone does not tell."""
    box = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(content, index, box)
    bottom, top = box.bottom, box.top
    return Box(box.left, bottom, box.right, top) if bottom <= top else Box(box.left, top, box.right, bottom)


def _around(parts: Sequence[Box]) -> Box | None:
    if not parts:
        return None
    left, bottom, right, top = zip(*parts, strict=True)
    return Box(min(left), min(bottom), max(right), max(top))


def _is_bold(content: Any, index: int) -> bool:
    if raw.FPDFText_GetFontWeight(content, index) >= _BOLD:
        return True
    name = ctypes.create_string_buffer(_LONGEST_NAME)
    raw.FPDFText_GetFontInfo(content, index, name, _LONGEST_NAME, ctypes.c_int())
    return _BOLD_NAME.search(name.value) is not None
