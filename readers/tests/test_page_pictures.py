"""A passage of the text is found again on the page that it was read from, and marked on the page's picture."""

import io
from pathlib import Path

import pytest
from PIL import Image

from readers import process
from readers.formats.result import ReaderError
from readers.pdfium import passages
from readers.tests import samples


@pytest.mark.parametrize(
    ("page", "passage", "before", "expected"),
    [
        ("A heading\r\nThe lake holds water.", "# A heading\n\nThe lake", 0, ["A heading\r\nThe lake"]),
        ("all inter\ufffepreters are", "interpreters", 3, ["inter\ufffepreters"]),
        (
            "Name Age\r\nAda 36\r\nBob 40",
            "| Name | Age |\n| --- | --- |\n| Bob | 40 |",
            0,
            ["Name", "Age", "Bob", "40"],
        ),
        ("the text", "Form fields:", 0, []),
        ("the text", "--- |", 0, []),
    ],
)
def test_a_passage_is_found_whatever_its_text_was_made_into(
    page: str, passage: str, before: int, expected: list[str]
) -> None:
    assert [page[start:end] for start, end in passages.spans(page, passage, before)] == expected


@pytest.mark.parametrize(("before", "start"), [(0, 0), (9, 9), (100, 21)])
def test_of_several_places_the_nearest_is_marked(before: int, start: int) -> None:
    assert passages.spans("the lake the lake    the lake", "the lake", before)[0][0] == start


def page(tmp_path: Path, content: bytes, passage: str) -> Image.Image:
    path = tmp_path / "blob"
    path.write_bytes(content)
    return Image.open(io.BytesIO(process.draw_marked_page(path, 0, passage))).convert("RGB")


def marked(picture: Image.Image) -> tuple[int, int, int, int] | None:
    """Return the yellow area of a picture, in hundredths of its width and height."""
    blue = picture.getchannel("B").point(lambda level: 255 * (60 < level < 160))
    red = picture.getchannel("R").point(lambda level: 255 * (level > 220))
    box = Image.composite(blue, Image.new("L", picture.size), red).getbbox()
    sizes = picture.size * 2
    return box and tuple(round(100 * at / size) for at, size in zip(box, sizes, strict=True))  # type: ignore[return-value]  # four of four


def test_a_passage_is_marked_where_it_stands_also_on_a_turned_page(tmp_path: Path) -> None:
    document = samples.pdf(["First line.\nThe second one.\nA third."])
    area = marked(page(tmp_path, document, "The second one."))
    assert area is not None
    left, top, right, bottom = area
    assert (left, top, bottom) == (7, 5, 7)
    assert 15 < right < 22
    turned = marked(page(tmp_path, document.replace(b"/MediaBox", b"/Rotate 90 /MediaBox"), "The second one."))
    assert turned is not None
    assert (turned[0], turned[2]) == (93, 95)
    assert marked(page(tmp_path, document, "nowhere on it")) is None


def test_a_page_that_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    for content, code in ((samples.protected_pdf(), "encrypted"), (b"%PDF-1.4 and nothing more", "damaged")):
        with pytest.raises(ReaderError) as caught:
            page(tmp_path, content, "")
        assert caught.value.code == code
