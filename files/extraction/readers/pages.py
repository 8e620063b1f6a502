"""Puts the text of pages together, within the limits, so that PostgreSQL can store it."""

import re
from collections.abc import Iterable
from itertools import islice

from files.extraction.readers.result import Extracted, ExtractionError

MAX_PAGES = 5_000
MAX_CHARACTERS = 20_000_000
_BETWEEN_PAGES = "\n\n"

_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# NUL and lone surrogates are what PostgreSQL refuses; the other control characters mean nothing in text.
_UNWANTED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


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
