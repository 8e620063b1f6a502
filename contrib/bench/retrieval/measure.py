"""Index collections as the product does, and measure its search. contrib.bench.retrieval.table starts it.

The ranking is compared with the product's own words alone, with plain BM25 and with the search without feedback, and
with the same collection beside one file in another language. The time is compared with the search without feedback. The
methods answer each question in turn, so that other work on the machine affects all of them.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from unittest.mock import patch
from uuid import UUID

from django.core.management import call_command
from django.db.models import QuerySet

from accounts.models import User
from contrib.bench.retrieval.collections import Collection, CollectionDocument, collections, ndcg
from contrib.bench.retrieval.plain import PlainBM25
from files.index import feedback, ranking
from files.index.chunks import build_chunks
from files.index.indexing import index_chunks
from files.index.search import search
from files.models import Chunk, File

DEPTH = 10
AMONG = 5  # documents among which a relevant one is looked for
HITS = 50  # chunks; several may belong to one document
FOREIGN = 60  # questions that are asked again beside a file in another language
GERMAN = (
    "Der Garten liegt hinter dem Haus am Fluss. Im Frühling blühen dort die Apfelbäume, und die Kinder spielen nach "
    "der Schule unter ihnen. Wie in jedem Jahr wird im Herbst die Ernte verteilt. Die Nachbarn bekommen den Rest."
)
ENGLISH = (
    "The garden lies behind the house by the river. In spring the apple trees are in bloom, and the children play "
    "below them after school. As in every year the harvest is shared in autumn. The neighbours get what is left."
)

Row = dict[str, object]
Method = Callable[[str, QuerySet[File]], list[str]]


def _stored(collection: Collection) -> dict[UUID, str]:
    """Store the documents as files of one person. Return the documents' ids by file."""
    owner = User.objects.create_user(collection.name)
    return {_store(owner, document): name for name, document in collection.documents.items()}


def _store(owner: User, document: CollectionDocument) -> UUID:
    digest = sha256(document.name.encode()).hexdigest()  # equal texts of two documents are two passages
    file = File.objects.create(
        owner=owner, name=document.name, size=1, sha256=digest, blob="none", status=File.Status.READY
    )
    Chunk.objects.bulk_create(build_chunks(file, document.media_type, document.text, document.pages))
    index_chunks(file)
    return file.pk


def _by_words(query: str, files: QuerySet[File]) -> list[UUID]:
    """Return the files of the best chunks by the product's BM25 alone."""
    prepared = ranking.prepare_search(files, [query])
    scores = ranking.bm25(files, prepared.queries[0], prepared.collection)
    chunks = scores.best(HITS)
    best = [chunk for _, chunk in sorted(zip(-scores.for_chunks(chunks), chunks, strict=True))]
    file_by_chunk = dict(Chunk.objects.filter(pk__in=best).values_list("pk", "file_id"))
    return [file_by_chunk[chunk] for chunk in best]


def _by_search(query: str, files: QuerySet[File]) -> list[UUID]:
    return [hit.file for hit in search(query=query, files=files, limit=HITS)]


def _once(query: str, files: QuerySet[File]) -> list[UUID]:
    """Return the files of the search without relevance feedback."""
    with patch.object(feedback, "is_worthwhile", lambda collection: False):
        return _by_search(query, files)


def measure(collection: Collection) -> list[Row]:
    names = _stored(collection)
    plain = PlainBM25(_chunk_texts(collection))
    methods: Mapping[str, Method] = {
        "search": _named(_by_search, names),
        "once": _named(_once, names),
        "words alone": _named(_by_words, names),
        "plain BM25": lambda query, files: [each.partition("#")[0] for each in plain.ranked(query)],
    }
    files = File.objects.filter(owner__username=collection.name)
    gains: dict[str, list[float]] = {method: [] for method in methods}
    among: dict[str, list[bool]] = {method: [] for method in methods}
    times: dict[str, list[float]] = {method: [] for method in methods}
    for at, (query, relevant) in enumerate(collection.relevant.items()):
        for name, method in list(methods.items())[:: 1 if at % 2 else -1]:
            began = time.perf_counter()
            ranked = method(collection.queries[query], files)
            times[name].append((time.perf_counter() - began) * 1_000)
            documents = list(dict.fromkeys(ranked))
            gains[name].append(ndcg(documents, relevant, DEPTH))
            among[name].append(not relevant.keys().isdisjoint(documents[:AMONG]))
    print(f"{collection.name}: {len(names)} documents, {len(collection.relevant)} questions", file=sys.stderr)
    return [
        *_compared(f"{collection.name}, nDCG@{DEPTH}", {name: statistics.mean(each) for name, each in gains.items()}),
        *_compared(f"{collection.name}, among {AMONG}", {name: statistics.mean(each) for name, each in among.items()}),
        _foreign(collection, names, gains["search"]),
        _row(f"{collection.name}, p50 : once", _middle(times["search"]), _middle(times["once"]), "ms"),
        _row(f"{collection.name}, p95 : once", _slow(times["search"]), _slow(times["once"]), "ms"),
    ]


def _named(method: Callable[[str, QuerySet[File]], list[UUID]], names: Mapping[UUID, str]) -> Method:
    return lambda query, files: [names[pk] for pk in method(query, files) if pk in names]


def _chunk_texts(collection: Collection) -> dict[str, str]:
    """Return the texts of the product's chunks, by the document's id and a number."""
    file = File(name="")
    return {
        f"{name}#{number}": chunk.text
        for name, document in collection.documents.items()
        for number, chunk in enumerate(build_chunks(file, document.media_type, document.text, document.pages))
    }


def _foreign(collection: Collection, names: Mapping[UUID, str], before: Sequence[float]) -> Row:
    """Ask the first questions again beside one file of four sentences in another language."""
    owner = User.objects.get(username=collection.name)
    files = File.objects.filter(owner=owner)
    text = ENGLISH if files.filter(language="german").exists() else GERMAN
    _store(owner, CollectionDocument(text, "garden.md"))
    method = _named(_by_search, names)
    gains = [
        ndcg(dict.fromkeys(method(collection.queries[query], files)), relevant, DEPTH)
        for query, relevant in list(collection.relevant.items())[:FOREIGN]
    ]
    label = f"{collection.name}, nDCG@{DEPTH} beside another language : alone"
    return _row(label, statistics.mean(gains), statistics.mean(before[:FOREIGN]), "")


def _compared(label: str, means: Mapping[str, float]) -> Iterator[Row]:
    for name, peer in means.items():
        if name != "search":
            yield _row(f"{label} : {name}", means["search"], peer, "")


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
