"""`python -m files.extraction PATH NAME PARENT [ENCODING]`: confined, reads one file, writes `result.encoded`."""

import importlib
import sys
import traceback
from pathlib import Path

from files.extraction.confinement import limit, seal
from files.extraction.readers import result
from files.extraction.readers.media_types import (
    DOCX,
    EPUB,
    HTML,
    IMAGES,
    MAIL,
    MBOX,
    ODP,
    ODT,
    OPEN_DOCUMENTS,
    PDF,
    PPTX,
    RTF,
    XLSX,
    media_type,
)
from files.extraction.readers.result import Extracted, ExtractionError

MEMORY = 1 << 30  # bytes of address space
CODE = (Path(__file__).parent, Path(__file__).parents[2] / "core")  # what readers import

_READERS = {
    PDF: "pdf",
    DOCX: "word",
    PPTX: "slides",
    XLSX: "sheets",
    EPUB: "markup",
    HTML: "markup",
    MAIL: "mail",
    MBOX: "mail",
}
_READERS |= dict.fromkeys(OPEN_DOCUMENTS, "opendocument")
_OF_TEXT = ("markup", "plain")  # readers of what has an encoding
_MAY_BE_PICTURES = (PDF, DOCX, PPTX, EPUB, RTF, ODT, ODP)


def read(path: Path, name: str, encoding: str = "") -> Extracted:
    """`encoding` is that of a plain text or HTML if it is known. Raises `ExtractionError`."""
    kind = media_type(path, name)
    reader = _READERS.get(kind) or ("images" if kind in IMAGES else "plain")
    # By name, so that a file waits only for the libraries of its own kind: openpyxl alone takes longer than most files.
    module = importlib.import_module(f"files.extraction.readers.{reader}")
    extracted: Extracted = module.read(path, kind, *([encoding] if reader in _OF_TEXT else []))
    if not extracted.text.strip() and extracted.width is None:
        raise ExtractionError("no_text" if kind in _MAY_BE_PICTURES else "empty")
    return extracted


def attempt(path: Path, name: str, encoding: str = "") -> Extracted | ExtractionError:
    try:
        return read(path, name, encoding)
    except ExtractionError as error:
        return error
    except MemoryError:
        return ExtractionError("too_much_memory")
    except Exception:
        # The libraries raise almost anything about a file that is not what it should be.
        traceback.print_exc()
        return ExtractionError("damaged")


if __name__ == "__main__":
    where, called, parent, *written_in = sys.argv[1:]
    limit(int(parent), MEMORY)
    seal((Path(where), *CODE))
    sys.stdout.buffer.write(result.encoded(attempt(Path(where), called, *written_in)))
