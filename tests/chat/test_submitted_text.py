"""Changes of a message's text before it is stored."""

from uuid import uuid4

import pytest

from chat.turns.submit import Ask, checked_text
from core.errors import ProductError


@pytest.mark.parametrize(
    "sent", ["    if x:\n        y()\n", "\n\r\n\tindented\n\n  more  \n\n", "plain", "\u3000全角", "trailing  \t"]
)
def test_a_message_is_stored_as_it_was_written(sent: str) -> None:
    assert checked_text(Ask(sent)) == sent


@pytest.mark.parametrize("sent", ["", "   ", "\n \t\r\n"])
def test_blanks_alone_are_no_message(sent: str) -> None:
    with pytest.raises(ProductError) as caught:
        checked_text(Ask(sent))
    assert caught.value.code == "empty_message"
    assert checked_text(Ask(sent, files=[uuid4()])) == "", "files can go alone"
