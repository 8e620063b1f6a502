"""Read plain text: Markdown, tables, JSON, code, XML, and formats in ASCII such as RTF.

These formats need no parser. Only their encoding must be detected.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lxml import etree

from readers.formats.archive import safe_parser
from readers.formats.media_types import NOTEBOOK, RTF, SVG
from readers.formats.result import MAX_CHARACTERS, Extracted, ReaderError, unpaged_result
from readers.text import encodings, notebooks, rtf

_DECLARATION = re.compile(rb"^\s*<\?xml[^>]*\?>")  # the decoded text no longer has the declared encoding
_MAX_BYTES = 4 * MAX_CHARACTERS  # no common encoding needs more than 4 bytes for a character


def read(path: Path, media_type: str, encoding: str = "") -> Extracted:
    """Return the text of a file."""
    if media_type == RTF:
        data = path.read_bytes()
        left_out = Counter({"pictures": rtf.count_pictures(data)})
        return unpaged_result(media_type, rtf.rtf_to_markdown(data, left_out), left_out=left_out)
    text, used = decode_file(path, encoding)
    if media_type == NOTEBOOK:
        skipped: Counter[str] = Counter()
        with suppress(ValueError):  # a file that only has the name of a notebook is read as text
            return unpaged_result(
                media_type, notebooks.notebook_to_markdown(text, skipped), encoding=used, left_out=skipped
            )
    if media_type == SVG:
        with suppress(etree.XMLSyntaxError):
            words = list(_drawing_words(text.encode()))
            return unpaged_result(media_type, words or [text], encoding=used)
    return unpaged_result(media_type, [text], encoding=used)


def _drawing_words(source: bytes) -> Iterator[str]:
    tree = etree.fromstring(_DECLARATION.sub(b"", source), safe_parser())
    for each in tree.iter("{*}title", "{*}desc", "{*}text"):
        if words := " ".join("".join(map(str, each.itertext())).split()):
            yield f"{words}\n"


def decode_file(path: Path, encoding: str = "") -> tuple[str, str]:
    """Return the text and its encoding. Raises `too_large`, `unknown_encoding`."""
    if path.stat().st_size > _MAX_BYTES:
        raise ReaderError("too_large")
    try:
        return encodings.decode(path.read_bytes(), encoding)
    except LookupError as error:
        raise ReaderError("unknown_encoding") from error
