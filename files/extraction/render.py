"""`python -m files.extraction.render PATH PARENT PAGE`: confined, draws one page of a PDF.

Writes a line with the number of its pages, then the page, counted from 0, as PNG. A password comes as the first line of
the standard input.
"""

import sys
from pathlib import Path

import pypdfium2
from PIL import Image

from files.extraction.confinement import limit, seal

MEMORY = 1 << 30  # bytes of address space
SCALE = 200 / 72  # 200 dots an inch
MOST_PIXELS = 12_000_000
FAILED = 3


def drawn(path: Path, number: int, password: str) -> tuple[int, pypdfium2.PdfBitmap]:
    """How many pages there are, and this one. Raises PdfiumError."""
    document = pypdfium2.PdfDocument(path.read_bytes(), password=password or None)
    page = document[number]
    width, height = page.get_size()
    scale = min(SCALE, (MOST_PIXELS / max(width * height, 1)) ** 0.5)
    return len(document), page.render(scale=scale, grayscale=True)


if __name__ == "__main__":
    where, parent, wanted = sys.argv[1:]
    key = sys.stdin.readline().rstrip("\n")
    limit(int(parent), MEMORY)
    seal((Path(where),))
    Image.init()  # what a picture is written with is loaded before anything is read

    try:
        count, bitmap = drawn(Path(where), int(wanted), key)
    except (pypdfium2.PdfiumError, IndexError):
        sys.exit(FAILED)
    sys.stdout.buffer.write(b"%d\n" % count)
    bitmap.to_pil().save(sys.stdout.buffer, "PNG")
