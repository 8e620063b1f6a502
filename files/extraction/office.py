"""Word and PowerPoint files, read as a stream of XML.

python-docx and python-pptx build the whole tree first: several times the memory, ten times the time to start.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from files.extraction.archive import Archive, Element, walk
from files.extraction.pages import paged, whole
from files.extraction.values import ExtractionError, Extracted

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def read_docx(path: Path) -> Extracted:
    archive = _opened(path)
    document = "word/document.xml"
    if document not in archive.names:
        raise ExtractionError("damaged")
    notes = [name for name in ("word/footnotes.xml", "word/endnotes.xml") if name in archive.names]
    return whole(DOCX, chain.from_iterable(_text(archive.open(name)) for name in (document, *notes)))


def read_pptx(path: Path) -> Extracted:
    archive = _opened(path)
    presentation = "ppt/presentation.xml"
    relations = archive.relations(presentation)
    ids = [slide.get(_RELATION) for slide in archive.tree(presentation).iterfind(".//{*}sldId")]
    return paged(PPTX, (_slide(archive, relations[slide]) for slide in ids if slide in relations))


def _opened(path: Path) -> Archive:
    archive = Archive(path)
    archive.refuse_entities()
    return archive


def _slide(archive: Archive, name: str) -> str:
    notes = [target for target in archive.relations(name).values() if "/notesSlides/" in target]
    return "\n".join("".join(_text(archive.open(part))) for part in (name, *notes) if part in archive.names)


def _text(source: IO[bytes]) -> Iterator[str]:
    """WordprocessingML and DrawingML name these elements alike: p, t, tab, br, tc and tr (ECMA-376, part 1).

    A row of a table is a line, its cells divided by tabs. Text that was deleted (`delText`) is not read.
    """
    cells = _Cells()
    return walk(source, cells.start, cells.end)


class _Cells:
    """Inside a cell the ends of paragraphs are spaces, so that a row stays one line."""

    def __init__(self) -> None:
        self._depth = 0

    def start(self, name: str) -> str:
        self._depth += name == "tc"
        return ""

    def end(self, name: str, element: Element) -> str:
        match name:
            case "t":
                return element.text or ""
            case "tab" if element.getparent() is not None and not element.getparent().tag.endswith("}tabs"):
                return "\t"
            case "br" | "cr":
                return "\n"
            case "p":
                return " " if self._depth else "\n"
            case "tc":
                self._depth -= 1
                return "\t"
            case "tr":
                return "\n"
            case _:
                return ""
