"""Files with pages that are pictures: what stands on these is recognised (OCR), where the machine can do that."""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from readers import process
from readers.formats.media_types import HEIC, PDF
from readers.formats.result import Extracted, ReaderError, paged
from readers.outside import photos, places, recognition
from readers.outside.places import RECOGNISED

# Measured on nine scans of public sets that have a text: recognised with 79 to 95 % in a language that is installed,
# they agree in .95 and more of their words; in one that is not (68 %), in .13, and that is no reason to believe it.
_ENOUGH, _FITS = 20, 0.6  # words; share of them
_WORD = re.compile(r"[^\W\d_]{3,}")
_FAILURES = 3  # pages that a model may fail at, one after the other, before it is asked no more
Progress = Callable[[int, int], None]  # which of the pages to be recognised comes next, and of how many


class Seen(NamedTuple):
    """What was recognised on a page, below a line that says who read it, empty if nothing was; and as
    `outside.places.packed`, where its words stand, empty where that is not told."""

    text: str = ""
    places: bytes = b""


@dataclass(slots=True)
class Recogniser:
    """Who reads the picture of a page: a model (`ask` gives its text, empty for none, and raises `ReaderError`), else
    Tesseract. `failed`: pages at which the model did."""

    model: str = ""
    ask: Callable[[bytes], str] | None = None
    failed: int = 0
    in_a_row: int = 0

    @property
    def available(self) -> bool:
        return self.ask is not None or recognition.available()

    def page(self, picture: bytes, turned: Callable[[], bytes] | None = None) -> Seen:
        """`turned` gives the picture upside down. Raises `ReaderError`."""
        if self.ask is not None and self.in_a_row < _FAILURES:
            try:
                found = self.ask(picture)
            except ReaderError:
                self.in_a_row += 1
            else:
                self.in_a_row = 0
                return Seen(f"{RECOGNISED}: {self.model}]\n\n{found}" if found else "")
        self.failed += self.ask is not None
        return _said(recognition.recognised(picture, turned)) if recognition.available() else Seen()


def read(
    path: Path,
    name: str,
    encoding: str = "",
    password: str = "",
    *,
    recogniser: Recogniser | None = None,
    progress: Progress = lambda number, count: None,
) -> Extracted:
    """As `process.extract`; pages that have no text get the one that is recognised on them, and photos of a phone are
    opened where the machine can do that."""
    recogniser = recogniser or Recogniser()
    try:
        found = process.extract(path, name, encoding, password)
    except ReaderError as error:
        if error.kind == "heic" and photos.available():
            return _photo(path)
        if error.code != "no_text" or not recogniser.available or not (count := _pages(path, password)):
            raise
        return _Pages(path, password, recogniser, progress).of(Extracted(PDF, spans=[(0, 0)] * count))
    if found.shown and found.spans:  # a picture of several pages
        with _written(found.shown) as document:
            return _Pages(document, "", recogniser, progress).of(found)
    if found.layered and recognition.available():
        found = _relayered(path, found, password)
    if found.media_type == PDF and "scans" in found.left_out:
        return _Pages(path, password, recogniser, progress).of(found)
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


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of the PDF at `path`, to be recognised."""

    path: Path
    password: str
    recogniser: Recogniser
    progress: Progress

    def of(self, found: Extracted) -> Extracted:
        """The same with a text for pages that have none. Raises `no_text` if it has none at all, `scan_unread` if a
        model has failed at it."""
        texts, seen = [found.text[start:end] for start, end in found.spans], dict[int, Seen]()
        scans = [number for number, text in enumerate(texts) if not text.strip()] if self.recogniser.available else []
        scans = scans[: recognition.MOST_PAGES]
        for done, number in enumerate(scans, 1):
            self.progress(done, len(scans))
            seen[number] = self._seen(number)
            texts[number] = seen[number].text
        if not any(texts):
            raise ReaderError("scan_unread" if self.recogniser.failed else "no_text")
        told = {"recognised": sum(bool(texts[number]) for number in scans), "unread": self.recogniser.failed}
        left_out = told | {what: count for what, count in found.left_out.items() if what != "scans"}
        document = paged(found.media_type, texts, without_text="scans", left_out=left_out)
        return replace(document, shown=found.shown, places=found.places | _places(seen))

    def _seen(self, number: int) -> Seen:
        """Empty for a page on which no word was found, or that failed."""
        try:
            return self.recogniser.page(*_pictures(self.path, number, self.password))
        except ReaderError:
            return Seen()


def _pictures(path: Path, number: int, password: str) -> tuple[bytes, Callable[[], bytes]]:
    """Of a page, and what draws it upside down."""
    return process.page_of(path, number, password)[1], lambda: process.page_of(path, number, password, turned=True)[1]


def _places(seen: Mapping[int, Seen]) -> dict[int, bytes]:
    return {number: page.places for number, page in seen.items() if page.places}


def _relayered(path: Path, found: Extracted, password: str) -> Extracted:
    """The same, where the text that scans brought along stays unless what is recognised on them is the better one.

    A document whose first, middle and last such page fit is believed; else each page is compared.
    """
    pages = found.layered[: recognition.MOST_PAGES]
    samples = {pages[0], pages[len(pages) // 2], pages[-1]}
    texts = [found.text[start:end] for start, end in found.spans]
    better = {number: seen for number in samples if (seen := _better(path, number, texts[number], password)).text}
    if not better:
        return found
    for number in pages:
        if number not in samples and (seen := _better(path, number, texts[number], password)).text:
            better[number] = seen
    texts = [better[number].text if number in better else text for number, text in enumerate(texts)]
    without_text = "scans" if "scans" in found.left_out else ""
    left_out = {"layer": len(better), **found.left_out}
    return replace(paged(found.media_type, texts, without_text=without_text, left_out=left_out), places=_places(better))


def _better(path: Path, number: int, layer: str, password: str) -> Seen:
    """What is recognised on a page, if it is sure and most of its words are not in the page's own text; else empty."""
    try:
        seen = recognition.recognised(*_pictures(path, number, password))
    except ReaderError:
        return Seen()
    words, known = _WORD.findall(seen.text.lower()), set(_WORD.findall(layer.lower()))
    agreeing = sum(word in known for word in words)
    sure = seen.confidence >= recognition.SURE and len(words) >= _ENOUGH
    return _said(seen) if sure and agreeing < _FITS * len(words) else Seen()


def _pages(path: Path, password: str) -> int:
    """How many a PDF has; none of what is no PDF."""
    try:
        return process.page_of(path, 0, password)[0]
    except ReaderError:
        return 0


def _said(found: recognition.Recognised) -> Seen:
    """With a line above that says how sure it is."""
    if not found.text:
        return Seen()
    by = ", ".join(recognition.languages())
    return Seen(f"{RECOGNISED}: {by}, {found.confidence:.0f} % sure]\n\n{found.text}", places.packed(found.places))
