"""The uploaded file as a list of what is in it, one conversation at a time. It may be anything, so everything has a
limit, and what is wrong with it is said in a sentence."""

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from core.errors import ProductError

MAX_JSON = 200_000_000  # bytes of the conversations, unpacked
MAX_ENTRIES = 100_000  # files in a zip
MAX_CONVERSATIONS = 100_000
WANTED = re.compile(r"(.*/)?conversations(-\d+)?\.json")  # large exports come in several
PIECE = 1024 * 1024  # bytes


def rows(upload: IO[bytes]) -> Iterator[tuple[Any, int]]:
    """What the lists in the export hold, unchecked, each with how many percent of the export were read with it.

    Raises `not_an_export`, `export_too_large`, `damaged_export`.
    """
    contents = _contents(upload)
    for number in range(len(contents)):
        text = _decoded(contents[number])
        contents[number] = b""  # half of the memory
        for row, share in _entries(text):
            yield row, int(100 * (number + share) / len(contents))


def _entries(text: str) -> Iterator[tuple[Any, float]]:
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise not_an_export()
    at = _skip(text, at + 1)
    count = 0
    while text[at : at + 1] != "]":
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise _damaged() from error
        count += 1
        if count > MAX_CONVERSATIONS:
            raise ProductError("export_too_large", f"An export has at most {MAX_CONVERSATIONS:,} conversations.")
        yield row, at / len(text)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _damaged()


def _contents(upload: IO[bytes]) -> list[bytes]:
    if not zipfile.is_zipfile(upload):
        upload.seek(0)
        return [_limited(upload, MAX_JSON)]
    upload.seek(0)
    try:
        with zipfile.ZipFile(upload) as archive:
            found = [each for each in archive.infolist() if WANTED.fullmatch(each.filename)]
            if len(archive.infolist()) > MAX_ENTRIES or not found:
                raise not_an_export()
            contents, left = [], MAX_JSON
            for each in sorted(found, key=lambda entry: entry.filename):
                with archive.open(each) as member:
                    contents.append(_limited(member, left))
                left -= len(contents[-1])
            return contents
    # zipfile raises these for passwords, unknown methods and nonsense inside.
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error) as error:
        raise _damaged() from error


def _limited(stream: IO[bytes], most: int) -> bytes:
    """All of it. What a zip says about its sizes is not believed: it is counted while it is unpacked."""
    pieces, size = [], 0
    while piece := stream.read(PIECE):
        size += len(piece)
        if size > most:
            raise ProductError(
                "export_too_large",
                f"Its conversations are larger than {MAX_JSON // 1_000_000} MB unpacked, which is the most.",
            )
        pieces.append(piece)
    return b"".join(pieces)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_an_export() from error


_SPACE = " \t\n\r"


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def not_an_export() -> ProductError:
    return ProductError(
        "not_an_export",
        "This is not an export of ChatGPT or Claude. Upload the zip they sent you, or the conversations.json in it.",
    )


def _damaged() -> ProductError:
    return ProductError(
        "damaged_export", "The file is damaged: it ends or breaks off in the middle. Download it again."
    )
