"""Write tables as Markdown. The text of merged cells is repeated in each place that they cover."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_REPEATED = 80  # characters; a longer text appears only in the first place of a merged cell
_MAX_COLUMNS = 100  # columns of one cell and of one row; a file may claim millions


@dataclass(slots=True)
class Cell:
    """A cell. `columns`, `rows`: the places that it covers. `continues`: it is the lower part of the cell above."""

    text: str
    columns: int = 1
    rows: int = 1
    continues: bool = False


def markdown(rows: Iterable[Sequence[Cell]]) -> str:
    """Return the table as lines that end with `\\n`; the first row is the head. A table without words gives "".

    A table with one column is merely a frame around text, so its lines are returned as they are.
    """
    grid = [row for row in _grid(rows) if any(row)]
    width = min(max(map(len, grid), default=0), _MAX_COLUMNS)
    if width == 1:
        return "".join(f"{row[0]}\n" for row in grid)
    filled = ((*row, *[""] * (width - len(row))) for row in grid)
    lines = [f"| {' | '.join(map(_one_line, row))} |\n" for row in filled]
    return "".join((*lines[:1], *([f"|{' --- |' * width}\n"] if lines else []), *lines[1:]))


def _grid(rows: Iterable[Sequence[Cell]]) -> list[list[str]]:
    """Return the text in each place, with the repeated text of merged cells."""
    grid: list[list[str]] = []
    # By column: the text of a merged cell above, and the number of further rows that it covers.
    reaching: dict[int, tuple[str, int]] = {}
    for row in filter(None, rows):
        places: list[str] = []
        for cell in row:
            _fill_from_above(places, reaching)
            at = len(places)
            above = grid[-1][at] if grid and at < len(grid[-1]) else ""
            text = _repeated_text(above) if cell.continues else cell.text.strip()
            columns = max(1, min(cell.columns, _MAX_COLUMNS))
            places += [text, *[_repeated_text(text)] * (columns - 1)]
            if cell.rows > 1 and len(places) <= _MAX_COLUMNS:
                reaching |= dict.fromkeys(range(at, at + columns), (_repeated_text(text), cell.rows - 1))
        _fill_from_above(places, reaching)
        grid.append(places)
    return grid


def _fill_from_above(places: list[str], reaching: dict[int, tuple[str, int]]) -> None:
    while (column := len(places)) in reaching:
        text, rows_left = reaching.pop(column)
        places.append(text)
        if rows_left > 1:
            reaching[column] = (text, rows_left - 1)
            if column + 1 not in reaching:
                return


def _repeated_text(text: str) -> str:
    return text if len(text) <= _REPEATED else ""


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
