"""Lists on slides of PowerPoint 97 to 2003, by the records of [MS-PPT]."""

import struct
from collections import Counter
from itertools import accumulate

import pytest

from readers.older.paragraphs import lines
from readers.older.slides import Deck, Record, Records

BULLET, NO_BULLET = b"\x01\x00\x00\x00\x01\x00", b"\x01\x00\x00\x00\x00\x00"  # that they say so, and what
PLAIN = bytes(12)  # an entry that numbers nothing
NUMBERED = struct.pack("<IHII", 0x2000000, 1, 0, 0)


def numbered(scheme: int, start: int) -> bytes:
    return struct.pack("<IHHHII", 0x3000000, 1, scheme, start, 0, 0)


def entry(number: int) -> bytes:
    """Return the entry of a run of characters, which counts to 15 and then from 0."""
    return struct.pack("<IH", 0x3C00, number % 16 << 10)


def style(paragraphs: list[tuple[str, int, bytes]], characters: list[tuple[str, bytes]]) -> bytes:
    runs = [struct.pack("<IH", len(text) + 1, level) + says for text, level, says in paragraphs]
    return b"".join((*runs, *(struct.pack("<I", len(text) + 1) + says for text, says in characters)))


def shown(*paragraphs: tuple[str, int, bytes, int], entries: bytes = b"", bulleted: bool = False) -> list[str]:
    """Return the lines of paragraphs, each given with its text, level, style and entry."""
    content = style([each[:3] for each in paragraphs], [(each[0], entry(each[3])) for each in paragraphs])
    return lines("\r".join(each[0] for each in paragraphs), content, entries, bulleted=bulleted)


def test_numbers_follow_the_entry_that_a_paragraph_names_and_count_on_below_each_other() -> None:
    entries = PLAIN + numbered(3, 4) + numbered(9, 1) + numbered(14, 1)
    result_lines = shown(
        ("To do", 0, NO_BULLET, 0),
        ("Load", 0, BULLET, 1),
        ("Ropes", 1, BULLET, 2),
        ("Nets", 1, BULLET, 2),
        ("Sail", 0, BULLET, 1),
        ("Rest", 0, BULLET, 0),
        ("Again", 0, BULLET, 1),
        ("Roman", 0, BULLET, 3),
        ("Without a mark", 0, NO_BULLET, 3),
        entries=entries,
    )
    listed = ["4. Load", "  a) Ropes", "  b) Nets", "5. Sail", "- Rest", "4. Again", "(I) Roman"]
    assert result_lines == ["To do", *listed, "Without a mark"]


def test_what_is_numbered_and_does_not_say_how_counts_from_one() -> None:
    assert shown(("Anna", 0, BULLET, 0), ("Ben", 0, BULLET, 0), entries=NUMBERED) == ["1. Anna", "2. Ben"]


def test_more_than_sixteen_entries_are_told_apart_by_their_order() -> None:
    entries = PLAIN * 17 + numbered(3, 7)
    paragraphs = [(f"Ship {number}", 0, BULLET, number) for number in range(18)]
    assert shown(*paragraphs, entries=entries)[1::8] == ["- Ship 1", "- Ship 9", "7. Ship 17"]


def test_entries_of_every_size_are_passed_over() -> None:
    large = struct.pack("<IHIIIHHHHII", 0x800000, 1, 0x100000, 0, 0x267, 1, 2, 3, 4, 5, 1) + bytes(4)
    assert shown(("Anna", 0, BULLET, 1), entries=large + numbered(2, 3)) == ["3) Anna"]


def test_paragraphs_and_characters_with_all_their_fields_are_passed_over() -> None:
    paragraph = struct.pack("<IH", 0x3FFDFF, 1) + bytes(2 * 10 + 4) + struct.pack("<H", 2) + bytes(8 + 6)
    characters = struct.pack("<IH", 0x3EF3C00, 1 << 10) + bytes(2 * 6 + 4)
    units = "x" * 8  # which is what the text takes: its first sign counts as two
    content = style([(units, 0, paragraph), ("Ben", 2, BULLET)], [(units, characters), ("Ben", characters)])
    listed = lines("𐌲 ducks\rBen", content, PLAIN + NUMBERED, bulleted=False)
    assert listed == ["1. 𐌲 ducks", "    1. Ben"]


def test_a_body_has_dashes_unless_it_is_one_paragraph_or_says_otherwise() -> None:
    assert lines("One\rTwo", b"", b"", bulleted=True) == ["- One", "- Two"]
    assert lines("One\r\r", b"", b"", bulleted=True) == ["One"]
    assert lines("One\x0bmore\rTwo", b"", b"", bulleted=False) == ["One more", "Two"]
    assert shown(("One", 0, NO_BULLET, 0), ("Two", 1, b"\x00" * 4, 0), bulleted=True) == ["One", "  - Two"]


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_a_style_that_is_cut_off_takes_nothing_of_the_text(cut: int) -> None:
    content = style([("Anna", 0, BULLET), ("Ben", 0, BULLET)], [("Anna", entry(0)), ("Ben", entry(0))])
    assert lines("Anna\rBen", content[:-cut], NUMBERED, bulleted=False) == ["Anna", "Ben"]
    assert lines("Anna\rBen", content, NUMBERED[: -min(cut, 12)], bulleted=False) == ["Anna", "Ben"]


def record(kind: int, content: bytes = b"", head: int = 0xF) -> bytes:
    return struct.pack("<HHI", head, kind, len(content)) + content


def text(kind: int, words: str = "", more: bytes = b"") -> bytes:
    atom = record(4000, words.encode("utf-16-le"), 0) if words else b""
    return record(3999, struct.pack("<I", kind), 0) + atom + (record(4001, more, 0) if more else b"")


def tags(content: bytes) -> bytes:
    name = record(4026, "___PPT9".encode("utf-16-le"), 0)
    return record(5000, record(5002, name + record(5003, content, 0)))


LISTED = style([("Anna", 0, BULLET), ("Ben", 0, BULLET)], [("Anna", entry(0)), ("Ben", entry(0))])


def test_the_numbers_of_a_shape_stand_beside_its_text() -> None:
    own = record(0xF011, tags(record(4012, numbered(7, 1), 0)))
    shapes = record(0xF004, own + record(0xF00D, text(4, "Anna\rBen", LISTED))) + record(
        0xF004, record(0xF00D, text(4, "Anna\rBen", LISTED))
    )
    content = record(0xF002, shapes)
    listed = [each.lines() for each in Records(content).texts(Record(0, 0, 0, len(content), True))]
    assert listed == [["I. Anna", "II. Ben"], ["- Anna", "- Ben"]]


def test_the_numbers_of_an_outline_stand_with_the_document_by_slide_and_text() -> None:
    listing = record(1011, struct.pack("<5I", 2, 0, 0, 256, 0), 0) + text(0, "Crew") + text(1)
    listing += text(1, "Anna\rBen", LISTED)
    numbers = record(4015, struct.pack("<2I", 256, 1), 0x20) + record(4012, numbered(0, 1), 0)
    document = record(1000, record(2000, tags(record(4014, numbers))) + record(4080, listing, 0x0F))
    shapes = [record(0xF004, record(0xF00D, record(3998, struct.pack("<I", number), 0))) for number in (2, 0)]
    slide = record(1006, b"".join(shapes))
    directory = record(6002, struct.pack("<3I", 2 << 20 | 1, 0, len(document)), 0)
    starts = list(accumulate(map(len, (document, slide, directory))))
    edit = record(4085, struct.pack("<7I", 0, 0, 0, starts[1], 1, 0, 0), 0)
    deck = Deck(document + slide + directory + edit, starts[2])
    assert list(deck.slides(Counter())) == ["# Crew\n\na. Anna\nb. Ben"]
