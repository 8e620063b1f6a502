"""Build a large collection through the product's own indexing, and measure search. contrib.bench.search starts it.

Words follow Zipf's law. A query has three to six words of one chunk, which may be common words.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from django.core.management import call_command
from django.db.models import QuerySet

from accounts.models import User
from files.index import ranking
from files.index.embedders import active_embedder, embed_query
from files.index.indexing import index_chunks
from files.index.search import POOL_SIZE, search
from files.models import Chunk, File

Row = dict[str, Any]

CHUNKS_A_FILE = 100
WORDS_A_CHUNK = 300
VOCABULARY = 60_000
FUNCTION_WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were all her she there would their we him been has when who will no more if out so up said what its about"
)
ONSETS = "b br c ch d f fl g gr h l m n p pl r s st t tr v"
VOWELS = "a e i o u ea ou"
ENDS = "e n r s t l ck ment ing ed er"
FILTERED = (1, 10, 100, 300)  # numbers of files that a search is limited to
QUERIES = 60
LIMIT_MS = 50.0
LIMIT_INDEX_S = 5.0


def _vocabulary(source: random.Random) -> list[str]:
    onsets, vowels, ends = ONSETS.split(), VOWELS.split(), ENDS.split()
    words = dict.fromkeys(FUNCTION_WORDS.split())
    while len(words) < VOCABULARY:
        middle = "".join(source.choice(onsets) + source.choice(vowels) for _ in range(source.randint(1, 3)))
        words[middle + source.choice(ends)] = None
    return list(words)


def _texts(source: random.Random) -> Iterator[str]:
    words = _vocabulary(source)
    weights = [1 / (rank + 2.7) for rank in range(len(words))]
    total, cumulative = 0.0, []
    for weight in weights:
        total += weight
        cumulative.append(total)
    while True:
        yield " ".join(source.choices(words, cum_weights=cumulative, k=WORDS_A_CHUNK))


def _file(owner: User, number: int, texts: list[str]) -> File:
    file = File.objects.create(
        owner=owner, name=f"{number}.txt", size=1, sha256=f"{number:064}", blob="none", status=File.Status.READY
    )
    Chunk.objects.bulk_create(
        Chunk(file=file, ordinal=at, start=0, end=len(text), text=text, tokens=512) for at, text in enumerate(texts)
    )
    return file


def build(chunks: int) -> float:
    """Build the collection. Return the seconds to index its last file of 100 chunks."""
    owner = User.objects.create_user("bench")
    texts = _texts(random.Random(1))
    seconds = 0.0
    for number in range(chunks // CHUNKS_A_FILE):
        file = _file(owner, number, list(islice(texts, CHUNKS_A_FILE)))
        began = time.perf_counter()
        index_chunks(file)
        seconds = time.perf_counter() - began
        if number % 50 == 0:
            print(f"{number * CHUNKS_A_FILE:>8} chunks, the last file took {seconds:.2f} s", file=sys.stderr)
    return seconds


def _queries(source: random.Random) -> list[str]:
    ids = list(Chunk.objects.values_list("pk", flat=True))
    texts = Chunk.objects.in_bulk(source.sample(ids, QUERIES))
    return [" ".join(source.sample(chunk.text.split(), source.randint(3, 6))) for chunk in texts.values()]


def _times(queries: list[str], once: Callable[[str], object]) -> tuple[float, float]:
    """Return the p50 and p95 of a query in milliseconds."""
    for query in queries[:5]:
        once(query)
    times = []
    for query in queries:
        began = time.perf_counter()
        once(query)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), sorted(times)[int(0.95 * len(times))]


def _row(name: str, value: float, unit: str, limit: float) -> Row:
    return {"name": name, "value": round(value, 2), "unit": unit, "limit": limit, "ratio": round(value / limit, 2)}


def _rankings(queries: list[str], files: QuerySet[File]) -> Iterator[tuple[str, Callable[[str], object]]]:
    visible = Chunk.objects.filter(file__in=files).count()
    embedder = active_embedder()

    def words(query: str) -> object:
        prepared = ranking.prepare_search(files, [query])
        return ranking.bm25(files, prepared.queries[0], prepared.collection)

    def vectors(query: str) -> object:
        vector = embed_query(embedder, query)
        assert vector is not None
        return ranking.nearest(files, embedder, vector, count=POOL_SIZE, visible=visible)

    yield "words alone", words
    yield "vectors alone", vectors
    yield "search", lambda query: search(query=query, files=files)


def measure() -> list[Row]:
    queries = _queries(random.Random(2))
    chunks = Chunk.objects.count()
    rows = []
    everything = File.objects.all()
    for count in (File.objects.count(), *FILTERED):
        files = everything.filter(pk__in=list(everything.values_list("pk", flat=True)[:count]))
        if count == everything.count():
            files = everything
        for name, once in _rankings(queries, files):
            p50, p95 = _times(queries, once)
            scale = f"{count * CHUNKS_A_FILE:,} of {chunks:,} chunks"
            rows.append(_row(f"{name}, {scale}, p50", p50, "ms", LIMIT_MS))
            rows.append(_row(f"{name}, {scale}, p95", p95, "ms", LIMIT_MS))
    return rows


def main(chunks: int) -> None:
    call_command("migrate", verbosity=0)
    seconds = build(chunks)
    rows = [_row(f"a file of 100 chunks becomes searchable among {chunks:,}", seconds, "s", LIMIT_INDEX_S), *measure()]
    print(json.dumps(rows))
