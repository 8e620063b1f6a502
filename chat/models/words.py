"""The words of what somebody wrote: how a query is read, folded and found in the index of messages.

Words are compared here as the database does it in `chat_words` (its migration says how).
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.postgres.search import SearchQuery, SearchVectorField
from django.db.models import Func

READ = 100_000  # characters of one message that are searched
MAX_QUERY = 200  # characters that are read
MAX_WORDS = 16

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


def tsquery(asked: Sequence[Sequence[Term]], *, every: bool = True) -> str:
    """In the language of `to_tsquery`; words hold letters and digits alone, so nothing in them is a sign of it."""

    def of(term: Term) -> str:
        return f"'{term.word}'" + (":*" if term.prefix else "")

    return (" & " if every else " | ").join("(" + " <-> ".join(of(term) for term in phrase) + ")" for phrase in asked)


def words_in(text: str) -> set[str]:
    """Each folded word once."""
    return set(_WORD.findall(fold(text)))


def spans(text: str, asked: Sequence[Sequence[Term]]) -> list[tuple[int, int]]:
    """Characters [start, end) of each word that matches a term."""
    terms = [term for phrase in asked for term in phrase]
    return [word.span() for word in _WORD.finditer(text) if _matches(fold(word[0]), terms)]


def _matches(folded: str, terms: Sequence[Term]) -> bool:
    return any(term.matches(folded) for term in terms)


class MessageWords(Func):
    function = "chat_message_words"
    output_field = SearchVectorField()


def as_query(asked: Sequence[Sequence[Term]], *, every: bool = True) -> SearchQuery:
    """All of the phrases, or any of them."""
    return SearchQuery(tsquery(asked, every=every), config="simple", search_type="raw")
