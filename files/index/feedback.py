"""Pseudo-relevance feedback: expand a query with words and vectors of the best chunks of a first ranking.

1. The most important words of these chunks are added to the query (RM3, Lavrenko and Croft, 2001).
2. The query's vector moves towards the vectors of these chunks (Rocchio, 1971).

Only a few words and chunks are used, since more would make the query drift. docs/decisions/0022 has the measurements.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from files.index.lexemes import get_word_keys
from files.index.ranking import Postings, Query, VisibleCollection, inverse_document_frequency, load_postings, saturate
from files.index.words import indexed_text
from files.models import Chunk, File

MIN_CHUNKS = 400  # visible chunks; in a smaller collection few passages have the same subject
LANGUAGE = "english"
MIN_ENGLISH_SHARE = 0.9  # share of the chunks
MAX_CHUNKS = 3  # chunks of a file, on average
EXPANDING_CHUNKS = 5  # chunks that expand a query
ADDED_WORDS = 35  # words that these chunks add to a query
OWN_SHARE = 0.4  # share of the query's own words in the weights
FEEDBACK_WEIGHT = 0.3  # weight of the vectors of the best chunks; the query's own vector has the weight 1


def is_worthwhile(collection: VisibleCollection) -> bool:
    """Return whether feedback improves the ranking: the collection consists of many short texts in English."""
    english = collection.languages.get(LANGUAGE, 0)
    return (
        collection.chunks >= MIN_CHUNKS
        and english >= MIN_ENGLISH_SHARE * collection.chunks
        and collection.chunks <= MAX_CHUNKS * collection.files
    )


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
    names = ("heading", "table_head", "text", "language", "file__name", "file__language")
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
    own = {position for position in query.keys.values() if position < query.words}
    heaviest = _heaviest_keys(counts, best, collection)
    added = (key for key in heaviest if key not in query.keys)
    after = max(query.keys.values(), default=0) + 1
    added_positions = {key: at for at, key in enumerate(added, after)}
    by_position: dict[int, float] = defaultdict(float)
    for key, weight in heaviest.items():
        by_position[query.keys[key] if key in query.keys else added_positions[key]] += weight
    all_entries = {**entries, **load_postings(files, added_positions, collection)}
    rarity = {
        at: weight * inverse_document_frequency(collection.chunks, len(all_entries[at]))
        for at, weight in by_position.items()
        if at in all_entries
    }
    if not own or not rarity:
        return ExpandedQuery(entries, query.weights)
    own_weights = {at: query.weights.get(at, 1.0) for at in own}
    share = (1 - OWN_SHARE) * sum(own_weights.values()) / sum(rarity.values())
    weights = {at: OWN_SHARE * query.weights.get(at, 1.0) for at in query.keys.values() if at in all_entries}
    for at, weight in rarity.items():
        weights[at] = weights.get(at, 0.0) + share * weight
    return ExpandedQuery({at: each for at, each in all_entries.items() if at in weights}, weights)


def _heaviest_keys(
    counts: Mapping[int, float], chunks: Sequence[Chunk], collection: VisibleCollection
) -> dict[str, float]:
    """Return the `ADDED_WORDS` heaviest keys of the chunks. Weights combine frequency and the weight of each chunk."""
    average = collection.words / collection.chunks
    weights: dict[str, float] = defaultdict(float)
    for language in sorted({chunk.configuration for chunk in chunks}):
        of_language = [chunk for chunk in chunks if chunk.configuration == language]
        texts = {chunk.pk: indexed_text(chunk.searched).words.split() for chunk in of_language}
        keys = get_word_keys({word for words in texts.values() for word in words}, language)
        for pk, words in texts.items():
            frequencies = Counter(key for word in words for key in keys[word].words)
            for key, frequency in frequencies.items():
                weights[key] += counts[pk] * saturate(frequency, frequencies.total(), average)
    return dict(sorted(weights.items(), key=lambda each: (-each[1], each[0]))[:ADDED_WORDS])
