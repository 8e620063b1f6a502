"""Define the result of a reader: text within limits that PostgreSQL can store, or the reason for a failure."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

MAX_PAGES = 5_000
MAX_CHARACTERS = 20_000_000
_BETWEEN_PAGES = "\n\n"

_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# PostgreSQL refuses NUL and lone surrogates. The other control characters have no meaning in text.
_UNWANTED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def gettext_noop(template: str) -> str:
    """Mark a literal for translation by the product. xgettext recognises this function name."""
    return template


SENTENCES = {
    "encrypted": gettext_noop("It is protected with a password. Open its page to enter the password."),
    "locked_inside": gettext_noop(
        "It is protected with a password. Enter it on the page of the file that this one is in."
    ),
    "wrong_inside": gettext_noop(
        "The password does not open it. Enter its own on the page of the file that this one is in."
    ),
    "untried_inside": gettext_noop(
        "It is protected with a password, and so are too many files with it. Upload it separately."
    ),
    "wrong_password": gettext_noop("This password does not open it. Enter the right one on its page."),
    "protected": gettext_noop(
        "It is protected in a way that cannot be opened here. Remove the protection and upload it again."
    ),
    "damaged": gettext_noop("It is damaged, so it cannot be opened. Upload an intact copy."),
    "bomb": gettext_noop("It unpacks to far more data than a real document has, so it was not opened."),
    "entities": gettext_noop(
        "Its XML defines entities, which documents do not need and attacks use, so it was not opened. "
        "Save it again in the program that wrote it, and upload the new copy."
    ),
    "empty": gettext_noop("There is nothing in it."),
    "wordless": gettext_noop("It has no text, and no pictures that may show text."),
    "too_large": gettext_noop(
        "It holds more than 5,000 pages, 20 million characters or 100 million pixels. Upload it in parts."
    ),
    "no_text": gettext_noop(
        "It has pictures or drawings but no text, like a scan. Run text recognition (OCR) on it, then upload it again."
    ),
    "scan_unread": gettext_noop(
        "It is a scan, and the model that reads scans failed at its pages. Try again in some minutes."
    ),
    "unsupported": gettext_noop(
        "Files of this kind cannot be read. Save it as PDF, DOCX, XLSX, PPTX or plain text and upload that."
    ),
    "unknown_encoding": gettext_noop("There is no such text encoding. Choose another one, or have it detected."),
    "took_too_long": gettext_noop("Reading it takes more than 40 seconds of processor time. Upload it in parts."),
    "too_much_memory": gettext_noop("Reading it takes more than 1 GiB of memory. Upload it in parts."),
    "machine_busy": gettext_noop("The machine was too busy to read it in time. Try again in some minutes."),
    "machine_full": gettext_noop("The machine had no memory left to read it. Try again in some minutes."),
}
# Notes on files that were read only in part. The key is the missing part.
LEFT_OUT = {
    "scans": gettext_noop(
        "{count} of its {pages} pages have no text, like scans. Run text recognition (OCR) on it, then upload it again."
    ),
    "recognised": gettext_noop(
        "The text of {count} of its {pages} pages was recognised on pictures (OCR). It may have errors."
    ),
    "unread": gettext_noop(
        "The model that reads scans failed at {count} of its {pages} pages. Choose “Read again” to repeat them."
    ),
    "layer": gettext_noop(
        "The stored text of {count} of its {pages} pages does not match the picture of the page, so the pages"
        " were recognised again (OCR). The text may have errors."
    ),
    "pictures": gettext_noop("Pictures that were left out: {count}."),
    "attachments": gettext_noop("Attachments that were not read: {count}. Upload them separately."),
    "members": gettext_noop("Files in it that were not read: {count}. The text gives the reason at each."),
    "repeated": gettext_noop(
        "Lines at the top or bottom of pages that repeat earlier pages and were left out: {count}."
    ),
    "unmapped": gettext_noop(
        "{count} of its {pages} pages use fonts that do not state which letters they show. "
        "The text of these pages may be wrong."
    ),
    "converted": gettext_noop("Models and browsers cannot show pictures of this kind, so they get it as JPEG or PNG."),
    "shrunk": gettext_noop("It is shown smaller: its longer edge has {count} pixels."),
    "slides": gettext_noop("{count} of its {pages} slides have no text. The content of their pictures is left out."),
    "hidden": gettext_noop(
        "Parts that the document hides, such as text, rows, sheets or slides: {count}. Their text is marked as hidden."
    ),
    "formats": gettext_noop(
        "Its number formats cannot be read. Numbers are shown as they are stored, such as 0.075 for 7.5%."
    ),
    "copies": gettext_noop(
        "Cells or rows that repeat the previous one more than 100 times: {count}. The repetitions are left out."
    ),
}
# Sentences about unsupported files of known kinds.
KINDS = {
    "doc": gettext_noop(
        "This is a document of a version of Word before Word 97. Save it as DOCX in LibreOffice and upload that."
    ),
    "iwork": gettext_noop(
        "This is a document of Pages, Numbers or Keynote. Export it there as PDF or for Office and upload that."
    ),
    "archive": gettext_noop("This is an archive of files. Unpack it and upload the files in it."),
    "heic": gettext_noop(
        "This is a phone picture (HEIC), which this machine cannot open. Save it as JPEG and upload that."
    ),
    "audio": gettext_noop("This is a sound recording, which cannot be read. Upload a transcript of it as text."),
    "video": gettext_noop(
        "This is a video, which cannot be read. Upload a transcript of it as text, or pictures of it."
    ),
    "program": gettext_noop("This is a program, not a document."),
    "visio": gettext_noop("This is a drawing of Visio. Save it as PDF there and upload that."),
    "xps": gettext_noop("This is an XPS document. Save it as PDF and upload that."),
    "publisher": gettext_noop("This is a document of Publisher. Save it as PDF there and upload that."),
    "powerpoint": gettext_noop(
        "This is a presentation of a version of PowerPoint before PowerPoint 97. Save it as PPTX in LibreOffice and"
        " upload that."
    ),
    "works": gettext_noop(
        "This is a document of Microsoft Works. Save it as DOCX or XLSX in LibreOffice and upload that."
    ),
}


@dataclass(frozen=True, slots=True)
class ReaderSentence:
    """A sentence for users. `template` is in English; `values` has the values of its fields by name."""

    template: str
    values: Mapping[str, int | str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.template.format_map(self.values)


class ReaderError(Exception):
    """The file cannot be read. `code`: a key of `SENTENCES`. `kind`: a key of `KINDS` for some unsupported files."""

    def __init__(self, code: str, kind: str = "") -> None:
        super().__init__(code, kind)
        self.code = code
        self.kind = kind

    @property
    def sentence(self) -> ReaderSentence:
        return ReaderSentence(KINDS[self.kind] if self.kind else SENTENCES[self.code])


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a file, and facts about it.

    * `spans`: the characters [start, end) of each page; an empty span is a page without text. Only PDFs, slides, sheets
      and chapters have pages.
    * `width`, `height`: pixels of an image, which has no text.
    * `encoding`: the encoding of plain text, by Python's name.
    * `left_out`: the numbers of omitted parts, by keys of `LEFT_OUT`.
    * `shown`: a converted file that users and models see instead: a JPEG, a PNG, or a PDF of several pages.
    * `layered`: numbers, from 0, of pages that are pictures but have a text layer.
    * `places`: positions of recognised words, by page number from 0, in the form of `outside.places.packed`.
    """

    media_type: str
    text: str = ""
    spans: list[tuple[int, int]] = field(default_factory=list)
    width: int | None = None
    height: int | None = None
    encoding: str = ""
    left_out: dict[str, int] = field(default_factory=dict)
    shown: bytes = b""
    layered: list[int] = field(default_factory=list)
    places: dict[int, bytes] = field(default_factory=dict)

    @property
    def notes(self) -> list[ReaderSentence]:
        """Return the sentences about parts that are left out or uncertain."""
        pages = len(self.spans)
        return [
            ReaderSentence(LEFT_OUT[part], {"count": count, "pages": pages}) for part, count in self.left_out.items()
        ]

    def page_at(self, position: int) -> int:
        """Return the number, from 1, of the last page that begins at or before this character; 0 without pages."""
        return bisect_right(self.spans, position, key=lambda span: span[0])


def clean_text(text: str) -> str:
    """Return the text with `\\n` as the only line end, without control characters, trailing spaces and blank ends."""
    text = _UNWANTED.sub("", _LINE_ENDS.sub("\n", text))
    return "\n".join([line.rstrip() for line in text.split("\n")]).strip("\n")


def unpaged_result(
    media_type: str, parts: Iterable[str], *, encoding: str = "", left_out: Mapping[str, int] = MappingProxyType({})
) -> Extracted:
    """Return a text without pages from its parts. `left_out` is read last, since reading the parts may fill it.

    Raises `too_large` for too many characters.
    """
    text = clean_text("".join(limit_characters(parts)))
    return Extracted(media_type, text, encoding=encoding, left_out=_nonzero_counts(left_out))


def paged_result(
    media_type: str,
    pages: Iterable[str],
    *,
    without_text: str = "",
    left_out: Mapping[str, int] = MappingProxyType({}),
) -> Extracted:
    """Return a text with pages. `left_out` is read last, as in `unpaged_result`.

    `without_text`: the key of `LEFT_OUT` that counts pages without text; empty to leave them uncounted. Raises
    `too_large` for too many pages or characters.
    """
    texts: list[str] = []
    spans: list[tuple[int, int]] = []
    position = 0
    for page in limit_characters(islice(pages, MAX_PAGES + 1)):
        text = clean_text(page)
        if len(spans) == MAX_PAGES:
            raise ReaderError("too_large")
        spans.append((position, position + len(text)))
        position += len(text) + len(_BETWEEN_PAGES)
        texts.append(text)
    empty = sum(start == end for start, end in spans)
    counts = _nonzero_counts({without_text: empty, **left_out} if without_text else left_out)
    return Extracted(media_type, _BETWEEN_PAGES.join(texts), spans, left_out=counts)


def _nonzero_counts(left_out: Mapping[str, int]) -> dict[str, int]:
    return {part: count for part, count in left_out.items() if count}


def limit_characters(parts: Iterable[str]) -> Iterable[str]:
    """Yield the parts. Raises `too_large` at the first character too many, so that memory use stays bounded."""
    left = MAX_CHARACTERS
    for part in parts:
        left -= len(part)
        if left < 0:
            raise ReaderError("too_large")
        yield part


def encode_result(result: Extracted | ReaderError) -> bytes:
    """Return the result as bytes for `decode_result`. `places` are left out, since a reading process never has them."""
    if isinstance(result, ReaderError):
        return json.dumps({"error": result.code, "kind": result.kind}).encode() + b"\n"
    head = {
        "media_type": result.media_type,
        "spans": result.spans,
        "width": result.width,
        "height": result.height,
        "encoding": result.encoding,
        "left_out": result.left_out,
        "layered": result.layered,
        "bytes": len(result.shown),
    }
    return json.dumps(head).encode() + b"\n" + result.shown + result.text.encode()


def decode_result(data: bytes) -> Extracted:
    """Return the result from the bytes of `encode_result`. Raises the error if a `ReaderError` was encoded."""
    head, _, body = data.partition(b"\n")
    fields = json.loads(head)
    if "error" in fields:
        raise ReaderError(fields["error"], fields["kind"])
    size = fields["bytes"]
    return Extracted(
        media_type=fields["media_type"],
        text=body[size:].decode(),
        spans=[(start, end) for start, end in fields["spans"]],
        width=fields["width"],
        height=fields["height"],
        encoding=fields["encoding"],
        left_out=fields["left_out"],
        shown=body[:size],
        layered=fields["layered"],
    )
