"""Where the words of a query stand in the texts that were found."""

import re
from collections.abc import Collection, Mapping

from django.db import connection

from files.index.language import UNSPACED_RUN, readable

Spans = tuple[tuple[int, int], ...]

_WORD = re.compile(r"\w+")

# The database knows which words are forms of a lexeme.
FORMS = """
SELECT word FROM unnest(%s::text[], %s::text[]) AS given (word, content)
WHERE tsvector_to_array(to_tsvector(%s::regconfig, content)) && %s::text[]
"""


def highlights(texts: Mapping[int, str], language: str, lexemes: Collection[str]) -> dict[int, Spans]:
    """By the keys of `texts`, [start, end) of the matches, ascending and apart. `language` is that of the texts."""
    words = sorted({word for text in texts.values() for word in _WORD.findall(text) if not UNSPACED_RUN.search(word)})
    if not texts or not lexemes:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(FORMS, [words, [readable(word) for word in words], language, list(lexemes)])
        forms = {word for (word,) in cursor.fetchall()}
    literal = _literal(lexemes)
    return {key: _joined(_spans(text, forms, literal)) for key, text in texts.items()}


def _literal(lexemes: Collection[str]) -> re.Pattern[str]:
    """For lexemes that are no single words: addresses, and pairs of unspaced scripts. A lookahead, as pairs overlap."""
    odd = [lexeme for lexeme in lexemes if not _WORD.fullmatch(lexeme) or UNSPACED_RUN.fullmatch(lexeme)]
    return re.compile(f"(?=({'|'.join(map(re.escape, odd)) or '(?!)'}))", re.IGNORECASE)


def _spans(text: str, forms: set[str], literal: re.Pattern[str]) -> list[tuple[int, int]]:
    found = [match.span() for match in _WORD.finditer(text) if match[0] in forms]
    return sorted(found + [match.span(1) for match in literal.finditer(text)])


def _joined(spans: list[tuple[int, int]]) -> Spans:
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)
