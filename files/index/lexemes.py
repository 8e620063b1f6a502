"""The lexemes of single words, as PostgreSQL's stemmers have them.

Each process asks for a word once, so that a search asks for few: most words of a collection are soon known.
"""

from collections.abc import Collection, Mapping

from django.db import connection

from files.index.language import readable

KEPT = 50_000  # words of a process, in about 10 MB; then it begins anew

# In lines, which is much less work than arrays; a word has no space.
_OF_WORDS = r"""
SELECT word, array_to_string(tsvector_to_array(to_tsvector(%s::regconfig, content)), ' ')
FROM unnest(string_to_array(%s, E'\n'), string_to_array(%s, E'\n')) AS given (word, content)
"""

_known: dict[tuple[str, str], frozenset[str]] = {}


def lexemes_of(words: Collection[str], language: str) -> Mapping[str, frozenset[str]]:
    """By word; none of a stop word. `language` is a text search configuration. Words are runs of letters and digits."""
    found = {word: lexemes for word in words if (lexemes := _known.get((language, word.lower()))) is not None}
    missing = sorted({word.lower() for word in words if word not in found})
    if missing:
        asked = _asked(missing, language)
        found |= {word: asked[word.lower()] for word in words if word not in found}
        if len(_known) + len(asked) > KEPT:
            _known.clear()
        _known.update({(language, word): lexemes for word, lexemes in asked.items()})
    return found


def _asked(words: list[str], language: str) -> dict[str, frozenset[str]]:
    with connection.cursor() as cursor:
        cursor.execute(_OF_WORDS, [language, "\n".join(words), "\n".join(map(readable, words))])
        return {word: frozenset(lexemes.split()) for word, lexemes in cursor.fetchall()}
