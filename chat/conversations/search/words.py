"""Words as search compares them, and their places in a text. The database does the same in `chat_words` (its
migration says how)."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

READ = 100_000  # characters of one message that are searched
MAX_QUERY = 200  # characters that are read
MAX_WORDS = 16
SHOWN = 260  # characters of an excerpt
BEFORE = 80  # of them at most before the first match

_MARKS = re.compile("[\u0300-\u036f]")
_ALONE = "\u3040-\u30ff\u4e00-\u9fff"  # characters of languages that write no spaces
_WORD = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_PHRASE = re.compile(r'"[^"]*"|[^\s"]+')


@dataclass(frozen=True, slots=True)
class Term:
    """A folded word; a `prefix` also matches longer ones."""

    word: str
    prefix: bool

    def matches(self, folded: str) -> bool:
        return folded.startswith(self.word) if self.prefix else folded == self.word


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    plain = _MARKS.sub("", unicodedata.normalize("NFD", text.lower()))
    return unicodedata.normalize("NFC", plain).replace("đ", "d")


def phrases(query: str) -> list[list[Term]]:
    """What must all be there: words that stand beside each other, each phrase's last one as a beginning.

    Quotation marks make a phrase of several words and take its last one exactly; so do the signs in a name in code.
    """
    found, left = [], MAX_WORDS
    for piece in _PHRASE.findall(query[:MAX_QUERY].replace("\0", " ")):
        exact = piece.startswith('"')
        words = _WORD.findall(fold(piece))[:left]
        left -= len(words)
        if words:
            found.append([Term(word, not exact and place == len(words) - 1) for place, word in enumerate(words)])
    return found


def tsquery(asked: Sequence[Sequence[Term]]) -> str:
    """In the language of `to_tsquery`; words hold letters and digits alone, so nothing in them is a sign of it."""

    def of(term: Term) -> str:
        return f"'{term.word}'" + (":*" if term.prefix else "")

    return " & ".join("(" + " <-> ".join(of(term) for term in phrase) + ")" for phrase in asked)


def excerpt(text: str, asked: Sequence[Sequence[Term]]) -> list[tuple[str, bool]]:
    """The place of the first match, in pieces that say whether they matched; the beginning where there is none."""
    line = " ".join(unicodedata.normalize("NFC", text[:READ]).split())
    terms = [term for phrase in asked for term in phrase]
    spans = [word.span() for word in _WORD.finditer(line) if _matches(fold(word[0]), terms)]
    start = max(0, spans[0][0] - BEFORE) if spans else 0
    if start:
        start = line.find(" ", start, spans[0][0]) + 1 or start
    end = min(len(line), start + SHOWN)
    pieces: list[tuple[str, bool]] = [("…", False)] if start else []
    at = start
    for left, right in spans:
        if right > end:
            break
        pieces += [(line[at:left], False), (line[left:right], True)]
        at = right
    pieces += [(line[at:end], False), ("…" if end < len(line) else "", False)]
    return [piece for piece in pieces if piece[0]]


def _matches(folded: str, terms: Sequence[Term]) -> bool:
    return any(term.matches(folded) for term in terms)
