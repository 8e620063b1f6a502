"""Pseudo-relevance feedback: what the best chunks of a first ranking say besides is asked for as well.

Their weightiest words are added to the query's (RM3, Lavrenko and Croft, 2001), and their vectors pull the query's
(Rocchio, 1971). Both little: with more words or chunks, queries drift away. Measured: docs/decisions/0022.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from django.db import connection
from django.db.models import QuerySet, Sum
from django.db.models.functions import Length

from files.index.embedders import Vector
from files.index.language import readable
from files.index.ranking import ENTRY, Collection, Words, idf_of, saturated
from files.models import Chunk, Embedder, File, Posting

FEWEST = 100  # visible chunks; among fewer, the best ones are nearly all there are
BEST, WORDS = 5, 20  # chunks that are listened to, and words that they add
CANDIDATES = 60  # of these words, whose rarity is looked up
OWN_SHARE = 0.4  # of the query's own words in the weights
PULL = 0.3  # of the best chunks' vectors, the query's being 1

_LEXEMES = """
SELECT id, lexeme, cardinality(positions)
FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS given (id, language, content),
LATERAL unnest(to_tsvector(language::regconfig, content))
"""


@dataclass(frozen=True, slots=True)
class Added:
    """Words beside those of the query, at positions that it does not have; and what each word now weighs, the query's
    own among them, by position."""

    words: Words
    weights: Mapping[int, float]


def listened_to(best: Iterable[int]) -> list[Chunk]:
    """The rows of the best chunks, with their files and vectors."""
    return list(Chunk.objects.filter(pk__in=list(best)).select_related("file"))


def added(
    words: Words, counts: Mapping[int, float], best: Sequence[Chunk], files: QuerySet[File], collection: Collection
) -> Added:
    """What the best chunks add to a query; `counts`: how much each counts, by its id."""
    own = {at for found in words.values() for at in found.values()}
    weighed = _weighed(counts, best, files, collection)
    if not own or not weighed:
        return Added({}, {})
    share = (1 - OWN_SHARE) * len(own) / sum(weighed.values())
    new: dict[str, dict[str, int]] = defaultdict(dict)
    weights = dict.fromkeys(own, OWN_SHARE)
    position = max(own)
    for (language, lexeme), weight in weighed.items():
        at = words.get(language, {}).get(lexeme)
        if at is None:
            position += 1
            at = new[language][lexeme] = position
        weights[at] = weights.get(at, 0.0) + share * weight
    return Added(new, weights)


def _weighed(
    counts: Mapping[int, float], chunks: Sequence[Chunk], files: QuerySet[File], collection: Collection
) -> dict[tuple[str, str], float]:
    """The weightiest words of these chunks, by language and lexeme."""
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
    common = dict(sorted(weights.items(), key=lambda each: -each[1])[:CANDIDATES])
    spread = _spread({lexeme for _, lexeme in common}, files)
    rare = {key: weight * idf_of(collection.chunks, spread.get(key[1], 1)) for key, weight in common.items()}
    return dict(sorted(rare.items(), key=lambda each: (-each[1], each[0]))[:WORDS])


def _spread(lexemes: Iterable[str], files: QuerySet[File]) -> dict[str, int]:
    """In how many of the visible chunks each is."""
    rows = Posting.objects.filter(lexeme__in=lexemes, file__in=files.values("pk")).values("lexeme")
    sizes = rows.annotate(size=Sum(Length("entries"))).values_list("lexeme", "size")
    return {lexeme: size // ENTRY.itemsize for lexeme, size in sizes}


def middle(best: Iterable[Chunk], embedder: Embedder) -> Vector | None:
    """The direction in which the best chunks lie; None where they have no vectors."""
    vectors = [np.asarray(chunk.embedding, dtype=np.float32) for chunk in best if chunk.embedder_id == embedder.pk]
    mean = np.mean(vectors, axis=0) if vectors else np.zeros(1, dtype=np.float32)
    length = float(np.linalg.norm(mean))
    return mean / np.float32(length) if length else None
