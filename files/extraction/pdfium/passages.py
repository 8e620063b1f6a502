"""Where a passage stands on a page."""

import pypdfium2
from pypdfium2 import raw

from files.extraction.pdfium.lines import rectangles
from files.extraction.text import passages
from files.extraction.text.grids import Box


def boxes(page: pypdfium2.PdfPage, passage: str, before: int) -> list[Box]:
    """In points of the page, one or several a line; none where it is not on the page. `before` as for `spans`."""
    content = page.get_textpage()
    text = content.get_text_range()
    found: list[Box] = []
    for start, end in passages.spans(text, passage, before):
        # PDFium counts the text in units of UTF-16, and the signs on the page by numbers of their own.
        first, last = (raw.FPDFText_GetCharIndexFromTextIndex(content, _units(text[:at])) for at in (start, end - 1))
        if 0 <= first <= last:
            found += rectangles(content, first, last - first + 1)
    content.close()
    return found


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
