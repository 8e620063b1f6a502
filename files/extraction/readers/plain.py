"""Text as it is: Markdown, tables, JSON, code, XML. Only its encoding has to be found."""

import codecs
from pathlib import Path

from charset_normalizer import from_bytes

from files.extraction.readers.result import MAX_CHARACTERS, Extracted, ExtractionError, whole

_MAX_BYTES = 4 * MAX_CHARACTERS  # no encoding in use takes more for a character
_SAMPLE = 65_536
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read(path: Path, media_type: str) -> Extracted:
    return whole(media_type, [decoded(path)])


def decoded(path: Path) -> str:
    if path.stat().st_size > _MAX_BYTES:
        raise ExtractionError("too_large")
    data = path.read_bytes()
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        sample = data if len(data) <= _SAMPLE else data[:_SAMPLE].rpartition(b"\n")[0] or data[:_SAMPLE]
        best = from_bytes(sample).best()
        return data.decode(best.encoding if best else "cp1252", "replace")


def marked(head: bytes) -> bool:
    """Whether the bytes begin with the mark of a Unicode encoding."""
    return any(head.startswith(mark) for mark, _ in _MARKS)
