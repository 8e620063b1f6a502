"""Files with pages that are pictures: what stands on these is recognised (OCR), where the machine can do that."""

from collections.abc import Callable
from pathlib import Path

from files.extraction import process
from files.extraction.outside import recognition
from files.extraction.readers.media_types import PDF
from files.extraction.readers.result import Extracted, ExtractionError, paged

RECOGNISED = "[Recognised on a picture"  # with which the text of such a page begins
Progress = Callable[[int, int], None]  # which of the pages to be recognised comes next, and of how many


def extract(
    path: Path, name: str, encoding: str = "", password: str = "", *, progress: Progress = lambda number, count: None
) -> Extracted:
    """As `process.extract`; pages of a PDF that have no text get the one that is recognised on them."""
    try:
        found = process.extract(path, name, encoding, password)
    except ExtractionError as error:
        if error.code != "no_text" or not recognition.available():
            raise
        texts, left_out = _pages(path, password), {}
        if not texts:
            raise
    else:
        if found.media_type != PDF or "scans" not in found.left_out or not recognition.available():
            return found
        texts = [found.text[start:end] for start, end in found.spans]
        left_out = {what: count for what, count in found.left_out.items() if what != "scans"}
    scans = [number for number, text in enumerate(texts) if not text.strip()][: recognition.MOST_PAGES]
    recognised = 0
    for done, number in enumerate(scans, 1):
        progress(done, len(scans))
        texts[number] = _recognised(path, number, password)
        recognised += bool(texts[number])
    if not any(texts):
        raise ExtractionError("no_text")
    return paged(PDF, texts, without_text="scans", left_out={"recognised": recognised, **left_out})


def _pages(path: Path, password: str) -> list[str]:
    """As many empty texts as a PDF has pages; none of what is no PDF."""
    try:
        return [""] * process.page_of(path, 0, password)[0]
    except ExtractionError:
        return []


def _recognised(path: Path, number: int, password: str) -> str:
    """With a line above that says how sure it is; empty for a page on which no word was found, or that failed."""
    try:
        found = recognition.recognised(process.page_of(path, number, password)[1])
    except ExtractionError:
        return ""
    by = ", ".join(recognition.languages())
    return f"{RECOGNISED}: {by}, {found.confidence:.0f} % sure]\n\n{found.text}" if found.text else ""
