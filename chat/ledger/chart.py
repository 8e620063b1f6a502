"""The chart of “My usage”: the tokens of each day of a month as bars, drawn by the page as SVG.

The bars stand in a box of `HEIGHT` units, `STEP` units a day, which the page stretches to its width.
"""

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from chat.ledger.services import UsageFigures

HEIGHT = 100
STEP = 10
BAR = 7  # units of a step that are filled


@dataclass(frozen=True, slots=True)
class ChartBar:
    """The tokens of a day. The part for what was written stands on the part for what was read."""

    day: date
    read: int
    written: int
    x: float
    read_y: float
    read_height: float
    written_y: float
    written_height: float


@dataclass(frozen=True, slots=True)
class UsageChart:
    """`most`: the tokens of the day with the most, which fills the height."""

    bars: list[ChartBar]
    most: int
    width: int = 0
    height: int = HEIGHT
    bar: int = BAR

    @property
    def middle(self) -> date:
        return self.bars[len(self.bars) // 2].day


def usage_chart(first: date, usage: Mapping[date, UsageFigures]) -> UsageChart | None:
    """Return the chart of the month that begins on the day `first`; None if no tokens were used in it."""
    days = [first.replace(day=day) for day in range(1, monthrange(first.year, first.month)[1] + 1)]
    figures = [usage.get(day, UsageFigures()) for day in days]
    most = max(each.input + each.output for each in figures)
    if not most:
        return None
    bars = []
    for place, (day, each) in enumerate(zip(days, figures, strict=True)):
        read_height, written_height = (round(HEIGHT * tokens / most, 2) for tokens in (each.input, each.output))
        read_y = round(HEIGHT - read_height, 2)
        bars.append(
            ChartBar(
                day=day,
                read=each.input,
                written=each.output,
                x=place * STEP + (STEP - BAR) / 2,
                read_y=read_y,
                read_height=read_height,
                written_y=round(max(0.0, read_y - written_height), 2),
                written_height=written_height,
            )
        )
    return UsageChart(bars, most, width=STEP * len(days))
