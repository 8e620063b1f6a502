"""The arithmetic of `make bench-peers`, its clients and its model."""

import json
import math
from urllib.parse import urlsplit

import pytest

from contrib.bench.peers import model
from contrib.bench.peers.__main__ import scripted_model
from contrib.bench.peers.client import AnswerExchange, Clients, TimedAnswer, http
from contrib.bench.peers.figures import FigureRow, percentile, ratio, table
from contrib.bench.peers.tables import AnswerTimes


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([1.0], 0.99, 1.0),
        ([float(n) for n in range(1, 101)], 0.95, 95.0),
        ([5.0, 4.0], 0, 4.0),
    ],
)
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_what_is_missing_has_no_figure() -> None:
    assert math.isnan(percentile([], 0.5))
    assert math.isnan(ratio(1.0, 0.0))
    assert math.isnan(ratio(math.nan, 2.0))


def test_ratios_stand_before_the_figures_and_those_with_a_limit_before_the_others() -> None:
    lines = table(
        "Turn",
        [
            FigureRow("lost", {"Other": 1.0}),
            FigureRow("CPU, ms", {"Glasshouse": 30.0, "Other": 60.0}, {"Other": 0.4}),
            FigureRow("delay, ms", {"Glasshouse": 30.0}, at_most=40.0),
        ],
    ).splitlines()
    assert [line.split() for line in lines[3:6]] == [
        ["misses", "0.50", "≤", "0.40", "CPU,", "ms:", "Other"],
        ["0.75", "≤", "1.00", "delay,", "ms:", "at", "most", "40"],
        ["–", "lost:", "Other"],
    ]
    assert [line.split() for line in lines[6:]] == [
        ["Other", "Glasshouse"],
        ["lost", "1.00", "–"],
        ["CPU,", "ms", "60.00", "30.00"],
        ["delay,", "ms", "–", "30.00"],
    ]


def test_what_a_product_added_is_read_off_the_stamps_even_when_a_token_is_said_twice_and_in_two_reads() -> None:
    sent, arrived, started = 100.0, 100.03, 100.08
    text = f"data: got {model.stamp(arrived)} of 3 ={model.stamp(started)}\n ={model.stamp(started + 0.02)}\n".encode()
    seen = AnswerTimes.of(TimedAnswer(sent, ((100.09, text[:40]), (100.11, text[40:]), (101.0, text)), True))
    assert (seen.whole, seen.messages, seen.size) == (True, 3, 2 * len(text))
    assert [seen.waited, seen.added, *seen.delays] == pytest.approx([0.03, 0.04, 0.01, 0.01])


def test_a_stamp_outlives_the_end_of_its_digits() -> None:
    late = (model.WRAP - 1) / 1e6
    assert model.since(model.stamp(late).encode(), late + 0.5) == pytest.approx(0.5)


def test_an_answer_is_whole_refused_or_given_up() -> None:
    def asking(path: str, tokens: int, interval: float, port: int) -> AnswerExchange:
        messages = [{"role": "user", "content": model.script(0, tokens, interval)}]
        body = json.dumps({"model": "scripted", "stream": True, "messages": messages}).encode()
        return AnswerExchange(port, http("POST", path, {}, body), rb"\[DONE\]")

    with scripted_model() as url, Clients() as clients:
        port = urlsplit(url).port or 0
        path = "/v1/chat/completions"
        answers = clients.run([asking(path, 30, 0, port), asking("/v1/else", 1, 0, port)])
        [late] = clients.run([asking(path, 2, 3600, port)], limit=0.1)
    whole, refused = (AnswerTimes.of(answer) for answer in answers)
    assert (whole.whole, len(whole.delays), whole.messages) == (True, 30, 1)
    assert (refused.whole, refused.first) == (False, None)
    assert not late.whole
