"""What is peculiar to PDFs: words that a line's end divides, forms, and what people wrote on pages."""

import pytest

from files.extraction.text.words import DIVIDED, joined
from tests.files import samples
from tests.files.reading import Read, pages, read

__all__ = ["read"]


def test_a_word_that_a_lines_end_divides_is_one_word(read: Read) -> None:
    result = read(samples.pdf(["An inter-\npreter reads open-\nsource code, as open-source is read."]))
    assert pages(result) == ["An interpreter reads open-source code, as open-source is read."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tech~niques", "techniques"),
        ("tech~\nniques", "techniques"),
        ("a fine~tuning, and fine-tuning again", "a fine-tuning, and fine-tuning again"),
        ("worst~case: the worst of the case", "worst-case: the worst of the case"),
        ("under~stand, who can under-stand? They understand.", "understand, who can under-stand? They understand."),
        ("Trace~Monkey and FED~ERAL", "Trace-Monkey and FEDERAL"),
        ("to~geth~er", "together"),
        ("page 3~4", "page 3-4"),
        ("state-of-the~art in a state-of-the-art way", "state-of-the-art in a state-of-the-art way"),
    ],
)
def test_divided_words_are_told_from_hyphens_by_the_rest_of_the_document(text: str, expected: str) -> None:
    assert joined([text.replace("~", DIVIDED)]) == [expected]


def test_the_rest_of_the_document_is_all_of_its_pages() -> None:
    assert joined([f"well{DIVIDED}known", "it is well-known"]) == ["well-known", "it is well-known"]


def test_what_is_filled_in_and_what_is_written_on_a_page_is_read(read: Read) -> None:
    assert read(samples.form()).text.split("\n") == [
        *("The form", "", "Form fields:", "- Full name: Ada Lovelace", "- agree: checked"),
        *("", "Comments:", "- Ask her again", "- Doubtful"),
    ]
