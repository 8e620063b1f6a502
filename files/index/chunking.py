"""Divide a text into chunks for search: about 512 tokens each, with ends at pauses and with overlaps.

1. The text is divided into atoms, at most 64 tokens each, at paragraphs, lines, sentences and words.
2. A chunk takes as many atoms as fit into 512 tokens, and ends at the strongest pause among the last ones.
3. The next chunk repeats at most 64 tokens of the previous one. A chunk that starts with a heading repeats nothing.

A chunk does not end with a heading if another end is possible. Each chunk stores the path of headings above it, and the
head of the table that it continues.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from llm import tokens

VERSION = 1  # version of these rules; a background task rechunks files of an older version
MAX_CHUNK_TOKENS = 512  # most tokens per chunk
LEAST_CHUNK_TOKENS = 256  # least tokens of a chunk that ends early at a stronger pause
LEAST_BEFORE_HEADING = 128  # least tokens of a chunk that ends early before a heading
OVERLAP_TOKENS = 64  # most tokens that a chunk repeats of the previous one
MAX_HEADING = 120  # characters per heading in a path
MAX_TABLE_HEAD = 400  # characters; longer heads are not stored with chunks
BETWEEN_HEADINGS = " › "

_ATOM_CHARACTERS = 400
_ATOM_TOKENS = 64
WORD, SENTENCE, LINE, PARAGRAPH, SECTION = range(5)
_PAUSE = re.compile(
    r"(?P<paragraph>\n[^\S\n]*\n\s*)"
    r"|(?P<line>\n\s*)"
    # Possessive (++): backtracking over a million spaces before a line end takes quadratic time.
    r"|(?P<sentence>[.!?…][\"'”’)\]]*[^\S\n]++(?!\n)|[。！？][”’」』）]*(?!\n))"
)
_HEADING = re.compile(r"#{1,6} \S")  # readers turn documents into Markdown
_HEADING_OR_FENCE = re.compile(r"^(?:(?P<marks>#{1,6}) +(?P<words>\S.*)|(?P<fence>```|~~~).*)$", re.MULTILINE)
# A Markdown table (head, rule and rows), or a sheet (lines of cells separated by tabs).
_TABLE = re.compile(
    r"^(?P<head>\|.*\|[^\S\n]*\n\|(?:[ :]*-+[ :]*\|)+[^\S\n]*)\n(?P<rows>(?:\|.*(?:\n|\Z))+)"
    r"|^(?P<cells>[^\n\t]*+\t[^\n]*+)\n(?P<lines>(?:[^\n\t]*+\t[^\n]*(?:\n|\Z))+)",
    re.MULTILINE,
)
# Types of texts in which a line that begins with # is a comment.
_HASH_COMMENT_TYPES = re.compile(r"text/(?:plain|x-|css|javascript|csv|tab-)|application/json")
_STRENGTHS = {"paragraph": PARAGRAPH, "line": LINE, "sentence": SENTENCE}


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """A chunk: characters [start, end) of a text, and their tokens by the catch-all tokenizer.

    `heading`: the path of headings at its start, outermost first, including a heading that begins there.
    `table_head`: the head of a table that begins before the chunk.
    """

    start: int
    end: int
    tokens: int
    heading: str = ""
    table_head: str = ""


@dataclass(frozen=True, slots=True)
class _Atom:
    """Part of a text that chunks never split. `strength`: the kind of the pause after it."""

    start: int
    end: int
    tokens: int
    strength: int


def chunk_spans(text: str, *, media_type: str = "text/markdown") -> Iterator[ChunkSpan]:
    """Yield the chunks of a text in order. Takes linear time.

    Every character except white space is in at least one chunk.

    `media_type`: in programs and plain texts, lines that begin with # are comments, not headings.
    """
    headings = not _HASH_COMMENT_TYPES.match(media_type)
    atoms = list(_atoms(text, headings=headings))
    sums = [0, *accumulate(atom.tokens for atom in atoms)]
    outline = _Outline(text, media_type, headings=headings)
    first = 0
    while first < len(atoms):
        last = _last_atom(atoms, sums, first)
        span = _trimmed_span(text, atoms[first].start, atoms[last].end, outline)
        # A joined text may have a few more tokens than its parts.
        while span and span.tokens > MAX_CHUNK_TOKENS and last > first:
            last -= 1
            span = _trimmed_span(text, atoms[first].start, atoms[last].end, outline)
        if span:
            yield span
        if last + 1 == len(atoms):
            return
        first = last + 1 if atoms[last].strength == SECTION else _next_atom(sums, first, last)


class _Outline:
    """Headings and table heads by position in a text."""

    def __init__(self, text: str, media_type: str, *, headings: bool) -> None:
        self._headings = list(_headings(text)) if headings else []
        self._heading_starts = [start for start, _ in self._headings]
        self._tables = list(_tables(text, media_type))
        self._rows = [start for start, _, _ in self._tables]

    def heading(self, position: int) -> str:
        at = bisect_right(self._heading_starts, position)
        return self._headings[at - 1][1] if at else ""

    def table_head(self, position: int) -> str:
        at = bisect_right(self._rows, position)
        if not at:
            return ""
        _, end, head = self._tables[at - 1]
        return head if position < end and len(head) <= MAX_TABLE_HEAD else ""


def _tables(text: str, media_type: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start of the rows, end of the rows, head) of each table. Comma-separated values are one table."""
    if media_type == "text/csv":
        head = text.partition("\n")[0]
        yield len(head) + 1, len(text), head
        return
    for match in _TABLE.finditer(text):
        head, rows = ("head", "rows") if match["head"] is not None else ("cells", "lines")
        yield match.start(rows), match.end(), match[head]


def _headings(text: str) -> Iterator[tuple[int, str]]:
    """Yield (start, path of headings from there on) for each heading. Lines in code blocks are not headings."""
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


def _last_atom(atoms: Sequence[_Atom], sums: Sequence[int], first: int) -> int:
    """Return the index of a chunk's last atom: the latest one with the strongest pause from LEAST to TARGET tokens."""
    best = last = first
    while last < len(atoms) and (size := sums[last + 1] - sums[first]) <= MAX_CHUNK_TOKENS:
        least = LEAST_BEFORE_HEADING if atoms[best].strength == SECTION else LEAST_CHUNK_TOKENS
        if size < least or atoms[last].strength >= atoms[best].strength:
            best = last
        last += 1
    return len(atoms) - 1 if last == len(atoms) else best


def _next_atom(sums: Sequence[int], first: int, last: int) -> int:
    """Return the index of the next chunk's first atom: as early as the overlap allows, but after `first`."""
    start = last + 1
    while start - 1 > first and sums[last + 1] - sums[start - 1] <= OVERLAP_TOKENS:
        start -= 1
    return start


def _trimmed_span(text: str, start: int, end: int, outline: _Outline) -> ChunkSpan | None:
    """Return the chunk without white space at its ends, None if it has only white space."""
    inner = text[start:end]
    stripped = inner.strip()
    if not stripped:
        return None
    start += len(inner) - len(inner.lstrip())
    return ChunkSpan(
        start,
        start + len(stripped),
        tokens.count(stripped),
        heading=outline.heading(start),
        table_head=outline.table_head(start),
    )


def _atoms(text: str, *, headings: bool) -> Iterator[_Atom]:
    position = 0
    for pause in _PAUSE.finditer(text):
        strength = _STRENGTHS[pause.lastgroup or "line"]
        if headings and _HEADING.match(text, position):
            strength = WORD  # a heading belongs to the text below it
        elif headings and strength >= LINE and _HEADING.match(text, pause.end()):
            strength = SECTION
        yield from _divide_at_words(text, position, pause.end(), strength)
        position = pause.end()
    if position < len(text):
        yield from _divide_at_words(text, position, len(text), PARAGRAPH)


def _divide_at_words(text: str, start: int, end: int, strength: int) -> Iterator[_Atom]:
    """Yield a sentence as one atom, or a long one as several, divided between words."""
    while end - start > _ATOM_CHARACTERS:
        limit = start + _ATOM_CHARACTERS
        space = max(text.rfind(" ", start, limit), text.rfind("\t", start, limit), text.rfind("\n", start, limit))
        cut = space + 1 if space > start else limit
        yield from _divide_by_tokens(text, start, cut, WORD)
        start = cut
    yield from _divide_by_tokens(text, start, end, strength)


def _divide_by_tokens(text: str, start: int, end: int, strength: int) -> Iterator[_Atom]:
    """Halve the part until each atom has few tokens. Some scripts have several tokens per character."""
    count = tokens.count(text[start:end])
    if count <= _ATOM_TOKENS or end - start == 1:
        yield _Atom(start, end, count, strength)
        return
    middle = _split_position(text, start, end)
    yield from _divide_by_tokens(text, start, middle, WORD)
    yield from _divide_by_tokens(text, middle, end, strength)


def _split_position(text: str, start: int, end: int) -> int:
    """Return the position after the last space in the second quarter, else the middle."""
    middle = (start + end) // 2
    space = text.rfind(" ", (start + middle) // 2, middle)
    return space + 1 if space > start else middle
