"""What a reader gives back: text that PostgreSQL can store, within the limits, or the way in which it failed."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

MAX_PAGES = 5_000
MAX_CHARACTERS = 20_000_000
_BETWEEN_PAGES = "\n\n"

_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# NUL and lone surrogates are what PostgreSQL refuses; the other control characters mean nothing in text.
_UNWANTED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

SENTENCES = {
    "encrypted": "It is protected with a password. Remove the protection and upload it again.",
    "damaged": "It is damaged, so it cannot be opened. Upload an intact copy.",
    "bomb": "It unpacks to far more than a real document holds, so it was not opened.",
    "empty": "There is nothing in it.",
    "too_large": "It holds more than 5,000 pages, 20 million characters or 100 million pixels. Upload it in parts.",
    "no_text": "It has no text, like a scan made of pictures. Run text recognition (OCR) on it, then upload it again.",
    "unsupported": "Files of this kind cannot be read. Save it as PDF, DOCX, XLSX, PPTX or plain text and upload that.",
    "took_too_long": "Reading it took too long. Upload it in parts.",
    "too_much_memory": "Reading it took too much memory. Upload it in parts.",
}


class ExtractionError(Exception):
    """`code` is a key of `SENTENCES`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code

    @property
    def sentence(self) -> str:
        return SENTENCES[self.code]


@dataclass(frozen=True, slots=True)
class Extracted:
    """`spans` are the characters [start, end) of each page; an empty one is a page without text.

    Pages are those of a PDF, slides, sheets or chapters; there are none in other kinds. `width` and `height` (pixels)
    are those of an image, which has no text.
    """

    media_type: str
    text: str = ""
    spans: list[tuple[int, int]] = field(default_factory=list)
    width: int | None = None
    height: int | None = None

    @property
    def pages_without_text(self) -> int:
        return sum(start == end for start, end in self.spans)

    def page_at(self, position: int) -> int:
        """The page that holds or follows this character, counted from 1; 0 where there are no pages."""
        return bisect_right(self.spans, position, key=lambda span: span[0])


def cleaned(text: str) -> str:
    """With `\\n` as the only line end, without control characters, spaces at line ends and blank ends."""
    text = _UNWANTED.sub("", _LINE_ENDS.sub("\n", text))
    return "\n".join([line.rstrip() for line in text.split("\n")]).strip("\n")


def whole(media_type: str, parts: Iterable[str]) -> Extracted:
    """A text without pages, from its parts."""
    return Extracted(media_type, cleaned("".join(limited(parts))))


def paged(media_type: str, pages: Iterable[str]) -> Extracted:
    texts: list[str] = []
    spans: list[tuple[int, int]] = []
    position = 0
    for page in limited(islice(pages, MAX_PAGES + 1)):
        text = cleaned(page)
        if len(spans) == MAX_PAGES:
            raise ExtractionError("too_large")
        spans.append((position, position + len(text)))
        position += len(text) + len(_BETWEEN_PAGES)
        texts.append(text)
    return Extracted(media_type, _BETWEEN_PAGES.join(texts), spans)


def limited(parts: Iterable[str]) -> Iterable[str]:
    """The same parts; raises `too_large` as soon as there are too many characters, so that memory stays bounded."""
    left = MAX_CHARACTERS
    for part in parts:
        left -= len(part)
        if left < 0:
            raise ExtractionError("too_large")
        yield part


def encoded(result: Extracted | ExtractionError) -> bytes:
    if isinstance(result, ExtractionError):
        return json.dumps({"error": result.code}).encode() + b"\n"
    head = {
        "media_type": result.media_type,
        "spans": result.spans,
        "width": result.width,
        "height": result.height,
    }
    return json.dumps(head).encode() + b"\n" + result.text.encode()


def decoded(data: bytes) -> Extracted:
    """Raises the `ExtractionError` that was sent."""
    head, _, text = data.partition(b"\n")
    fields = json.loads(head)
    if "error" in fields:
        raise ExtractionError(fields["error"])
    spans = [(start, end) for start, end in fields["spans"]]
    return Extracted(fields["media_type"], text.decode(), spans, fields["width"], fields["height"])
