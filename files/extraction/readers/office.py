"""Word and PowerPoint files, read as a stream of XML.

python-docx and python-pptx build the whole tree first, which takes several times the memory and the time to start.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from files.extraction.readers.archive import Archive, Element, walk
from files.extraction.readers.media_types import DOCX
from files.extraction.readers.result import Extracted, paged, whole

_DOCUMENT = "word/document.xml"
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_PRESENTATION = "ppt/presentation.xml"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def read(path: Path, media_type: str) -> Extracted:
    """A document is a text without pages, with its notes at the end; every slide with its notes is a page."""
    archive = Archive(path)
    archive.refuse_entities()
    if media_type == DOCX:
        names = (_DOCUMENT, *(name for name in _NOTES if name in archive.names))
        return whole(media_type, chain.from_iterable(_text(archive.open(name)) for name in names))
    return paged(media_type, (_slide(archive, name) for name in _slides(archive)), "slides")


def _slides(archive: Archive) -> list[str]:
    relations = archive.relations(_PRESENTATION)
    ids = [slide.get(_RELATION) for slide in archive.tree(_PRESENTATION).iterfind(".//{*}sldId")]
    return [relations[slide] for slide in ids if slide in relations]


def _slide(archive: Archive, name: str) -> str:
    notes = [target for target in archive.relations(name).values() if "/notesSlides/" in target]
    return "\n".join("".join(_text(archive.open(part))) for part in (name, *notes))


def _text(source: IO[bytes]) -> Iterator[str]:
    state = _State()
    return walk(source, state.start, state.end)


class _State:
    """WordprocessingML and DrawingML name these elements alike: p, t, tab, br, tc and tr (ECMA-376, part 1).

    A row of a table is a line of cells divided by tabs, so a paragraph in a cell ends with a space. `Fallback` repeats
    what stands beside it for old programs. Deleted text has another name (`delText`).
    """

    def __init__(self) -> None:
        self._cells = 0
        self._fallbacks = 0

    def start(self, name: str) -> str:
        self._cells += name == "tc"
        self._fallbacks += name == "Fallback"
        return ""

    def end(self, name: str, element: Element) -> str:
        self._cells -= name == "tc"
        self._fallbacks -= name == "Fallback"
        return "" if self._fallbacks else self._shown(name, element)

    def _shown(self, name: str, element: Element) -> str:
        match name:
            case "t":
                return element.text or ""
            case "tab":
                # Among a paragraph's properties it is the place of a tab stop.
                return "" if "tabs" in element.getparent().tag else "\t"
            case "tc":
                return "\t"
            case "p":
                return " " if self._cells else "\n"
            case "br" | "cr" | "tr":
                return "\n"
            case _:
                return ""
