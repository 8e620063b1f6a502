"""Pseudo-relevance feedback: expand a query with words and vectors of the best chunks of a first ranking.

1. The most important words of these chunks are added to the query (RM3, Lavrenko and Croft, 2001).
2. The query's vector moves towards the vectors of these chunks (Rocchio, 1971).

Only a few words and chunks are used, since more would make the query drift. docs/decisions/0022 has the measurements.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from files.index.language import readable
from files.index.lexemes import lexemes_of
from files.index.ranking import Postings, Query, VisibleCollection, idf_of, positions_of, postings, saturated
from files.models import Chunk, File

FEWEST = 100  # visible chunks; in a smaller collection the best chunks are nearly all chunks
BEST = 5  # chunks that expand a query
WORDS = 35  # words that these chunks add to a query
OWN_SHARE = 0.4  # share of the query's own words in the weights
PULL = 0.3  # weight of the vectors of the best chunks; the query's own vector has the weight 1

_WORD = re.compile(r"\w(?:\S*\w)?")  # with inner characters, such as a hyphen or a point


@dataclass(frozen=True, slots=True)
class ExpandedQuery:
    """Postings and weights of the query's words and of the added words.

    Keys are the positions of words. The positions of added words follow those of the query's own words.
    """

    entries: Postings
    weights: Mapping[int, float]


def feedback_chunks(best: Iterable[int]) -> list[Chunk]:
    """Return the rows of these chunks, with the names and languages of their files."""
    rows = Chunk.objects.filter(pk__in=list(best)).select_related("file")
    names = ("heading", "table_head", "text", "file__name", "file__language")
    return list(rows.only(*names))


def expand_query(
    query: Query,
    entries: Postings,
    counts: Mapping[int, float],
    best: Sequence[Chunk],
    files: QuerySet[File],
    collection: VisibleCollection,
) -> ExpandedQuery:
    """Return the query with the words of the best chunks. `entries`: the postings of the query's own words.

    `counts`: the weight of each chunk by its id. Words are also weighted by their rarity, which needs their postings.
    """
    positions = positions_of(query.words)
    own = set(positions.values())
    heaviest = _heaviest_lexemes(counts, best, collection)
    added = (lexeme for lexeme in heaviest if lexeme not in positions)
    added_positions = {lexeme: at for at, lexeme in enumerate(added, max(own, default=0) + 1)}
    by_position: dict[int, float] = defaultdict(float)
    for lexeme, weight in heaviest.items():
        by_position[positions[lexeme] if lexeme in positions else added_positions[lexeme]] += weight
    all_entries = {**entries, **postings(files, added_positions)}
    rarity = {
        at: weight * idf_of(collection.chunks, len(all_entries[at]))
        for at, weight in by_position.items()
        if at in all_entries
    }
    if not own or not rarity:
        return ExpandedQuery(entries, query.weights)
    own_weights = {at: query.weights.get(at, 1.0) for at in own}
    share = (1 - OWN_SHARE) * sum(own_weights.values()) / sum(rarity.values())
    weights = {at: OWN_SHARE * weight for at, weight in own_weights.items()}
    for at, weight in rarity.items():
        weights[at] = weights.get(at, 0.0) + share * weight
    return ExpandedQuery({at: each for at, each in all_entries.items() if at in weights}, weights)


def _heaviest_lexemes(
    counts: Mapping[int, float], chunks: Sequence[Chunk], collection: VisibleCollection
) -> dict[str, float]:
    """Return the `WORDS` heaviest lexemes of the chunks. Weights combine frequency and the weight of each chunk."""
    average = collection.words / collection.chunks
    weights: dict[str, float] = defaultdict(float)
    for language in sorted({chunk.file.language for chunk in chunks}):
        of_language = [chunk for chunk in chunks if chunk.file.language == language]
        texts = {chunk.pk: _WORD.findall(readable(chunk.searched)) for chunk in of_language}
        lexemes = lexemes_of({word for words in texts.values() for word in words}, language)
        for pk, words in texts.items():
            frequencies = Counter(lexeme for word in words for lexeme in lexemes[word])
            for lexeme, frequency in frequencies.items():
                weights[lexeme] += counts[pk] * saturated(frequency, frequencies.total(), average)
    return dict(sorted(weights.items(), key=lambda each: (-each[1], each[0]))[:WORDS])
