"""Keys of single words in the index, from PostgreSQL's stemmers, with a cache in each process.

A key is a lexeme after the prefix of its language, so that a word is only looked up in passages of that language.
A process queries each word only once, so most words of a collection are soon in the cache.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from django.db import connection

from files.index.language import key_prefix
from files.index.words import indexed_text

CACHED_WORDS = 50_000  # words in the cache, about 15 MB; a full cache is cleared
UNMARKED = "~"  # marks keys of words without marks on their letters; lexemes of the parser's words do not have it

# Words and lexemes are joined by line ends and spaces, which is much faster than arrays. A word has no space.
# A single empty text becomes an empty array, so NULL stands for it.
_WORD_KEYS_SQL = r"""
SELECT word,
    coalesce(array_to_string(tsvector_to_array(to_tsvector(%(language)s::regconfig, words)), ' '), ''),
    coalesce(array_to_string(tsvector_to_array(to_tsvector(%(language)s::regconfig, variants)), ' '), ''),
    coalesce(array_to_string(tsvector_to_array(to_tsvector(%(language)s::regconfig, unmarked)), ' '), '')
FROM unnest(string_to_array(%(word)s, E'\n'), string_to_array(%(words)s, E'\n'), string_to_array(%(variants)s, E'\n'),
    string_to_array(%(unmarked)s, E'\n')) AS given (word, words, variants, unmarked)
"""


class WordKeys(NamedTuple):
    """Keys of a word, of its spelling variants, and of its spelling without marks. A stop word has none.

    `plain`: keys of texts that are written without marks.
    """

    words: frozenset[str]
    variants: frozenset[str]
    unmarked: frozenset[str]
    plain: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.words | self.variants | self.unmarked


_cache: dict[tuple[str, str], WordKeys] = {}


def unmarked_prefix(language: str) -> str:
    """Return the beginning of the keys of words without marks on their letters."""
    return f"{key_prefix(language).rstrip()}{UNMARKED} "


def strip_prefix(key: str) -> str:
    """Return the lexeme of a key, without its language."""
    return key.rpartition(" ")[2]


def get_word_keys(words: Collection[str], language: str) -> Mapping[str, WordKeys]:
    """Return the keys of each word. `language` is a text search configuration. A word has no space."""
    cached = {word: keys for word in words if (keys := _cache.get((language, word))) is not None}
    missing = sorted({word for word in words if word not in cached})
    if not missing:
        return cached
    read = _query_keys(missing, language)
    if len(_cache) + len(read) > CACHED_WORDS:
        _cache.clear()
    _cache.update({(language, word): keys for word, keys in read.items()})
    return cached | read


def _query_keys(words: list[str], language: str) -> dict[str, WordKeys]:
    texts = [indexed_text(word) for word in words]
    parameters: Mapping[str, str] = {
        "language": language,
        "word": "\n".join(words),
        "words": "\n".join(text.words for text in texts),
        "variants": "\n".join(text.variants for text in texts),
        "unmarked": "\n".join(text.unmarked for text in texts),
    }
    prefix = key_prefix(language)
    with connection.cursor() as cursor:
        cursor.execute(_WORD_KEYS_SQL, parameters)
        rows = cursor.fetchall()
    return {
        word: WordKeys(
            _keys(prefix, own),
            _keys(prefix, variants),
            _keys(unmarked_prefix(language), unmarked),
            _keys(prefix, unmarked),
        )
        for word, own, variants, unmarked in rows
    }


def _keys(prefix: str, lexemes: str) -> frozenset[str]:
    return frozenset(f"{prefix}{lexeme}" for lexeme in lexemes.split())
