"""Remove running headers and footers of a document, except their first occurrence."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from readers.text.grids import SAME_POSITION
from readers.text.headings import PageLine, body

_EDGE_LINES = 3  # lines at the top and at the bottom of a page
_MIN_PAGES = 3
_TITLE_SIZE_FACTOR = 1.1  # times the body size; a larger line is a title, which may repeat
_MAX_LENGTH = 60  # characters of a line with a page number
_NUMBER = re.compile(r"\d{1,5}")


def remove_running_lines(pages: Sequence[Sequence[PageLine]]) -> tuple[list[list[PageLine]], int]:
    """Return the pages without repeated lines, and the number of removed lines.

    A repeated line is at the same edge and height on at least three pages. Only its first occurrence stays.
    """
    size, _ = body(pages)
    places_of_lines: defaultdict[tuple[str, int], dict[int, list[int]]] = defaultdict(dict)
    for number, page in enumerate(pages):
        for at in _edge_positions(page):
            line = page[at]
            if line.box and line.size <= size * _TITLE_SIZE_FACTOR:
                for key in _keys(line.text, number):
                    places_of_lines[key, round(line.box.bottom / SAME_POSITION)].setdefault(number, []).append(at)
    repeated: set[tuple[int, int]] = set()
    for places in places_of_lines.values():
        if len(places) >= _MIN_PAGES:
            repeated.update((number, at) for number in list(places)[1:] for at in places[number])
    remaining = [
        [line for at, line in enumerate(page) if (number, at) not in repeated] for number, page in enumerate(pages)
    ]
    return remaining, len(repeated)


def _edge_positions(page: Sequence[PageLine]) -> Iterator[int]:
    placed = sorted((line.box.bottom, at) for at, line in enumerate(page) if line.box)
    yield from {at for _, at in (*placed[:_EDGE_LINES], *placed[-_EDGE_LINES:])}


def _keys(text: str, page: int) -> Iterator[str]:
    """Yield the text of a line, and variants with one number replaced by its difference to the page number.

    So “Page 4 of 9” repeats “Page 3 of 9” on the page before. But “Chapter 4”
    repeats “Chapter 3” only if it is exactly one page later.
    """
    line = " ".join(text.split())
    if line:
        yield line
        for number in _NUMBER.finditer(line) if len(line) <= _MAX_LENGTH else ():
            yield f"{line[: number.start()]}\0{int(number[0]) - page}{line[number.end() :]}"
