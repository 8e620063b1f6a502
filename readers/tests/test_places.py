"""Test the places of words of a scan: stored with its text, found for a passage, and marked on its page."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from readers import process, scans
from readers.formats.result import Extracted
from readers.outside import places, recognition
from readers.outside.places import WordPlace
from readers.tests.test_page_pictures import marked
from readers.tests.test_scans import HEAD, layered, on_the_machine, tesseract

__all__ = ["on_the_machine"]

SIZE = (600, 800)  # pixels of a sheet
LINES = (
    (("The", 60, 100, 50, 30), ("lake", 120, 100, 70, 30), ("rises", 200, 102, 80, 28)),
    (("in", 60, 160, 30, 30), ("spring.", 100, 160, 110, 34)),
    (("Ships", 60, 400, 90, 30), ("sail.", 450, 400, 80, 30)),  # in two columns
)
THE, LAKE, RISES, IN, SPRING, SHIPS, SAIL = (
    WordPlace(*(round(10_000 * at / size) for at, size in zip((x, y, x + w, y + h), SIZE * 2, strict=True)))
    for line in LINES
    for _, x, y, w, h in line
)
ALL = [THE, LAKE, RISES, IN, SPRING, SHIPS, SAIL]
ABOVE = f"{places.RECOGNISED}: eng, 96 % sure]\n\n"
TEXT = "The lake rises\nin spring.\n\nShips sail."


def around(*each: WordPlace) -> WordPlace:
    left, top, right, bottom = zip(*each, strict=True)
    return WordPlace(min(left), min(top), max(right), max(bottom))


def table(*, specks: bool = False) -> str:
    """Return Tesseract's table for the sheet."""
    rows = [HEAD, f"1\t1\t0\t0\t0\t0\t0\t0\t{SIZE[0]}\t{SIZE[1]}\t-1\t"]
    for number, line in enumerate(LINES, 1):
        if specks:
            rows.append(f"5\t1\t1\t{1 + (number > 2)}\t{number}\t0\t5\t5\t3\t3\t9\t~")
        for at, (word, *box) in enumerate(line, 1):
            rows.append("\t".join(map(str, (5, 1, 1, 1 + (number > 2), number, at, *box, 96, word))))
    return "\n".join((*rows, ""))


def sheet() -> Image.Image:
    """With a dark bar for each word."""
    drawn = Image.new("L", SIZE, 255)
    for line in LINES:
        for _, x, y, w, h in line:
            ImageDraw.Draw(drawn).rectangle((x, y + h // 3, x + w, y + 2 * h // 3), fill=30)
    return drawn


@pytest.mark.parametrize(
    ("passage", "expected"),
    [
        ("lake", [LAKE]),
        ("The lake rises\nin", [around(THE, LAKE, RISES), IN]),
        ("ake ri", [around(LAKE, RISES)]),
        ("spring.\n\nShips sail.", [SPRING, SHIPS, SAIL]),
        (" ", []),
        (f"{ABOVE}The", [THE]),
        ("eng, 96", []),
    ],
)
def test_a_passage_has_the_places_of_its_words(passage: str, expected: list[WordPlace]) -> None:
    text = ABOVE + TEXT
    assert places.places_of_passage(ALL, text[: text.index(passage)], passage) == expected


def test_words_that_are_written_from_the_right_make_a_line_too() -> None:
    assert places.merge_into_lines([RISES, LAKE, THE, SPRING, IN]) == [around(THE, LAKE, RISES), around(IN, SPRING)]


@pytest.mark.parametrize("stored", [ALL, [], [WordPlace(0, 0, 10_000, 10_000), WordPlace(9_999, 0, 9_999, 0)]])
def test_places_are_kept_in_few_bytes(stored: Sequence[WordPlace]) -> None:
    assert places.unpack_places(places.pack_places(stored)) == list(stored)
    many = [
        WordPlace(x, y, x + 700 + x % 97, y + 130 + x % 3)
        for y in range(500, 9_500, 200)
        for x in range(800, 9_000, 900)
    ]
    assert len(places.pack_places(many)) < 4 * len(many)


@pytest.mark.parametrize("specks", [False, True])
def test_each_word_of_the_text_has_its_place(specks: bool) -> None:
    read = recognition.parse_table(table(specks=specks))
    assert (read.text, list(read.places)) == (TEXT, ALL)
    assert len(places.words(read.text)) == len(read.places)


def shown(extracted: Extracted, path: Path, number: int, passage: str) -> tuple[int, int, int, int] | None:
    """Return the marked box of a passage, in hundredths of the page."""
    start, end = extracted.spans[number]
    before, _, _ = extracted.text[start:end].partition(passage)
    where = places.places_of_passage(places.unpack_places(extracted.places[number]), before, passage)
    drawn = process.draw_marked_page(path, number, places=where)
    return marked(Image.open(io.BytesIO(drawn)).convert("RGB"))


def hundredths(place: WordPlace) -> tuple[int, ...]:
    return tuple(round(each / 100) for each in place)


def near(area: tuple[int, ...] | None, place: WordPlace) -> bool:
    return area is not None and all(abs(one - other) <= 1 for one, other in zip(area, hundredths(place), strict=True))


def test_a_passage_is_marked_on_the_page_of_a_scan(on_the_machine: Path, tmp_path: Path) -> None:
    tesseract(on_the_machine, f"cat <<'END'\n{table()}END")
    path = tmp_path / "scan.pdf"
    sheet().save(path, "PDF", save_all=True, append_images=[sheet().rotate(90, expand=True)])
    extracted = scans.read(path, "scan.pdf")
    assert near(shown(extracted, path, 0, "lake rises"), around(LAKE, RISES))
    assert near(shown(extracted, path, 1, "spring."), SPRING)
    turned = tmp_path / "turned.pdf"
    turned.write_bytes(path.read_bytes().replace(b"/MediaBox", b"/Rotate 90 /MediaBox"))
    # The picture of the page is what is recognised, so the places are those of the page as it is shown.
    assert near(shown(scans.read(turned, "turned.pdf"), turned, 0, "Ships"), SHIPS)


def test_a_passage_is_marked_on_the_page_of_a_picture(on_the_machine: Path, tmp_path: Path) -> None:
    tesseract(on_the_machine, f"cat <<'END'\n{table()}END")
    path = tmp_path / "fax.tif"
    sheet().save(path, "TIFF", save_all=True, append_images=[sheet()])
    extracted, document = scans.read(path, "fax.tif"), tmp_path / "fax.pdf"
    document.write_bytes(extracted.shown)
    assert near(shown(extracted, document, 1, "lake"), LAKE)


def test_where_a_better_text_takes_the_place_of_a_scans_own_it_is_marked(on_the_machine: Path, tmp_path: Path) -> None:
    words = [("harbour", 60 + 100 * (at % 5), 100 + 50 * (at // 5), 90, 30) for at in range(25)]
    rows = (f"5\t1\t1\t1\t{at // 5}\t1\t{x}\t{y}\t{w}\t{h}\t96\t{word}" for at, (word, x, y, w, h) in enumerate(words))
    page = f"1\t1\t0\t0\t0\t0\t0\t0\t{SIZE[0]}\t{SIZE[1]}\t-1\t"
    tesseract(on_the_machine, "cat <<'END'\n" + "\n".join((HEAD, page, *rows, "END")))
    path = layered(tmp_path, "hxrb0ur vvat mxs", "harbour " * 25)
    extracted = scans.read(path, "scan.pdf")
    assert list(extracted.places) == [0]
    assert len(places.unpack_places(extracted.places[0])) == 25
    assert near(shown(extracted, path, 0, "harbour"), WordPlace(1_000, 1_250, 2_500, 1_625))


def test_a_model_does_not_tell_where_words_stand(tmp_path: Path) -> None:
    path = tmp_path / "scan.pdf"
    sheet().save(path, "PDF")
    extracted = scans.read(path, "scan.pdf", recogniser=scans.Recogniser("sees", lambda picture: TEXT))
    assert (TEXT in extracted.text, extracted.places) == (True, {})
