"""Cuts a text into chunks for search: about 512 tokens each, ends where the text pauses, neighbours overlap.

A chunk ends before a heading where it can, and then the next repeats nothing of it; none ends with a heading if it can
end elsewhere. Each knows where it stands: below which headings, and under which head of a table.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from llm import tokens

VERSION = 1  # of the chunks that this makes; files with chunks of an older one are cut anew in the background
TARGET = 512  # tokens; no chunk has more
LEAST = 256  # tokens of a chunk that ends early, at a better place
LEAST_BEFORE_HEADING = 128  # tokens of one that ends early because a heading follows
OVERLAP = 64  # tokens that a chunk repeats of the one before it, at most
MAX_HEADING = 120  # characters of one heading in a path
MAX_TABLE_HEAD = 400  # characters; a longer head is not repeated
BETWEEN_HEADINGS = " › "

_ATOM_CHARACTERS = 400
_ATOM_TOKENS = 64
WORD, SENTENCE, LINE, PARAGRAPH, SECTION = range(5)
_PAUSE = re.compile(
    r"(?P<paragraph>\n[^\S\n]*\n\s*)"
    r"|(?P<line>\n\s*)"
    # Possessive (++): a million spaces before a line end would else be tried a million times.
    r"|(?P<sentence>[.!?…][\"'”’)\]]*[^\S\n]++(?!\n)|[。！？][”’」』）]*(?!\n))"
)
_HEADING = re.compile(r"#{1,6} \S")  # of Markdown, as documents are read
_HEADING_OR_FENCE = re.compile(r"^(?:(?P<marks>#{1,6}) +(?P<words>\S.*)|(?P<fence>```|~~~).*)$", re.MULTILINE)
# A head, the line below it and rows; or, as sheets are read, lines of cells divided by tabs.
_TABLE = re.compile(
    r"^(?P<head>\|.*\|[^\S\n]*\n\|(?:[ :]*-+[ :]*\|)+[^\S\n]*)\n(?P<rows>(?:\|.*(?:\n|\Z))+)"
    r"|^(?P<cells>[^\n\t]*+\t[^\n]*+)\n(?P<lines>(?:[^\n\t]*+\t[^\n]*(?:\n|\Z))+)",
    re.MULTILINE,
)
_REMARKS = re.compile(r"text/(?:plain|x-|css|javascript|csv|tab-)|application/json")
_STRENGTHS = {"paragraph": PARAGRAPH, "line": LINE, "sentence": SENTENCE}


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters [start, end) of the text, and their count with the catch-all tokenizer.

    `heading` is the path of headings in force at its start, the outermost first, one that begins there included;
    `table_head` the two lines of the head of a table that began before it.
    """

    start: int
    end: int
    tokens: int
    heading: str = ""
    table_head: str = ""


@dataclass(frozen=True, slots=True)
class _Atom:
    """What is never divided. `strength` tells what kind of pause comes after it."""

    start: int
    end: int
    tokens: int
    strength: int


def pieces(text: str, *, media_type: str = "text/markdown") -> Iterator[Piece]:
    """In order. Every character that is not white space is in at least one; the time grows with the text's length.

    `media_type`: in a program or a plain text, lines that begin with # are remarks, no headings.
    """
    headings = not _REMARKS.match(media_type)
    atoms = list(_atoms(text, headings=headings))
    sums = [0, *accumulate(atom.tokens for atom in atoms)]
    places = _Places(text, media_type, headings=headings)
    first = 0
    while first < len(atoms):
        last = _last(atoms, sums, first)
        piece = _piece(text, atoms[first].start, atoms[last].end, places)
        # Tokens are counted anew: joined texts may have a few more than their parts.
        while piece and piece.tokens > TARGET and last > first:
            last -= 1
            piece = _piece(text, atoms[first].start, atoms[last].end, places)
        if piece:
            yield piece
        if last + 1 == len(atoms):
            return
        first = last + 1 if atoms[last].strength == SECTION else _next(sums, first, last)


class _Places:
    """What stands above each place of a text."""

    def __init__(self, text: str, media_type: str, *, headings: bool) -> None:
        found = list(_headings(text)) if headings else []
        self._starts, self._paths = [start for start, _ in found], [path for _, path in found]
        self._tables = list(_tables(text, media_type))
        self._rows = [start for start, _, _ in self._tables]

    def heading(self, position: int) -> str:
        at = bisect_right(self._starts, position)
        return self._paths[at - 1] if at else ""

    def table_head(self, position: int) -> str:
        at = bisect_right(self._rows, position)
        if not at:
            return ""
        _, end, head = self._tables[at - 1]
        return head if position < end and len(head) <= MAX_TABLE_HEAD else ""


def _tables(text: str, media_type: str) -> Iterator[tuple[int, int, str]]:
    """Where the rows of each begin, where they end, and its head. Comma-separated values are one table."""
    if media_type == "text/csv":
        head = text.partition("\n")[0]
        yield len(head) + 1, len(text), head
        return
    for match in _TABLE.finditer(text):
        head, rows = ("head", "rows") if match["head"] is not None else ("cells", "lines")
        yield match.start(rows), match.end(), match[head]


def _headings(text: str) -> Iterator[tuple[int, str]]:
    """Where each heading begins, and the path of headings from there on. What stands in a block of code is none."""
    path: dict[int, str] = {}
    fence = ""
    for match in _HEADING_OR_FENCE.finditer(text):
        if match["fence"]:
            fence = "" if match["fence"] == fence else fence or match["fence"]
        elif not fence:
            level = len(match["marks"])
            path = {above: words for above, words in path.items() if above < level}
            path[level] = match["words"].strip().rstrip("#").rstrip()[:MAX_HEADING]
            yield match.start(), BETWEEN_HEADINGS.join(path.values())


def _last(atoms: Sequence[_Atom], sums: Sequence[int], first: int) -> int:
    """The atom that ends the chunk: the strongest pause between LEAST and TARGET tokens, the latest of equals."""
    best = last = first
    while last < len(atoms) and (size := sums[last + 1] - sums[first]) <= TARGET:
        least = LEAST_BEFORE_HEADING if atoms[best].strength == SECTION else LEAST
        if size < least or atoms[last].strength >= atoms[best].strength:
            best = last
        last += 1
    return len(atoms) - 1 if last == len(atoms) else best


def _next(sums: Sequence[int], first: int, last: int) -> int:
    """The atom that begins the next chunk: as far back as the overlap allows, but always further than this one."""
    start = last + 1
    while start - 1 > first and sums[last + 1] - sums[start - 1] <= OVERLAP:
        start -= 1
    return start


def _piece(text: str, start: int, end: int, places: _Places) -> Piece | None:
    """Without the white space at both ends; None for nothing but white space."""
    inner = text[start:end]
    stripped = inner.strip()
    if not stripped:
        return None
    start += len(inner) - len(inner.lstrip())
    heading, table_head = places.heading(start), places.table_head(start)
    return Piece(start, start + len(stripped), tokens.count(stripped), heading, table_head)


def _atoms(text: str, *, headings: bool) -> Iterator[_Atom]:
    position = 0
    for pause in _PAUSE.finditer(text):
        strength = _STRENGTHS[pause.lastgroup or "line"]
        if headings and _HEADING.match(text, position):
            strength = WORD  # a heading goes with what stands below it
        elif headings and strength >= LINE and _HEADING.match(text, pause.end()):
            strength = SECTION
        yield from _divided(text, position, pause.end(), strength)
        position = pause.end()
    if position < len(text):
        yield from _divided(text, position, len(text), PARAGRAPH)


def _divided(text: str, start: int, end: int, strength: int) -> Iterator[_Atom]:
    """A sentence, or its parts between words when it is long."""
    while end - start > _ATOM_CHARACTERS:
        limit = start + _ATOM_CHARACTERS
        space = max(text.rfind(" ", start, limit), text.rfind("\t", start, limit), text.rfind("\n", start, limit))
        cut = space + 1 if space > start else limit
        yield from _counted(text, start, cut, WORD)
        start = cut
    yield from _counted(text, start, end, strength)


def _counted(text: str, start: int, end: int, strength: int) -> Iterator[_Atom]:
    """Halved until it has few tokens, which matters for scripts that take several for each character."""
    count = tokens.count(text[start:end])
    if count <= _ATOM_TOKENS or end - start == 1:
        yield _Atom(start, end, count, strength)
        return
    middle = _between_words(text, start, end)
    yield from _counted(text, start, middle, WORD)
    yield from _counted(text, middle, end, strength)


def _between_words(text: str, start: int, end: int) -> int:
    """A place in the second quarter behind a space, else the middle."""
    middle = (start + end) // 2
    space = text.rfind(" ", (start + middle) // 2, middle)
    return space + 1 if space > start else middle
