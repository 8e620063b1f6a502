"""The codes of tasks: their syntax and meaning, and codes in a text."""

import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projects.planner.models import codes
from projects.planner.models.codes import BadCode, Code

# The pattern of the design, character by character.
PATTERN = re.compile(
    r"^(?:Y\d{4}-O\d{2}|M\d{4}-\d{2}-[OT]\d{2}|D\d{4}-\d{2}-\d{2}-T\d{2}(?:\.C\d{2})?)$",
    re.ASCII,
)
KINDS = [("objective", "year"), ("objective", "month"), ("task", "month"), ("task", "day"), ("item", "day")]
numbers = st.integers(1, 99)


@st.composite
def every_code(draw: st.DrawFn) -> Code:
    level, horizon = draw(st.sampled_from(KINDS))
    start = codes.first_day(horizon, draw(st.dates()))
    return Code(level, horizon, start, draw(numbers), draw(numbers) if level == "item" else None)  # type: ignore[arg-type]  # the list above holds literals


@given(every_code())
def test_a_code_reads_back_as_what_it_was_made_from(code: Code) -> None:
    text = str(code)
    assert PATTERN.match(text)
    assert len(text) <= codes.MAX_LENGTH
    assert codes.parse(text) == code
    assert codes.find_mentions(f"see @{text}, please") == [text]


@given(st.from_regex(PATTERN, fullmatch=True))
def test_whatever_has_the_shape_is_read_exactly_or_refused(text: str) -> None:
    try:
        code = codes.parse(text)
    except BadCode:
        assert not codes.find_mentions(f"@{text}")
    else:
        assert str(code) == text


@given(st.text(alphabet="YMDOTC.-0123456789 \n٣", max_size=24))
def test_nothing_else_is_a_code(text: str) -> None:
    if not PATTERN.match(text) or text.endswith("\n"):
        assert not codes.is_code(text)


@pytest.mark.parametrize(
    "text",
    [
        "Y2026-T01",  # a year has objectives only
        "M2026-11-T03.C01",  # only day tasks have items
        "M2026-13-T01",
        "D2026-02-29-T01",
        "D2026-11-21-O01",
        "D2026-11-21-T00",
        "D2026-11-21-T01.C00",
        "Y0000-O01",
        "D2026-11-21-T1",
        "d2026-11-21-t01",
        "D2026-11-21-T01\n",
    ],
)
def test_codes_of_days_that_are_not_or_levels_that_have_none_are_refused(text: str) -> None:
    with pytest.raises(BadCode):
        codes.parse(text)


def test_a_code_cannot_be_built_in_the_middle_of_its_period() -> None:
    with pytest.raises(BadCode):
        Code("objective", "year", date(2026, 2, 1), 1)
    with pytest.raises(BadCode):
        Code("item", "day", date(2026, 2, 1), 1)
    with pytest.raises(BadCode):
        Code("task", "day", date(2026, 2, 1), 100)


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        ("@D2026-11-21-T02 and @D2026-11-21-T02.C03.", ["D2026-11-21-T02", "D2026-11-21-T02.C03"]),
        ("How is @Y2026-O01? And @M2026-11-T03, @M2026-11-O01!", ["Y2026-O01", "M2026-11-T03", "M2026-11-O01"]),
        ("(@D2026-11-21-T02.)", ["D2026-11-21-T02"]),
        ("@d2026-11-21-t02", ["D2026-11-21-T02"]),
        ("看@D2026-11-21-T02吧", ["D2026-11-21-T02"]),
        ("@D2026-11-21-T02 @D2026-11-21-T02", ["D2026-11-21-T02"]),
        ("D2026-11-21-T02", []),
        ("me@D2026-11-21-T02", []),
        ("@D2026-11-21-T021", []),
        ("@D2026-02-30-T01", []),
        ("@D٢٠٢٦-11-21-T02", []),
    ],
)
def test_mentions_are_found_where_people_write_them(text: str, mentioned: list[str]) -> None:
    assert codes.find_mentions(text) == mentioned


@given(st.text(max_size=60), every_code())
def test_a_mention_between_spaces_is_always_found(around: str, code: Code) -> None:
    assert str(code) in codes.find_mentions(f"{around} @{code} {around}")
