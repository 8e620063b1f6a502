"""Read presentations of PowerPoint 97 to 2003 (MS-PPT): nested records, with a directory of the slides."""

import struct
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import olefile

from readers.formats.result import Extracted, ReaderError, paged_result
from readers.older.paragraphs import lines
from readers.text import hidden
from readers.text.tables import Cell, markdown

_CONTAINER = 0xF  # version of a record that contains others
_NOTES_ATOM = 1009
_SLIDE_SHOW_INFO = 1017  # how a slide is shown, with flags at this offset
_SLIDE_SHOW_FLAGS = 10
_HIDDEN_FLAG = 0x04
_LIST = 4080
_ENTRY = 1011
_HEADER = 3999
_TEXT = 4000
_BYTES = 4008
_REFERENCE = 3998
_SHAPE_TEXT = 0xF00D
_STYLE = 4001  # the style of the preceding text
_NUMBERS = 4012  # the numbering of its paragraphs
_TAGS = (5000, 5002, 5003)  # records of later versions
# Nested records on the way to the numbering, outermost first.
_SHAPE_NUMBERS_PATH = (0xF011, *_TAGS, _NUMBERS)
_DOCUMENT_NUMBERS_PATH = (2000, *_TAGS, 4014)
_NUMBERS_OWNER = 4015  # names the outline text to which the numbering belongs
_EDIT = 4085
_DIRECTORY = 6002
# Records of drawings (MS-ODRAW).
_GROUP = 0xF003
_SHAPE = 0xF004
_SHAPE_KIND = 0xF00A
_PICTURE = 75  # the instance of the kind of a picture
_CHILD_ANCHOR = 0xF00F
_MORE_PROPERTIES = 0xF122
_TABLE = 0x039F  # property of a group that is a table
_TABLE_TEXT = -1  # our own kind of text, for a table in Markdown
# Lists, by the record's instance.
_SLIDE_LIST = 0
_NOTES_LIST = 2
# Kinds of text. A subtitle is 5.
_TITLES = (0, 6)
_BODIES = (1, 7, 8)
_NOTES_TEXT = 2
_ENCRYPTED = 0xF3D1C4DF  # token of an encrypted file
_MAX_EDITS = 1_000  # saves of one file that are read
_MAX_DEPTH = 20  # levels of nested records


class Record(NamedTuple):
    """A record of the stream. `is_container`: it contains records."""

    kind: int
    instance: int
    start: int
    end: int
    is_container: bool


class SlideText(NamedTuple):
    """A text of a slide. Carriage returns separate its paragraphs. `style`, `numbers`: records about their lists."""

    kind: int
    text: str = ""
    style: bytes = b""
    numbers: bytes = b""

    def lines(self) -> list[str]:
        if self.kind == _TABLE_TEXT:
            return [self.text]
        return lines(self.text, self.style, self.numbers, bulleted=self.kind in _BODIES)


def read(path: Path, media_type: str) -> Extracted:
    """Return one page for each slide. Raises `damaged` and `encrypted`."""
    try:
        with olefile.OleFileIO(path.read_bytes()) as file:
            token, newest = struct.unpack_from("<2I", file.openstream("Current User").read(), 12)
            if token == _ENCRYPTED:
                raise ReaderError("encrypted")
            content = file.openstream("PowerPoint Document").read()
        left_out: Counter[str] = Counter()
        slides = Deck(content, newest).slides(left_out)
        return paged_result(media_type, slides, without_text="slides", left_out=left_out)
    except (OSError, struct.error, IndexError, ValueError) as error:  # errors of olefile and of a damaged file
        raise ReaderError("damaged") from error


class Records:
    """The records of a stream."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def texts(
        self, record: Record, outline: list[SlideText] | tuple[()] = (), depth: int = 0, numbers: bytes = b""
    ) -> Iterator[SlideText]:
        """Yield the texts of all shapes in order. References become texts of the outline, a table is one text."""
        for each in self._inside(record):
            if each.kind == _SHAPE_TEXT:
                yield from self._texts(self._inside(each), numbers, outline)
            elif each.kind == _GROUP and self._is_table(each):
                yield SlideText(_TABLE_TEXT, self._table(each))
            elif each.is_container and depth < _MAX_DEPTH:
                own = self._find(each, *_SHAPE_NUMBERS_PATH) if each.kind == _SHAPE else ()
                yield from self.texts(each, outline, depth + 1, next(map(self._bytes, own), b""))

    def _texts(
        self, records: Iterable[Record], numbers: bytes = b"", outline: list[SlideText] | tuple[()] = ()
    ) -> list[SlideText]:
        """Return the texts of records. A header begins a text, which may be empty; the style follows the text."""
        texts: list[SlideText] = []
        for each in records:
            content = self._bytes(each)
            if each.kind == _HEADER:
                (kind,) = struct.unpack_from("<I", content)
                texts.append(SlideText(kind, numbers=numbers))
            elif each.kind == _REFERENCE:
                (number,) = struct.unpack_from("<I", content)
                texts += outline[number : number + 1]
            elif texts and each.kind in (_TEXT, _BYTES):
                text = content.decode("utf-16-le" if each.kind == _TEXT else "cp1252", "replace")
                texts[-1] = texts[-1]._replace(text=text)
            elif texts and each.kind == _STYLE:
                texts[-1] = texts[-1]._replace(style=content)
        return texts

    def _find(self, record: Record, *kinds: int) -> Iterator[Record]:
        """Yield the records at the end of a path: `kinds` are the kinds of nested records, outermost first."""
        for each in self._inside(record):
            if each.kind == kinds[0]:
                yield from self._find(each, *kinds[1:]) if kinds[1:] else [each]

    def _is_table(self, group: Record) -> bool:
        """Return whether a group is a table. The first shape of a group has its properties."""
        first = next((each for each in self._inside(group) if each.kind == _SHAPE), None)
        for each in self._inside(first) if first else ():
            if each.kind == _MORE_PROPERTIES:
                for at in range(each.start, min(each.start + 6 * each.instance, each.end - 5), 6):
                    name, value = struct.unpack_from("<HI", self._content, at)
                    if name == _TABLE:
                        return bool(value & 1)
        return False

    def _table(self, group: Record) -> str:
        """Return a table as Markdown. Its cells are adjacent shapes, whose edges are borders of columns and rows."""
        cells = sorted(self._cells(group))
        tops = sorted({cell[0] for cell in cells})
        lefts = sorted({cell[1] for cell in cells})
        rows: defaultdict[int, list[Cell]] = defaultdict(list)
        for top, left, bottom, right, text in cells:
            columns = bisect_left(lefts, right) - bisect_left(lefts, left)
            rows[top].append(Cell(text, columns, bisect_left(tops, bottom) - bisect_left(tops, top)))
        return markdown(rows.values()).strip()

    def _cells(self, group: Record) -> Iterator[tuple[int, int, int, int, str]]:
        for shape in self._inside(group):
            parts = {each.kind: each for each in self._inside(shape)} if shape.kind == _SHAPE else {}
            if _SHAPE_TEXT in parts and _CHILD_ANCHOR in parts:
                left, top, right, bottom = struct.unpack_from("<4i", self._content, parts[_CHILD_ANCHOR].start)
                texts = self._texts(self._inside(parts[_SHAPE_TEXT]))
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
    """A presentation. `newest`: the offset of its last save. Raises `damaged`."""

    def __init__(self, content: bytes, newest: int) -> None:
        super().__init__(content)
        self._places, document = self._directory(newest)
        self._document = self._record(self._places[document])

    def slides(self, left_out: Counter[str]) -> Iterator[str]:
        """Yield the text of each slide. Counts pictures and hidden slides."""
        notes = {each[0]: each for each in self._listed(_NOTES_LIST)}
        notes_texts: dict[int, list[SlideText]] = {}
        for number, _, _ in notes.values():
            if number in self._places:
                record = self._record(self._places[number])
                atom = next((each for each in self._inside(record) if each.kind == _NOTES_ATOM), None)
                if atom:
                    (slide,) = struct.unpack_from("<I", self._content, atom.start)
                    notes_texts[slide] = [text for text in self.texts(record) if text.kind == _NOTES_TEXT]
        for number, slide, outline in self._listed(_SLIDE_LIST):
            shown = self._record(self._places[number]) if number in self._places else None
            slide_texts = list(self.texts(shown, outline)) if shown else outline
            text = _markdown(slide_texts, notes_texts.get(slide, []))
            if shown:
                left_out["pictures"] += self._pictures(shown)
                if text and self._is_hidden(shown):
                    left_out[hidden.HIDDEN_KEY] += 1
                    text = f"{hidden.SLIDE}\n\n{text}"
            yield text

    def _is_hidden(self, slide: Record) -> bool:
        shown = next((each for each in self._inside(slide) if each.kind == _SLIDE_SHOW_INFO), None)
        if shown is None or shown.end - shown.start < _SLIDE_SHOW_FLAGS + 2:
            return False
        (flags,) = struct.unpack_from("<H", self._content, shown.start + _SLIDE_SHOW_FLAGS)
        return bool(flags & _HIDDEN_FLAG)

    def _pictures(self, record: Record, depth: int = 0) -> int:
        count = 0
        for each in self._inside(record):
            if each.is_container and depth < _MAX_DEPTH:
                count += self._pictures(each, depth + 1)
            else:
                count += each.kind == _SHAPE_KIND and each.instance == _PICTURE
        return count

    def _listed(self, instance: int) -> Iterator[tuple[int, int, list[SlideText]]]:
        """Yield for each slide its number in the directory, its id, and the texts of its outline."""
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
                    texts = enumerate(self._texts(records))
                    yield number, slide, [text._replace(numbers=numbers.get((slide, at), b"")) for at, text in texts]

    def _numbers(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        """Yield the numbering of outline texts, by the slide's id and the index of the text."""
        for record in self._find(self._document, *_DOCUMENT_NUMBERS_PATH):
            owner = (0, 0)
            for each in self._inside(record):
                if each.kind == _NUMBERS_OWNER:
                    owner = struct.unpack_from("<I", self._content, each.start)[0], each.instance
                elif each.kind == _NUMBERS:
                    yield owner, self._bytes(each)

    def _directory(self, newest: int) -> tuple[dict[int, int], int]:
        """Return the offsets of the numbered records as of the last save, and the number of the document."""
        places: dict[int, int] = {}
        document = 0
        for _ in range(_MAX_EDITS):
            edit = self._record(newest)
            if edit.kind != _EDIT:
                break
            before, directory, number = struct.unpack_from("<3I", self._content, edit.start + 8)
            document = document or number
            listing = self._record(directory)
            at = listing.start
            while listing.kind == _DIRECTORY and at + 4 <= listing.end:
                (head,) = struct.unpack_from("<I", self._content, at)
                first = head & 0xFFFFF
                count = head >> 20
                for offset, place in enumerate(struct.unpack_from(f"<{count}I", self._content, at + 4)):
                    places.setdefault(first + offset, place)
                at += 4 + 4 * count
            if not before or before >= newest:
                break
            newest = before
        if document not in places:
            raise ReaderError("damaged")
        return places, document


def _markdown(texts: list[SlideText], notes: list[SlideText]) -> str:
    titles = []
    others = []
    for text in texts:
        text_lines = text.lines()
        if text.kind in _TITLES and text_lines:
            titles.append("# " + " ".join(" ".join(text_lines).split()))
        else:
            others.append("\n".join(text_lines))
    notes_texts = "\n".join(line for text in notes for line in text.lines())
    blocks = filter(None, (*titles, *others))
    return "\n\n".join((*blocks, f"Notes:\n\n{notes_texts}") if notes_texts else blocks)
