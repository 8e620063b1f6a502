"""Presentations of PowerPoint 97 to 2003 (MS-PPT): records in records, of which a list says where each slide is."""

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import olefile

from files.extraction.readers.result import Extracted, ExtractionError, paged
from files.extraction.text.tables import Cell, markdown

_CONTAINER = 0xF  # the version of a record that holds others
_OF_SLIDE, _LIST, _ENTRY = 1009, 4080, 1011
_HEADER, _TEXT, _BYTES, _REFERENCE, _SHAPES = 3999, 4000, 4008, 3998, 0xF00D
_EDIT, _DIRECTORY = 4085, 6002
_GROUP, _SHAPE, _PLACE, _MORE_PROPERTIES = 0xF003, 0xF004, 0xF00F, 0xF122  # of drawings (MS-ODRAW)
_TABLE = 0x039F  # the property of a group that is one
_OF_SLIDES, _OF_NOTES = 0, 2  # lists, by the record's instance
_TITLES, _BODIES, _REMARKS = (0, 6), (1, 5, 7, 8), 2  # kinds of text
_ENCRYPTED = 0xF3D1C4DF  # what stands before the place of the newest saving then
_EDITS = 1_000  # savings of one file that are looked through
_DEEPEST = 20  # records in records
_SIGNS = str.maketrans({"\x0b": " ", "\r": "\n", "\x07": ""})


class Record(NamedTuple):
    kind: int
    instance: int
    start: int
    end: int
    holds: bool


class _Text(NamedTuple):
    kind: int
    text: str


def read(path: Path, media_type: str) -> Extracted:
    """A page a slide. Raises `damaged`, and `encrypted`."""
    try:
        with olefile.OleFileIO(path.read_bytes()) as file:
            token, newest = struct.unpack_from("<2I", file.openstream("Current User").read(), 12)
            if token == _ENCRYPTED:
                raise ExtractionError("encrypted")
            content = file.openstream("PowerPoint Document").read()
        return paged(media_type, _Deck(content, newest).slides(), without_text="slides")
    except (OSError, struct.error, IndexError, ValueError) as error:  # what olefile and a damaged file raise
        raise ExtractionError("damaged") from error


class Records:
    """What a stream holds, wherever it stands in it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def texts(self, record: Record, outline: list[_Text] | tuple[()] = (), depth: int = 0) -> Iterator[_Text]:
        """Of all shapes, in their order; a reference stands for a text of the outline, a table is one text."""
        kind = -1
        for each in self._inside(record):
            if each.kind == _HEADER:
                (kind,) = struct.unpack_from("<I", self._content, each.start)
            elif each.kind in (_TEXT, _BYTES):
                yield _Text(kind, self._said(each))
            elif each.kind == _REFERENCE:
                (number,) = struct.unpack_from("<I", self._content, each.start)
                if number < len(outline):
                    yield outline[number]
            elif each.kind == _GROUP and self._is_table(each):
                yield _Text(-1, self._table(each))
            elif (each.holds or each.kind == _SHAPES) and depth < _DEEPEST:
                yield from self.texts(each, outline, depth + 1)

    def _is_table(self, group: Record) -> bool:
        """Its own properties stand in the first shape of a group."""
        first = next((each for each in self._inside(group) if each.kind == _SHAPE), None)
        for each in self._inside(first) if first else ():
            if each.kind == _MORE_PROPERTIES:
                for at in range(each.start, min(each.start + 6 * each.instance, each.end - 5), 6):
                    name, value = struct.unpack_from("<HI", self._content, at)
                    if name == _TABLE:
                        return bool(value & 1)
        return False

    def _table(self, group: Record) -> str:
        """Its cells are shapes that touch: the edges say in which column and row each begins and ends."""
        cells = sorted(self._cells(group))
        tops, lefts = sorted({cell[0] for cell in cells}), sorted({cell[1] for cell in cells})
        rows: defaultdict[int, list[Cell]] = defaultdict(list)
        for top, left, bottom, right, text in cells:
            columns = bisect_left(lefts, right) - bisect_left(lefts, left)
            rows[top].append(Cell(text, columns, bisect_left(tops, bottom) - bisect_left(tops, top)))
        return markdown(rows.values()).strip()

    def _cells(self, group: Record) -> Iterator[tuple[int, int, int, int, str]]:
        for shape in self._inside(group):
            parts = {each.kind: each for each in self._inside(shape)} if shape.kind == _SHAPE else {}
            if _SHAPES in parts and _PLACE in parts:
                left, top, right, bottom = struct.unpack_from("<4i", self._content, parts[_PLACE].start)
                yield top, left, bottom, right, " ".join(text for _, text in self.texts(parts[_SHAPES]))

    def _said(self, record: Record) -> str:
        content = self._content[record.start : record.end]
        return content.decode("utf-16-le" if record.kind == _TEXT else "cp1252", "replace").translate(_SIGNS).strip()

    def _inside(self, record: Record) -> Iterator[Record]:
        at = record.start
        while at + 8 <= record.end:
            each = self._record(at)
            yield each
            at = each.end

    def _record(self, at: int) -> Record:
        head, kind, size = struct.unpack_from("<HHI", self._content, at)
        return Record(kind, head >> 4, at + 8, min(at + 8 + size, len(self._content)), head & 0xF == _CONTAINER)


class _Deck(Records):
    def __init__(self, content: bytes, newest: int) -> None:
        super().__init__(content)
        self._places, document = self._directory(newest)
        self._document = self._record(self._places[document])

    def slides(self) -> Iterator[str]:
        notes = {each[0]: each for each in self._listed(_OF_NOTES)}
        of_slide: dict[int, list[_Text]] = {}
        for number, _, _ in notes.values():
            if number in self._places:
                record = self._record(self._places[number])
                atom = next((each for each in self._inside(record) if each.kind == _OF_SLIDE), None)
                if atom:
                    (slide,) = struct.unpack_from("<I", self._content, atom.start)
                    of_slide[slide] = [text for text in self.texts(record) if text.kind == _REMARKS]
        for number, slide, outline in self._listed(_OF_SLIDES):
            own = list(self.texts(self._record(self._places[number]), outline)) if number in self._places else outline
            yield _markdown(own, of_slide.get(slide, []))

    def _listed(self, instance: int) -> Iterator[tuple[int, int, list[_Text]]]:
        """Of each slide its number in the directory, its id, and the texts of its outline."""
        for record in self._inside(self._document):
            if record.kind == _LIST and record.instance == instance:
                entries: list[tuple[int, int, list[_Text]]] = []
                kind = -1
                for each in self._inside(record):
                    if each.kind == _ENTRY:
                        number, _, _, slide = struct.unpack_from("<4I", self._content, each.start)
                        entries.append((number, slide, []))
                    elif each.kind == _HEADER:
                        (kind,) = struct.unpack_from("<I", self._content, each.start)
                    elif each.kind in (_TEXT, _BYTES) and entries:
                        entries[-1][2].append(_Text(kind, self._said(each)))
                yield from entries

    def _directory(self, newest: int) -> tuple[dict[int, int], int]:
        """Where each numbered record is, as it was saved last, and the number of the document."""
        places: dict[int, int] = {}
        document = 0
        for _ in range(_EDITS):
            edit = self._record(newest)
            if edit.kind != _EDIT:
                break
            before, directory, number = struct.unpack_from("<3I", self._content, edit.start + 8)
            document = document or number
            listing = self._record(directory)
            at = listing.start
            while listing.kind == _DIRECTORY and at + 4 <= listing.end:
                (head,) = struct.unpack_from("<I", self._content, at)
                first, count = head & 0xFFFFF, head >> 20
                for offset, place in enumerate(struct.unpack_from(f"<{count}I", self._content, at + 4)):
                    places.setdefault(first + offset, place)
                at += 4 + 4 * count
            if not before or before >= newest:
                break
            newest = before
        if document not in places:
            raise ExtractionError("damaged")
        return places, document


def _markdown(texts: list[_Text], notes: list[_Text]) -> str:
    found: defaultdict[bool, list[str]] = defaultdict(list)
    for kind, text in texts:
        if kind in _TITLES and text:
            found[True].append("# " + " ".join(text.split()))
        elif kind in _BODIES:
            found[False].append("\n".join(f"- {line}" for line in text.split("\n") if line.strip()))
        else:
            found[False].append(text)
    said = "\n\n".join(filter(None, (*found[True], *found[False])))
    remarks = "\n".join(text for _, text in notes if text)
    return f"{said}\n\nNotes:\n\n{remarks}" if remarks else said
