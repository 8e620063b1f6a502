"""Draw one page of a PDF in a confined process: `python -m readers.render PATH PARENT PAGE PURPOSE`.

The output is a line with the number of pages, then the picture. PAGE counts from 0. PURPOSE is `recognised` (a sharp
grey PNG), `turned` (the same upside down) or `shown` (a JPEG in colour). The standard input has two lines: a password,
and `Marked` as JSON.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pypdfium2
from PIL import Image, ImageChops, ImageStat
from pypdfium2 import raw

from readers.confinement import limit, seal
from readers.outside.places import PAGE_SIZE, WordPlace
from readers.pdfium import passages
from readers.process import STATUS_LOCKED

MEMORY = 1 << 30  # bytes of address space
RECOGNISED = "recognised"
TURNED = "turned"
SHOWN = "shown"
DOTS_PER_INCH = {RECOGNISED: 200, TURNED: 200, SHOWN: 150}  # per inch
MAX_PIXELS = {RECOGNISED: 12_000_000, TURNED: 12_000_000, SHOWN: 6_000_000}
_POINTS = 72  # per inch
_QUALITY = 82  # JPEG quality
_YELLOW = (255, 225, 110)  # colour of a marker pen
_MARK_MARGIN = 2  # pixels between the letters and the edge of the mark
_DARK = 100  # brightness up to 255; a marker pen is not visible on a darker background
_COVER = 0.4  # opacity of the pen on a dark background
STATUS_FAILED = 3

Corner = tuple[int, int]


class Marked(NamedTuple):
    """Marks on a page: a passage and the places of recognised words.

    `before`: the expected number of letters and digits before the passage.
    """

    passage: str
    before: int
    places: Sequence[WordPlace]


def draw(document: pypdfium2.PdfDocument, number: int, purpose: str, marked: Marked) -> Image.Image:
    """Return the picture of a page. Raises `PdfiumError`."""
    if document.get_formtype() != raw.FORMTYPE_NONE:
        document.init_forms()  # so that the values of forms are drawn
    page = document[number]
    width, height = page.get_size()
    scale = min(DOTS_PER_INCH[purpose] / _POINTS, (MAX_PIXELS[purpose] / max(width * height, 1)) ** 0.5)
    rotation = 180 if purpose == TURNED else 0
    bitmap = page.render(scale=scale, rotation=rotation, grayscale=purpose != SHOWN, rev_byteorder=True)
    picture: Image.Image = bitmap.to_pil()
    if marked.passage:
        place = bitmap.get_posconv(page)
        for box in passages.boxes(page, marked.passage, marked.before):
            mark(picture, place.to_bitmap(box.left, box.top), place.to_bitmap(box.right, box.bottom))
    for left, top, right, bottom in marked.places:
        mark(picture, _corner(picture, left, top), _corner(picture, right, bottom))
    return picture


def _corner(picture: Image.Image, across: int, down: int) -> Corner:
    return round(across * picture.width / PAGE_SIZE), round(down * picture.height / PAGE_SIZE)


def mark(picture: Image.Image, one: Corner, other: Corner) -> None:
    """Colour a rectangle between two opposite corners, as with a marker pen."""
    (left, right), (top, bottom) = (sorted(pair) for pair in zip(one, other, strict=True))
    left = max(left - _MARK_MARGIN, 0)
    top = max(top - _MARK_MARGIN, 0)
    right = min(right + _MARK_MARGIN, picture.width)
    bottom = min(bottom + _MARK_MARGIN, picture.height)
    if left < right and top < bottom:
        below = picture.crop((left, top, right, bottom)).convert("RGB")
        ink = Image.new("RGB", below.size, _YELLOW)
        dark = ImageStat.Stat(below.convert("L")).median[0] < _DARK
        picture.paste(Image.blend(below, ink, _COVER) if dark else ImageChops.multiply(below, ink), (left, top))


if __name__ == "__main__":
    where, parent, page_number, purpose = sys.argv[1:]
    key = sys.stdin.readline().rstrip("\n")
    marked = Marked(*json.loads(sys.stdin.readline()))
    limit(int(parent), MEMORY)
    seal((Path(where),))
    Image.init()  # loads the image encoders before any input is read

    try:
        document = pypdfium2.PdfDocument(Path(where).read_bytes(), password=key or None)
        picture = draw(document, int(page_number), purpose, marked)
    except (pypdfium2.PdfiumError, IndexError) as error:
        sys.exit(STATUS_LOCKED if getattr(error, "err_code", None) == raw.FPDF_ERR_PASSWORD else STATUS_FAILED)
    sys.stdout.buffer.write(b"%d\n" % len(document))
    if purpose != SHOWN:
        picture.save(sys.stdout.buffer, "PNG")
    else:
        picture.convert("RGB").save(sys.stdout.buffer, "JPEG", quality=_QUALITY, optimize=True)
