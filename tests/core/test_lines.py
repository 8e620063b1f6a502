"""The first and the last line of texts of any size."""

import pytest

from core.lines import first_line, last_line

TEXTS = ["", " ", "word", "  two \n words ", "a b " * 50, "x" * 100, f"{'y' * 11} {'z' * 30}", f"\n{'ab ' * 9}\tc"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("longest", [2, 5, 10, 11, 12, 300])
def test_both_ends_of_a_text_are_those_of_its_line(text: str, longest: int) -> None:
    line = " ".join(text.split())
    assert first_line(text, longest) == line[: longest + 2]
    assert last_line(text, longest) == line[-longest:]
