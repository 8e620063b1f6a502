"""Pseudo-relevance feedback: what the best chunks of a first ranking say besides is asked for as well.

Their weightiest words are added to the query's (RM3, Lavrenko and Croft, 2001), and their vectors pull the query's
(Rocchio, 1971). Both little: with more words or chunks, queries drift away. Measured: docs/decisions/0022.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import QuerySet

from files.index.language import readable
from files.index.ranking import Collection, Postings, Words, idf_of, postings, saturated
from files.models import Chunk, File

FEWEST = 100  # visible chunks; among fewer, the best ones are nearly all there are
BEST, WORDS = 5, 20  # chunks that are listened to, and words that they add
CANDIDATES = 35  # of these words, before it is known how rare each is
OWN_SHARE = 0.4  # of the query's own words in the weights
PULL = 0.3  # of the best chunks' vectors, the query's being 1

_LEXEMES = """
SELECT id, lexeme, cardinality(positions)
FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS given (id, language, content),
LATERAL unnest(to_tsvector(language::regconfig, content))
"""


@dataclass(frozen=True, slots=True)
class Added:
    """The postings of the query's words and of those that the best chunks add, and what each word weighs now; by
    position, where the added ones stand behind the query's own."""

    entries: Postings
    weights: Mapping[int, float]


def listened_to(best: Iterable[int]) -> list[Chunk]:
    """The rows of the best chunks, with the names and languages of their files."""
    rows = Chunk.objects.filter(pk__in=list(best)).select_related("file")
    names = ("heading", "table_head", "text", "file__name", "file__language")
    return list(rows.only(*names))


def added(
    words: Words,
    entries: Postings,
    counts: Mapping[int, float],
    best: Sequence[Chunk],
    files: QuerySet[File],
    collection: Collection,
) -> Added:
    """What the best chunks add to a query with these `words` and postings; `counts`: how much each counts, by its id.

    The postings of all candidates come at once: how many chunks have a word is then known, too.
    """
    own = {at for found in words.values() for at in found.values()}
    new: dict[str, dict[str, int]] = defaultdict(dict)
    weighed: dict[int, float] = defaultdict(float)
    for (language, lexeme), weight in _candidates(counts, best, collection).items():
        at = words.get(language, {}).get(lexeme)
        if at is None:
            at = new[language][lexeme] = max(own, default=0) + 1 + sum(map(len, new.values()))
        weighed[at] += weight
    found = {**entries, **postings(files, new, collection)}
    rare = {at: weight * idf_of(collection.chunks, len(found[at])) for at, weight in weighed.items() if at in found}
    chosen = sorted(rare.items(), key=lambda each: (-each[1], each[0]))[:WORDS]
    if not own or not chosen:
        return Added(entries, {})
    share = (1 - OWN_SHARE) * len(own) / sum(weight for _, weight in chosen)
    weights = dict.fromkeys(own, OWN_SHARE)
    for at, weight in chosen:
        weights[at] = weights.get(at, 0.0) + share * weight
    return Added({at: each for at, each in found.items() if at in weights}, weights)


def _candidates(
    counts: Mapping[int, float], chunks: Sequence[Chunk], collection: Collection
) -> dict[tuple[str, str], float]:
    """The weightiest words of these chunks, by language and lexeme, before it is known how rare they are."""
    languages = {chunk.pk: chunk.file.language for chunk in chunks}
    given = [[chunk.pk, languages[chunk.pk], readable(chunk.searched)] for chunk in chunks]
    with connection.cursor() as cursor:
        cursor.execute(_LEXEMES, [list(column) for column in zip(*given, strict=True)] if given else [[], [], []])
        found = cursor.fetchall()
    lengths: dict[int, int] = defaultdict(int)
    for pk, _, frequency in found:
        lengths[pk] += frequency
    average = collection.words / collection.chunks
    weights: dict[tuple[str, str], float] = defaultdict(float)
    for pk, lexeme, frequency in found:
        weights[languages[pk], lexeme] += counts[pk] * saturated(frequency, lengths[pk], average)
    return dict(sorted(weights.items(), key=lambda each: (-each[1], each[0]))[:CANDIDATES])
