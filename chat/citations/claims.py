"""Find the sentences of an answer that cite documents.

The sentences come from the parser's tokens, so they have no Markdown, as users see them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from chat.citations.support import BETWEEN_CELLS, LEAST_WORDS, spans
from chat.citations.words import words_of
from chat.rendering.markdown import parse_tokens
from chat.rendering.references import Source

_LINK = "\0"
_CITATION = re.compile(r"\[{1,2}(?:\0|\d+)(?:\s*,\s*(?:\0|\d+))*\]{1,2}")
MAX_CLAIMS = 100  # claims per text; later claims are not checked


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence that cites documents. `citation` is the number of its citation in the text, counted from 0."""

    citation: int
    numbers: tuple[int, ...]
    sentence: str


@dataclass(slots=True)
class _CitationMark:
    """A citation in a block. `position` is the number of characters of the plain text before it."""

    position: int
    citation: int
    numbers: list[int]


def claims(text: str, sources: Mapping[int, Source]) -> list[Claim]:
    """Return the claims of the text in order, at most `MAX_CLAIMS`."""
    text_claims: list[Claim] = []
    row: list[Sequence[Token]] | None = None  # the cells of the table row that is being read
    for token in parse_tokens(text, sources):
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close" and row is not None:
            text_claims += _claims_of_row(row)
            row = None
        elif token.type == "inline" and token.children and row is not None:
            row.append(token.children)
        elif token.type == "inline" and token.children:
            text_claims += _claims_of_block(token.children)
        if len(text_claims) >= MAX_CLAIMS:
            return text_claims[:MAX_CLAIMS]
    return text_claims


def _claims_of_row(cells: Sequence[Sequence[Token]]) -> Iterator[Claim]:
    """Yield a claim for each citation of a table row.

    A citation stands for the whole row. If several cells have citations, it stands for its cell and the first one.
    """
    texts = [_plain_text(children) for children in cells]
    cited = [at for at, (plain, marks) in enumerate(texts) if marks and plain.strip()]
    for at, (_, marks) in enumerate(texts):
        several = len(cited) > 1 and at in cited
        words = [_as_sentence(plain) for place, (plain, _) in enumerate(texts) if not several or place in (0, at)]
        for mark in marks:
            yield Claim(mark.citation, tuple(mark.numbers), BETWEEN_CELLS.join(filter(None, words)))


def _claims_of_block(children: Sequence[Token]) -> Iterator[Claim]:
    plain, marks = _plain_text(children)
    for start, end in spans(plain) if marks else ():
        inside = [mark for mark in marks if start < mark.position <= end or mark.position == start == 0]
        # A citation inside a sentence covers the words before it if they are enough to compare, else the whole
        # sentence.
        begin = start
        for mark in inside:
            until = mark.position if mark is not inside[-1] and _is_comparable(plain[begin : mark.position]) else end
            yield Claim(mark.citation, tuple(mark.numbers), _as_sentence(plain[begin:until]))
            begin = until if until != end else begin


def _plain_text(children: Sequence[Token]) -> tuple[str, list[_CitationMark]]:
    """Return the words of a block without its citations, and the citations."""
    words: list[str] = []
    cited: list[tuple[int, int]] = []  # citation and number of each link; a NUL marks its place in the words
    links = iter(children)
    for child in links:
        if child.type == "link_open" and child.meta:
            text = next(links).content
            if text.isdecimal():  # other links mark doubts
                cited.append((child.meta["citation"], int(text)))
                words.append(_LINK)
        elif child.type in ("softbreak", "hardbreak"):
            words.append(" ")
        elif child.type != "link_close":
            words.append(child.content)
    plain = ""
    marks = []
    done = 0
    joined = "".join(words)
    for match in _CITATION.finditer(joined):
        match_links = [cited.pop(0) for _ in range(match[0].count(_LINK))]
        plain += joined[done : match.start()]
        done = match.end()
        if match_links:
            marks.append(_CitationMark(len(plain), match_links[0][0], [number for _, number in match_links]))
    return plain + joined[done:], marks


def _as_sentence(words: str) -> str:
    """Return the words in one line, without the blanks and commas around removed citations."""
    return re.sub(r" (?=[.,;:!?])", "", " ".join(words.split())).strip(" ,;")


def _is_comparable(text: str) -> bool:
    """Return whether the text has enough words to be compared with a passage."""
    return sum(word.content for word in words_of(text)) >= LEAST_WORDS
