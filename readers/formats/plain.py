"""Read plain text: Markdown, tables, JSON, code, XML, and formats in ASCII such as RTF.

Only the encoding is unknown.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lxml import etree

from readers.formats.archive import parser
from readers.formats.media_types import NOTEBOOK, RTF, SVG
from readers.formats.result import MAX_CHARACTERS, Extracted, ReaderError, whole
from readers.text import encodings, notebooks, rtf

_DECLARATION = re.compile(rb"^\s*<\?xml[^>]*\?>")  # the decoded text no longer has the declared encoding
_MAX_BYTES = 4 * MAX_CHARACTERS  # no common encoding needs more than 4 bytes for a character


def read(path: Path, media_type: str, encoding: str = "") -> Extracted:
    """Return the text of a file."""
    if media_type == RTF:
        data = path.read_bytes()
        left_out = Counter({"pictures": rtf.pictures_in(data)})
        return whole(media_type, rtf.text_of(data, left_out), left_out=left_out)
    text, used = decoded(path, encoding)
    if media_type == NOTEBOOK:
        skipped: Counter[str] = Counter()
        with suppress(ValueError):  # a file that is a notebook by name only is read as text
            return whole(media_type, notebooks.parts(text, skipped), encoding=used, left_out=skipped)
    if media_type == SVG:
        with suppress(etree.XMLSyntaxError):
            words = list(_words_of_a_drawing(text.encode()))
            return whole(media_type, words or [text], encoding=used)
    return whole(media_type, [text], encoding=used)


def _words_of_a_drawing(source: bytes) -> Iterator[str]:
    tree = etree.fromstring(_DECLARATION.sub(b"", source), parser())
    for each in tree.iter("{*}title", "{*}desc", "{*}text"):
        if words := " ".join("".join(map(str, each.itertext())).split()):
            yield f"{words}\n"


def decoded(path: Path, encoding: str = "") -> tuple[str, str]:
    """Return the text and its encoding. Raises `too_large`, `unknown_encoding`."""
    if path.stat().st_size > _MAX_BYTES:
        raise ReaderError("too_large")
    try:
        return encodings.decoded(path.read_bytes(), encoding)
    except LookupError as error:
        raise ReaderError("unknown_encoding") from error
