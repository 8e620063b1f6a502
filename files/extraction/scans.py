"""Files with pages that are pictures: what stands on these is recognised (OCR), where the machine can do that."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from files.extraction import process
from files.extraction.outside import photos, recognition
from files.extraction.readers.media_types import HEIC, PDF
from files.extraction.readers.result import Extracted, ExtractionError, paged

RECOGNISED = "[Recognised on a picture"  # with which the text of such a page begins
Progress = Callable[[int, int], None]  # which of the pages to be recognised comes next, and of how many


def extract(
    path: Path, name: str, encoding: str = "", password: str = "", *, progress: Progress = lambda number, count: None
) -> Extracted:
    """As `process.extract`; pages that have no text get the one that is recognised on them, and photos of a phone are
    opened where the machine can do that."""
    try:
        found = process.extract(path, name, encoding, password)
    except ExtractionError as error:
        if error.kind == "heic" and photos.available():
            return _photo(path)
        if error.code != "no_text" or not recognition.available() or not (count := _pages(path, password)):
            raise
        return _recognised(path, Extracted(PDF, spans=[(0, 0)] * count), password, progress)
    if found.shown and found.spans:  # a picture of several pages
        with _written(found.shown) as document:
            return _recognised(document, found, "", progress)
    if found.media_type == PDF and "scans" in found.left_out:
        return _recognised(path, found, password, progress)
    return found


@contextmanager
def _written(content: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def _photo(path: Path) -> Extracted:
    content = photos.jpeg(path)
    with _written(content) as written:
        picture = process.extract(written, written.name)
    return replace(picture, media_type=HEIC, left_out={"converted": 1}, shown=content)


def _recognised(path: Path, found: Extracted, password: str, progress: Progress) -> Extracted:
    """The same with a text for pages of the PDF at `path` that have none. Raises `no_text` if it has none at all."""
    texts = [found.text[start:end] for start, end in found.spans]
    scans = [number for number, text in enumerate(texts) if not text.strip()] if recognition.available() else []
    recognised = 0
    for done, number in enumerate(scans[: recognition.MOST_PAGES], 1):
        progress(done, len(scans[: recognition.MOST_PAGES]))
        texts[number] = _page(path, number, password)
        recognised += bool(texts[number])
    if not any(texts):
        raise ExtractionError("no_text")
    left_out = {what: count for what, count in found.left_out.items() if what != "scans"}
    read = paged(found.media_type, texts, without_text="scans", left_out={"recognised": recognised, **left_out})
    return replace(read, shown=found.shown)


def _pages(path: Path, password: str) -> int:
    """How many a PDF has; none of what is no PDF."""
    try:
        return process.page_of(path, 0, password)[0]
    except ExtractionError:
        return 0


def _page(path: Path, number: int, password: str) -> str:
    """With a line above that says how sure it is; empty for a page on which no word was found, or that failed."""
    try:
        found = recognition.recognised(process.page_of(path, number, password)[1])
    except ExtractionError:
        return ""
    by = ", ".join(recognition.languages())
    return f"{RECOGNISED}: {by}, {found.confidence:.0f} % sure]\n\n{found.text}" if found.text else ""
