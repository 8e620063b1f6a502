"""Read messages of Outlook (MS-OXMSG), which store their properties as streams of a compound file."""

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import olefile

from readers.formats.result import Extracted, ReaderError, limit_characters, unpaged_result
from readers.nested import closed
from readers.nested.dispatch import NestedReader
from readers.text import rtf
from readers.text.html import html_to_markdown

# Types of properties.
_TEXT = "001F"
_BYTES = "0102"
_OLD_TEXT = "001E"
_EMBEDDED = "000D"
_SUBJECT = "0037"
_FROM = "0C1A"
_ADDRESS = "5D01"
_TO = "0E04"
_COPY = "0E03"
_BODY = "1000"
_HTML = "1013"
_RTF = "1009"
_NAME = "3707"
_SHORT_NAME = "3704"
_DATA = "3701"
_SENT = b"\x40\x00\x39\x00"  # the time of sending, a property of fixed size
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_MAX_DEPTH = 4  # nested messages
_PACKED = b"LZFu"
_MAX_UNPACKED = 50_000_000  # bytes per body
# The initial dictionary of packed bodies (MS-OXRTFCP, section 2.1.3.1.5). The bodies do not contain it.
_DICTIONARY = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor "
    b"MS Sans SerifSymbolArialTimes New RomanCourier"
    b"{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)


def read(path: Path, media_type: str, inner: NestedReader) -> Extracted:
    """Return the main headers, the text, and the attachments that can be read."""
    left_out: Counter[str] = Counter()
    try:
        with olefile.OleFileIO(path.read_bytes()) as file:
            return unpaged_result(
                media_type, limit_characters(_message(_Storage(file, ()), inner, left_out, 0)), left_out=left_out
            )
    except (OSError, struct.error, IndexError) as error:  # errors of olefile for a damaged file
        raise ReaderError("damaged") from error


class _Storage:
    """A folder of a compound file: a message or an attachment."""

    def __init__(self, file: Any, place: tuple[str, ...]) -> None:
        self._file = file
        self.place = place

    def bytes(self, number: str, kind: str) -> bytes:
        name = [*self.place, f"__substg1.0_{number}{kind}"]
        return bytes(self._file.openstream(name).read()) if self._file.exists("/".join(name)) else b""

    def text(self, number: str) -> str:
        if data := self.bytes(number, _TEXT):
            return data.decode("utf-16-le", "replace").rstrip("\0")
        return self.bytes(number, _OLD_TEXT).decode("cp1252", "replace").rstrip("\0")

    def sent(self) -> str:
        name = "/".join((*self.place, "__properties_version1.0"))
        data = bytes(self._file.openstream(name).read()) if self._file.exists(name) else b""
        at = data.find(_SENT)
        if at < 0 or len(data) < at + 16:
            return ""
        with suppress(OverflowError):
            ticks = int.from_bytes(data[at + 8 : at + 16], "little")
            return (_EPOCH + timedelta(microseconds=ticks // 10)).strftime("%Y-%m-%d %H:%M UTC")
        return ""

    def attachments(self) -> "list[_Storage]":
        depth = len(self.place)
        names = {
            entry[depth]
            for entry in self._file.listdir()
            if tuple(entry[:depth]) == self.place
            and len(entry) > depth
            and entry[depth].startswith("__attach_version1")
        }
        return [_Storage(self._file, (*self.place, name)) for name in sorted(names)]

    def embedded(self) -> "_Storage | None":
        """Return the message that this attachment contains, or None."""
        inner = (*self.place, f"__substg1.0_{_DATA}{_EMBEDDED}")
        return _Storage(self._file, inner) if self._file.exists("/".join(inner)) else None


def _message(message: _Storage, inner: NestedReader, left_out: Counter[str], depth: int) -> Iterator[str]:
    sender = message.text(_FROM)
    address = message.text(_ADDRESS)
    by = f"{sender} <{address}>" if sender and "@" in address and address != sender else sender or address
    headers = (("From", by), ("To", message.text(_TO)), ("Cc", message.text(_COPY)), ("Date", message.sent()))
    for name, value in (*headers, ("Subject", message.text(_SUBJECT))):
        if value := " ".join(value.split()):
            yield f"{name}: {value}\n"
    yield "\n"
    yield from _body(message)
    for each in message.attachments() if depth < _MAX_DEPTH else ():
        name = each.text(_NAME) or each.text(_SHORT_NAME) or "attachment"
        if (embedded := each.embedded()) is not None:
            yield f"\n\nAttachment {name}:\n\n"
            yield from _message(embedded, inner, left_out, depth + 1)
        else:
            yield from attachment(each.bytes(_DATA, _BYTES), name, inner, left_out)


def _body(message: _Storage) -> Iterator[str]:
    """Yield the plain text of a message, else the text of its HTML, else the text of its RTF, which Outlook writes."""
    if text := message.text(_BODY):
        yield text
    elif source := message.bytes(_HTML, _BYTES):
        yield from html_to_markdown(source.decode("utf-8", "replace"), links=False)
    elif packed := message.bytes(_RTF, _BYTES):
        yield from rtf.rtf_to_markdown(decompress_rtf(packed))


def attachment(content: bytes, name: str, inner: NestedReader, left_out: Counter[str]) -> Iterator[str]:
    """Yield the text of an attachment below its name. An unreadable one is named and counted in `left_out`."""
    try:
        extracted = inner.read(content, name)
    except ReaderError as error:
        if error.code == "bomb":
            raise
        left_out["attachments"] += error.code not in closed.CODES  # `closed_names` finds these
        yield f"\n\nAttachment {name}: [Not read: {error.sentence}]"
        return
    if extracted.width is not None:
        left_out["pictures"] += 1
        yield f"\n\nAttachment {name}: [Picture]"
    else:
        yield f"\n\nAttachment {name}:\n\n{extracted.text}"


def decompress_rtf(data: bytes) -> bytes:
    """Unpack a body in RTF (MS-OXRTFCP). A damaged body is read up to the damage."""
    if data[8:12] != _PACKED:
        return data[16:]
    out = bytearray(_DICTIONARY)
    at = 16
    while at < len(data) and len(out) < _MAX_UNPACKED:
        control = data[at]
        at += 1
        for bit in range(8):
            if not control >> bit & 1:
                out += data[at : at + 1]
                at += 1
            elif at + 1 < len(data):
                reference = int.from_bytes(data[at : at + 2], "big")
                at += 2
                place = _place(len(out), reference >> 4)
                if place < 0:  # the end mark, or an invalid reference
                    return bytes(out[len(_DICTIONARY) :])
                for each in range((reference & 15) + 2):
                    out.append(out[place + each])
    return bytes(out[len(_DICTIONARY) :])


def _place(end: int, offset: int) -> int:
    """Return the place in the output for an offset in the window of 4,096 bytes, or -1 if it is not written yet."""
    place = end - end % 4_096 + offset
    return place if place < end else max(place - 4_096, -1) if place > end else -1
