"""What is peculiar to PDFs: words that a line's end divides, forms, and what people wrote on pages."""

import pytest

from files.extraction.text.headings import Line, key, marked
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


def test_a_line_in_larger_letters_is_a_heading(read: Read) -> None:
    made = samples.pdf(
        [
            "# Of the\n# harbour\nShips come in and\ngo out again, every day.",
            "# Of the lake\nIt is deep and still, and cold.",
        ]
    )
    assert pages(read(made)) == [
        "# Of the harbour\n\nShips come in and\ngo out again, every day.",
        "# Of the lake\n\nIt is deep and still, and cold.",
    ]


def lines(*given: tuple[str, float, bool]) -> list[Line]:
    return [Line(*line) for line in given]


def test_headings_are_told_by_outline_size_and_weight() -> None:
    text = ("words of the text " * 5, 10.0, False)
    page = lines(
        *(("The book", 20.0, False), ("1 Ducks", 14.0, True), text, ("Mallards", 10.0, True), text, text, text),
        *(
            ("Table 1: bold all the same", 10.0, True),
            ("Not one, for it ends.", 14.0, False),
            ("known", 10.0, False),
            text,
        ),
    )
    found = [line for line in next(marked([page], {key("Known"): 2})).split("\n") if line.startswith("#")]
    assert found == ["# The book", "## 1 Ducks", "### Mallards", "## known"]


def test_a_cover_and_a_page_without_sizes_have_no_headings() -> None:
    body = lines(*[("words of the text " * 5, 10.0, False)] * 20)
    cover = lines(("Great", 30.0, True), ("Words", 30.0, True), ("small", 10.0, False))
    assert list(marked([body, cover], {}))[1] == "Great\nWords\nsmall"
    assert list(marked([lines(("a", 0, False))], {})) == ["a"]
    assert list(marked([], {})) == []
