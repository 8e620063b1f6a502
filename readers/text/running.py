"""Heads and feet that run through a document: they are kept where they stand first."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from readers.text.grids import NEAR
from readers.text.headings import Line, body

_AT_AN_EDGE = 3  # lines
_FEWEST_PAGES = 3
_LARGER = 1.1  # times the size of the text: a larger line is a title, which may well stand there again
_LONGEST = 60  # characters of a line in which the number of the page may stand
_NUMBER = re.compile(r"\d{1,5}")


def once(pages: Sequence[Sequence[Line]]) -> tuple[list[list[Line]], int]:
    """The pages without lines that stand at the same edge, at the same height, on at least three of them; but for the
    first page of each. And how many lines those were."""
    size, _ = body(pages)
    found: defaultdict[tuple[str, int], dict[int, list[int]]] = defaultdict(dict)
    for number, page in enumerate(pages):
        for at in _at_the_edges(page):
            line = page[at]
            if line.box and line.size <= size * _LARGER:
                for key in _keys(line.text, number):
                    found[key, round(line.box.bottom / NEAR)].setdefault(number, []).append(at)
    again: set[tuple[int, int]] = set()
    for places in found.values():
        if len(places) >= _FEWEST_PAGES:
            again.update((number, at) for number in list(places)[1:] for at in places[number])
    kept = [[line for at, line in enumerate(page) if (number, at) not in again] for number, page in enumerate(pages)]
    return kept, len(again)


def _at_the_edges(page: Sequence[Line]) -> Iterator[int]:
    placed = sorted((line.box.bottom, at) for at, line in enumerate(page) if line.box)
    yield from {at for _, at in (*placed[:_AT_AN_EDGE], *placed[-_AT_AN_EDGE:])}


def _keys(text: str, page: int) -> Iterator[str]:
    """What a line says, also with one of its numbers counted from that of the page: “Page 3 of 9” is followed by
    “Page 4 of 9”, but “Chapter 3” on the fifth page by nothing on the sixth."""
    said = " ".join(text.split())
    if said:
        yield said
        for number in _NUMBER.finditer(said) if len(said) <= _LONGEST else ():
            yield f"{said[: number.start()]}\0{int(number[0]) - page}{said[number.end() :]}"
