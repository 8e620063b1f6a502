"""What becomes of a message's text before it is stored."""

import pytest

from chat.turns.submit import Ask, text_of
from core.errors import ProductError


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("    if x:\n        y()\n", "    if x:\n        y()"),
        ("\n\r\n\tindented\n\n  more  \n\n", "\tindented\n\n  more"),
        ("plain", "plain"),
        ("\u3000全角", "\u3000全角"),
    ],
)
def test_the_first_line_keeps_its_indentation(sent: str, stored: str) -> None:
    assert text_of(Ask(sent)) == stored


@pytest.mark.parametrize("sent", ["", "   ", "\n \t\r\n"])
def test_blanks_alone_are_no_message(sent: str) -> None:
    with pytest.raises(ProductError) as caught:
        text_of(Ask(sent))
    assert caught.value.code == "empty_message"
