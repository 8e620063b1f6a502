"""Find the places of a passage on a page.

The passage comes from the text that was read from the page. That text has marked headings, tables as Markdown, and
joined words that were hyphenated. So only letters and digits are compared.
"""

import re

import pypdfium2
from pypdfium2 import raw

from readers.pdfium.lines import rectangles
from readers.text.grids import Box

Span = tuple[int, int]  # characters [start, end)

_PARTS = re.compile(r"[\n|]+")  # lines and cells
_SHORT_PART = 8  # letters; a shorter part is searched only near its expected place
_SEARCH_DISTANCE = 400  # letters


def boxes(page: pypdfium2.PdfPage, passage: str, before: int) -> list[Box]:
    """Return the boxes of a passage in points, one or more for each line; none if it is not on the page."""
    content = page.get_textpage()
    text = content.get_text_range()
    rects: list[Box] = []
    for start, end in spans(text, passage, before):
        # PDFium counts the text in units of UTF-16, and numbers the characters of the page separately.
        first, last = (raw.FPDFText_GetCharIndexFromTextIndex(content, _units(text[:at])) for at in (start, end - 1))
        if 0 <= first <= last:
            rects += rectangles(content, first, last - first + 1)
    content.close()
    return rects


def spans(text: str, passage: str, before: int = 0) -> list[Span]:
    """Return the spans of `text` that match the passage, in its order; none without a match.

    `before`: the expected number of letters and digits before the passage. The match nearest to it counts.
    """
    page, places = _letters(text)
    letters, _ = _letters(passage)
    if not letters:
        return []
    if (at := _nearest(page, letters, before)) >= 0:
        return [(places[at], places[at + len(letters) - 1] + 1)]
    matches: list[Span] = []
    expected = max(0, before - _SEARCH_DISTANCE)
    for part in filter(None, (_letters(each)[0] for each in _PARTS.split(passage))):
        at = page.find(part, expected, None if len(part) >= _SHORT_PART else expected + _SEARCH_DISTANCE + len(part))
        if at < 0 and len(part) >= _SHORT_PART:
            at = _nearest(page, part, expected)
        if at >= 0:
            matches.append((places[at], places[at + len(part) - 1] + 1))
            expected = at + len(part)
    return matches


def _letters(text: str) -> tuple[str, list[int]]:
    """Return the letters and digits of a text in lower case, and their places in the text."""
    letters = [(small, at) for at, sign in enumerate(text) for small in sign.lower() if small.isalnum()]
    return "".join(small for small, _ in letters), [at for _, at in letters]


def _nearest(page: str, letters: str, expected: int) -> int:
    """Return the match nearest to the expected place; -1 without a match."""
    after = page.find(letters, expected)
    before = page.rfind(letters, 0, expected + len(letters) - 1) if expected else -1
    if min(after, before) < 0:
        return max(after, before)
    return after if after - expected <= expected - before else before


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
