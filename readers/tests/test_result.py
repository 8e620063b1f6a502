"""Errors and notes are templates with values, so that the caller can translate them."""

from string import Formatter

import pytest

from readers.formats.result import KINDS, LEFT_OUT, SENTENCES, Extracted, ReaderError


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}


@pytest.mark.parametrize("part", LEFT_OUT)
def test_a_note_has_the_values_that_its_template_names(part: str) -> None:
    [note] = Extracted("application/pdf", spans=[(0, 5), (7, 7)], left_out={part: 1}).notes
    assert note.template == LEFT_OUT[part]
    assert fields(note.template) <= note.values.keys()
    assert "{" not in str(note)


def test_an_error_says_the_most_that_is_known_of_its_file() -> None:
    assert str(ReaderError("unsupported").sentence) == SENTENCES["unsupported"]
    assert str(ReaderError("unsupported", "audio").sentence) == KINDS["audio"]
    assert not any(fields(template) for template in (*SENTENCES.values(), *KINDS.values()))
