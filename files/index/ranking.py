"""The two rankings that search mixes: BM25 over lexemes, and cosines of vectors. Both see only the files given.

BM25 is exact: document frequencies, the number of chunks and their average length are those of the given files. One
row comes back for each lexeme of the query, with its entries in all of these files, and is added up here. Among 100,000
chunks this takes 8 ms at the median; frequencies from a GIN index over `tsvector` took 140 ms.
"""

import math
from collections import defaultdict
from collections.abc import Collection as Group
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction
from django.db.models import Aggregate, BinaryField, F, Func, IntegerField, QuerySet
from django.db.models.functions import Cast
from pgvector import Vector as PgVector
from pgvector.django import CosineDistance, HalfVectorField

from files.index.embedders import embedders_of
from files.index.indexing import LARGEST_INDEXED
from files.index.language import SIMPLE, readable
from files.index.vectors import Vector
from files.models import Chunk, Embedder, File, Posting

K1, B = 1.5, 0.75
MAX_TERMS = 64  # words of a query that count, the first ones
# Up to here the vectors of all visible chunks are compared, in about 10 ms; above, the index proposes. It looks at
# eight times as many as are wanted: in 100,000 chunks of random words half as many found a fifth fewer of the nearest.
EXACT_UP_TO = 20_000
LOOKED_AT = 8
ENTRY = np.dtype([("chunk", ">i8"), ("frequency", ">u2"), ("length", ">u2")])

TWO_DISTANCES = """
WITH middle AS MATERIALIZED (
    SELECT avg(embedding) AS vector FROM files_chunk WHERE id = ANY(%(best)s) AND embedder_id = %(embedder)s
)
SELECT id, embedding <=> %(vector)s::vector, embedding <=> middle.vector FROM files_chunk, middle
WHERE id = ANY(%(chunks)s) AND embedder_id = %(embedder)s AND embedding IS NOT NULL AND middle.vector IS NOT NULL
"""

ASKED = """
WITH searched AS (
    SELECT language, sum(indexed_chunks) AS chunks, sum(indexed_words) AS words FROM files_file
    WHERE id IN ({seen}) AND indexed_chunks > 0 GROUP BY language
)
SELECT language, chunks, words, query.at, query.lexeme, query.positions[1], cardinality(query.positions),
    (SELECT version FROM llm_workspaceversion),
    ARRAY(SELECT id FROM files_embedder AS one WHERE EXISTS (SELECT FROM files_chunk WHERE embedder_id = one.id))
FROM searched LEFT JOIN LATERAL (
    SELECT given.at, found.lexeme, found.positions
    FROM unnest(%s::text[]) WITH ORDINALITY AS given (text, at),
        unnest(to_tsvector(language::regconfig, given.text)) AS found
) AS query ON true
"""

Words = Mapping[str, Mapping[str, int]]
_Found = tuple[int, str, str, int]  # a lexeme of a query: its first position, language, itself, how often it is there
Postings = Mapping[int, npt.NDArray[np.void]]  # the entries of all files, by the word's position


@dataclass(frozen=True, slots=True)
class Collection:
    """What the query may see: `chunks` with `words` in all, in files of these `languages`."""

    chunks: int
    words: int
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """`weights`: of words that are in it more than once, by their position; the others weigh 1."""

    text: str
    words: Words
    weights: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is searched in, the queries, and the `embedders` that any chunk has a vector of."""

    collection: Collection
    queries: list[Query]
    embedders: list[Embedder]


def asked(files: QuerySet[File], queries: Sequence[str]) -> Asked:
    """All that a search knows before it ranks, in one statement. `queries` are what PostgreSQL can store."""
    try:
        seen, given = files.order_by().values("pk").query.sql_with_params()
    except EmptyResultSet:
        return Asked(Collection(0, 0, ()), [Query(query, {}, {}) for query in queries], [])
    with connection.cursor() as cursor:
        cursor.execute(ASKED.format(seen=seen), [*given, [readable(query) for query in queries]])
        rows = cursor.fetchall()
    sizes = {row[0]: (int(row[1]), int(row[2])) for row in rows}
    languages = tuple(sorted(sizes))
    chunks, words = (sum(size[at] for size in sizes.values()) for at in (0, 1))
    collection = Collection(chunks, words, languages)
    found: list[list[_Found]] = [[] for _ in queries]
    for language, _, _, at, lexeme, position, times, *_ in rows:
        if at is not None:
            found[at - 1].append((position, language, lexeme, times))
    version, ids = rows[0][7:] if rows else (None, [])
    read = [_query(*each, languages) for each in zip(queries, found, strict=True)]
    return Asked(collection, read, embedders_of(ids, version) if ids else [])


def _query(text: str, found: list[_Found], languages: Group[str]) -> Query:
    weights: dict[int, float] = {}
    for position, _, _, times in found:
        if times > 1:
            weights[position] = max(math.sqrt(times), weights.get(position, 1.0))
    return Query(text, _words(found, languages), weights)


def _words(found: list[_Found], languages: Group[str]) -> Words:
    """For each language the lexemes of the query with their first position, which is the same word in every language.

    The stop words of the language that has most of them in the query are no words for `simple` either, which has none:
    where a few of its chunks stand among many English ones, “what is the” would seem rare and important.
    """
    words: dict[str, dict[str, int]] = {name: {} for name in languages}
    kept: dict[str, set[int]] = defaultdict(set)
    for position, name, lexeme, _ in sorted(found):
        kept[name].add(position)
        if len(words[name]) < MAX_TERMS:
            words[name][lexeme] = position
    stemmed = [kept[name] for name in languages if name != SIMPLE]
    if SIMPLE in words and stemmed:
        wanted = min(stemmed, key=len)
        words[SIMPLE] = {word: at for word, at in words[SIMPLE].items() if at in wanted} or words[SIMPLE]
    return words


class _Joined(Aggregate):
    function = "string_agg"
    template = "%(function)s(%(expressions)s, ''::bytea)"
    output_field = BinaryField()


@dataclass(frozen=True, slots=True)
class Scores:
    """BM25 of every visible chunk that holds a word of the query; `chunks` are their ids, ascending."""

    chunks: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]

    def best(self, count: int) -> list[int]:
        """The ids of the highest scores, in no order."""
        if len(self.chunks) <= count:
            return [int(chunk) for chunk in self.chunks]
        return [int(chunk) for chunk in self.chunks[np.argpartition(-self.scores, count)[:count]]]

    def of(self, chunks: Sequence[int]) -> npt.NDArray[np.float64]:
        """The score of each; 0 for one without a word of the query."""
        if not len(self.chunks):
            return np.zeros(len(chunks))
        wanted = np.array(chunks, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.chunks, wanted), len(self.chunks) - 1)
        return np.where(self.chunks[places] == wanted, self.scores[places], 0.0)


def bm25(files: QuerySet[File], query: Query, collection: Collection) -> Scores:
    """Robertson and Zaragoza (2009), with Lucene's idf, which is never negative; what a query says again counts more,
    by the square root of how often."""
    return scored(postings(files, positions_of(query.words)), collection, query.weights)


def positions_of(words: Words) -> dict[str, int]:
    """The first position of each lexeme, whichever language has it: which words two languages write alike is rare, and
    what the other one's stemmer makes of a text is in that text's postings."""
    found: dict[str, int] = {}
    for lexemes in words.values():
        for lexeme, at in lexemes.items():
            found[lexeme] = min(at, found.get(lexeme, at))
    return found


def postings(files: QuerySet[File], positions: Mapping[str, int]) -> Postings:
    """Of these lexemes, by position. In how many chunks a word is, is counted over all languages together: else it were
    rare in a rare language."""
    entries = defaultdict(list)
    rows = Posting.objects.filter(lexeme__in=positions, file__in=files.values("pk"))
    for lexeme, joined in rows.values_list("lexeme").annotate(joined=_Joined("entries")):
        entries[positions[lexeme]].append(np.frombuffer(joined, dtype=ENTRY))
    return {position: np.concatenate(found) for position, found in entries.items()}


def scored(entries: Postings, collection: Collection, weights: Mapping[int, float]) -> Scores:
    """`weights`: of words that do not weigh 1, by their position."""
    if not entries:
        return Scores(np.empty(0, dtype=np.int64), np.empty(0))
    average = collection.words / collection.chunks
    parts = [_of_word(found, collection.chunks, average, weights.get(at, 1.0)) for at, found in entries.items()]
    chunks, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    scores = np.bincount(places, weights=np.concatenate([part[1] for part in parts])).astype(np.float64)
    return Scores(chunks, scores)


def _of_word(
    entries: npt.NDArray[np.void], chunks: int, average: float, weight: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    frequency, length = entries["frequency"].astype(np.float64), entries["length"].astype(np.float64)
    score = weight * idf_of(chunks, len(entries)) * saturated(frequency, length, average)
    return entries["chunk"].astype(np.int64), score


def idf_of(chunks: int, having: int) -> float:
    """How much a word says that `having` of `chunks` have."""
    return math.log1p((chunks - having + 0.5) / (having + 0.5))


def saturated(frequency: Any, length: Any, average: float) -> Any:
    """How much a word counts that is so often in a chunk of so many words; numbers or arrays."""
    return frequency * (K1 + 1) / (frequency + K1 * (1 - B + B * length / average))


def nearest(
    files: QuerySet[File], embedder: Embedder, vector: Vector, also: Group[int] = (), *, count: int, visible: int
) -> dict[int, float]:
    """Cosines by chunk id of the `count` chunks nearest to the vector, or of all there are, and of those of `also`,
    which somebody has seen to be in the files; `visible` are in them.

    Where the index finds too few that pass the filter, all are compared after all.
    """
    every = Chunk.objects.filter(embedder=embedder, embedding__isnull=False).order_by()
    rows, others = every.filter(file__in=files.values("pk")), every.filter(pk__in=also)
    distance = CosineDistance("embedding", vector)
    if visible > EXACT_UP_TO and embedder.dimensions <= LARGEST_INDEXED:
        found = _proposed(rows, embedder.dimensions, vector, count)
        if len(found) == count:
            others = others.exclude(pk__in=found)
            return found | _cosines(others.annotate(distance=distance).values_list("pk", "distance"))
    best = rows.annotate(distance=distance).order_by("distance", "pk").values_list("pk", "distance")[:count]
    more = others.annotate(distance=distance).values_list("pk", "distance")
    return _cosines(best.union(more) if also else best)


def two_cosines(
    embedder: Embedder, vector: Vector, best: Group[int], chunks: Group[int]
) -> dict[int, tuple[float, float]]:
    """The cosines to the vector and to the direction in which the `best` chunks lie, of those of the chunks that have a
    vector of this embedder; none where none of the best has one."""
    given: dict[str, Any] = {"vector": PgVector(vector).to_text(), "embedder": embedder.pk}
    with connection.cursor() as cursor:
        cursor.execute(TWO_DISTANCES, {**given, "best": list(best), "chunks": list(chunks)})
        found = cursor.fetchall()
    # Vectors that lie opposite to each other have no middle: to that no cosine is a number.
    return {chunk: (1 - near, 1 - towards) for chunk, near, towards in found if not math.isnan(towards)}


def _cosines(rows: "QuerySet[Chunk, tuple[int, float]]") -> dict[int, float]:
    """Of rows of an id and a distance."""
    return {chunk: 1 - distance for chunk, distance in rows}


def _proposed(rows: QuerySet[Chunk], dimensions: int, vector: Vector, count: int) -> dict[int, float]:
    """By the index, which goes on until it has found enough that pass the filter, or given up."""
    size = Func(F("embedding"), function="vector_dims", output_field=IntegerField())
    half = Cast("embedding", HalfVectorField(dimensions=dimensions))
    ranked = rows.alias(size=size).filter(size=dimensions).annotate(distance=CosineDistance(half, vector))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        cursor.execute(f"SET LOCAL hnsw.ef_search = {min(1_000, LOOKED_AT * count)}")
        found = ranked.order_by("distance").values_list("pk", "distance")[:count]
        return {chunk: 1 - distance for chunk, distance in found}
