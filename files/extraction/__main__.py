"""`python -m files.extraction PATH NAME PARENT`: confined, reads one file and writes `result.encoded` to its output."""

import ctypes
import importlib
import os
import resource
import signal
import sys
import traceback
from pathlib import Path

from files.extraction.readers import result
from files.extraction.readers.media_types import DOCX, EPUB, HTML, IMAGES, MAIL, PDF, PPTX, XLSX, media_type
from files.extraction.readers.result import Extracted, ExtractionError

MEMORY = 1 << 30  # bytes of address space
CPU_SECONDS = 40
OUTPUT = 200_000_000  # bytes: 20 million characters and what JSON adds
OPEN_FILES = 64
NICENESS = 10  # answers being written go first
_PR_SET_PDEATHSIG = 1

_READERS = {PDF: "pdf", DOCX: "office", PPTX: "office", XLSX: "sheets", EPUB: "markup", HTML: "markup", MAIL: "markup"}
_MAY_BE_PICTURES = (PDF, DOCX, PPTX, EPUB)


def confine(parent: int) -> None:
    """Limits this process for good, and binds its life to that of the process `parent`, which started it."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, OUTPUT),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most + 1 if kind == resource.RLIMIT_CPU else most))
    os.nice(NICENESS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call above
        os.kill(os.getpid(), signal.SIGKILL)


def read(path: Path, name: str) -> Extracted:
    """Raises `ExtractionError`."""
    kind = media_type(path, name)
    reader = _READERS.get(kind) or ("images" if kind in IMAGES else "plain")
    # By name, so that a file waits only for the libraries of its own kind: openpyxl alone takes longer than most files.
    extracted: Extracted = importlib.import_module(f"files.extraction.readers.{reader}").read(path, kind)
    if not extracted.text.strip() and extracted.width is None:
        raise ExtractionError("no_text" if kind in _MAY_BE_PICTURES else "empty")
    return extracted


def attempt(path: Path, name: str) -> Extracted | ExtractionError:
    try:
        return read(path, name)
    except ExtractionError as error:
        return error
    except MemoryError:
        return ExtractionError("too_much_memory")
    except Exception:
        # The libraries raise almost anything about a file that is not what it should be.
        traceback.print_exc()
        return ExtractionError("damaged")


if __name__ == "__main__":
    where, called, parent = sys.argv[1:]
    confine(int(parent))
    sys.stdout.buffer.write(result.encoded(attempt(Path(where), called)))
