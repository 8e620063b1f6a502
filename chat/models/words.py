"""The words of what somebody wrote: how a query is read, folded and found in the index of messages; titles of them.

Words are compared here as the database does it in `chat_words` (its migration says how).
"""

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.contrib.postgres.search import SearchQuery, SearchVectorField
from django.db import connection
from django.db.models import Func
from django.db.models.expressions import RawSQL

from core.lines import first_line

READ = 100_000  # characters of one message that are searched
MAX_QUERY = 200  # characters that are read
LENGTH = 60  # characters of a title
MAX_WORDS = 16

_MARKS = re.compile("[\u0300-\u036f]")
_ALONE = "\u3040-\u30ff\u4e00-\u9fff"  # characters of languages that write no spaces
_CHARACTER = re.compile(f"[{_ALONE}]")
_WORD = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_PHRASE = re.compile(r'"[^"]*"|[^\s"]+')

# A phrase counts for the more, the fewer of the messages have it. The words of a message are taken from it once. Terms
# are told apart by their text: to PostgreSQL a word and the beginning of one are equal.
_BEST = """
WITH terms AS (
    SELECT said, to_tsquery('simple', said) AS term FROM (SELECT DISTINCT unnest(%(terms)s::text[]) AS said) AS each
), hits AS MATERIALIZED (
    SELECT id, depth, chat_message_words(parts) AS words FROM chat_message
    WHERE id = ANY(%(ids)s) AND status <> 'pending' AND chat_message_words(parts) @@ to_tsquery('simple', %(any)s)
), weights AS (
    SELECT said, term, ln(1 + (SELECT count(*) FROM hits)::numeric / count(*)) AS weight
    FROM terms JOIN hits ON words @@ term GROUP BY said, term
)
SELECT id FROM hits JOIN weights ON words @@ term
GROUP BY id, depth ORDER BY sum(weight) DESC, depth DESC LIMIT %(limit)s
"""


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
    return " & ".join(map(_adjacent, asked))


def _adjacent(phrase: Sequence[Term]) -> str:
    return "(" + " <-> ".join(f"'{term.word}'" + (":*" if term.prefix else "") for term in phrase) + ")"


def best(messages: Sequence[UUID], asked: Sequence[Sequence[Term]], limit: int) -> list[UUID]:
    """Of these messages those with any of the phrases, the best first: with most of them, rare ones foremost, and whole
    words before the beginnings of longer ones ("box 1", "box 17"). Of equals the newest."""
    parts = [part for phrase in asked for part in _apart(phrase)]
    whole = [[Term(term.word, False) for term in part] for part in parts]
    terms = [*map(_adjacent, parts + whole)]
    bound: dict[str, Any] = {"ids": list(messages), "terms": terms, "any": " | ".join(terms), "limit": limit}
    with connection.cursor() as cursor:
        cursor.execute(_BEST, bound)
        return [row[0] for row in cursor.fetchall()]


def _apart(phrase: Sequence[Term]) -> list[list[Term]]:
    """Where no spaces are written, what has no quotation marks may be a whole sentence, which stands in no message: its
    characters by twos, and its other words each."""
    if len(phrase) < 3 or not phrase[-1].prefix or not any(_CHARACTER.match(term.word) for term in phrase):
        return [list(phrase)]
    pairs = [[a, b] for a, b in pairwise(phrase) if _CHARACTER.match(a.word) and _CHARACTER.match(b.word)]
    return [*pairs, *([term] for term in phrase if not _CHARACTER.match(term.word))]


def spans(text: str, asked: Sequence[Sequence[Term]]) -> list[tuple[int, int]]:
    """Characters [start, end) of each word that matches a term."""
    terms = [term for phrase in asked for term in phrase]
    return [word.span() for word in _WORD.finditer(text) if _matches(fold(word[0]), terms)]


def _matches(folded: str, terms: Sequence[Term]) -> bool:
    return any(term.matches(folded) for term in terms)


class _Words(Func):
    """Not as an index of everybody's has them, which is slower than to read the few that were found."""

    template = "%(function)s(COALESCE(%(expressions)s, NULL))"
    output_field = SearchVectorField()


class MessageWords(_Words):
    """Of `parts`."""

    function = "chat_message_words"


class TitleWords(_Words):
    function = "chat_words"


def as_query(asked: Sequence[Sequence[Term]]) -> SearchQuery:
    """All of the phrases."""
    return SearchQuery(tsquery(asked), config="simple", search_type="raw")


def messages_with(owner: UUID, asked: Sequence[Sequence[Term]]) -> RawSQL:
    """Ids of this person's messages that have all of the words, wherever in them; see migration 0040."""
    return RawSQL("SELECT chat_messages_with(%s, to_tsquery('simple', %s))", [owner, tsquery(asked)])


def titles_with(owner: UUID, asked: Sequence[Sequence[Term]]) -> RawSQL:
    """Ids of this person's conversations that have all of the words in their titles; see migration 0060."""
    return RawSQL("SELECT chat_titles_with(%s, to_tsquery('simple', %s))", [owner, tsquery(asked)])


def title_from(text: str) -> str:
    """The beginning of a text, cut between words where it has any."""
    line = first_line(text, LENGTH)
    if " " not in line[:LENGTH]:
        return line[:LENGTH]
    return textwrap.shorten(line, LENGTH, placeholder="…")
