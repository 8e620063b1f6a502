"""Tables of a page, from the lines that are ruled on it and from how its words stand below each other."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from unicodedata import bidirectional

from readers.text.tables import Cell, markdown

NEAR = 3.0  # points within which two places are one
_SHORTEST = 6.0  # points of a ruled line that may border a cell
MOST_RULES = 400  # of a direction on one page; a page with more is a drawing
_MOST_PLACES = 3_000  # of one table
_MOST_REPEATED = 2  # times as much text as there is
_FEWEST = 2  # rows with several cells
_FILLED = 0.25  # of the cells of a table, at least; a diagram has fewer
# Of a table that is not ruled, in heights of its lines: what divides columns, how far rows are from each other, and how
# wide cells are on average; columns of a newspaper are wider.
_GAP, _FARTHEST_ROW, _WIDEST_CELL = 0.8, 3, 12
_FULL, _SHORTEST_CELL, _LONGEST_CELL = 0.7, 2, 40  # share of cells; signs of a cell on average, by column at most
_NUMBER = re.compile(r"[^\w\s]*+\d[\d.,:/%\s]*+[^\w\s]*+\w{0,3}")
_FROM_THE_RIGHT = ("R", "AL")
_FEWEST_ROWS, _FEWEST_COLUMNS = 3, 3


class Box(NamedTuple):
    """Points from the left and the bottom of the page."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2


class Rule(NamedTuple):
    """A straight line at this height from `start` to `end`; of an upright one, at this distance from the left."""

    at: float
    start: float
    end: float

    def meets(self, other: "Rule") -> bool:
        """`other` is of the other direction."""
        across = other.start - NEAR <= self.at <= other.end + NEAR
        return across and self.start - NEAR <= other.at <= self.end + NEAR


class Glyph(NamedTuple):
    """A sign that is shown, or a space, which has the box of what stands before it. `line` counts the page's lines."""

    text: str
    box: Box
    line: int


class Grid(NamedTuple):
    """`columns` are the borders of columns from left to right, `rows` those of rows from the bottom up."""

    columns: Sequence[float]
    rows: Sequence[float]
    level: Sequence[Rule] = ()
    upright: Sequence[Rule] = ()

    def holds(self, box: Box) -> bool:
        x, y = box.middle
        return self.columns[0] <= x <= self.columns[-1] and self.rows[0] <= y <= self.rows[-1]

    def table(self, glyphs: Sequence[Glyph]) -> str:
        """Markdown of what stands in it; nothing if it is no table."""
        if not self.upright and any(bidirectional(glyph.text[0]) in _FROM_THE_RIGHT for glyph in glyphs):
            return ""  # words that stand in the order of writing, not of places
        filled = self._filled(glyphs)
        rows = [row for top in range(len(self.rows) - 1) for row in _rows_of(filled, top)]
        several = sum(sum(bool(cell.text) for cell in row) > 1 for row in rows)
        shown = sum(bool(cell.pieces) for cell in filled)
        if several < _FEWEST or shown < _FILLED * len(filled) or not (self.upright or _of_numbers(rows)):
            return ""
        written = sum(len(cell.text) * cell.columns * cell.rows for row in rows for cell in row)
        # A form or a drawing, of which a table would say the same over and over in its merged cells.
        return "" if written > _MOST_REPEATED * len(glyphs) else markdown(rows)

    def _filled(self, glyphs: Sequence[Glyph]) -> list["_Place"]:
        places = list(_places(self))
        owner = {(row, column): place for place in places for row, column in place.covered()}
        width, height = len(self.columns) - 2, len(self.rows) - 2
        for glyph in glyphs:
            x, y = glyph.box.middle
            column = min(max(bisect_right(self.columns, x) - 1, 0), width)
            row = height - min(max(bisect_right(self.rows, y) - 1, 0), height)
            owner[row, column].add(glyph)
        return places


class _Place:
    """A cell where it stands; rows count from the top."""

    def __init__(self, row: int, column: int, rows: int, columns: int) -> None:
        self.row, self.column, self.rows, self.columns = row, column, rows, columns
        self.pieces: list[tuple[float, list[str]]] = []  # lines: how high they stand, and their signs
        self._line = -1

    def covered(self) -> Iterator[tuple[int, int]]:
        for row in range(self.row, self.row + self.rows):
            for column in range(self.column, self.column + self.columns):
                yield row, column

    def add(self, glyph: Glyph) -> None:
        if glyph.line != self._line:
            if not glyph.text.strip():
                return
            height = glyph.box.middle[1]
            beside = next((piece for piece in self.pieces if abs(piece[0] - height) <= NEAR), None)
            if beside is None:
                self.pieces.append((height, []))
            else:  # a line that goes on where it had been left
                self.pieces.remove(beside)
                self.pieces.append(beside)
                beside[1].append(" ")
            self._line = glyph.line
        self.pieces[-1][1].append(glyph.text)

    def text(self, numbers: Sequence[int] | None = None) -> str:
        chosen = self.pieces if numbers is None else [self.pieces[number] for number in numbers]
        return " ".join(filter(None, ("".join(signs).strip() for _, signs in chosen)))


def _places(grid: Grid) -> Iterator[_Place]:
    """The cells, each reaching as far as no ruled line ends it."""
    middles = [(left + right) / 2 for left, right in pairwise(grid.columns)]
    heights = [(low + high) / 2 for low, high in pairwise(grid.rows)][::-1]
    borders = list(grid.rows)[::-1]
    if not grid.upright:  # it was made of how words stand
        yield from (_Place(row, column, 1, 1) for row in range(len(heights)) for column in range(len(middles)))
        return
    below = [[_covers(grid.level, borders[row + 1], x) for x in middles] for row in range(len(heights))]
    beside = [[_covers(grid.upright, x, y) for x in grid.columns[1:]] for y in heights]
    taken: set[tuple[int, int]] = set()
    for row in range(len(heights)):
        for column in range(len(middles)):
            if (row, column) in taken:
                continue
            last = column
            while last + 1 < len(middles) and not beside[row][last] and (row, last + 1) not in taken:
                last += 1
            span, end = range(column, last + 1), row
            while (
                end + 1 < len(heights)
                and not any(below[end][each] for each in span)
                and not any(beside[end + 1][each] for each in span[:-1])
            ):
                end += 1
            place = _Place(row, column, end - row + 1, last - column + 1)
            taken.update(place.covered())
            yield place


def _of_numbers(rows: Sequence[Sequence[Cell]]) -> bool:
    """Whether what stands in columns is surely a table: full, of short cells, and some column has numbers alone."""
    columns = [[cell.text for cell in column if cell.text] for column in zip(*rows, strict=True)]
    full = sum(map(len, columns)) >= _FULL * len(rows) * len(columns)
    short = all(sum(map(len, column)) <= _LONGEST_CELL * max(len(column), 1) for column in columns)
    words = sum(len(text) for column in columns for text in column) >= _SHORTEST_CELL * sum(map(len, columns))
    numbers = any(
        sum(bool(_NUMBER.fullmatch(text)) for text in column) > _FULL * len(column) for column in columns if column
    )
    return full and short and words and numbers


def _covers(rules: Sequence[Rule], at: float, place: float) -> bool:
    return any(abs(rule.at - at) <= NEAR and rule.start - NEAR <= place <= rule.end + NEAR for rule in rules)


def _rows_of(places: Sequence[_Place], row: int) -> Iterator[list[Cell]]:
    """The row, or one for each of its lines where every cell has the same ones: not all rows are ruled off."""
    cells = [place for place in places if place.row == row]
    heights = [sorted((height for height, _ in cell.pieces), reverse=True) for cell in cells if cell.pieces]
    same = len(heights) > 1 and len(heights[0]) > 1 and all(len(each) == len(heights[0]) for each in heights)
    alone = all(cell.rows == 1 for cell in cells)
    level = same and all(max(at) - min(at) <= NEAR for at in zip(*heights, strict=True))
    if level and alone:
        for number in range(len(heights[0])):
            yield [Cell(cell.text([number]) if cell.pieces else "", cell.columns) for cell in cells]
    else:
        yield [Cell(cell.text(), cell.columns, cell.rows) for cell in cells]


def ruled(level: Sequence[Rule], upright: Sequence[Rule]) -> Iterator[Grid]:
    """Of the lines ruled on a page: each group of those that meet is one table, if it has inner borders."""
    level, upright = _joined(level), _joined(upright)
    if len(level) > MOST_RULES or len(upright) > MOST_RULES:
        return
    for flat, tall in _groups(level, upright):
        columns = _borders([rule.at for rule in tall], [end for rule in flat for end in (rule.start, rule.end)])
        rows = _borders([rule.at for rule in flat], [end for rule in tall for end in (rule.start, rule.end)])
        if len(columns) > 2 and len(rows) > 2 and len(columns) * len(rows) <= _MOST_PLACES:
            yield Grid(columns, rows, flat, tall)


def _joined(rules: Sequence[Rule]) -> list[Rule]:
    """Lines that go on in each other are one; short ones go."""
    found: list[Rule] = []
    for rule in sorted(rules, key=lambda rule: (round(rule.at), rule.start)):
        last = found[-1] if found else None
        if last and abs(last.at - rule.at) <= 1 and rule.start <= last.end + NEAR:
            found[-1] = Rule(last.at, last.start, max(last.end, rule.end))
        else:
            found.append(rule)
    return [rule for rule in found if rule.end - rule.start >= _SHORTEST]


def _groups(level: Sequence[Rule], upright: Sequence[Rule]) -> list[tuple[list[Rule], list[Rule]]]:
    groups: list[tuple[list[Rule], list[Rule]]] = []
    for tall in upright:
        touched = [rule for rule in level if rule.meets(tall)]
        met = [group for group in groups if any(rule in group[0] for rule in touched)]
        flat = list(dict.fromkeys((*(rule for group in met for rule in group[0]), *touched)))
        groups = [group for group in groups if group not in met]
        groups.append((flat, [*(rule for group in met for rule in group[1]), tall]))
    return groups


def _borders(inner: Sequence[float], outer: Sequence[float]) -> list[float]:
    """Places in order, near ones once; of `outer` only the first and the last: a table may be open at its sides."""
    found: list[float] = []
    for place in sorted((*inner, *((min(outer), max(outer)) if outer else ()))):
        if not found or place - found[-1] > NEAR:
            found.append(place)
    return found


def aligned(boxes: Sequence[Box]) -> Iterator[Grid]:
    """Tables that are not ruled: three rows and more, one below the other, whose words keep three columns apart.

    `boxes` are those of the words of a page, or of several words that stand beside each other.
    """
    run: list[list[Box]] = []
    for row in (*_rows(boxes), []):
        columns = len(_segments(row))
        if columns >= _FEWEST_COLUMNS and (not run or _follows(run[-1][0], row[0])):
            run.append(row)
            continue
        if len(run) >= _FEWEST_ROWS and (grid := _of_rows(run)):
            yield grid
        run = [row] if columns >= _FEWEST_COLUMNS else []


def _rows(boxes: Sequence[Box]) -> list[list[Box]]:
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda box: -box.middle[1]):
        if rows and abs(rows[-1][0].middle[1] - box.middle[1]) <= NEAR:
            rows[-1].append(box)
        else:
            rows.append([box])
    return rows


def _segments(row: Sequence[Box]) -> list[tuple[float, float]]:
    """From where to where words stand without a wide gap."""
    found: list[tuple[float, float]] = []
    for box in sorted(row):
        if found and box.left - found[-1][1] <= _GAP * (box.top - box.bottom):
            found[-1] = (found[-1][0], max(found[-1][1], box.right))
        else:
            found.append((box.left, box.right))
    return found


def _follows(above: Box, below: Box) -> bool:
    return above.middle[1] - below.middle[1] < _FARTHEST_ROW * (above.top - above.bottom)


def _of_rows(run: Sequence[Sequence[Box]]) -> Grid | None:
    segments = [segment for row in run for segment in _segments(row)]
    taken: list[tuple[float, float]] = []
    for start, end in sorted(segments):
        if taken and start <= taken[-1][1]:
            taken[-1] = (taken[-1][0], max(taken[-1][1], end))
        else:
            taken.append((start, end))
    height = max(box.top - box.bottom for row in run for box in row)
    wide = sum(end - start for start, end in segments) / len(segments) > _WIDEST_CELL * height
    if len(taken) < _FEWEST_COLUMNS or wide:
        return None
    columns = [taken[0][0], *((left[1] + right[0]) / 2 for left, right in pairwise(taken)), taken[-1][1]]
    heights = [row[0].middle[1] for row in run]
    between = [(above + below) / 2 for above, below in pairwise(heights)]
    return Grid(columns, [heights[-1] - height / 2, *between[::-1], heights[0] + height / 2])
