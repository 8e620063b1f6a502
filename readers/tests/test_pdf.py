"""Test what only PDFs have: words that a line's end divides, forms, and comments on pages."""

import pytest

from readers.tests import samples
from readers.tests.reading import Read, pages, read
from readers.text.grids import Box, Glyph, Rule, aligned, ruled
from readers.text.headings import PageLine, mark_headings, title_key
from readers.text.words import DIVIDED, join_divided_words

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
        ("under~stand, whoever understands? They understand.", "understand, whoever understands? They understand."),
        ("on~line, as online is on-line", "on-line, as online is on-line"),
        ("a hard~shelled, greenish~white nut", "a hard-shelled, greenish-white nut"),
        ("short~and long-term, thous~and", "short- and long-term, thousand"),
        ("Trace~Monkey and FED~ERAL", "Trace-Monkey and FEDERAL"),
        ("to~geth~er", "together"),
        ("inter~nation~al", "international"),
        ("page 3~4", "page 3-4"),
        ("in mixed~mode", "in mixed-mode"),
        ("a chat~optimized model", "a chat-optimized model"),
        ("the φ~nodes", "the φ-nodes"),
        ("a snow~capped hill is inter~esting", "a snow-capped hill is interesting"),
        ("a run~up to arrest~ing views", "a run-up to arresting views"),
        ("stop-the~world", "stop-the-world"),
        ("played with a live~ness, rarely live", "played with a live-ness, rarely live"),
        ("to re~create what we create, and re~port it", "to re-create what we create, and report it"),
        ("state-of-the~art in a state-of-the-art way", "state-of-the-art in a state-of-the-art way"),
    ],
)
def test_divided_words_are_told_from_hyphens_by_the_rest_of_the_document(text: str, expected: str) -> None:
    assert join_divided_words([text.replace("~", DIVIDED)]) == [expected]


@pytest.mark.parametrize(
    ("text", "around", "expected"),
    [
        (
            "Die Vor~und Nachteile der Wieder~aufnahme eines EU~weiten Plans",
            "die und der in den von zu das mit sich",
            "Die Vor- und Nachteile der Wiederaufnahme eines EU-weiten Plans",
        ),
        ("A-t~il vu ce moment~là en réa~lité", "de la et le les des en un une du", "A-t-il vu ce moment-là en réalité"),
        (
            "Das harbour-tools~Paket und das mail~tools, mit Vier~tel",
            "die und der in den von zu das mit sich, ship-tools",
            "Das harbour-tools-Paket und das mail-tools, mit Viertel",
        ),
        ("Tu var ved~tage lovgiv~ning", "og i at det er en til på af den", "Tu var vedtage lovgivning"),
    ],
)
def test_the_language_tells_how_likely_a_hyphen_is(text: str, around: str, expected: str) -> None:
    assert join_divided_words([text.replace("~", DIVIDED), around])[0] == expected


def test_the_rest_of_the_document_is_all_of_its_pages() -> None:
    assert join_divided_words([f"well{DIVIDED}known", "it is well-known"]) == ["well-known", "it is well-known"]


def test_what_is_filled_in_and_what_is_written_on_a_page_is_read(read: Read) -> None:
    assert read(samples.form()).text.split("\n") == [
        *("The form", "", "Form fields:", "- Full name: Ada Lovelace", "- agree: checked"),
        *("", "Comments:", "- Ask her again", "- Doubtful"),
    ]


def test_a_line_in_larger_letters_is_a_heading(read: Read) -> None:
    document = samples.pdf(
        [
            "# Of the\n# harbour\nShips come in and\ngo out again, every day.",
            "# Of the lake\nIt is deep and still, and cold.",
        ]
    )
    assert pages(read(document)) == [
        "# Of the harbour\n\nShips come in and\ngo out again, every day.",
        "# Of the lake\n\nIt is deep and still, and cold.",
    ]


def lines(*rows: tuple[str, float, bool]) -> list[PageLine]:
    return [PageLine(*line) for line in rows]


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
    headings = [
        line for line in next(mark_headings([page], {title_key("Known"): 2})).split("\n") if line.startswith("#")
    ]
    assert headings == ["# The book", "## 1 Ducks", "### Mallards", "## known"]


def test_a_cover_and_a_page_without_sizes_have_no_headings() -> None:
    body = lines(*[("words of the text " * 5, 10.0, False)] * 20)
    cover = lines(("Great", 30.0, True), ("Words", 30.0, True), ("small", 10.0, False))
    assert list(mark_headings([body, cover], {}))[1] == "Great\nWords\nsmall"
    assert list(mark_headings([lines(("a", 0, False))], {})) == ["a"]
    assert list(mark_headings([], {})) == []


def ruled_page(rows: int, columns: int) -> tuple[list[Rule], list[Rule]]:
    """Lines around cells of 100 by 20 points, from the left lower corner of the page."""
    level = [Rule(20.0 * at, 0, 100.0 * columns) for at in range(rows + 1)]
    return level, [Rule(100.0 * at, 0, 20.0 * rows) for at in range(columns + 1)]


def written(*words: tuple[str, float, float]) -> list[Glyph]:
    """Return the letters of words on lines of their own, at these places. Each letter is 5 points wide."""
    return [
        Glyph(sign, Box(x + 5 * at, y, x + 5 * at + 5, y + 10), line)
        for line, (word, x, y) in enumerate(words)
        for at, sign in enumerate(word)
    ]


def test_ruled_lines_make_a_table_and_cells_that_no_line_divides_are_merged() -> None:
    level, upright = ruled_page(3, 3)
    head = [rule for rule in upright if rule.at != 200] + [Rule(200, 0, 40)]
    [grid] = ruled(level, head)
    words = (("Ducks", 5, 45), ("Counted", 110, 45), ("of", 5, 25), ("2025", 105, 25), ("2026", 205, 25))
    assert grid.table(written(*words, ("lake", 5, 5), ("12", 105, 5), ("14", 205, 5))).split("\n")[:4] == [
        "| Ducks | Counted | Counted |",
        "| --- | --- | --- |",
        "| of | 2025 | 2026 |",
        "| lake | 12 | 14 |",
    ]


def test_rows_that_are_not_ruled_off_are_rows_if_all_their_cells_have_the_same_lines() -> None:
    [grid] = ruled([Rule(0, 0, 200), Rule(60, 0, 200), Rule(80, 0, 200)], [Rule(each, 0, 80) for each in (0, 100, 200)])
    words = written(("Name", 5, 65), ("Sum", 105, 65), ("a", 5, 45), ("1", 105, 45), ("b", 5, 25), ("2", 105, 25))
    assert grid.table(words) == "| Name | Sum |\n| --- | --- |\n| a | 1 |\n| b | 2 |\n"


def test_a_frame_a_drawing_and_an_empty_form_are_no_tables() -> None:
    assert list(ruled(*ruled_page(1, 1))) == []
    [grid] = ruled(*ruled_page(4, 4))
    assert grid.table(written(("alone", 5, 5), ("words", 105, 25))) == ""
    many = [Rule(float(at * 2), 0, 100) for at in range(500)]
    assert list(ruled(many, [Rule(0, 0, 1_000), Rule(50, 0, 1_000), Rule(100, 0, 1_000)])) == []


def test_numbers_below_each_other_are_a_table_without_any_ruled_line() -> None:
    rows = (("Skewness", "7.4", "8.0"), ("Kurtosis", "71.3", "80.6"), ("Path length", "1.55", "1.44"))
    words = written(
        *((word, 20.0 + 150 * at, 100.0 - 15 * row) for row, line in enumerate(rows) for at, word in enumerate(line))
    )
    [grid] = aligned([glyph.box for glyph in words])
    assert grid.table(words).split("\n")[0::2] == ["| Skewness | 7.4 | 8.0 |", "| Kurtosis | 71.3 | 80.6 |", ""]
    prose = [Glyph("abcdefghij"[int(glyph.box.left) % 10], glyph.box, glyph.line) for glyph in words]
    assert grid.table(prose) == ""


def test_a_table_of_a_file_is_markdown(read: Read) -> None:
    rules = "".join(f"{x} 720 m {x} 806 l S " for x in (36, 140, 240))
    rules += "".join(f"36 {y} m 240 {y} l S " for y in (720, 758, 782, 806))
    cells = [("Kind", 40, 790), ("Number", 150, 790), ("Ducks on", 40, 766), ("12", 150, 766)]
    cells += [("the long", 40, 744), ("lake", 40, 732), ("7", 150, 744)]
    shown = "".join(f"1 0 0 1 {x} {y} Tm ({word}) Tj " for word, x, y in cells)
    result = read(samples.pdf([""], drawn=f"{rules} BT /F1 10 Tf {shown} ET"))
    assert result.text == "| Kind | Number |\n| --- | --- |\n| Ducks on | 12 |\n| the long lake | 7 |"


def test_heads_and_feet_stay_on_their_first_page_and_what_was_left_out_is_counted(read: Read) -> None:
    book = [f"The harbour\nPage {at} of 4\n{samples.page_of_text(at * 7, 5)}\nChapter {at * 3}" for at in (1, 2, 3, 4)]
    result = read(samples.pdf(book))
    shown = pages(result)
    assert result.left_out == {"repeated": 6}
    assert shown[0].startswith("The harbour\nPage 1 of 4\nPage 7, line 0")
    assert shown[2].startswith("Page 21, line 0") and shown[2].endswith("Chapter 9")
    assert "that repeat earlier pages and were left out: 6" in str(result.notes[0])


def test_a_page_whose_font_does_not_say_its_letters_is_named(read: Read) -> None:
    assert read(samples.unmapped_pdf()).left_out == {"unmapped": 2}


def test_numbered_lines_of_the_text_are_no_running_heads(read: Read) -> None:
    book = [samples.page_of_text(number, 6) for number in range(1, 5)]
    assert pages(read(samples.pdf(book))) == book
