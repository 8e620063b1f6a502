import pytest

from files.index.words import indexed_text, join_neighbours, strip_marks


@pytest.mark.parametrize(
    ("text", "words", "variants"),
    [
        ("ISO-9001", "ISO 9001", "ISO9001"),
        ("inv/2024/0017", "inv 2024 0017", "inv20240017"),
        ("500mg", "500mg", "500 mg"),
        ("jane.doe@example.org", "jane doe example org", "janedoeexampleorg"),
        ("1,234.56", "123456", "1 234 56"),
        ("1.234,56", "123456", "1 234 56"),
        ("24.12.2023", "24 12 2023", "24122023"),
        ("192.168.10.254", "192 168 10 254", "19216810254"),
        ("at -9001 degrees", "at - 9001 degrees", ""),
        ("AmericanExpress", "AmericanExpress", "American Express"),
        ("AMERICANEXPRESS_2022_10K", "AMERICANEXPRESS 2022 10K", "AMERICANEXPRESS202210K 10"),
        ("a <b>bold</b> word", "a < b > bold </ b > word", ""),
        ("a/path/that/is/long", "a path that is long", ""),
        ("Haftpflicht\u00adversicherung", "Haftpflichtversicherung", ""),
        ("zero\u200bwidth", "zerowidth", ""),
        ("don't", "don ' t", ""),
        ("हिन्दी", "हिन्दी", ""),
        ("边界层", "边界 界层", ""),
        ("สวนใหญ่", "สวน วนใ นให ใหญ หญ่", "สว วน นใ ให หญ ญ่"),
        ("ปี", "ปี", ""),
    ],
)
def test_other_writings_of_a_word_stand_beside_it(text: str, words: str, variants: str) -> None:
    indexed = indexed_text(text)
    assert indexed.words.split() == words.split()
    assert indexed.variants.split() == variants.split()


@pytest.mark.parametrize(
    ("word", "plain"),
    [
        ("Łódź", "lodz"),
        ("Nguyễn", "nguyen"),
        ("Ørsted", "orsted"),
        ("Straße", "strasse"),
        ("İstanbul", "istanbul"),
        ("Ёлка", "елка"),
        ("й", None),
        ("garden", None),
        ("हिन्दी", None),
    ],
)
def test_a_word_is_indexed_without_the_marks_on_its_letters(word: str, plain: str | None) -> None:
    assert strip_marks(word) == plain
    assert indexed_text(word).unmarked == (plain or "")


def test_neighbouring_words_may_be_written_as_one() -> None:
    assert join_neighbours(["coca", "cola", "company"]) == {
        "cocacola": (0, 1),
        "colacompany": (1, 2),
        "cocacolacompany": (0, 1, 2),
    }
    assert join_neighbours(["x" * 30, "y" * 30]) == {}
    assert join_neighbours(["边界", "界层"]) == {}


@pytest.mark.parametrize("text", ["1,", "a-", "1.1", "-", "aB", "1a", "a", "ł"])
def test_hostile_texts_are_split_too(text: str) -> None:
    assert len(indexed_text(text * 50_000).words.split()) >= 1
