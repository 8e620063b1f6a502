"""Files with pages that are pictures: what stands on these is recognised (OCR), where the machine can do that."""

import re
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
# Measured on nine scans of public sets that have a text: recognised with 79 to 95 % in a language that is installed,
# they agree in .95 and more of their words; in one that is not (68 %), in .13, and that is no reason to believe it.
_SURE, _ENOUGH, _FITS = 80, 20, 0.6  # percent; words; share of them
_WORD = re.compile(r"[^\W\d_]{3,}")
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
    if found.layered and recognition.available():
        found = _relayered(path, found, password)
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


def _relayered(path: Path, found: Extracted, password: str) -> Extracted:
    """The same, where the text that scans brought along stays unless what is recognised on them is the better one.

    A document whose first, middle and last such page fit is believed; else each page is compared.
    """
    pages = found.layered[: recognition.MOST_PAGES]
    samples = {pages[0], pages[len(pages) // 2], pages[-1]}
    texts = [found.text[start:end] for start, end in found.spans]
    better = {number: text for number in samples if (text := _better(path, number, texts[number], password))}
    if not better:
        return found
    for number in pages:
        if number not in samples and (text := _better(path, number, texts[number], password)):
            better[number] = text
    texts = [better.get(number, text) for number, text in enumerate(texts)]
    without_text = "scans" if "scans" in found.left_out else ""
    return paged(found.media_type, texts, without_text=without_text, left_out={"layer": len(better), **found.left_out})


def _better(path: Path, number: int, layer: str, password: str) -> str:
    """What is recognised on a page, if it is sure and most of its words are not in the page's own text; else empty."""
    try:
        seen = recognition.recognised(process.page_of(path, number, password)[1])
    except ExtractionError:
        return ""
    words, known = _WORD.findall(seen.text.lower()), set(_WORD.findall(layer.lower()))
    agreeing = sum(word in known for word in words)
    sure = seen.confidence >= _SURE and len(words) >= _ENOUGH
    return _said(seen) if sure and agreeing < _FITS * len(words) else ""


def _pages(path: Path, password: str) -> int:
    """How many a PDF has; none of what is no PDF."""
    try:
        return process.page_of(path, 0, password)[0]
    except ExtractionError:
        return 0


def _page(path: Path, number: int, password: str) -> str:
    """Empty for a page on which no word was found, or that failed."""
    try:
        return _said(recognition.recognised(process.page_of(path, number, password)[1]))
    except ExtractionError:
        return ""


def _said(seen: recognition.Recognised) -> str:
    """With a line above that says how sure it is."""
    by = ", ".join(recognition.languages())
    return f"{RECOGNISED}: {by}, {seen.confidence:.0f} % sure]\n\n{seen.text}" if seen.text else ""
