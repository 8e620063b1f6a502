"""The README and docs/use are easy to read, and the measure of that counts as people do."""

from pathlib import Path

import pytest

from scripts.docs.readability import ROOT, pages, read, sentences_of, syllables

MAX_LINES, MAX_BYTES = 150, 9_000


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_has_short_sentences_of_plain_words(page: Path) -> None:
    reading = read(page)
    assert reading.easy, (round(reading.grade, 1), reading.long)


def test_the_readme_is_one_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert (text.count("\n") <= MAX_LINES, len(text.encode()) <= MAX_BYTES) == (True, True)


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("file", 1),
        ("files", 1),
        ("pages", 2),
        ("table", 2),
        ("opened", 2),
        ("wanted", 2),
        ("conversation", 4),
        ("2", 1),
    ],
)
def test_syllables_are_counted(word: str, count: int) -> None:
    assert syllables(word) == count


def test_code_and_tables_are_no_sentences() -> None:
    text = "# Head\n\nRun `make run`. Then wait.\n\n| a | b |\n|---|---|\n| x. | y. |\n\n```sh\nmake run\n```\n"
    assert sentences_of(text) == ["Run code.", "Then wait."]
