"""Compute and print the tables: ratios and limits first, then the figures."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OWN_PREFIX = "Glasshouse"  # prefix of the names of our columns
MISSING = "–"


@dataclass(frozen=True)
class FigureRow:
    """One row of figures, by column; lower is better.

    `limits`: the greatest allowed ratio of our figure to a column. `at_most`: the greatest allowed figure of ours,
    whatever the figures of the peers.
    """

    what: str
    figures: Mapping[str, float]
    limits: Mapping[str, float] = field(default_factory=dict)
    at_most: float | None = None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` (0 to 1) of all values do not exceed, or NaN without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def ratio(ours: float, theirs: float) -> float:
    """Return our figure divided by the peer's, or NaN if either is missing or the peer's is zero."""
    return ours / theirs if theirs else math.nan


def table(title: str, rows: Sequence[FigureRow]) -> str:
    """Return the table as text: the ratios of our columns, each with its limit, then the figures."""
    columns = list(dict.fromkeys(column for row in rows for column in row.figures))
    own = [column for column in columns if column.startswith(OWN_PREFIX)]
    load = f"load of the machine {os.getloadavg()[0]:.1f}"
    lines = [f"\n{title}   ({load})", "".join(f"{name:>29}" for name in own) + "   limit   ratio of"]
    pairs = [(row, peer, limit) for row in rows for peer, limit in _compared(row, columns)]
    for row, peer, limit in sorted(pairs, key=lambda pair: pair[2] is None):  # rows with a limit first
        lines.append("".join(_ratio(row, mine, peer, limit) for mine in own) + _limit(limit) + f"{row.what}: {peer}")
    width = max(len(row.what) for row in rows) + 2
    lines.append(" " * width + "".join(f"{column:>29}" for column in columns))
    lines += [
        row.what.ljust(width) + "".join(f"{_text(row.figures.get(each)):>29}" for each in columns) for row in rows
    ]
    return "\n".join(lines)


def _compared(row: FigureRow, columns: Sequence[str]) -> list[tuple[str, float | None]]:
    peers = [column for column in columns if not column.startswith(OWN_PREFIX) and row.figures.get(column)]
    at_most = [(f"at most {row.at_most:,g}", 1.0)] if row.at_most else []
    return [*((peer, row.limits.get(peer)) for peer in peers), *at_most]


def _ratio(row: FigureRow, mine: str, peer: str, limit: float | None) -> str:
    theirs = row.figures.get(peer, row.at_most)
    value = ratio(row.figures.get(mine, math.nan), theirs or math.nan)
    missed = limit is not None and value > limit
    return f"{'misses ' if missed else ''}{_text(value)}".rjust(29)


def _limit(limit: float | None) -> str:
    return f"{'' if limit is None else f'≤ {limit:.2f}':>8}   "


def _text(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:,.2f}"
