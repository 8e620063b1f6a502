"""Make files of old Office programs, byte by byte: no program that writes them is a package of the tests."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SECTOR = 512
_SHORTEST = 4_096
_FREE, _END, _FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_NONE = 0xFFFFFFFF


def compound(streams: Mapping[str, bytes]) -> bytes:
    """Return a compound file (MS-CFB) with these streams. A name such as `a/b` is a stream in a storage.

    Streams have 4,096 bytes at least, since shorter ones are stored otherwise.
    """
    names = ["", *sorted({part for name in streams for part in _storages(name)}), *streams]
    sectors: list[bytes] = []
    chains: dict[str, tuple[int, int]] = {}
    table: list[int] = []
    for name, short in streams.items():
        content = short.ljust(_SHORTEST, b"\0")
        blocks = [content[at : at + _SECTOR].ljust(_SECTOR, b"\0") for at in range(0, len(content), _SECTOR)]
        chains[name] = (len(sectors), len(content))
        table += [*(len(sectors) + number + 1 for number in range(len(blocks) - 1)), _END]
        sectors += blocks
    entries = b"".join(_entry(name, names, streams, chains) for name in names)
    first = len(sectors)
    blocks = [entries[at : at + _SECTOR].ljust(_SECTOR, b"\0") for at in range(0, len(entries), _SECTOR)]
    table += [*(first + number + 1 for number in range(len(blocks) - 1)), _END]
    sectors += blocks
    fats = 1
    while (len(table) + fats) * 4 > fats * _SECTOR:
        fats += 1
    places = list(range(len(sectors), len(sectors) + fats))
    table += [_FAT] * fats
    table += [_FREE] * (fats * _SECTOR // 4 - len(table))
    packed = struct.pack(f"<{len(table)}I", *table)
    head = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16) + struct.pack("<5H6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<9I", 0, fats, first, 0, 0, _END, 0, _END, 0)
    return head + struct.pack("<109I", *places, *[_FREE] * (109 - fats)) + b"".join(sectors) + packed


def _storages(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def _entry(
    name: str, names: Sequence[str], streams: Mapping[str, bytes], chains: Mapping[str, tuple[int, int]]
) -> bytes:
    """Return the entry of a directory. Its siblings are a chain to the right, in the order of the standard."""

    def inside(folder: str) -> list[str]:
        kids = [each for each in names if each and each.rpartition("/")[0] == folder]
        return sorted(kids, key=lambda each: (len(each.rpartition("/")[2]), each.rpartition("/")[2].upper()))

    last = name.rpartition("/")[2] or "Root Entry"
    kind = 5 if not name else 2 if name in streams else 1
    siblings = inside(name.rpartition("/")[0]) if name else []
    after = siblings[siblings.index(name) + 1 :] if name else []
    kids = inside(name) if kind != 2 else []
    place = [names.index(each[0]) if each else _NONE for each in (after, kids)]
    start, size = chains.get(name, (_END, 0))
    written = last.encode("utf-16-le")
    entry = written.ljust(64, b"\0") + struct.pack("<HBB3I", len(written) + 2, kind, 1, _NONE, *place)
    return entry + bytes(36) + struct.pack("<IQ", start, size)


@dataclass(frozen=True)
class OldSheet:
    """A sheet of a workbook of Excel 97. `cells`: values by row and column, from 0, each with its number format."""

    name: str
    cells: Mapping[tuple[int, int], tuple[float | str, str]]
    state: int = 0
    hidden_rows: Sequence[int] = ()
    hidden_columns: Sequence[int] = ()
    comments: Mapping[tuple[int, int], tuple[str, str]] = field(default_factory=dict)


def workbook(*sheets: OldSheet) -> bytes:
    """Return the stream of a workbook (MS-XLS, BIFF8)."""
    codes = list(dict.fromkeys(code for sheet in sheets for _, code in sheet.cells.values()))
    head = _bof(5) + _record(0x42, struct.pack("<H", 1200)) + b"".join(_font() for _ in range(5))
    for number, code in enumerate(codes, 164):
        head += _record(0x41E, struct.pack("<H", number) + _text(code))
    head += b"".join(_record(0xE0, struct.pack("<2H16x", 0, number)) for number in (0, *range(164, 164 + len(codes))))
    listed = sum(4 + 8 + len(sheet.name) for sheet in sheets)
    at = len(head) + listed + 4
    bodies = [_sheet(sheet, codes) for sheet in sheets]
    for sheet, body in zip(sheets, bodies, strict=True):
        name = sheet.name.encode("latin-1")
        head += _record(0x85, struct.pack("<IBBBB", at, sheet.state, 0, len(name), 0) + name)
        at += len(body)
    return head + _record(0x0A, b"") + b"".join(bodies)


def _record(kind: int, data: bytes) -> bytes:
    return struct.pack("<2H", kind, len(data)) + data


def _bof(kind: int) -> bytes:
    return _record(0x809, struct.pack("<4H2I", 0x600, kind, 0, 1997, 0, 6))


def _font() -> bytes:
    return _record(0x31, struct.pack("<5H4B", 200, 0, 0x7FFF, 400, 0, 0, 0, 0, 0) + bytes([5, 0]) + b"Arial")


def _text(text: str) -> bytes:
    return struct.pack("<HB", len(text), 1) + text.encode("utf-16-le")


def _sheet(sheet: OldSheet, codes: Sequence[str]) -> bytes:
    body = _bof(0x10)
    for column in sheet.hidden_columns:
        body += _record(0x7D, struct.pack("<6H", column, column, 2_000, 0, 1, 0))
    for row in sorted({row for row, _ in sheet.cells}):
        body += _record(0x208, struct.pack("<6HI", row, 0, 256, 255, 0, 0, 0x20 * (row in sheet.hidden_rows)))
    for (row, column), (value, code) in sorted(sheet.cells.items()):
        place = struct.pack("<3H", row, column, codes.index(code) + 1)
        if isinstance(value, str):
            body += _record(0x204, place + _text(value))
        else:
            body += _record(0x203, place + struct.pack("<d", value))
    for number, ((row, column), (author, text)) in enumerate(sheet.comments.items(), 1):
        body += _record(0x5D, struct.pack("<5H12x", 0x15, 18, 0x19, number, 0) + bytes(4))
        body += _record(0x1B6, struct.pack("<2H6x3HI", 0, 0, len(text), 16, 0, 0)[:18])
        body += _record(0x3C, b"\0" + text.encode("latin-1")) + _record(0x3C, bytes(16))
        body += _record(0x1C, struct.pack("<4H", row, column, 0, number) + _text(author) + b"\0")
    return body + _record(0x0A, b"")


DELETED, HIDDEN = 0x0800, 0x083C  # properties of characters


def document(*runs: tuple[str, int]) -> dict[str, bytes]:
    """Return the streams of a document of Word 97 whose runs of text each have a property, or 0 for none."""
    text = "".join(words for words, _ in runs)
    place = 0x600
    page = bytearray(512)
    places = [place]
    for words, _ in runs:
        places.append(places[-1] + 2 * len(words))
    struct.pack_into(f"<{len(places)}I", page, 0, *places)
    for number, (_, name) in enumerate(runs):
        if name:
            at = 480 - 8 * number
            page[4 * len(places) + number] = at // 2
            page[at : at + 4] = struct.pack("<BHB", 3, name, 1)
    page[-1] = len(runs)
    content = bytearray(place) + text.encode("utf-16-le")
    content = content.ljust(0x1000, b"\0")
    content[0x800 + 0x600 : 0x1000] = page
    table = struct.pack("<3I", places[0], places[-1], (0x800 + 0x600) // 512)
    pieces = struct.pack("<BI2I2xI2x", 2, 16, 0, len(text), place)
    struct.pack_into("<2H6xH", content, 0, 0xA5EC, 0xC1, 0)
    struct.pack_into("<I", content, 0x4C, len(text))
    struct.pack_into("<2I", content, 0xFA, 0, len(table))
    struct.pack_into("<2I", content, 0x1A2, len(table), len(pieces))
    return {"WordDocument": bytes(content), "0Table": table + pieces}
