"""The two rankings that search combines: BM25 over lexemes, and cosines of vectors. Both cover only the visible files.

BM25 is exact: document frequencies, the number of chunks and their average length are computed over the visible files.
The SQL query returns one row for each lexeme, with its entries in all of these files. The scores are computed in
Python. The median time is 8 ms with 100,000 chunks. Frequencies from a GIN index over `tsvector` took 140 ms.
"""

import math
from collections import defaultdict
from collections.abc import Collection as Group
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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

K1 = 1.5
B = 0.75
MAX_TERMS = 64  # the first words of a query; further words are ignored
# Up to this number of visible chunks all vectors are compared, in about 10 ms. Above it the index proposes chunks.
EXACT_UP_TO = 20_000
# The index examines eight times as many chunks as are returned. With four times as many, a fifth of the nearest chunks
# was missing (measured with 100,000 chunks of random words).
LOOKED_AT = 8
ENTRY = np.dtype([("chunk", ">i8"), ("frequency", ">u2"), ("length", ">u2")])

TWO_DISTANCES = """
WITH middle AS MATERIALIZED (
    SELECT avg(embedding) AS vector FROM files_chunk WHERE id = ANY(%(best)s) AND embedder_id = %(embedder)s
)
SELECT id, embedding <=> %(vector)s::vector, embedding <=> middle.vector FROM files_chunk, middle
WHERE id = ANY(%(chunks)s) AND embedder_id = %(embedder)s AND embedding IS NOT NULL AND middle.vector IS NOT NULL
"""

PREPARE = """
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
Postings = Mapping[int, npt.NDArray[np.void]]  # the entries of all files, by the word's position


class QueryLexeme(NamedTuple):
    """Lexeme of a query in one language: the first position of its word, and the number of its repetitions."""

    position: int
    language: str
    lexeme: str
    times: int


@dataclass(frozen=True, slots=True)
class VisibleCollection:
    """Size of the visible collection: `chunks` with `words` in total, in files of these `languages`."""

    chunks: int
    words: int
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """Phrasing with its lexemes. `weights`: of repeated words, by position. Other words have the weight 1."""

    text: str
    words: Words
    weights: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """Visible collection, prepared queries, and the `embedders` of which any chunk has vectors."""

    collection: VisibleCollection
    queries: list[Query]
    embedders: list[Embedder]


def prepare_search(files: QuerySet[File], queries: Sequence[str]) -> PreparedSearch:
    """Read everything that a search needs before it ranks, in one statement. PostgreSQL must accept the `queries`."""
    try:
        file_ids_sql, parameters = files.order_by().values("pk").query.sql_with_params()
    except EmptyResultSet:
        return PreparedSearch(VisibleCollection(0, 0, ()), [Query(query, {}, {}) for query in queries], [])
    with connection.cursor() as cursor:
        cursor.execute(PREPARE.format(seen=file_ids_sql), [*parameters, [readable(query) for query in queries]])
        rows = cursor.fetchall()
    sizes = {row[0]: (int(row[1]), int(row[2])) for row in rows}
    languages = tuple(sorted(sizes))
    chunks, words = (sum(size[at] for size in sizes.values()) for at in (0, 1))
    lexemes: list[list[QueryLexeme]] = [[] for _ in queries]
    for language, _, _, at, lexeme, position, times, *_ in rows:
        if at is not None:
            lexemes[at - 1].append(QueryLexeme(position, language, lexeme, times))
    version, ids = rows[0][7:] if rows else (None, [])
    return PreparedSearch(
        VisibleCollection(chunks, words, languages),
        [_query(text, of_text, languages) for text, of_text in zip(queries, lexemes, strict=True)],
        embedders_of(ids, version) if ids else [],
    )


def _query(text: str, lexemes: list[QueryLexeme], languages: Group[str]) -> Query:
    weights: dict[int, float] = {}
    for lexeme in lexemes:
        if lexeme.times > 1:
            weights[lexeme.position] = max(math.sqrt(lexeme.times), weights.get(lexeme.position, 1.0))
    return Query(text, _words(lexemes, languages), weights)


def _words(lexemes: list[QueryLexeme], languages: Group[str]) -> Words:
    """Return the lexemes of a query by language, with the first position of their word.

    `simple` has no stop words. It uses the stop words of the language that removes most words of the query. Otherwise a
    few chunks in `simple` among many English ones would make “what is the” look rare and important.
    """
    words: dict[str, dict[str, int]] = {name: {} for name in languages}
    positions: dict[str, set[int]] = defaultdict(set)  # by language; without stop words
    for lexeme in sorted(lexemes):
        positions[lexeme.language].add(lexeme.position)
        if len(words[lexeme.language]) < MAX_TERMS:
            words[lexeme.language][lexeme.lexeme] = lexeme.position
    stemmed = [positions[name] for name in languages if name != SIMPLE]
    if SIMPLE in words and stemmed:
        fewest = min(stemmed, key=len)
        words[SIMPLE] = {word: position for word, position in words[SIMPLE].items() if position in fewest} or words[
            SIMPLE
        ]
    return words


class _JoinedBytes(Aggregate):
    function = "string_agg"
    template = "%(function)s(%(expressions)s, ''::bytea)"
    output_field = BinaryField()


@dataclass(frozen=True, slots=True)
class Scores:
    """BM25 scores of all visible chunks with a word of the query. `chunks` are their ids, ascending."""

    chunks: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]

    def best(self, count: int) -> list[int]:
        """Return the ids of the chunks with the `count` highest scores, unordered."""
        if len(self.chunks) <= count:
            return [int(chunk) for chunk in self.chunks]
        return [int(chunk) for chunk in self.chunks[np.argpartition(-self.scores, count)[:count]]]

    def of(self, chunks: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the score of each chunk; 0 for a chunk without a word of the query."""
        if not len(self.chunks):
            return np.zeros(len(chunks))
        ids = np.array(chunks, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.chunks, ids), len(self.chunks) - 1)
        return np.where(self.chunks[places] == ids, self.scores[places], 0.0)


def bm25(files: QuerySet[File], query: Query, collection: VisibleCollection) -> Scores:
    """Return BM25 scores as in Robertson and Zaragoza (2009), with Lucene's idf, which is never negative.

    A repeated word of the query is weighted by the square root of its repetitions.
    """
    return score_postings(postings(files, positions_of(query.words)), collection, query.weights)


def positions_of(words: Words) -> dict[str, int]:
    """Return the first position of each lexeme over all languages.

    Two different words rarely have the same lexeme in two languages. Each text's postings follow its own language.
    """
    positions: dict[str, int] = {}
    for lexemes in words.values():
        for lexeme, position in lexemes.items():
            positions[lexeme] = min(position, positions.get(lexeme, position))
    return positions


def postings(files: QuerySet[File], positions: Mapping[str, int]) -> Postings:
    """Return the postings of lexemes in the files, by the position of their word.

    Entries of all languages are joined, so that a word's frequency counts over the whole collection. Otherwise every
    word of a rare language would count as rare.
    """
    entries = defaultdict(list)
    rows = Posting.objects.filter(lexeme__in=positions, file__in=files.values("pk"))
    for lexeme, joined in rows.values_list("lexeme").annotate(joined=_JoinedBytes("entries")):
        entries[positions[lexeme]].append(np.frombuffer(joined, dtype=ENTRY))
    return {position: np.concatenate(arrays) for position, arrays in entries.items()}


def score_postings(entries: Postings, collection: VisibleCollection, weights: Mapping[int, float]) -> Scores:
    """Return the BM25 scores of all chunks in these postings. `weights`: by the word's position, 1 if missing."""
    if not entries:
        return Scores(np.empty(0, dtype=np.int64), np.empty(0))
    average = collection.words / collection.chunks
    parts = [
        _score_word(array, collection.chunks, average, weights.get(position, 1.0))
        for position, array in entries.items()
    ]
    chunks, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    scores = np.bincount(places, weights=np.concatenate([part[1] for part in parts])).astype(np.float64)
    return Scores(chunks, scores)


def _score_word(
    entries: npt.NDArray[np.void], chunks: int, average: float, weight: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    frequency = entries["frequency"].astype(np.float64)
    length = entries["length"].astype(np.float64)
    score = weight * idf_of(chunks, len(entries)) * saturated(frequency, length, average)
    return entries["chunk"].astype(np.int64), score


def idf_of(chunks: int, having: int) -> float:
    """Return the inverse document frequency of a word that `having` of `chunks` contain."""
    return math.log1p((chunks - having + 0.5) / (having + 0.5))


def saturated(frequency: Any, length: Any, average: float) -> Any:
    """Return the saturated frequency of a word in a chunk with `length` words. Arguments are numbers or arrays."""
    return frequency * (K1 + 1) / (frequency + K1 * (1 - B + B * length / average))


def nearest(
    files: QuerySet[File], embedder: Embedder, vector: Vector, also: Group[int] = (), *, count: int, visible: int
) -> dict[int, float]:
    """Return the cosines of the `count` nearest chunks and of the chunks `also`, by chunk id.

    `visible`: number of chunks in the files. The caller has checked that the chunks `also` are among them. If the index
    proposes too few visible chunks, all are compared.
    """
    all_chunks = Chunk.objects.filter(embedder=embedder, embedding__isnull=False).order_by()
    rows = all_chunks.filter(file__in=files.values("pk"))
    extra_chunks = all_chunks.filter(pk__in=also)
    distance = CosineDistance("embedding", vector)
    if visible > EXACT_UP_TO and embedder.dimensions <= LARGEST_INDEXED:
        proposed = _propose(rows, embedder.dimensions, vector, count)
        if len(proposed) == count:
            extra_chunks = extra_chunks.exclude(pk__in=proposed)
            return proposed | _cosines(extra_chunks.annotate(distance=distance).values_list("pk", "distance"))
    best = rows.annotate(distance=distance).order_by("distance", "pk").values_list("pk", "distance")[:count]
    extra_rows = extra_chunks.annotate(distance=distance).values_list("pk", "distance")
    return _cosines(best.union(extra_rows) if also else best)


def two_cosines(
    embedder: Embedder, vector: Vector, best: Group[int], chunks: Group[int]
) -> dict[int, tuple[float, float]]:
    """Return for each chunk with a vector: cosine to `vector`, and cosine to the mean of the `best` chunks.

    Empty if none of the best chunks has a vector of this embedder.
    """
    parameters: Mapping[str, Any] = {
        "vector": PgVector(vector).to_text(),
        "embedder": embedder.pk,
        "best": list(best),
        "chunks": list(chunks),
    }
    with connection.cursor() as cursor:
        cursor.execute(TWO_DISTANCES, parameters)
        rows = cursor.fetchall()
    # The mean of opposite vectors is zero, and the cosine to zero is not a number.
    return {
        chunk: (1 - distance, 1 - mean_distance)
        for chunk, distance, mean_distance in rows
        if not math.isnan(mean_distance)
    }


def _cosines(rows: "QuerySet[Chunk, tuple[int, float]]") -> dict[int, float]:
    """Return the cosines by chunk id, from rows of (id, distance)."""
    return {chunk: 1 - distance for chunk, distance in rows}


def _propose(rows: QuerySet[Chunk], dimensions: int, vector: Vector, count: int) -> dict[int, float]:
    """Return the cosines of at most `count` chunks from the index. It may find too few chunks that pass the filter."""
    size = Func(F("embedding"), function="vector_dims", output_field=IntegerField())
    half = Cast("embedding", HalfVectorField(dimensions=dimensions))
    ranked = rows.alias(size=size).filter(size=dimensions).annotate(distance=CosineDistance(half, vector))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        cursor.execute(f"SET LOCAL hnsw.ef_search = {min(1_000, LOOKED_AT * count)}")
        return _cosines(ranked.order_by("distance").values_list("pk", "distance")[:count])
