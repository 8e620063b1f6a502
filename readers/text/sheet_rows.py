"""Write the rows of a sheet as lines of tab-separated cells, for all kinds of workbooks."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

from readers.text import hidden

_MAX_BLANK = 1_000  # rows; one line with the number of rows replaces a longer gap
_MAX_BLANK_CELLS = 200  # likewise within a row
MAX_MERGED = 5_000  # merged cells per sheet
_WIDEST = 200  # columns in which the text of a merged cell is repeated
_HIGHEST = 1_000  # rows in which it is repeated
_REPEATED = 80  # characters; a longer text is not repeated
_PLACE = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})$", re.I)


class SheetEntry(NamedTuple):
    """A sheet as its workbook lists it. `part`: its member of the archive."""

    name: str
    part: str
    hidden: bool


class MergedCell(NamedTuple):
    """The range of a merged cell. Columns count from 0, rows from 1; both ends are part of it."""

    left: int
    top: int
    right: int
    bottom: int


class SheetRow(NamedTuple):
    """A row. `number` counts from 1. `cells`: the texts of its filled cells by column, from 0."""

    number: int
    cells: dict[int, str]
    hidden: bool = False


class SheetText:
    """Writer of one sheet. It counts hidden parts in `left_out`."""

    def __init__(
        self,
        name: str,
        left_out: Counter[str],
        *,
        is_hidden: bool = False,
        hidden_columns: Iterable[int] = (),
        merged: Iterable[MergedCell] = (),
    ) -> None:
        self.name = name
        self.hidden_columns = set(hidden_columns)
        self._left_out = left_out
        self._is_hidden = is_hidden
        self._heading = f"# {name}{f' {hidden.SHEET}' if is_hidden else ''}\n"
        self._merged: dict[int, list[MergedCell]] = {}
        for _, each in zip(range(MAX_MERGED), merged, strict=False):
            self._merged.setdefault(each.top, []).append(each)
        self._reaching: list[tuple[MergedCell, str]] = []
        self._marked: set[int] = set()  # hidden columns whose first cell is marked

    def text(self, rows: Iterable[SheetRow], extras: Iterable[str] = ()) -> Iterator[str]:
        """Yield the name of the sheet, its rows, then `extras`. An empty sheet has no text."""
        for piece in self._pieces(rows, extras):
            if self._heading and piece.strip():
                yield self._heading
                self._left_out[hidden.HIDDEN_KEY] += self._is_hidden
                self._heading = ""
            if not self._heading:
                yield piece

    def _pieces(self, rows: Iterable[SheetRow], extras: Iterable[str]) -> Iterator[str]:
        last = 0
        for row in rows:
            for number in range(last + 1, min(row.number, last + 1 + _HIGHEST)) if self._reaching else ():
                if line := self._line(SheetRow(number, {})):
                    yield "\n" * (number - last - 1) + line
                    last = number
            if line := self._line(row):
                blank = max(row.number - last - 1, 0)
                yield "\n" * blank if blank <= _MAX_BLANK or not last else f"[{blank} blank rows]\n"
                yield line
                last = row.number
        yield from extras

    def _line(self, row: SheetRow) -> str:
        cells = row.cells
        self._reaching = [each for each in self._reaching if each[0].bottom >= row.number]
        if starting := self._merged.get(row.number):
            self._reaching += [
                (each, text) for each in starting if 0 < len(text := cells.get(each.left, "")) <= _REPEATED
            ]
        for place, text in self._reaching:
            for column in range(place.left, min(place.right, place.left + _WIDEST) + 1):
                cells[column] = cells.get(column) or text
        parts: list[str] = []
        end = 0
        for column in sorted(column for column, text in cells.items() if text):
            gap = column - end
            parts += [""] * gap if gap <= _MAX_BLANK_CELLS else [f"[{gap} blank cells]"]
            text = cells[column]
            self._left_out[hidden.HIDDEN_KEY] += text.startswith(hidden.START)  # a format hides it
            if column in self.hidden_columns and column not in self._marked:
                self._marked.add(column)
                self._left_out[hidden.HIDDEN_KEY] += 1
                text = f"{hidden.COLUMN} {text}"
            parts.append(text)
            end = column + 1
        if not parts:
            return ""
        self._left_out[hidden.HIDDEN_KEY] += row.hidden
        return f"{hidden.ROW} " * row.hidden + "\t".join(parts) + "\n"


def parse_reference(reference: str) -> tuple[int, int] | None:
    """Return the column, from 0, and the row, from 1, of a reference such as `B3`; None for any other text."""
    match = _PLACE.match(reference)
    return (column_index(match[1]), int(match[2])) if match else None


def column_index(letters: str) -> int:
    """Return a column, from 0, by its letters."""
    return reduce(lambda number, letter: number * 26 + ord(letter) - 64, letters.upper(), 0) - 1


def cell_reference(column: int, row: int) -> str:
    """Return the reference of a cell, such as `B3`. The column counts from 0, the row from 1."""
    letters = ""
    column += 1
    while column:
        column, letter = divmod(column - 1, 26)
        letters = chr(65 + letter) + letters
    return f"{letters}{row}"


def merged_cell(left: int, top: int, right: int, bottom: int) -> MergedCell:
    """Return the range of a merged cell, cut to the rows in which its text is repeated."""
    return MergedCell(left, top, right, min(bottom, top + _HIGHEST))


def comment_list(comments: Sequence[str]) -> str:
    """Return the list of comments for the end of a sheet."""
    return "\nComments:\n" + "".join(f"{line}\n" for line in comments) if comments else ""


def one_line(text: str) -> str:
    """Return the text of a cell on one line."""
    return " ".join(text.split())
