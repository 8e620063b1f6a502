"""Tables of a page whose cells have shading, several lines, or words from right to left; and the order of its lines."""

from readers.text.grids import Box, Glyph, Grid, Rule, is_right_to_left, mirror_segments, ruled
from readers.text.headings import PageLine
from readers.text.reading_order import move_into_gaps

HEIGHT = 10.0


def glyphs(*words: tuple[str, float, float]) -> list[Glyph]:
    """Return the glyphs of words at (left, bottom), 5 points each, in the order of the text."""
    signs_on_page: list[Glyph] = []
    for number, (word, left, bottom) in enumerate(words):
        signs = word[::-1] if is_right_to_left(word) else word  # drawn from the left
        boxes = {at: Box(left + 5 * at, bottom, left + 5 * at + 5, bottom + HEIGHT) for at in range(len(signs))}
        order = range(len(word) - 1, -1, -1) if is_right_to_left(word) else range(len(word))
        signs_on_page += [Glyph(sign, boxes[at], number) for sign, at in zip(word, order, strict=True)]
    return signs_on_page


def grid(columns: list[float], rows: list[float]) -> tuple[list[Rule], list[Rule]]:
    level = [Rule(at, columns[0], columns[-1]) for at in rows]
    return level, [Rule(at, rows[0], rows[-1]) for at in columns]


def test_a_table_from_right_to_left_has_its_rows_in_the_order_of_its_head() -> None:
    head = glyphs(("2014", 10, 45), ("2013", 60, 45))
    first = glyphs(("סך", 110, 25), ("1.9", 60, 25), ("2.6", 10, 25))
    second = glyphs(("בינוי", 110, 5), ("3.4", 60, 5), ("5.5", 10, 5))
    lines = [
        *head,
        *(glyph._replace(line=glyph.line + 10) for glyph in first),
        *(glyph._replace(line=glyph.line + 20) for glyph in second),
    ]
    rows = ["|  | 2013 | 2014 |", "| --- | --- | --- |", "| סך | 1.9 | 2.6 |", "| בינוי | 3.4 | 5.5 |"]
    assert Grid([0, 50, 100, 150], [0, 20, 40, 60]).table(lines).strip().split("\n") == rows
    (bordered,) = ruled(*grid([0, 50, 100, 150], [0, 20, 40, 60]))
    assert bordered.table(lines).strip().split("\n") == rows


def test_a_line_of_numbers_on_such_a_page_is_read_from_the_right() -> None:
    assert mirror_segments(glyphs(("2014", 10, 5), ("2013", 60, 5))) == "2013 2014"
    assert mirror_segments(glyphs(("2014", 10, 5))) == ""
    assert is_right_to_left("סך הכל USD 1.9") and not is_right_to_left("Total 1.9 סך") and not is_right_to_left("1.9")


def test_the_shading_of_cells_makes_no_columns_of_its_own() -> None:
    level, upright = grid([0, 50, 100], [0, 20, 40])
    for left in (0, 50):
        for bottom in (0, 20):
            upright += [Rule(left + 4, bottom + 3, bottom + 17), Rule(left + 46, bottom + 3, bottom + 17)]
            level += [Rule(bottom + 3, left + 4, left + 46), Rule(bottom + 17, left + 4, left + 46)]
    (table_grid,) = ruled(level, upright)
    words = glyphs(("Room", 5, 25), ("n", 60, 25), ("Dorm", 5, 5), ("48", 60, 5))
    assert table_grid.table(words).strip() == "| Room | n |\n| --- | --- |\n| Dorm | 48 |"


def test_lines_of_numbers_in_one_row_become_rows_with_their_labels() -> None:
    (table_grid,) = ruled(*grid([0, 60, 100, 140], [0, 60, 80]))
    words = glyphs(
        ("Group", 5, 65), ("Some", 65, 65), ("All", 105, 65), ("Cohort", 5, 45), ("Start", 5, 25), ("Control", 5, 5),
        ("85%", 65, 25), ("17%", 65, 5), ("100%", 105, 25), ("90%", 105, 5),
    )  # fmt: skip
    assert table_grid.table(words).strip().split("\n") == [
        *("| Group | Some | All |", "| --- | --- | --- |", "| Cohort |  |  |", "| Start | 85% | 100% |"),
        "| Control | 17% | 90% |",
    ]


def test_text_of_several_lines_stays_in_one_row() -> None:
    (table_grid,) = ruled(*grid([0, 60, 140], [0, 60, 80]))
    words = glyphs(("Group", 5, 65), ("Notes", 65, 65), ("Start", 5, 45), ("long", 65, 45), ("text", 65, 25))
    assert "| Start | long text |" in table_grid.table(words)


def test_the_title_above_a_wide_table_stands_once() -> None:
    columns = [float(at) for at in range(0, 650, 50)]
    level, upright = grid(columns, [0, 20, 40, 60])
    level.append(Rule(80, 0, 600))
    upright += [Rule(0, 0, 80), Rule(600, 0, 80)]
    words = glyphs(("A title of sixty letters in all", 5, 65))
    for bottom in (45, 25, 5):
        for at in range(12):
            words += [each._replace(line=20 * bottom + at) for each in glyphs((str(at), 50 * at + 5, bottom))]
    (table_grid,) = ruled(level, upright)
    table = table_grid.table(words)
    assert table.count("A title") == 1 and table.count("| 0 | 1 | 2 |") == 3


def line(text: str, left: float, bottom: float, width: float = 100) -> PageLine:
    return PageLine(text, HEIGHT, False, Box(left, bottom, left + width, bottom + HEIGHT))


def test_rows_that_are_drawn_after_the_notes_come_to_their_place() -> None:
    drawn = [line("Actual", 10, 200, 30), line("Projected", 10, 100, 30), line("Source", 10, 50)]
    rows = [line(f"200{number}", 10, 180 - 20 * number) for number in range(3)]
    assert [each.text for each in move_into_gaps([*drawn, *rows])] == [
        *("Actual", "2000", "2001", "2002", "Projected", "Source"),
    ]
    column = [line(f"right {number}", 300, 180 - 20 * number) for number in range(3)]
    assert [each.text for each in move_into_gaps([*drawn, *column])][:3] == ["Actual", "Projected", "Source"]
