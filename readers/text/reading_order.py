"""Move lines of a page into the gap that they fill on the page, if the file draws them later."""

from collections.abc import Iterable, Sequence

from readers.text.grids import SAME_POSITION
from readers.text.headings import PageLine

_GAP = 3  # times the height of a line
_FEWEST = 2  # lines that move together
_MAX_GAPS = 20  # per page


def move_into_gaps(lines: Sequence[PageLine]) -> list[PageLine]:
    """Return the lines in the order of the page. Rows of a table may be drawn after the notes below it.

    Lines move only if they alone fill the gap, and begin where the lines around it do: the lines of another column do
    not.
    """
    ordered = list(lines)
    gaps = 0
    at = 0
    while at + 1 < len(ordered) and gaps < _MAX_GAPS:
        upper, lower = ordered[at], ordered[at + 1]
        at += 1
        if not (upper.box and lower.box) or upper.box.bottom - lower.box.top <= _GAP * (
            upper.box.top - upper.box.bottom
        ):
            continue
        gaps += 1
        inside = [number for number, line in enumerate(ordered) if _is_between(line, upper, lower)]
        if len(inside) < _FEWEST or inside != list(range(inside[0], inside[-1] + 1)) or inside[0] <= at:
            continue
        moved = ordered[inside[0] : inside[-1] + 1]
        left = min(upper.box.left, lower.box.left)
        if abs(min(line.box.left for line in moved if line.box) - left) <= SAME_POSITION and _descends(moved):
            del ordered[inside[0] : inside[-1] + 1]
            ordered[at:at] = moved
            at += len(moved)
    return ordered


def _is_between(line: PageLine, upper: PageLine, lower: PageLine) -> bool:
    if not (line.box and upper.box and lower.box):
        return False
    return line.box.top <= upper.box.bottom + SAME_POSITION and line.box.bottom >= lower.box.top - SAME_POSITION


def _descends(lines: Iterable[PageLine]) -> bool:
    bottoms = [line.box.bottom for line in lines if line.box]
    return bottoms == sorted(bottoms, reverse=True)
