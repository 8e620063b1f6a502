"""Recognise the text of scanned pages (OCR), if Tesseract is installed or a model reads pictures.

1. `read` reads a file in a confined process.
2. Pages without text are rendered, and `Recogniser` reads the pictures.
3. Scans with a text layer keep it, unless the recognised text is better (`_replace_wrong_layers`).
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from readers import process
from readers.formats.media_types import HEIC, PDF
from readers.formats.result import Extracted, ReaderError, paged_result
from readers.outside import photos, places, recognition
from readers.outside.places import RECOGNISED

# Measured on nine scans with a text from public data sets. In an installed language, Tesseract had a confidence of 79
# to 95 %, and at least 95 % of the words agreed. In a language that is not installed the confidence was 68 %, and 13 %
# of the words agreed. So words recognised with low confidence do not count against the layer.
_MIN_WORDS = 20  # words
_MIN_AGREEING_SHARE = 0.6  # share of words that agree
_WORD = re.compile(r"[^\W\d_]{3,}")
_MAX_FAILURES = 3  # consecutive failed pages after which the model is not asked again
Progress = Callable[[int, int], None]  # (number of the next page to recognise, number of all pages to recognise)


class PageRecognition(NamedTuple):
    """Recognised text of a page, below a line that names its reader; empty if nothing was recognised.

    `places`: positions of its words, as `outside.places.packed`; empty if they are unknown.
    """

    text: str = ""
    places: bytes = b""


@dataclass(slots=True)
class Recogniser:
    """Recognise pictures of pages with a model if there is one, else with Tesseract.

    `ask` returns the model's text, empty for none, and raises `ReaderError`. `failed`: pages at which the model failed.
    """

    model: str = ""
    ask: Callable[[bytes], str] | None = None
    failed: int = 0
    consecutive_failures: int = 0

    @property
    def available(self) -> bool:
        return self.ask is not None or recognition.available()

    def page(self, picture: bytes, turned: Callable[[], bytes] | None = None) -> PageRecognition:
        """Return the text of a picture. `turned` draws it upside down. Raises `ReaderError`."""
        if self.ask is not None and self.consecutive_failures < _MAX_FAILURES:
            try:
                text = self.ask(picture)
            except ReaderError:
                self.consecutive_failures += 1
            else:
                self.consecutive_failures = 0
                return PageRecognition(f"{RECOGNISED}: {self.model}]\n\n{text}" if text else "")
        self.failed += self.ask is not None
        return _with_heading(recognition.recognise(picture, turned)) if recognition.available() else PageRecognition()


def read(
    path: Path,
    name: str,
    encoding: str = "",
    password: str = "",
    *,
    recogniser: Recogniser | None = None,
    progress: Progress = lambda number, count: None,
) -> Extracted:
    """Return the text of a file as `process.extract` does, with recognised text for pages without text.

    Photos of a phone are opened if the machine supports their format.
    """
    recogniser = recogniser or Recogniser()
    try:
        extracted = process.extract(path, name, encoding, password)
    except ReaderError as error:
        if error.kind == "heic" and photos.available():
            return _read_photo(path)
        if error.code != "no_text" or not recogniser.available or not (count := _page_count(path, password)):
            raise
        return _Pages(path, password, recogniser, progress).add_recognised_text(Extracted(PDF, spans=[(0, 0)] * count))
    if extracted.shown and extracted.spans:  # a picture of several pages
        with _temporary_file(extracted.shown) as document:
            return _Pages(document, "", recogniser, progress).add_recognised_text(extracted)
    if extracted.layered and recognition.available():
        extracted = _replace_wrong_layers(path, extracted, password)
    if extracted.media_type == PDF and "scans" in extracted.left_out:
        return _Pages(path, password, recogniser, progress).add_recognised_text(extracted)
    return extracted


@contextmanager
def _temporary_file(content: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def _read_photo(path: Path) -> Extracted:
    content = photos.jpeg(path)
    with _temporary_file(content) as written:
        picture = process.extract(written, written.name)
    return replace(picture, media_type=HEIC, left_out={"converted": 1}, shown=content)


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of the PDF at `path` that text recognition reads."""

    path: Path
    password: str
    recogniser: Recogniser
    progress: Progress

    def add_recognised_text(self, extracted: Extracted) -> Extracted:
        """Return the file with recognised text for pages without text.

        If no page has text, raises `scan_unread` if a model failed, else `no_text`.
        """
        texts = [extracted.text[start:end] for start, end in extracted.spans]
        recognised: dict[int, PageRecognition] = {}
        scans = [number for number, text in enumerate(texts) if not text.strip()] if self.recogniser.available else []
        scans = scans[: recognition.MAX_PAGES]
        for done, number in enumerate(scans, 1):
            self.progress(done, len(scans))
            recognised[number] = self._recognise(number)
            texts[number] = recognised[number].text
        if not any(texts):
            raise ReaderError("scan_unread" if self.recogniser.failed else "no_text")
        counts = {"recognised": sum(bool(texts[number]) for number in scans), "unread": self.recogniser.failed}
        left_out = counts | {part: count for part, count in extracted.left_out.items() if part != "scans"}
        document = paged_result(extracted.media_type, texts, without_text="scans", left_out=left_out)
        return replace(document, shown=extracted.shown, places=extracted.places | _places(recognised))

    def _recognise(self, number: int) -> PageRecognition:
        """Return the recognised text of a page; empty if it has no words or if the recognition failed."""
        try:
            return self.recogniser.page(*_draw_page(self.path, number, self.password))
        except ReaderError:
            return PageRecognition()


def _draw_page(path: Path, number: int, password: str) -> tuple[bytes, Callable[[], bytes]]:
    """Return the picture of a page, and a function that renders it upside down."""
    return process.draw_page(path, number, password)[1], lambda: process.draw_page(path, number, password, turned=True)[
        1
    ]


def _places(recognised: Mapping[int, PageRecognition]) -> dict[int, bytes]:
    return {number: page.places for number, page in recognised.items() if page.places}


def _replace_wrong_layers(path: Path, extracted: Extracted, password: str) -> Extracted:
    """Return the file with recognised text instead of the text layer of scans, if the recognition is better.

    A document keeps its layer if its first, middle and last scan have a right layer; otherwise each page is compared.
    """
    pages = extracted.layered[: recognition.MAX_PAGES]
    samples = {pages[0], pages[len(pages) // 2], pages[-1]}
    texts = [extracted.text[start:end] for start, end in extracted.spans]
    better = {number: page for number in samples if (page := _better_text(path, number, texts[number], password)).text}
    if not better:
        return extracted
    for number in pages:
        if number not in samples and (page := _better_text(path, number, texts[number], password)).text:
            better[number] = page
    texts = [better[number].text if number in better else text for number, text in enumerate(texts)]
    without_text = "scans" if "scans" in extracted.left_out else ""
    left_out = {"layer": len(better), **extracted.left_out}
    return replace(
        paged_result(extracted.media_type, texts, without_text=without_text, left_out=left_out), places=_places(better)
    )


def _better_text(path: Path, number: int, layer: str, password: str) -> PageRecognition:
    """Return the recognised text of a page if it is better than the layer, else an empty `PageRecognition`.

    It is better if its confidence is high and the layer has too few of its words.
    """
    try:
        recognised = recognition.recognise(*_draw_page(path, number, password))
    except ReaderError:
        return PageRecognition()
    words = _WORD.findall(recognised.text.lower())
    layer_words = set(_WORD.findall(layer.lower()))
    agreeing = sum(word in layer_words for word in words)
    sure = recognised.confidence >= recognition.CERTAIN_CONFIDENCE and len(words) >= _MIN_WORDS
    return _with_heading(recognised) if sure and agreeing < _MIN_AGREEING_SHARE * len(words) else PageRecognition()


def _page_count(path: Path, password: str) -> int:
    """Return the number of pages of a PDF; 0 for another file."""
    try:
        return process.draw_page(path, 0, password)[0]
    except ReaderError:
        return 0


def _with_heading(recognised: recognition.Recognised) -> PageRecognition:
    """Return recognised text below a line that states its confidence."""
    if not recognised.text:
        return PageRecognition()
    languages = ", ".join(recognition.languages())
    return PageRecognition(
        f"{RECOGNISED}: {languages}, {recognised.confidence:.0f} % sure]\n\n{recognised.text}",
        places.pack_places(recognised.places),
    )
