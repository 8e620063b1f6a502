"""The two rankings that search combines: BM25 over lexemes, and cosines of vectors. Both cover only the visible files.

BM25 is exact: document frequencies, the number of chunks and their average length are computed over the visible files.
The SQL query returns one row for each lexeme, with its entries in all of these files. The scores are computed in
Python. The median time is 8 ms with 100,000 chunks. Frequencies from a GIN index over `tsvector` took 140 ms.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection as Group
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction
from django.db.models import Aggregate, BinaryField, F, Func, IntegerField, QuerySet
from django.db.models.functions import MD5, Cast
from pgvector import Vector as PgVector
from pgvector.django import CosineDistance, HalfVectorField

from files.index.embedders import get_embedders
from files.index.indexing import MAX_INDEXED
from files.index.language import SIMPLE, UNSPACED_RUN
from files.index.lexemes import WordKeys, get_word_keys, strip_prefix, unmarked_prefix
from files.index.vectors import Vector
from files.index.words import has_marked_letters, indexed_text, join_neighbours
from files.models import Chunk, Embedder, File, Posting

K1 = 1.5
B = 0.75
MAX_WORDS = 256  # words of a query that are looked at
MAX_TERMS = 128  # words of a query that are ranked, without stop words; a question in Thai has a hundred triples
MIN_STOP_SHARE = 0.25  # the least share of stop words that shows the language of a query
VARIANT_WEIGHT = 0.5  # for a spelling variant of a compound, or for neighbouring words written as one
UNMARKED_WEIGHT = 0.5  # for a spelling with other marks on its letters
# Up to this number of visible chunks all vectors are compared, in about 10 ms. Above it the index proposes chunks.
MAX_EXACT_CHUNKS = 20_000
# The index examines eight times as many chunks as are returned. With four times as many, a fifth of the nearest chunks
# was missing (measured with 100,000 chunks of random words).
INDEX_CANDIDATE_FACTOR = 8
ENTRY_TYPE = np.dtype([("chunk", ">i8"), ("frequency", ">u2"), ("length", ">u2")])

TWO_DISTANCES_SQL = """
WITH middle AS MATERIALIZED (
    SELECT avg(embedding) AS vector FROM files_chunk WHERE id = ANY(%(best)s) AND embedder_id = %(embedder)s
)
SELECT id, embedding <=> %(vector)s::vector, embedding <=> middle.vector FROM files_chunk, middle
WHERE id = ANY(%(chunks)s) AND embedder_id = %(embedder)s AND embedding IS NOT NULL AND middle.vector IS NOT NULL
"""

PREPARE_SQL = """
WITH searched AS MATERIALIZED (
    SELECT sha256, language, languages, indexed_chunks, indexed_words, word_index FROM files_file
    WHERE id IN ({seen}) AND indexed_chunks > 0
), by_language AS (
    SELECT each.name, sum(each.chunks::int) AS chunks FROM searched, jsonb_each_text(
        CASE WHEN word_index = 0 THEN jsonb_build_object(searched.language, indexed_chunks) ELSE languages END
    ) AS each (name, chunks) GROUP BY each.name
)
SELECT coalesce(sum(indexed_chunks), 0), coalesce(sum(indexed_words), 0), count(*), count(DISTINCT sha256),
    coalesce(bool_or(word_index = 0), false),
    (SELECT coalesce(jsonb_object_agg(name, chunks), '{{}}') FROM by_language),
    (SELECT version FROM llm_workspaceversion),
    ARRAY(SELECT id FROM files_embedder AS one WHERE EXISTS (SELECT FROM files_chunk WHERE embedder_id = one.id))
FROM searched
"""

Postings = Mapping[int, npt.NDArray[np.void]]  # the entries of all files, by the word's position


@dataclass(frozen=True, slots=True)
class VisibleCollection:
    """Size of the visible collection: `chunks` with `words` in total, in `files`.

    `languages`: number of chunks by configuration. `old`: some files have postings without languages. `copies`: some
    files have the same content.
    """

    chunks: int
    words: int
    files: int = 0
    languages: Mapping[str, int] = field(default_factory=dict)
    old: bool = False
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """Phrasing with the keys of its words in each language, by position.

    The words as they are written have the positions [0, `words`). Other writings of a word have higher positions.
    `weights`: by position, 1 if missing. `unmarked`: for the position of a writing with other marks on the letters, the
    position of the word as it is written.
    """

    text: str
    keys: Mapping[str, int]
    words: int
    weights: Mapping[int, float]
    unmarked: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """Visible collection, prepared queries, and the `embedders` of which any chunk has vectors."""

    collection: VisibleCollection
    queries: list[Query]
    embedders: list[Embedder]


def prepare_search(files: QuerySet[File], queries: Sequence[str]) -> PreparedSearch:
    """Read everything that a search needs before it ranks. PostgreSQL must accept the `queries`.

    It takes one statement, and one more for each language in which the process does not know all words yet.
    """
    try:
        file_ids_sql, parameters = files.order_by().values("pk").query.sql_with_params()
    except EmptyResultSet:
        return PreparedSearch(VisibleCollection(0, 0), [Query(query, {}, 0, {}, {}) for query in queries], [])
    with connection.cursor() as cursor:
        cursor.execute(PREPARE_SQL.format(seen=file_ids_sql), parameters)
        chunks, words, number, contents, old, languages, version, ids = cursor.fetchone()
    sizes = json.loads(languages)
    collection = VisibleCollection(
        int(chunks), int(words), number, dict(sorted(sizes.items())), old=old, copies=contents < number
    )
    return PreparedSearch(
        collection,
        [prepare_query(text, tuple(collection.languages)) for text in queries],
        get_embedders(ids, version) if ids else [],
    )


def prepare_query(text: str, languages: Sequence[str]) -> Query:
    """Return the query with its keys in these languages.

    The language with the most stop words in the query decides which words are stop words in all languages. Otherwise
    “how” and “many” of an English question would be rare, important words in the only German file of a project.
    """
    indexed = indexed_text(text)
    words = [word for word in indexed.words.split() if any(map(str.isalnum, word))][:MAX_WORDS]
    variants = [
        variant
        for variant in indexed.variants.split()[:MAX_WORDS]
        if len(variant) > 1 and not UNSPACED_RUN.search(variant)
    ]
    joined = join_neighbours(words)
    by_language = {name: get_word_keys({*words, *variants, *joined}, name) for name in languages}
    stops = _stop_positions(words, by_language)
    used = [(position, word) for position, word in enumerate(words) if position not in stops][:MAX_TERMS]
    keys: dict[str, int] = {}
    times: Counter[str] = Counter()
    for position, word in used:
        for of_word in by_language.values():
            for key in of_word[word].words:
                keys.setdefault(key, position)
                times[key] += 1
    weights: dict[int, float] = {}
    for key, repetitions in times.items():
        if repetitions > 1:
            weights[keys[key]] = max(math.sqrt(repetitions), weights.get(keys[key], 1.0))
    positions = {position for position, _ in used}
    wholes = [whole for whole, parts in joined.items() if positions.issuperset(parts)]
    unmarked: dict[int, int] = {}
    at = count(len(words))
    for position, word in used:
        other = {key for name, of_word in by_language.items() for key in _other_marks(of_word[word], word, name)}
        if new := other - keys.keys():
            place = next(at)
            keys |= dict.fromkeys(new, place)
            unmarked[place], weights[place] = position, UNMARKED_WEIGHT
    for variant in (*variants, *wholes):
        if new := {key for of_word in by_language.values() for key in of_word[variant].words} - keys.keys():
            place = next(at)
            keys |= dict.fromkeys(new, place)
            weights[place] = VARIANT_WEIGHT
    return Query(text, keys, len(words), weights, unmarked)


def _stop_positions(words: Sequence[str], by_language: Mapping[str, Mapping[str, WordKeys]]) -> set[int]:
    """Return the positions of the stop words of the language that has most of them in the query.

    Empty if the share of stop words is too low to show the language, or if the query consists of stop words only.
    """
    stops: set[int] = set()
    for name, keys in by_language.items():
        if name != SIMPLE:
            positions = {position for position, word in enumerate(words) if not keys[word].words}
            stops = max(stops, positions, key=len)
    return stops if len(words) > len(stops) >= MIN_STOP_SHARE * len(words) else set()


def _other_marks(keys: WordKeys, word: str, language: str) -> Group[str]:
    """Return the keys of spellings with other marks: without marks or, for a word without marks, with any marks."""
    if keys.plain:
        return keys.plain
    if not has_marked_letters(word):
        return ()
    return [f"{unmarked_prefix(language)}{strip_prefix(key)}" for key in keys.words]


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

    def for_chunks(self, chunks: Sequence[int]) -> npt.NDArray[np.float64]:
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
    return score_postings(load_postings(files, query.keys, collection), collection, query.weights, query.unmarked)


def load_postings(files: QuerySet[File], keys: Mapping[str, int], collection: VisibleCollection) -> Postings:
    """Return the postings of keys in the files, by the position of their word.

    Entries of all languages are joined, so that a word's frequency counts over the whole collection. Otherwise every
    word of a rare language would count as rare.
    """
    positions = dict(keys)
    if collection.old:  # in these files postings have no languages yet
        for key, position in keys.items():
            positions.setdefault(strip_prefix(key), position)
    entries = defaultdict(list)
    rows = Posting.objects.filter(lexeme__in=positions, file__in=files.values("pk"))
    for lexeme, joined in rows.values_list("lexeme").annotate(joined=_JoinedBytes("entries")):
        entries[positions[lexeme]].append(np.frombuffer(joined, dtype=ENTRY_TYPE))
    return {position: np.concatenate(arrays) for position, arrays in entries.items()}


def score_postings(
    entries: Postings,
    collection: VisibleCollection,
    weights: Mapping[int, float],
    unmarked: Mapping[int, int],
) -> Scores:
    """Return the BM25 scores of all chunks in these postings.

    `weights` and `unmarked` are those of a `Query`. A writing with other marks counts as frequent as both writings.
    """
    if not entries:
        return Scores(np.empty(0, dtype=np.int64), np.empty(0))
    average = collection.words / collection.chunks
    nothing = np.empty(0, dtype=ENTRY_TYPE)
    parts = []
    for position, array in entries.items():
        having = len(array) + len(entries.get(unmarked.get(position, -1), nothing))
        weight = weights.get(position, 1.0) * inverse_document_frequency(
            collection.chunks, min(having, collection.chunks)
        )
        frequency, length = array["frequency"].astype(np.float64), array["length"].astype(np.float64)
        parts.append((array["chunk"].astype(np.int64), weight * saturate(frequency, length, average)))
    chunks, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    scores = np.bincount(places, weights=np.concatenate([part[1] for part in parts])).astype(np.float64)
    return Scores(chunks, scores)


def inverse_document_frequency(chunks: int, containing: int) -> float:
    """Return the inverse document frequency of a word that `containing` of `chunks` contain."""
    return math.log1p((chunks - containing + 0.5) / (containing + 0.5))


def saturate(frequency: Any, length: Any, average: float) -> Any:
    """Return the saturated frequency of a word in a chunk with `length` words. Arguments are numbers or arrays."""
    return frequency * (K1 + 1) / (frequency + K1 * (1 - B + B * length / average))


def nearest(
    files: QuerySet[File], embedder: Embedder, vector: Vector, extra: Group[int] = (), *, count: int, visible: int
) -> dict[int, float]:
    """Return the cosines of the `count` nearest chunks and of the chunks `extra`, by chunk id.

    `visible`: number of chunks in the files. The caller has checked that the chunks `extra` are among them. If the
    index proposes too few visible chunks, all are compared.
    """
    all_chunks = Chunk.objects.filter(embedder=embedder, embedding__isnull=False).order_by()
    rows = all_chunks.filter(file__in=files.values("pk"))
    extra_chunks = all_chunks.filter(pk__in=extra)
    distance = CosineDistance("embedding", vector)
    if visible > MAX_EXACT_CHUNKS and embedder.dimensions <= MAX_INDEXED:
        proposed = _propose(rows, embedder.dimensions, vector, count)
        if len(proposed) == count:
            extra_chunks = extra_chunks.exclude(pk__in=proposed)
            return proposed | _cosines(extra_chunks.annotate(distance=distance).values_list("pk", "distance"))
    best = rows.annotate(distance=distance).order_by("distance", "pk").values_list("pk", "distance")[:count]
    extra_rows = extra_chunks.annotate(distance=distance).values_list("pk", "distance")
    return _cosines(best.union(extra_rows) if extra else best)


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
        cursor.execute(TWO_DISTANCES_SQL, parameters)
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
        cursor.execute(f"SET LOCAL hnsw.ef_search = {min(1_000, INDEX_CANDIDATE_FACTOR * count)}")
        return _cosines(ranked.order_by("distance").values_list("pk", "distance")[:count])


def drop_copies(chunks: Sequence[int]) -> list[int]:
    """Return the ids of the chunks in their order. Of equal passages of files with the same content the first stays."""
    rows = Chunk.objects.filter(pk__in=chunks).values_list("pk", "file__sha256", "start", MD5("text"))
    passages = {pk: passage for pk, *passage in rows}
    first: dict[tuple[object, ...], int] = {}
    return [pk for pk in chunks if pk in passages and first.setdefault(tuple(passages[pk]), pk) == pk]
