"""Text of pages that are pictures, by Tesseract where the machine has it."""

import csv
import io
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from readers.formats.result import cleaned
from readers.outside import places, programs
from readers.outside.places import WHOLE, Place

MOST_PAGES = 200  # of one file
_MOST_LANGUAGES = 4  # with each it takes longer
_TURNED = "osd"  # with which it notices that a page is turned
_APART = (_TURNED, "equ")  # what is listed with the languages and is none
_PAGE, _WORD = "1", "5"  # the levels of rows
_LEAST = 30  # percent: what is less sure than this is no word but a speck
_LISTING_SECONDS = 20
SURE = 80  # percent; what is less sure may stand upside down

_Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recognised:
    """`confidence` in percent, the mean of its words; `places` of `places.words` of the text, one each."""

    text: str
    confidence: float
    places: Sequence[Place] = ()

    @property
    def weight(self) -> float:
        """What speaks for it: how many words, and how sure they are."""
        return self.confidence * len(places.words(self.text))


def available() -> bool:
    return bool(languages())


def languages() -> tuple[str, ...]:
    """Those that are installed with it; none where there is no such program."""
    return tuple(name for name in _installed(programs.found("tesseract")) if name not in _APART)[:_MOST_LANGUAGES]


@lru_cache(maxsize=1)
def _installed(program: str) -> tuple[str, ...]:
    if not program:
        return ()
    told = subprocess.run([program, "--list-langs"], capture_output=True, text=True, timeout=_LISTING_SECONDS)
    return tuple(filter(None, map(str.strip, told.stdout.splitlines()[1:])))


def recognised(picture: bytes, turned: Callable[[], bytes] | None = None) -> Recognised:
    """What stands on a picture, or on the same upside down (`turned`), which is looked at where the first is not sure:
    of a few words Tesseract does not notice that. It does read lines that lie on their side. Raises what `programs.run`
    and `turned` raise."""
    seen = _seen(picture)
    if turned is None or not 0 < seen.confidence < SURE:
        return seen
    other = _seen(turned())
    return replace(other, places=list(map(_turned, other.places))) if other.weight > seen.weight else seen


def _turned(place: Place) -> Place:
    left, top, right, bottom = (WHOLE - edge for edge in place)
    return Place(right, bottom, left, top)


def _seen(picture: bytes) -> Recognised:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "page.png").write_bytes(picture)
        program, using = programs.found("tesseract"), "+".join(languages())
        turned = ("--psm", "1") if _TURNED in _installed(program) else ()
        table = programs.run(folder, program, "page.png", "-", "-l", using, *turned, "tsv")
    return read(table.decode("utf-8", "replace"))


def read(table: str) -> Recognised:
    """What Tesseract writes as a table: a row for each word, with its block, paragraph and line.

    Words stand where they do on the picture as it was given, also where Tesseract has turned it.
    """
    rows = list(csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE))
    page = next((row for row in rows if row.get("level") == _PAGE), {})
    words = [row for row in rows if row.get("level") == _WORD and _words(row)]
    sure = [row for row in words if float(row["conf"]) >= _LEAST]
    paragraphs: dict[tuple[str, str], list[list[_Row]]] = defaultdict(list)
    for (block, paragraph, _), line in groupby(sure, key=_line_of):
        paragraphs[block, paragraph].append(list(line))
    text = "\n\n".join("\n".join(map(_written, lines)) for lines in paragraphs.values())
    found = [_place(row, page) for lines in paragraphs.values() for line in lines for row in line for _ in _words(row)]
    return Recognised(text, sum(float(row["conf"]) for row in sure) / len(sure) if sure else 0.0, found)


def _line_of(row: _Row) -> tuple[str, str, str]:
    return row["block_num"], row["par_num"], row["line_num"]


def _words(row: _Row) -> list[str]:
    """Usually one."""
    return places.words(cleaned(row.get("text") or ""))


def _written(line: Iterable[_Row]) -> str:
    return " ".join(word for row in line for word in _words(row))


def _place(row: _Row, page: _Row) -> Place:
    left, top, width, height = (int(row[name]) for name in ("left", "top", "width", "height"))
    across, down = (max(int(page.get(name, 0)), 1) for name in ("width", "height"))
    edges = ((left, across), (top, down), (left + width, across), (top + height, down))
    return Place(*(min(max(round(at * WHOLE / size), 0), WHOLE) for at, size in edges))
