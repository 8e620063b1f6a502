"""The encodings that people can choose are those that the readers know."""

import pytest

from files.encodings import ENCODINGS, label
from readers.tests.test_encodings import TEXTS
from readers.text.encodings import decode, detect_encoding


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("big5", TEXTS["big5"][0]),
        ("euc_jp", TEXTS["cp932"][0]),
        ("iso8859_2", TEXTS["cp1250"][0]),
        ("mac_roman", TEXTS["cp1252"][1]),
    ],
)
def test_a_code_page_has_the_name_that_people_choose_it_by(encoding: str, text: str) -> None:
    assert detect_encoding(text.encode(encoding)) == encoding in ENCODINGS


def test_every_encoding_that_can_be_chosen_is_one() -> None:
    for name in ENCODINGS:
        assert decode(b"words", name) == (
            "words" if not name.startswith("utf-16") else decode(b"words", name)[0],
            name,
        )
    assert label("cp1252") == "Western Europe (Windows-1252)" and label("euc_kr") == "EUC_KR"
