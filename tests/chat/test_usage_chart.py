"""The chart of “My usage”."""

from datetime import date

from chat.ledger.chart import HEIGHT, STEP, usage_chart
from chat.ledger.services import UsageFigures

MONTH = date(2026, 2, 1)


def test_the_day_with_the_most_fills_the_height_and_the_others_are_in_proportion() -> None:
    usage = {
        date(2026, 2, 3): UsageFigures(input=600, output=200),
        date(2026, 2, 28): UsageFigures(input=0, output=400),
    }
    chart = usage_chart(MONTH, usage)
    assert chart is not None
    assert (len(chart.bars), chart.width, chart.most) == (28, 28 * STEP, 800)
    third, last = chart.bars[2], chart.bars[-1]
    assert (third.read_height, third.written_height, third.written_y, third.read_y) == (75.0, 25.0, 0.0, 25.0)
    assert (last.read_height, last.written_y, last.written_height) == (0.0, HEIGHT / 2, HEIGHT / 2)
    assert [bar.read + bar.written for bar in chart.bars].count(0) == 26


def test_a_month_without_tokens_has_no_chart() -> None:
    assert usage_chart(MONTH, {}) is None
    assert usage_chart(MONTH, {date(2026, 2, 1): UsageFigures(calls=1)}) is None
