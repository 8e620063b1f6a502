"""Read the size of pictures, and convert formats that neither models nor browsers support."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pypdfium2
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from readers.formats.media_types import CONVERTED, IMAGES
from readers.formats.result import Extracted, ReaderError

MAX_PIXELS = 100_000_000
MAX_EDGE = 4_096  # pixels of the longer edge; models shrink larger pictures themselves
# Limits of the PDF into which a picture of several pages is converted.
MAX_PAGES = 500
MAX_BYTES = 100_000_000
_QUALITY = 90  # quality of a JPEG
_FEW_COLOURS = 64  # a picture with at most this number of colours is a drawing
_MIN_DPI = 60  # dots per inch; a lower resolution in a file is wrong
_MAX_LENGTH = 11.7  # inches; the longer edge of a page if the file has no credible resolution
_POINTS = 72  # points per inch
_PILLOW_ERRORS = (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError)


def read(path: Path, media_type: str, *, convert: bool = True) -> Extracted:
    """Read a picture. Raises `damaged`, `too_large`.

    Pictures in formats that models accept are never decoded. Several pages become a PDF, whose pages are scans.
    """
    Image.MAX_IMAGE_PIXELS = None  # `_require_allowed_size` checks the size instead
    try:
        with Image.open(path, formats=[(IMAGES | CONVERTED)[media_type]]) as image:
            _require_allowed_size(image)
            if media_type in IMAGES or not convert:
                return Extracted(media_type, width=image.width, height=image.height)
            if media_type == "image/tiff" and getattr(image, "n_frames", 1) > 1:
                content, count = _build_pdf(image)
                return Extracted(media_type, spans=[(0, 0)] * count, shown=content)
            return _convert(image, media_type)
    except _PILLOW_ERRORS as error:
        raise ReaderError("damaged") from error


def _require_allowed_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise ReaderError("too_large")


def _convert(image: Image.Image, media_type: str) -> Extracted:
    left_out = {"converted": 1}
    drawn = _to_8_bits(ImageOps.exif_transpose(image))
    if max(drawn.size) > MAX_EDGE:
        drawn.thumbnail((MAX_EDGE, MAX_EDGE))
        left_out["shrunk"] = MAX_EDGE
    out = io.BytesIO()
    if drawn.mode == "RGBA" or drawn.getcolors(_FEW_COLOURS):
        drawn.save(out, "PNG")
    else:
        drawn.save(out, "JPEG", quality=_QUALITY)
    return Extracted(media_type, width=drawn.width, height=drawn.height, left_out=left_out, shown=out.getvalue())


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Return the picture with 8 bits per channel: `L`, `RGB` or `RGBA`."""
    if image.mode.startswith(("I", "F")):  # pixels of 16 and 32 bits, whose values Pillow would clip instead of scaling
        image = image.convert("F")
        low, high = cast("tuple[float, float]", image.getextrema())
        scale = 255 / (high - low) if high > low else 0
        image = image.point(lambda level: level * scale - low * scale).convert("L")
    if image.mode in ("1", "L", "RGB", "RGBA"):
        return image.convert("L") if image.mode == "1" else image
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _build_pdf(image: Image.Image) -> tuple[bytes, int]:
    """Return a PDF with a picture on each page, and the number of its pages."""
    document = pypdfium2.PdfDocument.new()
    size = 0
    for page, (width, height) in _pages(image):
        size += len(page)
        if len(document) == MAX_PAGES or size > MAX_BYTES:
            raise ReaderError("too_large")
        pdf_image = pypdfium2.PdfImage.new(document)
        pdf_image.load_jpeg(io.BytesIO(page), inline=True)
        pdf_image.set_matrix(pypdfium2.PdfMatrix().scale(width, height))
        sheet = document.new_page(width, height)
        sheet.insert_obj(pdf_image)
        sheet.gen_content()
        sheet.close()
    out = io.BytesIO()
    document.save(out)
    return out.getvalue(), len(document)


def _pages(image: Image.Image) -> Iterator[tuple[bytes, tuple[float, float]]]:
    """Yield each page as JPEG, with its width and height in points."""
    for frame in ImageSequence.Iterator(image):
        _require_allowed_size(frame)
        page = _to_8_bits(ImageOps.exif_transpose(frame))
        out = io.BytesIO()
        paper = Image.new("RGBA", page.size, "white")
        page = Image.alpha_composite(paper, page).convert("RGB") if page.mode == "RGBA" else page
        dpi = float(frame.info.get("dpi", (0, 0))[0])
        if dpi < _MIN_DPI:
            dpi = max(page.size) / _MAX_LENGTH
        width, height = (each * _POINTS / dpi for each in page.size)
        page.save(out, "JPEG", quality=_QUALITY)
        yield out.getvalue(), (width, height)
