from collections.abc import Iterator
from pathlib import Path

import pypdfium2
from pypdfium2 import raw

from files.extraction.readers.result import MAX_PAGES, Extracted, ExtractionError, paged

_HYPHEN = "\ufffe"  # what PDFium puts for a hyphen that divides a word at the end of a line


def read(path: Path, media_type: str) -> Extracted:
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        password = error.err_code == raw.FPDF_ERR_PASSWORD
        raise ExtractionError("encrypted" if password else "damaged") from error
    if len(document) > MAX_PAGES:
        raise ExtractionError("too_large")
    return paged(media_type, _pages(document))


def _pages(document: pypdfium2.PdfDocument) -> Iterator[str]:
    for number in range(len(document)):
        try:
            page = document[number]
        except pypdfium2.PdfiumError as error:
            raise ExtractionError("damaged") from error
        content = page.get_textpage()
        text = content.get_text_range()
        content.close()
        page.close()
        yield text.replace(_HYPHEN + "\r\n", "").replace(_HYPHEN, "-")
