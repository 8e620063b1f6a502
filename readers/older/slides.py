"""Presentations of PowerPoint 97 to 2003 (MS-PPT): records in records, of which a list says where each slide is."""

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import olefile

from readers.formats.result import Extracted, ReaderError, paged
from readers.older.paragraphs import lines
from readers.text.tables import Cell, markdown

_CONTAINER = 0xF  # the version of a record that holds others
_OF_SLIDE, _LIST, _ENTRY = 1009, 4080, 1011
_HEADER, _TEXT, _BYTES, _REFERENCE, _SAID = 3999, 4000, 4008, 3998, 0xF00D
_STYLE, _NUMBERS = 4001, 4012  # how the paragraphs before are listed, and the numbers of these
_TAGS = (5000, 5002, 5003)  # in which what came with later versions stands
_OF_SHAPE, _OF_DOCUMENT = (0xF011, *_TAGS, _NUMBERS), (2000, *_TAGS, 4014)  # where the numbers are
_NUMBERS_OF = 4015  # which text of an outline they are for
_EDIT, _DIRECTORY = 4085, 6002
_GROUP, _SHAPE, _PLACE, _MORE_PROPERTIES = 0xF003, 0xF004, 0xF00F, 0xF122  # of drawings (MS-ODRAW)
_TABLE = 0x039F  # the property of a group that is one
_TABLE_TEXT = -1  # a kind of our own: Markdown already
_OF_SLIDES, _OF_NOTES = 0, 2  # lists, by the record's instance
_TITLES, _BODIES, _REMARKS = (0, 6), (1, 7, 8), 2  # kinds of text; a subtitle's is 5
_ENCRYPTED = 0xF3D1C4DF  # what stands before the place of the newest saving then
_EDITS = 1_000  # savings of one file that are looked through
_DEEPEST = 20  # records in records


class Record(NamedTuple):
    kind: int
    instance: int
    start: int
    end: int
    holds: bool


class Text(NamedTuple):
    """`said` has a return between its paragraphs, of which `style` and `numbers` say how they are listed."""

    kind: int
    said: str = ""
    style: bytes = b""
    numbers: bytes = b""

    def lines(self) -> list[str]:
        if self.kind == _TABLE_TEXT:
            return [self.said]
        return lines(self.said, self.style, self.numbers, bulleted=self.kind in _BODIES)


def read(path: Path, media_type: str) -> Extracted:
    """A page a slide. Raises `damaged`, and `encrypted`."""
    try:
        with olefile.OleFileIO(path.read_bytes()) as file:
            token, newest = struct.unpack_from("<2I", file.openstream("Current User").read(), 12)
            if token == _ENCRYPTED:
                raise ReaderError("encrypted")
            content = file.openstream("PowerPoint Document").read()
        return paged(media_type, Deck(content, newest).slides(), without_text="slides")
    except (OSError, struct.error, IndexError, ValueError) as error:  # what olefile and a damaged file raise
        raise ReaderError("damaged") from error


class Records:
    """What a stream holds, wherever it stands in it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def texts(
        self, record: Record, outline: list[Text] | tuple[()] = (), depth: int = 0, numbers: bytes = b""
    ) -> Iterator[Text]:
        """Of all shapes, in their order; a reference stands for a text of the outline, a table is one text."""
        for each in self._inside(record):
            if each.kind == _SAID:
                yield from self._said(self._inside(each), numbers, outline)
            elif each.kind == _GROUP and self._is_table(each):
                yield Text(_TABLE_TEXT, self._table(each))
            elif each.holds and depth < _DEEPEST:
                own = self._found(each, *_OF_SHAPE) if each.kind == _SHAPE else ()
                yield from self.texts(each, outline, depth + 1, next(map(self._bytes, own), b""))

    def _said(
        self, records: Iterable[Record], numbers: bytes = b"", outline: list[Text] | tuple[()] = ()
    ) -> list[Text]:
        """A header begins a text, which may be empty, and its style stands behind it."""
        found: list[Text] = []
        for each in records:
            content = self._bytes(each)
            if each.kind == _HEADER:
                (kind,) = struct.unpack_from("<I", content)
                found.append(Text(kind, numbers=numbers))
            elif each.kind == _REFERENCE:
                (number,) = struct.unpack_from("<I", content)
                found += outline[number : number + 1]
            elif found and each.kind in (_TEXT, _BYTES):
                said = content.decode("utf-16-le" if each.kind == _TEXT else "cp1252", "replace")
                found[-1] = found[-1]._replace(said=said)
            elif found and each.kind == _STYLE:
                found[-1] = found[-1]._replace(style=content)
        return found

    def _found(self, record: Record, *kinds: int) -> Iterator[Record]:
        """What is in it by these kinds of records, each in the one before."""
        for each in self._inside(record):
            if each.kind == kinds[0]:
                yield from self._found(each, *kinds[1:]) if kinds[1:] else [each]

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
            if _SAID in parts and _PLACE in parts:
                left, top, right, bottom = struct.unpack_from("<4i", self._content, parts[_PLACE].start)
                texts = self._said(self._inside(parts[_SAID]))
                yield top, left, bottom, right, " ".join(line for text in texts for line in text.lines())

    def _bytes(self, record: Record) -> bytes:
        return self._content[record.start : record.end]

    def _inside(self, record: Record) -> Iterator[Record]:
        at = record.start
        while at + 8 <= record.end:
            each = self._record(at)
            yield each
            at = each.end

    def _record(self, at: int) -> Record:
        head, kind, size = struct.unpack_from("<HHI", self._content, at)
        return Record(kind, head >> 4, at + 8, min(at + 8 + size, len(self._content)), head & 0xF == _CONTAINER)


class Deck(Records):
    """A presentation; `newest` is where its last saving stands. Raises `damaged`."""

    def __init__(self, content: bytes, newest: int) -> None:
        super().__init__(content)
        self._places, document = self._directory(newest)
        self._document = self._record(self._places[document])

    def slides(self) -> Iterator[str]:
        notes = {each[0]: each for each in self._listed(_OF_NOTES)}
        of_slide: dict[int, list[Text]] = {}
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

    def _listed(self, instance: int) -> Iterator[tuple[int, int, list[Text]]]:
        """Of each slide its number in the directory, its id, and the texts of its outline."""
        numbers = dict(self._numbers())
        for record in self._inside(self._document):
            if record.kind == _LIST and record.instance == instance:
                entries: list[tuple[int, int, list[Record]]] = []
                for each in self._inside(record):
                    if each.kind == _ENTRY:
                        number, _, _, slide = struct.unpack_from("<4I", self._content, each.start)
                        entries.append((number, slide, []))
                    elif entries:
                        entries[-1][2].append(each)
                for number, slide, records in entries:
                    texts = enumerate(self._said(records))
                    yield number, slide, [text._replace(numbers=numbers.get((slide, at), b"")) for at, text in texts]

    def _numbers(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        """Of the texts of outlines, by the slide's id and which of its texts it is."""
        for record in self._found(self._document, *_OF_DOCUMENT):
            of = (0, 0)
            for each in self._inside(record):
                if each.kind == _NUMBERS_OF:
                    of = struct.unpack_from("<I", self._content, each.start)[0], each.instance
                elif each.kind == _NUMBERS:
                    yield of, self._bytes(each)

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
            raise ReaderError("damaged")
        return places, document


def _markdown(texts: list[Text], notes: list[Text]) -> str:
    titles, others = [], []
    for text in texts:
        said = text.lines()
        if text.kind in _TITLES and said:
            titles.append("# " + " ".join(" ".join(said).split()))
        else:
            others.append("\n".join(said))
    remarks = "\n".join(line for text in notes for line in text.lines())
    blocks = filter(None, (*titles, *others))
    return "\n\n".join((*blocks, f"Notes:\n\n{remarks}") if remarks else blocks)
