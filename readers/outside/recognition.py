"""Recognise the text of pictures with Tesseract, if it is installed."""

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

from readers.formats.result import clean_text
from readers.outside import places, programs
from readers.outside.places import PAGE_SIZE, WordPlace

MAX_PAGES = 200  # per file
_MAX_LANGUAGES = 4  # each language makes recognition slower
_ORIENTATION_DATA = "osd"  # the data with which Tesseract detects a rotated page
_NOT_LANGUAGES = (_ORIENTATION_DATA, "equ")  # Tesseract lists these data files as languages
# The values of `level` in Tesseract's table.
_PAGE = "1"
_WORD = "5"
_LEAST_CONFIDENCE = 30  # percent; a less certain word is usually dirt on the page
_LISTING_SECONDS = 20
CERTAIN_CONFIDENCE = 80  # percent; a less certain page may be upside down

_Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recognised:
    """The text of a picture.

    `confidence`: the mean confidence of its words, in percent. `places`: a place for each of `places.words(text)`.
    """

    text: str
    confidence: float
    places: Sequence[WordPlace] = ()

    @property
    def weight(self) -> float:
        """Return the number of words times their confidence. Two readings are compared by this."""
        return self.confidence * len(places.words(self.text))


def available() -> bool:
    return bool(languages())


def languages() -> tuple[str, ...]:
    """Return the installed languages. Without Tesseract there are none."""
    return tuple(name for name in _list_languages(programs.find("tesseract")) if name not in _NOT_LANGUAGES)[
        :_MAX_LANGUAGES
    ]


@lru_cache(maxsize=1)
def _list_languages(program: str) -> tuple[str, ...]:
    if not program:
        return ()
    listing = subprocess.run([program, "--list-langs"], capture_output=True, text=True, timeout=_LISTING_SECONDS)
    return tuple(filter(None, map(str.strip, listing.stdout.splitlines()[1:])))


def recognise(picture: bytes, turned: Callable[[], bytes] | None = None) -> Recognised:
    """Return the text of a picture. Raises the errors of `programs.run` and `turned`.

    `turned` draws the picture upside down. If the first reading is uncertain, the turned picture is read too, since
    Tesseract does not detect a turned page with few words. It does read lines that are rotated by 90 degrees.
    """
    upright = _run_tesseract(picture)
    if turned is None or not 0 < upright.confidence < CERTAIN_CONFIDENCE:
        return upright
    other = _run_tesseract(turned())
    return replace(other, places=list(map(_turn_place, other.places))) if other.weight > upright.weight else upright


def _turn_place(place: WordPlace) -> WordPlace:
    left, top, right, bottom = (PAGE_SIZE - edge for edge in place)
    return WordPlace(right, bottom, left, top)


def _run_tesseract(picture: bytes) -> Recognised:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "page.png").write_bytes(picture)
        program = programs.find("tesseract")
        detection = ("--psm", "1") if _ORIENTATION_DATA in _list_languages(program) else ()
        table = programs.run(folder, program, "page.png", "-", "-l", "+".join(languages()), *detection, "tsv")
    return parse_table(table.decode("utf-8", "replace"))


def parse_table(table: str) -> Recognised:
    """Read Tesseract's table, which has a row for each word, with its block, paragraph and line.

    The places of words refer to the original picture, even if Tesseract has rotated it.
    """
    rows = list(csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE))
    page = next((row for row in rows if row.get("level") == _PAGE), {})
    words = [row for row in rows if row.get("level") == _WORD and _words(row)]
    certain = [row for row in words if float(row["conf"]) >= _LEAST_CONFIDENCE]
    paragraphs: dict[tuple[str, str], list[list[_Row]]] = defaultdict(list)
    for (block, paragraph, _), line in groupby(certain, key=_line_of):
        paragraphs[block, paragraph].append(list(line))
    text = "\n\n".join("\n".join(map(_join_words, lines)) for lines in paragraphs.values())
    word_places = [
        _place(row, page) for lines in paragraphs.values() for line in lines for row in line for _ in _words(row)
    ]
    return Recognised(text, sum(float(row["conf"]) for row in certain) / len(certain) if certain else 0.0, word_places)


def _line_of(row: _Row) -> tuple[str, str, str]:
    return row["block_num"], row["par_num"], row["line_num"]


def _words(row: _Row) -> list[str]:
    """Return the words of a row. Usually there is one."""
    return places.words(clean_text(row.get("text") or ""))


def _join_words(line: Iterable[_Row]) -> str:
    return " ".join(word for row in line for word in _words(row))


def _place(row: _Row, page: _Row) -> WordPlace:
    left, top, width, height = (int(row[name]) for name in ("left", "top", "width", "height"))
    across, down = (max(int(page.get(name, 0)), 1) for name in ("width", "height"))
    edges = ((left, across), (top, down), (left + width, across), (top + height, down))
    return WordPlace(*(min(max(round(at * PAGE_SIZE / size), 0), PAGE_SIZE) for at, size in edges))
