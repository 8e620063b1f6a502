"""Numbers as Excel shows them. What Excel shows is in ECMA-376 part 1, section 18.8.31, and its examples."""

import pytest

from readers.text.number_formats import BUILT_IN, format_number, format_text


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (0.075, "0.0%", "7.5%"),
        (0.5, BUILT_IN[9], "50%"),
        (1234.5, '"$"#,##0.00', "$1,234.50"),
        (1234.5, "#,##0.00 [$€-407]", "1,234.50 €"),
        (1234.5, "[$CHF] #,##0.00", "CHF 1,234.50"),
        (1234.5, BUILT_IN[44], "$1,234.50"),
        (0, BUILT_IN[44], "$-"),
        (1067, "00000", "01067"),
        (5551234567, "(000) 000-0000", "(555) 123-4567"),
        (1.2534722222222223, "[h]:mm", "30:05"),
        (90.5 / 86_400, "mm:ss.0", "01:30.5"),
        (0.5, "h:mm AM/PM", "12:00 PM"),
        ("123456789012345678", "0", "123456789012345678"),
        (1.2345678901234568e17, "General", "123456789012346000"),
        (0.1 + 0.2, "General", "0.3"),
        (1e-12, "General", "1E-12"),
        (1e22, "General", "1E+22"),
        (46_347, "d/m/yyyy", "2026-11-21"),
        (46_347.5, "m/d/yy h:mm", "2026-11-21T12:00:00"),
        (46_347, "mmm-yy", "Nov-26"),
        (46_347, "dddd, d mmmm", "Saturday, 21 November"),
        (60, "yyyy-mm-dd", "1900-02-29"),
        (46_347, 'yyyy"年"m"月"d"日"', "2026-11-21"),
        (1.5, BUILT_IN[12], "1 1/2"),
        (0.5, "?/8", "4/8"),
        (12_345, "0.00E+00", "1.23E+04"),
        (12_345, "##0.0E+0", "12.3E+3"),
        (-5, "0;(0)", "(5)"),
        (-5, BUILT_IN[38], "(5)"),
        (0, '0;-0;"none"', "none"),
        (0, "0;-0;", ""),
        (150, '[>=100]"big "0;0', "big 150"),
        (1_234_567, '0.0,,"M"', "1.2M"),
        (5, '0" kg"', "5 kg"),
        (-0.001, "0.00", "0.00"),
        (2.5, "0", "3"),
        (7, ";;;", "[Hidden text: 7]"),
        (12, "@", "12"),
    ],
)
def test_a_number_is_shown_as_its_format_says(value: float | str, code: str, text: str) -> None:
    assert format_number(value, code) == text


def test_a_workbook_may_count_days_from_1904() -> None:
    assert format_number(44_885, "yyyy-mm-dd", since_1904=True) == "2026-11-21"


def test_a_text_is_shown_as_the_last_section_says() -> None:
    assert format_text("Ada", '0;0;0;"Dr. "@') == "Dr. Ada"
    assert format_text("Ada", "0.00") == "Ada"
    assert format_text("Ada", ";;;") == "[Hidden text: Ada]"


@pytest.mark.parametrize("part", ["[", "0,", '"', ";", "?/", "h", "0.", "[h]"])
def test_no_format_fails(part: str) -> None:
    assert isinstance(format_number(-1234.5678, 5_000 * part), str)
