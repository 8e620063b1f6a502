from pathlib import Path

from PIL import Image, UnidentifiedImageError

from files.extraction.readers.media_types import IMAGES
from files.extraction.readers.result import Extracted, ExtractionError

MAX_PIXELS = 100_000_000


def read(path: Path, media_type: str) -> Extracted:
    """Only the size; the pixels are never unpacked."""
    Image.MAX_IMAGE_PIXELS = None  # checked here, with our own error
    try:
        with Image.open(path, formats=[IMAGES[media_type]]) as image:
            width, height = image.size
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise ExtractionError("damaged") from error
    if width * height > MAX_PIXELS:
        raise ExtractionError("too_large")
    return Extracted(media_type, width=width, height=height)
