"""Text as it is: Markdown, tables, JSON, code, XML. Only its encoding has to be found."""

from pathlib import Path

from files.extraction.readers.result import MAX_CHARACTERS, Extracted, ExtractionError, whole
from files.extraction.text import encodings

_MAX_BYTES = 4 * MAX_CHARACTERS  # no encoding in use takes more for a character


def read(path: Path, media_type: str, encoding: str = "") -> Extracted:
    text, used = decoded(path, encoding)
    return whole(media_type, [text], encoding=used)


def decoded(path: Path, encoding: str = "") -> tuple[str, str]:
    """The text, and the encoding it was in. Raises `too_large`, `unknown_encoding`."""
    if path.stat().st_size > _MAX_BYTES:
        raise ExtractionError("too_large")
    try:
        return encodings.decoded(path.read_bytes(), encoding)
    except LookupError as error:
        raise ExtractionError("unknown_encoding") from error
