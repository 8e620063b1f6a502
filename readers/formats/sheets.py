"""Read Excel workbooks as a stream: the cells, charts, text boxes and comments of each sheet.

openpyxl is not used: it refuses workbooks with odd styles, and it builds an object for each cell before it reports
hidden rows and number formats.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lxml import etree

from readers.formats.archive import Archive, Element, main_part, parse_events, related_members, relation_targets
from readers.formats.result import Extracted, limit_characters, paged_result
from readers.text.number_formats import BUILT_IN, GENERAL, format_number, format_text
from readers.text.office_parts import chart, comment_item
from readers.text.sheet_rows import (
    MergedCell,
    SheetEntry,
    SheetRow,
    SheetText,
    column_index,
    comment_list,
    merged_cell,
    one_line,
    parse_reference,
)

_WORKBOOK = "xl/workbook.xml"  # the usual name of the main part
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell [^<>]*?ref="([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"')
_BLOCK = 1 << 20  # bytes
_MAX_MARK_LENGTH = 64  # bytes
_THREAD_PREFIX = "tc="  # prefix of the author of a comment that repeats a thread
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")  # a character by its number (ST_Xstring)
_MAX_COLUMNS = 16_384
_TRUE_VALUES = ("1", "true", "on")


def read(path: Path, media_type: str) -> Extracted:
    """Return one page for each sheet: its name, its rows, then charts, text boxes and comments.

    A row is a line of cells, separated by tabs. A cell is shown as its number format shows it, a formula as its last
    value. The text of a merged cell is repeated in each cell that it covers, up to limits.
    """
    archive = Archive(path)
    archive.refuse_entities()
    left_out: Counter[str] = Counter()
    main = main_part(archive)
    book = _Book(archive, main.name if main else archive.member_name(_WORKBOOK), left_out)
    pages = ("".join(limit_characters(_Sheet(archive, book, each, left_out).text())) for each in book.sheets)
    return paged_result(media_type, pages, left_out=left_out)


@dataclass(frozen=True, slots=True)
class _CellStyle:
    """The number format of a style. `shows_text`: the format changes or hides texts, too."""

    code: str = GENERAL
    shows_text: bool = False


class _Book:
    """The parts that all sheets share: the list of sheets, strings and styles."""

    def __init__(self, archive: Archive, name: str, left_out: Counter[str]) -> None:
        self.part = name
        tree = archive.tree(name)
        targets = relation_targets(archive, name)
        properties = tree.find("{*}workbookPr")
        self.since_1904 = properties is not None and properties.get("date1904") in _TRUE_VALUES
        self.sheets = [
            SheetEntry(each.get("name", ""), targets.get(_relation(each), ""), each.get("state", "") in _HIDDEN_STATES)
            for each in tree.iterfind("{*}sheets/{*}sheet")
        ]
        self.strings = [
            text for part in related_members(archive, name, "sharedStrings") for text in _strings(archive, part)
        ]
        self.styles: list[_CellStyle] = []
        try:
            for part in related_members(archive, name, "styles"):
                self.styles = list(_styles(archive.tree(part)))
        except (etree.XMLSyntaxError, ValueError):
            left_out["formats"] += 1

    def style(self, number: str) -> _CellStyle:
        return self.styles[int(number)] if number.isdigit() and int(number) < len(self.styles) else _CellStyle()


_HIDDEN_STATES = ("hidden", "veryHidden")


def _relation(element: Element) -> str:
    return next((str(value) for key, value in element.attrib.items() if key.endswith("relationships}id")), "")


def _strings(archive: Archive, part: str) -> Iterator[str]:
    for _, element in parse_events(archive.open(part), ("end",), ("{*}si",)):
        yield _text(element)
        _discard(element)


def _text(element: Element) -> str:
    """Return the text of a string, without the readings of East Asian words."""
    parts = [each.text or "" for each in element.iter("{*}t") if not str(each.getparent().tag).endswith("}rPh")]
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), "".join(parts))


def _styles(tree: Element) -> Iterator[_CellStyle]:
    own = {each.get("numFmtId", ""): each.get("formatCode", "") for each in tree.iterfind("{*}numFmts/{*}numFmt")}
    for each in tree.iterfind("{*}cellXfs/{*}xf"):
        number = each.get("numFmtId", "0")
        code = own.get(number) or BUILT_IN.get(int(number) if number.isdigit() else 0, GENERAL)
        yield _CellStyle(code, shows_text=code.count(";") > 2 or ("@" in code and code != "@"))


def _discard(element: Element) -> None:
    """Remove an element that was read, and all elements before it, so that memory use stays bounded."""
    element.clear(keep_tail=True)
    while (before := element.getprevious()) is not None:
        element.getparent().remove(before)


class _Sheet:
    def __init__(self, archive: Archive, book: _Book, entry: SheetEntry, left_out: Counter[str]) -> None:
        self._archive = archive
        self._book = book
        self._entry = entry
        self._left_out = left_out
        self._related = [target for target in relation_targets(archive, entry.part).values() if target in archive.names]

    def text(self) -> Iterator[str]:
        """Yield the text of the sheet, with its name first. An empty sheet has no text."""
        present = self._entry.part in self._archive.names
        merged = _merged_cells(self._archive.open(self._entry.part)) if present else ()
        sheet = SheetText(self._entry.name, self._left_out, is_hidden=self._entry.hidden, merged=merged)
        yield from sheet.text(self._rows(sheet.hidden_columns) if present else (), self._extras())

    def _rows(self, hidden_columns: set[int]) -> Iterator[SheetRow]:
        """Yield the rows with cells. Adds the hidden columns, which the file names before its rows."""
        number = 0
        for _, element in parse_events(self._archive.open(self._entry.part), ("end",), ("{*}row", "{*}col")):
            if str(element.tag).endswith("}col"):
                if element.get("hidden") in _TRUE_VALUES:
                    hidden_columns.update(_span(element))
                continue
            stated = element.get("r", "")
            number = int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 8 else number + 1
            yield SheetRow(number, self._cells(element), element.get("hidden") in _TRUE_VALUES)
            _discard(element)

    def _cells(self, row: Element) -> dict[int, str]:
        cells: dict[int, str] = {}
        column = -1
        for cell in row.iterfind("{*}c"):
            place = parse_reference(cell.get("r", ""))
            column = place[0] if place else column + 1
            if text := self._cell(cell):
                cells[column] = text
        return cells

    def _cell(self, cell: Element) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            inline = cell.find("{*}is")
            text = "" if inline is None else _text(inline)
            return self._formatted_text(cell, text)
        value = cell.findtext("{*}v") or ""
        match kind:
            case "s":
                strings = self._book.strings
                is_listed = value.strip().isdigit() and int(value) < len(strings)
                return self._formatted_text(cell, strings[int(value)] if is_listed else "")
            case "str":
                return self._formatted_text(cell, _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value))
            case "b":
                return {"0": "FALSE", "1": "TRUE"}.get(value.strip(), value.strip().upper())
            case "d":
                return value.strip().removesuffix("T00:00:00").removesuffix("Z")
            case "n" if value:
                code = self._book.style(cell.get("s", "")).code
                return one_line(format_number(value, code, since_1904=self._book.since_1904))
            case _:
                return one_line(value)

    def _formatted_text(self, cell: Element, text: str) -> str:
        style = self._book.style(cell.get("s", ""))
        return one_line(format_text(text, style.code) if style.shows_text else text)

    def _extras(self) -> Iterator[str]:
        for target in self._related:
            if "/drawings/" in target and target.endswith(".xml"):
                yield from self._drawing(target)
        yield comment_list([line for target in self._related for line in self._comments(target)])

    def _drawing(self, part: str) -> Iterator[str]:
        targets = relation_targets(self._archive, part)
        tree = self._archive.tree(part)
        for shape in tree.iter("{*}sp"):
            if text := "\n".join(
                filter(None, (" ".join("".join(each.itertext("{*}t")).split()) for each in shape.iter("{*}p")))
            ):
                yield f"\n{text}\n"
        for picture in tree.iter("{*}pic"):
            self._left_out["pictures"] += 1
            if description := next((one_line(each.get("descr", "")) for each in picture.iter("{*}cNvPr")), ""):
                yield f"\n[Picture: {description}]\n"
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
            yield comment_item(
                text, f"{each.get('ref')} {people.get(each.get('personId'), '')}".strip(), each.get("dT", "")
            )
        authors = [author.text or "" for author in tree.iterfind("{*}authors/{*}author")]
        for each in tree.iter("{*}comment"):
            number = each.get("authorId", "")
            author_name = authors[int(number)] if number.isdigit() and int(number) < len(authors) else ""
            text = " ".join("".join(each.itertext("{*}t")).split())
            if text and not author_name.startswith(_THREAD_PREFIX):
                yield comment_item(text, f"{each.get('ref')} {author_name}".strip())

    def _people(self) -> Iterator[Element]:
        for part in related_members(self._archive, self._book.part, "person"):
            yield from self._archive.tree(part).iter("{*}person")


def _span(column: Element) -> range:
    first, last = (column.get(name, "") for name in ("min", "max"))
    if not (first.isdigit() and last.isdigit()):
        return range(0)
    return range(int(first) - 1, min(int(last), _MAX_COLUMNS))


def _merged_cells(source: IO[bytes]) -> Iterator[MergedCell]:
    """Yield the merged cells. The file lists them after all cells, so this scans the bytes instead of parsing again."""
    rest = b""
    while block := source.read(_BLOCK):
        block = rest + block
        for match in _MERGED.finditer(block):
            left, top, right, bottom = (each.decode() for each in match.groups())
            yield merged_cell(column_index(left), int(top), column_index(right), int(bottom))
        rest = block[-_MAX_MARK_LENGTH:]
