"""What an extractor gives back, and the ways in which it can fail."""

import json
from bisect import bisect_right
from dataclasses import dataclass, field

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
