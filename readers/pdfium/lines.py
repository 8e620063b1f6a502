"""Read the lines of a page: their text, size, weight and position."""

import ctypes
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pypdfium2
from pypdfium2 import raw

from readers.text.grids import Box, Glyph
from readers.text.headings import PageLine

_BOLD = 600  # font weight, from 100 to 900
_BOLD_NAME = re.compile(rb"bold|black|heavy|(?:CM|SF)BX|medium|-Medi", re.I)
_MAX_NAME_LENGTH = 80  # bytes of a font's name
_MAX_HEADING_LENGTH = 500  # characters
_VOWELS = frozenset("aeiouy")
_MIN_LETTER_SHARE = 0.6  # least share of letters and digits among the characters
_MIN_VOWEL_SHARE = 0.2  # least share of vowels among Latin letters
_FEW_LATIN_LETTERS = 5  # Latin letters; fewer need no vowels
_LINE_ENDS = "\r\n"
_MAX_BOXES = 5_000  # boxes on one page


def lines(content: pypdfium2.PdfTextPage) -> tuple[list[PageLine], bool]:
    """Return the lines in reading order, and whether their text is garbage because the fonts do not map to letters."""
    text = content.get_text_range()
    # PDFium counts the text in units of UTF-16.
    measured = max(text, default="") < "\U00010000"
    read: list[PageLine] = []
    start = 0
    unmapped = 0
    words = 0
    for line in text.split(_LINE_ENDS):
        shown = line.strip() if measured else ""
        first = start + len(line) - len(line.lstrip())
        # The first, last and middle letter: a line that is only partly bold is no heading.
        letters = _sample_positions(shown) if len(line) < _MAX_HEADING_LENGTH else set()
        thirds = _indexes(content, {first + at for at in letters})
        ends = _indexes(content, {first, first + len(shown) - 1} if shown else ())
        boxes = {index: _box(content, index) for index in (*thirds, *ends)}
        size = min((boxes[index].top - boxes[index].bottom for index in thirds), default=0.0)
        bold = bool(thirds) and all(_is_bold(content, index) for index in thirds)
        read.append(PageLine(line, size, bold, _bounding_box([boxes[index] for index in ends])))
        words += bool(ends)
        unmapped += any(raw.FPDFText_HasUnicodeMapError(content, index) == 1 for index in ends)
        start += len(line) + len(_LINE_ENDS)
    return read, unmapped * 2 > words and not _is_plausible(text)


def _sample_positions(text: str) -> set[int]:
    """Return the places of the first, last and middle letter or digit; none without letters."""
    middle = len(text) // 2
    orders = (range(len(text)), range(len(text) - 1, -1, -1), range(middle, len(text)))
    places = (next((at for at in order if text[at].isalnum()), -1) for order in orders)
    return {at for at in places if at >= 0}


def _is_plausible(text: str) -> bool:
    """Return whether the text may be in a language: most characters are letters or digits, and there are vowels.

    Many fonts without a map use the standard character codes, so that the text is right.
    """
    signs = unicodedata.normalize("NFD", "".join(text.split()).lower())
    word_characters = sum(map(str.isalnum, signs)) + sum(map(bool, map(unicodedata.combining, signs)))
    latin = [sign for sign in signs if "a" <= sign <= "z"]
    vowels = sum(map(_VOWELS.__contains__, latin))
    return word_characters >= _MIN_LETTER_SHARE * len(signs) and (
        len(latin) < _FEW_LATIN_LETTERS or vowels >= _MIN_VOWEL_SHARE * len(latin)
    )


def glyphs(content: pypdfium2.PdfTextPage, on_page: Sequence[PageLine], numbers: Iterable[int]) -> Iterator[Glyph]:
    """Yield the glyphs of the lines with these numbers."""
    starts = []
    start = 0
    for line in on_page:
        starts.append(start)
        start += len(line.text) + len(_LINE_ENDS)
    for number in numbers:
        box = on_page[number].box
        for at, sign in enumerate(on_page[number].text):
            index = -1 if sign.isspace() else raw.FPDFText_GetCharIndexFromTextIndex(content, starts[number] + at)
            box = _box(content, index) if index >= 0 else box
            if box:
                yield Glyph(sign, box, number)


def boxes(content: pypdfium2.PdfTextPage) -> list[Box]:
    """Return the boxes of the words. PDFium may give adjacent words one box."""
    return rectangles(content, 0, -1)


def rectangles(content: pypdfium2.PdfTextPage, first: int, count: int) -> list[Box]:
    """Return the boxes of `count` characters from PDFium's index `first`, one for each line. A `count` of -1 is all."""
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    rects = []
    for number in range(min(raw.FPDFText_CountRects(content, first, count), _MAX_BOXES)):
        raw.FPDFText_GetRect(content, number, left, top, right, bottom)
        rects.append(Box(left.value, bottom.value, right.value, top.value))
    return rects


def _indexes(content: pypdfium2.PdfTextPage, places: Iterable[int]) -> list[int]:
    """Return PDFium's indexes of the characters at these places of the text."""
    indexes = (raw.FPDFText_GetCharIndexFromTextIndex(content, place) for place in sorted(places))
    return [index for index in indexes if index >= 0]


def _box(content: Any, index: int) -> Box:
    """Return the box of a character with the height of its line. The font's size ignores the page's scale."""
    box = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(content, index, box)
    bottom = box.bottom
    top = box.top
    return Box(box.left, bottom, box.right, top) if bottom <= top else Box(box.left, top, box.right, bottom)


def _bounding_box(parts: Sequence[Box]) -> Box | None:
    if not parts:
        return None
    left, bottom, right, top = zip(*parts, strict=True)
    return Box(min(left), min(bottom), max(right), max(top))


def _is_bold(content: Any, index: int) -> bool:
    if raw.FPDFText_GetFontWeight(content, index) >= _BOLD:
        return True
    name = ctypes.create_string_buffer(_MAX_NAME_LENGTH)
    raw.FPDFText_GetFontInfo(content, index, name, _MAX_NAME_LENGTH, ctypes.c_int())
    return _BOLD_NAME.search(name.value) is not None
