"""Which sentences of an answer cite something, as it is shown: from the parser's tokens, not from its Markdown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from chat.citations.support import LEAST_WORDS, spans
from chat.citations.words import words_of
from chat.rendering.markdown import tokens_of
from chat.rendering.references import Source

_LINK = "\0"
_CITATION = re.compile(r"\[{1,2}(?:\0|\d+)(?:\s*,\s*(?:\0|\d+))*\]{1,2}")
MOST = 100  # claims of a text; what comes after them is not compared


@dataclass(frozen=True, slots=True)
class Claim:
    """`sentence` cites `numbers` with the citation that is the `citation`-th of the text, counted from 0."""

    citation: int
    numbers: tuple[int, ...]
    sentence: str


@dataclass(slots=True)
class _Mark:
    position: int  # characters of the plain text before it
    citation: int
    numbers: list[int]


def claims(text: str, sources: Mapping[int, Source]) -> list[Claim]:
    """In order, at most `MOST`."""
    found: list[Claim] = []
    for token in tokens_of(text, sources):
        if token.type == "inline" and token.children:
            found += _of_block(token.children)
            if len(found) >= MOST:
                return found[:MOST]
    return found


def _of_block(children: Sequence[Token]) -> Iterator[Claim]:
    plain, marks = _plain(children)
    for start, end in spans(plain) if marks else ():
        inside = [mark for mark in marks if start < mark.position <= end or mark.position == start == 0]
        # Each citation inside a sentence stands for what leads up to it, where that says enough.
        begin = start
        for mark in inside:
            until = mark.position if mark is not inside[-1] and _says_enough(plain[begin : mark.position]) else end
            yield Claim(mark.citation, tuple(mark.numbers), _as_sentence(plain[begin:until]))
            begin = until if until != end else begin


def _plain(children: Sequence[Token]) -> tuple[str, list[_Mark]]:
    """The words of a block without its citations, and where these stood."""
    words: list[str] = []
    cited: list[tuple[int, int]] = []  # citation and number of each link, in order; its place in the words has a NUL
    links = iter(children)
    for child in links:
        if child.type == "link_open" and child.meta:
            text = next(links).content
            if text.isdecimal():  # else it is the sign of a doubt
                cited.append((child.meta["citation"], int(text)))
                words.append(_LINK)
        elif child.type in ("softbreak", "hardbreak"):
            words.append(" ")
        elif child.type != "link_close":
            words.append(child.content)
    plain, marks, done = "", [], 0
    written = "".join(words)
    for match in _CITATION.finditer(written):
        links_here = [cited.pop(0) for _ in range(match[0].count(_LINK))]
        plain += written[done : match.start()]
        done = match.end()
        if links_here:
            marks.append(_Mark(len(plain), links_here[0][0], [number for _, number in links_here]))
    return plain + written[done:], marks


def _as_sentence(words: str) -> str:
    """In one line, without what a citation that was taken out has left around itself."""
    return re.sub(r" (?=[.,;:!?])", "", " ".join(words.split())).strip(" ,;")


def _says_enough(text: str) -> bool:
    return sum(word.content for word in words_of(text)) >= LEAST_WORDS
