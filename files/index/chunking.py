"""Cuts a text into chunks for search: about 512 tokens each, ends where the text pauses, neighbours overlap.

No chunk ends with a heading if it can end elsewhere.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from llm import tokens

TARGET = 512  # tokens; no chunk has more
LEAST = 256  # tokens of a chunk that ends early, at a better place
OVERLAP = 64  # tokens that a chunk repeats of the one before it, at most

_ATOM_CHARACTERS = 400
_ATOM_TOKENS = 64
WORD, SENTENCE, LINE, PARAGRAPH = range(4)
_PAUSE = re.compile(
    r"(?P<paragraph>\n[^\S\n]*\n\s*)"
    r"|(?P<line>\n\s*)"
    # Possessive (++): a million spaces before a line end would else be tried a million times.
    r"|(?P<sentence>[.!?…][\"'”’)\]]*[^\S\n]++(?!\n)|[。！？][”’」』）]*(?!\n))"
)
_HEADING = re.compile(r"#{1,6} \S")  # of Markdown, as documents are read
_STRENGTHS = {"paragraph": PARAGRAPH, "line": LINE, "sentence": SENTENCE}


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters [start, end) of the text, and their count with the catch-all tokenizer."""

    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Atom:
    """What is never divided. `strength` tells what kind of pause comes after it."""

    start: int
    end: int
    tokens: int
    strength: int


def pieces(text: str) -> Iterator[Piece]:
    """In order. Every character that is not white space is in at least one; the time grows with the text's length."""
    atoms = list(_atoms(text))
    sums = [0, *accumulate(atom.tokens for atom in atoms)]
    first = 0
    while first < len(atoms):
        last = _last(atoms, sums, first)
        piece = _piece(text, atoms[first].start, atoms[last].end)
        # Tokens are counted anew: joined texts may have a few more than their parts.
        while piece and piece.tokens > TARGET and last > first:
            last -= 1
            piece = _piece(text, atoms[first].start, atoms[last].end)
        if piece:
            yield piece
        if last + 1 == len(atoms):
            return
        first = _next(sums, first, last)


def _last(atoms: Sequence[_Atom], sums: Sequence[int], first: int) -> int:
    """The atom that ends the chunk: the strongest pause between LEAST and TARGET tokens, the latest of equals."""
    best = last = first
    while last < len(atoms) and sums[last + 1] - sums[first] <= TARGET:
        if sums[last + 1] - sums[first] < LEAST or atoms[last].strength >= atoms[best].strength:
            best = last
        last += 1
    return len(atoms) - 1 if last == len(atoms) else best


def _next(sums: Sequence[int], first: int, last: int) -> int:
    """The atom that begins the next chunk: as far back as the overlap allows, but always further than this one."""
    start = last + 1
    while start - 1 > first and sums[last + 1] - sums[start - 1] <= OVERLAP:
        start -= 1
    return start


def _piece(text: str, start: int, end: int) -> Piece | None:
    """Without the white space at both ends; None for nothing but white space."""
    inner = text[start:end]
    stripped = inner.strip()
    if not stripped:
        return None
    start += len(inner) - len(inner.lstrip())
    return Piece(start, start + len(stripped), tokens.count(stripped))


def _atoms(text: str) -> Iterator[_Atom]:
    position = 0
    for pause in _PAUSE.finditer(text):
        # A heading goes with what stands below it.
        strength = WORD if _HEADING.match(text, position) else _STRENGTHS[pause.lastgroup or "line"]
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
