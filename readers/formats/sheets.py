"""Read Excel workbooks: the cells, charts, text boxes and comments of each sheet."""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import openpyxl
from defusedxml.common import DefusedXmlException
from openpyxl.utils.exceptions import InvalidFileException

from readers.formats.archive import Archive, Element, relation_targets
from readers.formats.result import Extracted, ReaderError, limited, paged
from readers.text.office_parts import chart, remark

_WORKBOOK = "xl/workbook.xml"
_STRICT = b"http://purl.oclc.org/ooxml/"
_NAMESPACE = re.compile(re.escape(_STRICT) + rb"(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell [^<>]*?ref="([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"')
_MOST_MERGED = 5_000  # merged cells per sheet
_WIDEST = 200  # columns in which the text of a merged cell is repeated
_HIGHEST = 1_000  # rows in which it is repeated
_REPEATED = 80  # characters; a longer text is not repeated
_BLOCK = 1 << 20  # bytes
_LONGEST_MARK = 64  # bytes
_THREAD = "tc="  # prefix of the author of a comment that repeats a thread
_BLANK_ROWS = 1_000  # blank rows after which reading stops, since some programs save a million of them


def read(path: Path, media_type: str) -> Extracted:
    """Return one page for each sheet: its name, its rows, then charts, text boxes and comments.

    A row is a line of cells, separated by tabs. A formula is shown as its last value. The text of a merged cell is
    repeated in each cell that it covers, up to limits.
    """
    archive = Archive(path)
    archive.refuse_entities()
    left_out: Counter[str] = Counter()
    try:
        # Open the file here: openpyxl requires a path with a suffix, and stored files have none.
        with _transitional(archive) if _STRICT in archive.head(_WORKBOOK) else path.open("rb") as source:
            book = openpyxl.load_workbook(source, read_only=True, data_only=True)
            sheets = (_Sheet(archive, book, *each, left_out) for each in _sheets(archive))
            pages = ("".join(limited(sheet.text())) for sheet in sheets)
            return paged(media_type, pages, left_out=left_out)
    except DefusedXmlException as error:
        raise ReaderError("bomb") from error
    except (InvalidFileException, KeyError) as error:
        raise ReaderError("damaged") from error


def _transitional(archive: Archive) -> io.BytesIO:
    """Convert a workbook in strict format (ISO/IEC 29500-1) to the namespaces that openpyxl supports."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as rewritten:
        for name in archive.names:
            if name.endswith((".xml", ".rels")):
                with archive.open(name) as member:
                    rewritten.writestr(name, _NAMESPACE.sub(_TRANSITIONAL, member.read()))
    return out


def _sheets(archive: Archive) -> Iterator[tuple[str, str]]:
    """Yield the name of each sheet and the name of its part in the archive."""
    targets = relation_targets(archive, _WORKBOOK)
    for sheet in archive.tree(_WORKBOOK).iterfind(".//{*}sheet"):
        relation = next((value for key, value in sheet.attrib.items() if key.endswith("relationships}id")), "")
        yield sheet.get("name", ""), targets.get(relation, "")


class _Range(NamedTuple):
    """The range of a merged cell. Columns and rows count from 1."""

    left: int
    top: int
    right: int
    bottom: int


class _Sheet:
    def __init__(self, archive: Archive, book: Any, name: str, part: str, left_out: Counter[str]) -> None:
        self._archive = archive
        self._name = name
        self._part = part
        self._left_out = left_out
        self._cells: Any = book[name] if name in book.sheetnames else None  # a chart sheet has no cells in openpyxl
        self._relations = [target for target in relation_targets(archive, part).values() if target in archive.names]

    def text(self) -> Iterator[str]:
        """Yield the text of the sheet, with its name first. An empty sheet has no text."""
        heading = f"# {self._name}\n"
        for piece in (*self._rows(), *self._extras()):
            if piece.strip() and heading:
                yield heading
                heading = ""
            yield piece

    def _rows(self) -> Iterator[str]:
        if not hasattr(self._cells, "reset_dimensions"):
            return
        # The size in a file may be wrong, and openpyxl would create cells for the whole size.
        self._cells.reset_dimensions()
        merged = self._merged()
        reaching: list[tuple[_Range, str]] = []
        blank = 0
        for number, row in enumerate(self._cells.iter_rows(values_only=True), 1):
            cells = list(map(_shown, row))
            reaching = [each for each in reaching if each[0].bottom >= number]
            reaching += [(place, cells[place.left - 1]) for place in merged.get(number, ()) if place.left <= len(cells)]
            _repeat(cells, reaching)
            line = "\t".join(cells).rstrip("\t")
            blank = 0 if line else blank + 1
            if blank == _BLANK_ROWS:
                return
            yield line + "\n"

    def _merged(self) -> dict[int, list[_Range]]:
        """Return the merged cells by the row in which they begin."""
        by_row: dict[int, list[_Range]] = {}
        if self._part in self._archive.names:
            for place in islice(_merged_cells(self._archive.open(self._part)), _MOST_MERGED):
                by_row.setdefault(place.top, []).append(place)
        return by_row

    def _extras(self) -> Iterator[str]:
        for target in self._relations:
            if "/drawings/" in target and target.endswith(".xml"):
                yield from self._drawing(target)
        comments = [line for target in self._relations for line in self._comments(target)]
        if comments:
            yield "\nComments:\n" + "".join(f"{line}\n" for line in comments)

    def _drawing(self, part: str) -> Iterator[str]:
        targets = relation_targets(self._archive, part)
        tree = self._archive.tree(part)
        for shape in tree.iter("{*}sp"):
            if text := "\n".join(
                filter(None, (" ".join("".join(each.itertext("{*}t")).split()) for each in shape.iter("{*}p")))
            ):
                yield f"\n{text}\n"
        self._left_out["pictures"] += sum(1 for _ in tree.iter("{*}pic"))
        for target in targets.values():
            if "/charts/chart" in target and target in self._archive.names:
                yield f"\n{chart(self._archive.tree(target))}"
            elif "/diagrams/data" in target and target in self._archive.names:
                points = ("".join(point.itertext("{*}t")).strip() for point in self._archive.tree(target).iter("{*}pt"))
                yield "\n" + "".join(f"- {point}\n" for point in points if point)

    def _comments(self, part: str) -> Iterator[str]:
        """Yield the comments of a part. Comments that only repeat a thread for older programs are left out."""
        tree = self._archive.tree(part) if "omment" in part and part.endswith(".xml") else None
        if tree is None:
            return
        people = {each.get("id"): each.get("displayName", "") for each in self._people()}
        for each in tree.iter("{*}threadedComment"):
            text = " ".join((each.findtext("{*}text") or "").split())
            yield remark(text, f"{each.get('ref')} {people.get(each.get('personId'), '')}".strip(), each.get("dT", ""))
        authors = [author.text or "" for author in tree.iterfind("{*}authors/{*}author")]
        for each in tree.iter("{*}comment"):
            number = each.get("authorId", "")
            author_name = authors[int(number)] if number.isdigit() and int(number) < len(authors) else ""
            text = " ".join("".join(each.itertext("{*}t")).split())
            if text and not author_name.startswith(_THREAD):
                yield remark(text, f"{each.get('ref')} {author_name}".strip())

    def _people(self) -> Iterator[Element]:
        for name in sorted(self._archive.names):
            if name.startswith("xl/persons/"):
                yield from self._archive.tree(name).iter("{*}person")


def _merged_cells(source: IO[bytes]) -> Iterator[_Range]:
    """Yield the merged cells. The file lists them after all cells, so this scans the bytes instead of parsing again."""
    rest = b""
    while block := source.read(_BLOCK):
        block = rest + block
        for match in _MERGED.finditer(block):
            left, top, right, bottom = (each.decode() for each in match.groups())
            yield _Range(_column(left), int(top), min(_column(right), _WIDEST), min(int(bottom), int(top) + _HIGHEST))
        rest = block[-_LONGEST_MARK:]


def _column(letters: str) -> int:
    return reduce(lambda number, letter: number * 26 + ord(letter) - 64, letters, 0)


def _repeat(cells: list[str], reaching: Sequence[tuple[_Range, str]]) -> None:
    for place, text in reaching:
        if text and len(text) <= _REPEATED:
            cells += [""] * (place.right - len(cells))
            for column in range(place.left - 1, place.right):
                cells[column] = cells[column] or text


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case date() | time():
            return value.isoformat()
        case _:
            return " ".join(str(value).split())
