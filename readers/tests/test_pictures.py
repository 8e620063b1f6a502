"""Pictures in formats that models do not take, and their replacements."""

import io
from pathlib import Path

import pytest
from PIL import Image

from readers import scans
from readers.formats import images
from readers.formats.result import Extracted, ReaderError
from readers.tests import samples
from readers.tests.reading import Read, pages, read, refusal
from readers.tests.test_scans import TABLE, on_the_machine, program, tesseract

__all__ = ["on_the_machine", "read"]


def picture(extracted: Extracted) -> Image.Image:
    return Image.open(io.BytesIO(extracted.shown))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("mode", "colour", "kind", "expected"),
    [
        ("1", 1, "PNG", (255,) * 3),
        ("P", 3, "PNG", None),
        ("CMYK", (0, 0, 0, 0), "PNG", (255,) * 3),
        ("RGBA", (9, 9, 9, 0), "PNG", None),
        ("I;16", 40_000, "PNG", (0,) * 3),  # of one level, so that is the darkest, too
    ],
)
def test_every_way_to_write_colours_is_shown(
    read: Read, mode: str, colour: object, kind: str, expected: tuple[int, int, int] | None
) -> None:
    extracted = read(saved(Image.new(mode, (20, 10), colour), "TIFF"))  # type: ignore[arg-type]  # a colour of that mode
    shown = picture(extracted)
    assert (extracted.media_type, extracted.width, extracted.height, shown.format) == ("image/tiff", 20, 10, kind)
    assert expected in (None, shown.convert("RGB").getpixel((5, 5)))


def test_a_photo_is_turned_as_it_was_held_and_made_smaller(read: Read) -> None:
    photo = Image.effect_noise((images.MAX_EDGE + 904, 500), 90).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6  # held upright
    extracted = read(saved(photo, "TIFF", exif=exif))
    assert (extracted.width, extracted.height, picture(extracted).format) == (410, images.MAX_EDGE, "JPEG")
    assert str(extracted.notes[1]) == "It is shown smaller: its longer edge has 4096 pixels."


def test_what_is_damaged_or_huge_is_refused(read: Read) -> None:
    tiff = samples.image("TIFF", 90, 90)
    assert refusal(read, tiff[:20]).code == "damaged"
    assert refusal(read, samples.image("BMP")[:60]).code == "damaged"
    assert refusal(read, b"\0\0\0\x18ftypavif" + bytes(90)).code == "damaged"
    assert refusal(read, saved(Image.new("1", (20_000, 6_000)), "TIFF", compression="group4")).code == "too_large"


def test_in_an_archive_it_is_a_picture_like_others(read: Read) -> None:
    extracted = read(samples.archive({"a.tif": samples.image("TIFF"), "notes.txt": "words"}), "all.zip")
    assert (extracted.left_out, extracted.shown) == ({"pictures": 1}, b"")


def test_several_pages_are_read_like_a_scan(on_the_machine: Path, tmp_path: Path) -> None:
    tesseract(on_the_machine, f"[ -s page.png ] && cat <<'END'\n{TABLE}END")
    sheets = [Image.new("1", (200, 300), 1), Image.new("L", (300, 200), 200), Image.new("RGBA", (200, 300))]
    path = tmp_path / "fax.tif"
    path.write_bytes(saved(sheets[0], "TIFF", save_all=True, append_images=sheets[1:]))
    extracted = scans.read(path, "fax.tif")
    assert (extracted.media_type, len(extracted.spans), extracted.left_out) == ("image/tiff", 3, {"recognised": 3})
    assert extracted.shown.startswith(b"%PDF")
    assert all("Twelve ducks" in page for page in pages(extracted))
    (on_the_machine / "tesseract").unlink()
    with pytest.raises(ReaderError) as caught:
        scans.read(path, "fax.tif")
    assert caught.value.code == "no_text"


def test_a_photo_of_a_phone_is_opened_where_the_machine_can(on_the_machine: Path, tmp_path: Path) -> None:
    photo = tmp_path / "blob"
    photo.write_bytes(b"\0\0\0\x18ftypheic" + bytes(90))
    jpeg = "".join(f"\\{byte:03o}" for byte in samples.image("JPEG", 64, 48))
    program(on_the_machine, "heif-dec", f"""[ "$1 $2" = "-q 90" ] && [ -s "$3" ] && printf '{jpeg}' > "$4\"""")
    extracted = scans.read(photo, "IMG_1.HEIC")
    assert (extracted.media_type, extracted.width, extracted.height, picture(extracted).format) == (
        "image/heic",
        64,
        48,
        "JPEG",
    )
    assert list(map(str, extracted.notes)) == [
        "Models and browsers cannot show pictures of this kind, so they get it as JPEG or PNG."
    ]
