"""Where a passage stands on a page.

The passage is of the text that was made from the page: headings are marked in it, tables are Markdown, divided words
are joined. So only letters and digits are compared.
"""

import re

import pypdfium2
from pypdfium2 import raw

from readers.pdfium.lines import rectangles
from readers.text.grids import Box

Span = tuple[int, int]  # characters [start, end)

_PARTS = re.compile(r"[\n|]+")  # lines and cells
_SHORT = 8  # letters; what is shorter is looked for only where it is expected
_NEAR = 400  # letters


def boxes(page: pypdfium2.PdfPage, passage: str, before: int) -> list[Box]:
    """In points of the page, one or several a line; none where it is not on the page. `before` as for `spans`."""
    content = page.get_textpage()
    text = content.get_text_range()
    found: list[Box] = []
    for start, end in spans(text, passage, before):
        # PDFium counts the text in units of UTF-16, and the signs on the page by numbers of their own.
        first, last = (raw.FPDFText_GetCharIndexFromTextIndex(content, _units(text[:at])) for at in (start, end - 1))
        if 0 <= first <= last:
            found += rectangles(content, first, last - first + 1)
    content.close()
    return found


def spans(text: str, passage: str, before: int = 0) -> list[Span]:
    """The characters of `text` that the passage stands for, in the order of the passage; none where it is not there.

    `before` is how many letters and digits are expected before it: of several places the nearest one is taken.
    """
    page, places = _letters(text)
    wanted, _ = _letters(passage)
    if not wanted:
        return []
    if (at := _nearest(page, wanted, before)) >= 0:
        return [(places[at], places[at + len(wanted) - 1] + 1)]
    found, expected = [], max(0, before - _NEAR)
    for part in filter(None, (_letters(each)[0] for each in _PARTS.split(passage))):
        at = page.find(part, expected, None if len(part) >= _SHORT else expected + _NEAR + len(part))
        if at < 0 and len(part) >= _SHORT:
            at = _nearest(page, part, expected)
        if at >= 0:
            found.append((places[at], places[at + len(part) - 1] + 1))
            expected = at + len(part)
    return found


def _letters(text: str) -> tuple[str, list[int]]:
    """The letters and digits of a text, small, and at which of its characters each stands."""
    found = [(small, at) for at, sign in enumerate(text) for small in sign.lower() if small.isalnum()]
    return "".join(small for small, _ in found), [at for _, at in found]


def _nearest(page: str, wanted: str, expected: int) -> int:
    """Where it stands nearest to the place where it is expected; -1 where it does not."""
    after = page.find(wanted, expected)
    ahead = page.rfind(wanted, 0, expected + len(wanted) - 1) if expected else -1
    if min(after, ahead) < 0:
        return max(after, ahead)
    return after if after - expected <= expected - ahead else ahead


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
