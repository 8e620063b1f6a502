"""Text of pages that are pictures, by Tesseract where the machine has it."""

import csv
import io
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from files.extraction.outside import programs

MOST_PAGES = 200  # of one file
_MOST_LANGUAGES = 4  # with each it takes longer
_TURNED = "osd"  # with which it notices that a page is turned
_APART = (_TURNED, "equ")  # what is listed with the languages and is none
_WORD = "5"  # the level of a row that is one
_LEAST = 30  # percent: what is less sure than this is no word but a speck
_LISTING_SECONDS = 20

Render = Callable[[int], bytes]  # a page, counted from 0, as a picture


@dataclass(frozen=True, slots=True)
class Recognised:
    """`confidence` in percent, the mean of its words."""

    text: str
    confidence: float


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


def recognised(picture: bytes) -> Recognised:
    """Raises what `programs.run` raises."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "page.png").write_bytes(picture)
        program, using = programs.found("tesseract"), "+".join(languages())
        turned = ("--psm", "1") if _TURNED in _installed(program) else ()
        table = programs.run(folder, program, "page.png", "-", "-l", using, *turned, "tsv")
    return read(table.decode("utf-8", "replace"))


def read(table: str) -> Recognised:
    """What Tesseract writes as a table: a row for each word, with its block, paragraph and line."""
    rows = csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE)
    words = [row for row in rows if row.get("level") == _WORD and (row.get("text") or "").strip()]
    sure = [(row, float(row["conf"])) for row in words if float(row["conf"]) >= _LEAST]
    paragraphs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for place, line in groupby(
        sure, key=lambda each: tuple(each[0][name] for name in ("block_num", "par_num", "line_num"))
    ):
        paragraphs[place[0], place[1]].append(" ".join(row["text"].strip() for row, _ in line))
    text = "\n\n".join("\n".join(lines) for lines in paragraphs.values())
    return Recognised(text, sum(percent for _, percent in sure) / len(sure) if sure else 0.0)
