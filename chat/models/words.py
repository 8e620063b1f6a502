"""Words of messages: parse a search query, fold words, search the index of messages, make titles.

Words are compared in the same way as in the database function `chat_words` (see its migration).
"""

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias
from uuid import UUID

from django.contrib.postgres.search import SearchQuery, SearchVectorField
from django.db import connection
from django.db.models import Func, QuerySet
from django.db.models.expressions import RawSQL

from core.marks import plain_line

READ = 100_000  # searched characters per message
MAX_QUERY = 200  # used characters of a query
LENGTH = 60  # characters of a title
MAX_WORDS = 16

_MARKS = re.compile("[\u0300-\u036f]")
_ALONE = "\u3040-\u30ff\u4e00-\u9fff"  # characters of languages that write no spaces: each is a word
_CHARACTER = re.compile(f"[{_ALONE}]")
_WORD = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_PHRASE = re.compile(r'"[^"]*"|[^\s"]+')

# A phrase weighs more if fewer messages contain it. The words of a message are extracted once. Terms are compared by
# their text, since PostgreSQL treats a word and a prefix as equal.
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


# A term weighs more if fewer of the readable messages contain it. The index gives the messages of each term.
_RANKED = """
WITH hits AS MATERIALIZED (
    SELECT DISTINCT said, chat_messages_with(whose, to_tsquery('simple', said)) AS id
    FROM unnest(%s::text[]) AS said, unnest(%s::uuid[]) AS whose
), readable AS MATERIALIZED (
    SELECT said, hits.id FROM hits JOIN chat_message ON chat_message.id = hits.id
    WHERE chat_message.deleted IS NULL AND conversation_id IN ({conversations})
), weights AS (
    SELECT said, ln(1 + (SELECT count(DISTINCT id) FROM readable)::numeric / count(*)) AS weight
    FROM readable GROUP BY said
)
SELECT id FROM readable JOIN weights USING (said) GROUP BY id ORDER BY sum(weight) DESC, id DESC LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Term:
    """A folded word of a query. A `prefix` also matches longer words."""

    word: str
    prefix: bool

    def matches(self, folded: str) -> bool:
        return folded.startswith(self.word) if self.prefix else folded == self.word


Phrases: TypeAlias = Sequence[Sequence[Term]]
"""A parsed query: phrases that must all match. Each is a sequence of adjacent words."""


def fold(text: str) -> str:
    """Return the text in lower case and without accents, as the index has it."""
    if text.isascii():
        return text.lower()
    plain = _MARKS.sub("", unicodedata.normalize("NFD", text.lower()))
    return unicodedata.normalize("NFC", plain).replace("đ", "d")


def parse_query(query: str) -> list[list[Term]]:
    """Return the phrases of a query. The last word of each matches as a prefix.

    Quotation marks combine several words into a phrase and match its last word exactly. Signs between words, as in a
    name in code, combine words, too.
    """
    phrases = []
    words_left = MAX_WORDS
    for phrase in _PHRASE.findall(query[:MAX_QUERY].replace("\0", " ")):
        exact = phrase.startswith('"')
        words = _WORD.findall(fold(phrase))[:words_left]
        words_left -= len(words)
        if words:
            phrases.append([Term(word, not exact and place == len(words) - 1) for place, word in enumerate(words)])
    return phrases


def tsquery(phrases: Phrases) -> str:
    """Return the phrases in the language of `to_tsquery`. Words are letters and digits, so they need no quoting."""
    return " & ".join(map(_adjacent, phrases))


def _adjacent(phrase: Sequence[Term]) -> str:
    return "(" + " <-> ".join(f"'{term.word}'" + (":*" if term.prefix else "") for term in phrase) + ")"


def best(messages: Sequence[UUID], phrases: Phrases, limit: int) -> list[UUID]:
    """Return the messages that contain any of the phrases, best match first.

    A message ranks higher if it contains more phrases, or rarer ones. Whole words rank above prefixes of longer words
    ("box 1" above "box 17"). Among equals the newest comes first.
    """
    parts = [part for phrase in phrases for part in split_sentence(phrase)]
    whole = [[Term(term.word, False) for term in part] for part in parts]
    terms = [*map(_adjacent, parts + whole)]
    with connection.cursor() as cursor:
        cursor.execute(_BEST, {"ids": list(messages), "terms": terms, "any": " | ".join(terms), "limit": limit})
        return [row[0] for row in cursor.fetchall()]


def split_sentence(phrase: Sequence[Term]) -> list[list[Term]]:
    """Split a phrase without spaces and quotation marks into pairs of characters and its other words.

    In languages that write no spaces the phrase may be a whole sentence, which no message contains literally.
    """
    if len(phrase) < 3 or not phrase[-1].prefix or not any(_CHARACTER.match(term.word) for term in phrase):
        return [list(phrase)]
    pairs = [[a, b] for a, b in pairwise(phrase) if _CHARACTER.match(a.word) and _CHARACTER.match(b.word)]
    return [*pairs, *([term] for term in phrase if not _CHARACTER.match(term.word))]


def ranked(*, owners: Sequence[UUID], conversations: QuerySet[Any], terms: Sequence[str], limit: int) -> list[UUID]:
    """Return the messages of these conversations with any of the terms, best match first, of equals the newest.

    `owners`: the owners of the conversations, for the index. `terms` are in the language of `to_tsquery`.
    """
    readable, values = conversations.order_by().values("pk").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(_RANKED.replace("{conversations}", readable), [[*terms], [*owners], *values, limit])
        return [row[0] for row in cursor.fetchall()]


def words_in(text: str) -> list[str]:
    """Return the words of the text, folded."""
    return [fold(word) for word in _WORD.findall(text)]


def spans(text: str, phrases: Phrases) -> list[tuple[int, int]]:
    """Return the characters [start, end) of each word that matches a term."""
    terms = [term for phrase in phrases for term in phrase]
    return [word.span() for word in _WORD.finditer(text) if _matches(fold(word[0]), terms)]


def _matches(folded: str, terms: Sequence[Term]) -> bool:
    return any(term.matches(folded) for term in terms)


class _WordsOf(Func):
    """Words of an expression, written so that PostgreSQL uses no index. Reading a few rows is faster."""

    template = "%(function)s(COALESCE(%(expressions)s, NULL))"
    output_field = SearchVectorField()


class MessageWords(_WordsOf):
    """Words of a message's `parts`."""

    function = "chat_message_words"


class TitleWords(_WordsOf):
    """Words of a title."""

    function = "chat_words"


def as_query(phrases: Phrases) -> SearchQuery:
    """Return a query for texts that have all of the phrases."""
    return SearchQuery(tsquery(phrases), config="simple", search_type="raw")


def messages_with(owner: UUID, phrases: Phrases) -> RawSQL:
    """Return the ids of this person's messages that contain all of the words, in any place; see migration 0040."""
    return RawSQL("SELECT chat_messages_with(%s, to_tsquery('simple', %s))", [owner, tsquery(phrases)])


def titles_with(owner: UUID, phrases: Phrases) -> RawSQL:
    """Return the ids of this person's conversations with all of the words in their titles; see migration 0060."""
    return RawSQL("SELECT chat_titles_with(%s, to_tsquery('simple', %s))", [owner, tsquery(phrases)])


def title_from(text: str) -> str:
    """Return the beginning of a text without Markdown syntax, cut between words if it has spaces."""
    line = plain_line(text, LENGTH)
    if " " not in line[:LENGTH]:
        return line[:LENGTH]
    return textwrap.shorten(line, LENGTH, placeholder="…")
