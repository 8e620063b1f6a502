"""Lexemes of single words from PostgreSQL's stemmers, with a cache in each process.

A process queries each word only once, so most words of a collection are soon in the cache.
"""

from collections.abc import Collection, Mapping

from django.db import connection

from files.index.language import readable

KEPT = 50_000  # words in the cache, about 10 MB; a full cache is cleared

# Words and lexemes are joined by line ends and spaces, which is much faster than arrays. A word has no space.
_OF_WORDS = r"""
SELECT word, array_to_string(tsvector_to_array(to_tsvector(%s::regconfig, content)), ' ')
FROM unnest(string_to_array(%s, E'\n'), string_to_array(%s, E'\n')) AS given (word, content)
"""

_cache: dict[tuple[str, str], frozenset[str]] = {}


def lexemes_of(words: Collection[str], language: str) -> Mapping[str, frozenset[str]]:
    """Return the lexemes of each word; stop words have none.

    `language` is a text search configuration. Words are runs of letters and digits.
    """
    cached = {word: lexemes for word in words if (lexemes := _cache.get((language, word.lower()))) is not None}
    missing = sorted({word.lower() for word in words if word not in cached})
    if not missing:
        return cached
    read = _query_lexemes(missing, language)
    if len(_cache) + len(read) > KEPT:
        _cache.clear()
    _cache.update({(language, word): lexemes for word, lexemes in read.items()})
    return cached | {word: read[word.lower()] for word in words if word not in cached}


def _query_lexemes(words: list[str], language: str) -> dict[str, frozenset[str]]:
    with connection.cursor() as cursor:
        cursor.execute(_OF_WORDS, [language, "\n".join(words), "\n".join(map(readable, words))])
        return {word: frozenset(lexemes.split()) for word, lexemes in cursor.fetchall()}
