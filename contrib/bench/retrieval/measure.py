"""Index collections as the product does, and measure its search. contrib.bench.retrieval.table starts it.

The ranking is compared with BM25 alone, and the time with the search without feedback. The methods answer each question
in turn, so that other work on the machine affects all of them.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from unittest.mock import patch
from uuid import UUID

from django.core.management import call_command
from django.db.models import QuerySet

from accounts.models import User
from contrib.bench.retrieval.collections import Collection, collections, ndcg
from files.index import feedback, ranking
from files.index.chunks import chunks_of
from files.index.indexing import index_chunks
from files.index.search import search
from files.models import Chunk, File

DEPTH = 10
HITS = 50  # chunks; several may belong to one document
NEVER = 10**9  # more than any number of chunks

Row = dict[str, object]


def _stored(collection: Collection) -> dict[UUID, str]:
    """Store the documents as files of one person. Return the documents' ids by file."""
    owner = User.objects.create_user(collection.name)
    names: dict[UUID, str] = {}
    for name, text in collection.documents.items():
        file = File.objects.create(
            owner=owner, name=f"{name}.md", size=1, sha256="0" * 64, blob="none", status=File.Status.READY
        )
        Chunk.objects.bulk_create(chunks_of(file, "text/markdown", text, []))
        index_chunks(file)
        names[file.pk] = name
    return names


def _by_words(query: str, files: QuerySet[File]) -> list[UUID]:
    """Return the files of the best chunks by BM25 alone."""
    prepared = ranking.prepare_search(files, [query])
    scores = ranking.bm25(files, prepared.queries[0], prepared.collection)
    chunks = scores.best(HITS)
    best = [chunk for _, chunk in sorted(zip(-scores.of(chunks), chunks, strict=True))]
    file_by_chunk = dict(Chunk.objects.filter(pk__in=best).values_list("pk", "file_id"))
    return [file_by_chunk[chunk] for chunk in best]


def _by_search(query: str, files: QuerySet[File]) -> list[UUID]:
    return [hit.file for hit in search(query=query, files=files, limit=HITS)]


def _once(query: str, files: QuerySet[File]) -> list[UUID]:
    """Return the files of the search without relevance feedback."""
    with patch.object(feedback, "FEWEST", NEVER):
        return _by_search(query, files)


def measure(collection: Collection) -> list[Row]:
    names = _stored(collection)
    files = File.objects.filter(owner__username=collection.name)
    methods: Sequence[Callable[[str, QuerySet[File]], list[UUID]]] = (_by_search, _once, _by_words)
    gains: dict[str, list[float]] = {method.__name__: [] for method in methods}
    times: dict[str, list[float]] = {method.__name__: [] for method in methods}
    for at, (query, relevant) in enumerate(collection.relevant.items()):
        for method in methods if at % 2 else methods[::-1]:
            began = time.perf_counter()
            ranked = method(collection.queries[query], files)
            times[method.__name__].append((time.perf_counter() - began) * 1_000)
            gains[method.__name__].append(ndcg(dict.fromkeys(names[each] for each in ranked), relevant, DEPTH))
    print(f"{collection.name}: {len(names)} documents, {len(collection.relevant)} questions", file=sys.stderr)
    means = {name: statistics.mean(each) for name, each in gains.items()}
    peers = {"BM25 alone": "_by_words", "once": "_once"}
    return [
        *(_row(f"{collection.name}, nDCG@{DEPTH} : {label}", means["_by_search"], means[method], "")
          for label, method in peers.items()),
        _row(f"{collection.name}, p50 : once", _middle(times["_by_search"]), _middle(times["_once"]), "ms"),
        _row(f"{collection.name}, p95 : once", _slow(times["_by_search"]), _slow(times["_once"]), "ms"),
    ]  # fmt: skip


def _row(name: str, value: float, peer: float, unit: str) -> Row:
    digits = 1 if unit else 4
    shown = {"value": round(value, digits), "peer": round(peer, digits)}
    return {"name": name, **shown, "unit": unit, "ratio": round(value / max(peer, 1e-9), 2)}


def _middle(times: Sequence[float]) -> float:
    return statistics.median(times)


def _slow(times: Sequence[float]) -> float:
    return sorted(times)[int(0.95 * len(times))]


def main() -> None:
    call_command("migrate", verbosity=0)
    print(json.dumps([row for collection in collections() for row in measure(collection)]))
