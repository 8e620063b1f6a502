"""Find the tables of a page by its ruled lines, and by words that are aligned in columns.

`ruled` yields a grid for each group of lines that meet. `aligned` yields a grid for rows whose words form columns.
`Grid.table` fills a grid with the glyphs of the page, and returns Markdown if the grid is a table.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple
from unicodedata import bidirectional

from readers.text.tables import Cell, markdown

SAME_POSITION = 3.0  # points; positions closer than this count as one
_SHORTEST = 6.0  # points; a shorter ruled line borders no cell
_NARROWEST = 5.0  # points; no letter fits between closer borders, such as those of a cell and of its shading
MAX_RULES = 400  # ruled lines in one direction; a page with more is a drawing
_MAX_PLACES = 3_000  # cells of one table
_MAX_REPEATED = 2  # the Markdown of a table, which repeats merged cells, may have this many times its glyphs
_FEWEST = 2  # rows with text in several cells
_MAX_DIVIDED = 4  # a grid in which borders divide one word in this many rows is no table
_MIN_FILLED = 0.25  # minimum share of cells with text; a diagram has less
# Limits for a table without ruled lines. The first three are in heights of its lines.
_MIN_GAP = 0.8  # between columns
_FARTHEST_ROW = 3  # distance from the previous row
_WIDEST_CELL = 12  # average width; columns of a newspaper are wider
_LEAST_FILLED = 0.7  # minimum share of cells with text
_SHORTEST_CELL = 2  # average number of characters
_MAX_CELL_LENGTH = 40  # average number of characters in a column
_NUMBER = re.compile(r"[^\w\s]*+\d[\d.,:/%\s]*+[^\w\s]*+\w{0,3}")
_RIGHT_TO_LEFT = ("R", "AL")
_FEWEST_ROWS = 3
_FEWEST_COLUMNS = 3


class Box(NamedTuple):
    """A rectangle, in points from the left and the bottom of the page."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2


class Rule(NamedTuple):
    """A straight line from `start` to `end`. `at`: the height of a level line, or the x position of an upright one."""

    at: float
    start: float
    end: float

    def meets(self, other: "Rule") -> bool:
        """Return whether this line meets a perpendicular one."""
        across = other.start - SAME_POSITION <= self.at <= other.end + SAME_POSITION
        return across and self.start - SAME_POSITION <= other.at <= self.end + SAME_POSITION


class Glyph(NamedTuple):
    """A visible character, or a space with the box of the previous one. `line`: the number of its line on the page."""

    text: str
    box: Box
    line: int


class Grid(NamedTuple):
    """A grid of cells. `columns`: borders from left to right. `rows`: borders from the bottom up."""

    columns: Sequence[float]
    rows: Sequence[float]
    level: Sequence[Rule] = ()
    upright: Sequence[Rule] = ()

    def holds(self, box: Box) -> bool:
        x, y = box.middle
        return self.columns[0] <= x <= self.columns[-1] and self.rows[0] <= y <= self.rows[-1]

    def table(self, glyphs: Sequence[Glyph]) -> str:
        """Return the Markdown of the glyphs in the grid, or "" if the grid is no table."""
        filled, divided = self._filled(glyphs)
        if divided * _MAX_DIVIDED > len(self.rows):
            return ""  # borders that divide words are those of a box around a text
        rows = [row for top in range(len(self.rows) - 1) for row in _split_row(filled, top)]
        if is_right_to_left("".join(glyph.text for glyph in glyphs)):
            rows = [row[::-1] for row in rows]
        full_rows = sum(sum(bool(cell.text) for cell in row) > 1 for row in rows)
        filled_cells = sum(bool(cell.pieces) for cell in filled)
        if (
            full_rows < _FEWEST
            or filled_cells < _MIN_FILLED * len(filled)
            or not (self.upright or _is_number_table(rows))
        ):
            return ""
        written_characters = sum(len(cell.text) * cell.columns * cell.rows for row in rows for cell in row)
        if written_characters <= _MAX_REPEATED * len(glyphs):
            return markdown(rows)
        # As a table, a form or a drawing would repeat the text of merged cells over and over. A table has more rows of
        # single cells than others, such as those with its title.
        single = sum(sum(bool(cell.text) and cell.columns == cell.rows == 1 for cell in row) > _FEWEST for row in rows)
        return markdown(map(_without_repeats, rows)) if 2 * single > len(rows) else ""

    def _filled(self, glyphs: Sequence[Glyph]) -> tuple[list["_GridCell"], int]:
        """Return the cells with their glyphs, and the number of words that lie in two cells."""
        places = list(_places(self))
        owner = {(row, column): place for place in places for row, column in place.covered()}
        width = len(self.columns) - 2
        height = len(self.rows) - 2
        divided = 0
        line = -1
        last_text = ""
        last_place: _GridCell | None = None
        for glyph in glyphs:
            x, y = glyph.box.middle
            column = min(max(bisect_right(self.columns, x) - 1, 0), width)
            row = height - min(max(bisect_right(self.rows, y) - 1, 0), height)
            place = owner[row, column]
            place.add(glyph)
            if glyph.line == line and place is not last_place and not (glyph.text.isspace() or last_text.isspace()):
                divided += 1
            line, last_place, last_text = glyph.line, place, glyph.text
        return places, divided


class _GridCell:
    """A cell and its position. Rows count from the top."""

    def __init__(self, row: int, column: int, rows: int, columns: int) -> None:
        self.row = row
        self.column = column
        self.rows = rows
        self.columns = columns
        self.pieces: list[tuple[float, list[str]]] = []  # height and characters of each of its lines
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
            same_line = next((piece for piece in self.pieces if abs(piece[0] - height) <= SAME_POSITION), None)
            if same_line is None:
                self.pieces.append((height, []))
            else:  # a line that continues
                self.pieces.remove(same_line)
                self.pieces.append(same_line)
                same_line[1].append(" ")
            self._line = glyph.line
        self.pieces[-1][1].append(glyph.text)

    def text(self) -> str:
        return " ".join(filter(None, ("".join(signs).strip() for _, signs in self.pieces)))

    def text_at(self, height: float) -> str:
        """Return the text of the lines at this height."""
        signs = ("".join(piece).strip() for at, piece in self.pieces if abs(at - height) <= SAME_POSITION)
        return " ".join(filter(None, signs))


def _places(grid: Grid) -> Iterator[_GridCell]:
    """Yield the cells. Each extends to the next ruled line."""
    middles = [(left + right) / 2 for left, right in pairwise(grid.columns)]
    heights = [(low + high) / 2 for low, high in pairwise(grid.rows)][::-1]
    borders = list(grid.rows)[::-1]
    if not grid.upright:  # a grid of `aligned`
        yield from (_GridCell(row, column, 1, 1) for row in range(len(heights)) for column in range(len(middles)))
        return
    below = [[_covers(grid.level, borders[row + 1], x) for x in middles] for row in range(len(heights))]
    right_rules = [[_covers(grid.upright, x, y) for x in grid.columns[1:]] for y in heights]
    covered: set[tuple[int, int]] = set()
    for row in range(len(heights)):
        for column in range(len(middles)):
            if (row, column) in covered:
                continue
            last = column
            while last + 1 < len(middles) and not right_rules[row][last] and (row, last + 1) not in covered:
                last += 1
            span = range(column, last + 1)
            end = row
            while (
                end + 1 < len(heights)
                and not any(below[end][each] for each in span)
                and not any(right_rules[end + 1][each] for each in span[:-1])
            ):
                end += 1
            place = _GridCell(row, column, end - row + 1, last - column + 1)
            covered.update(place.covered())
            yield place


def is_right_to_left(text: str) -> bool:
    """Return whether most letters are of a script that is written from right to left."""
    if text.isascii():
        return False
    kinds = [bidirectional(sign) for sign in text]
    return sum(kind in _RIGHT_TO_LEFT for kind in kinds) > kinds.count("L")


def has_right_letters(text: str) -> bool:
    """Return whether a text has letters of a script that is written from right to left."""
    return any(bidirectional(sign) in _RIGHT_TO_LEFT for sign in text)


def mirror_segments(glyphs: Sequence[Glyph]) -> str:
    """Return a line of a right-to-left page that has no letters of such a script, such as the head of a table.

    The segments between wide gaps are read from the right. "" if there is one segment, which is read as it is.
    """
    segments: list[list[Glyph]] = []
    for glyph in glyphs:
        before = segments[-1][-1].box if segments else None
        if before is None or glyph.box.left - before.right > _MIN_GAP * (glyph.box.top - glyph.box.bottom):
            segments.append([])
        segments[-1].append(glyph)
    texts = ["".join(glyph.text for glyph in segment).strip() for segment in segments]
    return " ".join(filter(None, reversed(texts))) if len(segments) > 1 else ""


def _without_repeats(row: Sequence[Cell]) -> list[Cell]:
    """Return a row in which the text of a merged cell stands only in its first place."""
    cells: list[Cell] = []
    for cell in row:
        cells += [replace(cell, columns=1), *(Cell("", rows=cell.rows) for _ in range(cell.columns - 1))]
    return cells


def _is_number_table(rows: Sequence[Sequence[Cell]]) -> bool:
    """Return whether the columns form a table: mostly full, with short cells, and at least one column of numbers."""
    columns = [[cell.text for cell in column if cell.text] for column in zip(*rows, strict=True)]
    full = sum(map(len, columns)) >= _LEAST_FILLED * len(rows) * len(columns)
    short = all(sum(map(len, column)) <= _MAX_CELL_LENGTH * max(len(column), 1) for column in columns)
    long_enough = sum(len(text) for column in columns for text in column) >= _SHORTEST_CELL * sum(map(len, columns))
    numbers = any(
        sum(bool(_NUMBER.fullmatch(text)) for text in column) > _LEAST_FILLED * len(column)
        for column in columns
        if column
    )
    return full and short and long_enough and numbers


def _covers(rules: Sequence[Rule], at: float, place: float) -> bool:
    return any(
        abs(rule.at - at) <= SAME_POSITION and rule.start - SAME_POSITION <= place <= rule.end + SAME_POSITION
        for rule in rules
    )


def _split_row(places: Sequence[_GridCell], row: int) -> Iterator[list[Cell]]:
    """Yield the row. If its cells have lines at the same heights, yield one row for each line.

    Not all tables have ruled lines between their rows.
    """
    cells = [place for place in places if place.row == row]
    heights = _line_heights(cells)
    if not heights:
        yield [Cell(cell.text(), cell.columns, cell.rows) for cell in cells]
    for height in heights:
        yield [Cell(cell.text_at(height), cell.columns) for cell in cells]


def _line_heights(cells: Sequence[_GridCell]) -> list[float]:
    """Return the heights of the lines into which a row is divided, from the top; none for an undivided row.

    All cells have the same lines, or all but the first, which has labels, have the same lines of numbers.
    """
    if any(cell.rows > 1 for cell in cells):
        return []
    heights = [sorted((height for height, _ in cell.pieces), reverse=True) for cell in cells if cell.pieces]
    if len(heights) < 2:
        return []
    first, second = heights[0], heights[1]
    others_agree = len(second) > 1 and all(
        len(each) == len(second)
        and all(abs(one - other) <= SAME_POSITION for one, other in zip(each, second, strict=True))
        for each in heights[2:]
    )
    if not others_agree:
        return []
    if len(first) == len(second) and all(
        abs(one - other) <= SAME_POSITION for one, other in zip(first, second, strict=True)
    ):
        return first
    numbers = all(
        _NUMBER.fullmatch("".join(signs).strip()) for cell in cells if cell is not cells[0] for _, signs in cell.pieces
    )
    labelled = all(any(abs(one - other) <= SAME_POSITION for one in first) for other in second)
    return first if numbers and labelled and cells[0].pieces else []


def ruled(level: Sequence[Rule], upright: Sequence[Rule]) -> Iterator[Grid]:
    """Yield a grid for each group of ruled lines that meet, if it has inner borders."""
    level = _join_touching_rules(level)
    upright = _join_touching_rules(upright)
    if len(level) > MAX_RULES or len(upright) > MAX_RULES:
        return
    for group in _groups(level, upright):
        flat, tall = (_merge_close_rules(rules) for rules in group)
        columns = _borders([rule.at for rule in tall], [end for rule in flat for end in (rule.start, rule.end)])
        rows = _borders([rule.at for rule in flat], [end for rule in tall for end in (rule.start, rule.end)])
        if len(columns) > 2 and len(rows) > 2 and len(columns) * len(rows) <= _MAX_PLACES:
            yield Grid(columns, rows, flat, tall)


def _join_touching_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Join lines that touch each other, then drop short lines."""
    merged: list[Rule] = []
    for rule in sorted(rules, key=lambda rule: (round(rule.at), rule.start)):
        last = merged[-1] if merged else None
        if last and abs(last.at - rule.at) <= 1 and rule.start <= last.end + SAME_POSITION:
            merged[-1] = Rule(last.at, last.start, max(last.end, rule.end))
        else:
            merged.append(rule)
    return [rule for rule in merged if rule.end - rule.start >= _SHORTEST]


def _merge_close_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Move lines between which no letter fits to the place of the longest of them."""
    groups: list[list[Rule]] = []
    for rule in sorted(rules):
        if groups and rule.at - groups[-1][-1].at <= _NARROWEST:
            groups[-1].append(rule)
        else:
            groups.append([rule])
    snapped: list[Rule] = []
    for group in groups:
        lengths: Counter[int] = Counter()
        for rule in group:
            lengths[round(rule.at)] += round(rule.end - rule.start)
        place = max(group, key=lambda rule: lengths[round(rule.at)]).at
        snapped += [rule._replace(at=place) for rule in group]
    return snapped


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
    """Return the borders in order. Borders that are close to each other become one.

    Only the first and the last of `outer` count, since the sides of a table may be open.
    """
    borders: list[float] = []
    for place in sorted((*inner, *((min(outer), max(outer)) if outer else ()))):
        if not borders or place - borders[-1] > SAME_POSITION:
            borders.append(place)
    return borders


def aligned(boxes: Sequence[Box]) -> Iterator[Grid]:
    """Yield the grids of tables without ruled lines: at least three consecutive rows with three columns or more.

    Each of `boxes` holds one word of the page, or several neighbouring words.
    """
    run: list[list[Box]] = []
    for row in (*_rows(boxes), []):
        columns = len(_segments(row))
        if columns >= _FEWEST_COLUMNS and (not run or _follows(run[-1][0], row[0])):
            run.append(row)
            continue
        if len(run) >= _FEWEST_ROWS and (grid := _build_grid(run)):
            yield grid
        run = [row] if columns >= _FEWEST_COLUMNS else []


def _rows(boxes: Sequence[Box]) -> list[list[Box]]:
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda box: -box.middle[1]):
        if rows and abs(rows[-1][0].middle[1] - box.middle[1]) <= SAME_POSITION:
            rows[-1].append(box)
        else:
            rows.append([box])
    return rows


def _segments(row: Sequence[Box]) -> list[tuple[float, float]]:
    """Join words without a wide gap between them. Return the left and right end of each segment."""
    segments: list[tuple[float, float]] = []
    for box in sorted(row):
        if segments and box.left - segments[-1][1] <= _MIN_GAP * (box.top - box.bottom):
            segments[-1] = (segments[-1][0], max(segments[-1][1], box.right))
        else:
            segments.append((box.left, box.right))
    return segments


def _follows(above: Box, below: Box) -> bool:
    return above.middle[1] - below.middle[1] < _FARTHEST_ROW * (above.top - above.bottom)


def _build_grid(run: Sequence[Sequence[Box]]) -> Grid | None:
    segments = [segment for row in run for segment in _segments(row)]
    columns_of_words: list[tuple[float, float]] = []
    for start, end in sorted(segments):
        if columns_of_words and start <= columns_of_words[-1][1]:
            columns_of_words[-1] = (columns_of_words[-1][0], max(columns_of_words[-1][1], end))
        else:
            columns_of_words.append((start, end))
    height = max(box.top - box.bottom for row in run for box in row)
    too_wide = sum(end - start for start, end in segments) / len(segments) > _WIDEST_CELL * height
    if len(columns_of_words) < _FEWEST_COLUMNS or too_wide:
        return None
    columns = [
        columns_of_words[0][0],
        *((left[1] + right[0]) / 2 for left, right in pairwise(columns_of_words)),
        columns_of_words[-1][1],
    ]
    heights = [row[0].middle[1] for row in run]
    between = [(above + below) / 2 for above, below in pairwise(heights)]
    return Grid(columns, [heights[-1] - height / 2, *between[::-1], heights[0] + height / 2])
