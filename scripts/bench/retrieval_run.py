"""Indexes collections as the product does, and measures its search. scripts.bench.retrieval starts it."""

import json
import statistics
import time
from typing import Any
from uuid import UUID

from django.core.management import call_command

from accounts.models import User
from files.index.chunks import chunks_of
from files.index.indexing import index_chunks
from files.index.search import search
from files.models import Chunk, File
from scripts.bench.retrieval import Collection, collections, ndcg

DEPTH = 10
HITS = 50  # chunks, of which several may be of one document


def _stored(collection: Collection) -> dict[UUID, str]:
    """The documents as files of one person; their ids by file."""
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


def measure(collection: Collection) -> list[dict[str, Any]]:
    names = _stored(collection)
    files = File.objects.filter(owner__username=collection.name)
    found, times = [], []
    for query, relevant in collection.relevant.items():
        began = time.perf_counter()
        hits = search(query=collection.queries[query], files=files, limit=HITS)
        times.append((time.perf_counter() - began) * 1_000)
        ranked = list(dict.fromkeys(names[hit.file] for hit in hits))
        found.append(ndcg(ranked, relevant, DEPTH))
    return [
        {"name": f"{collection.name}, nDCG@{DEPTH}", "value": round(statistics.mean(found), 4), "unit": ""},
        {"name": f"{collection.name}, p50", "value": round(statistics.median(times), 1), "unit": "ms"},
    ]


def main() -> None:
    call_command("migrate", verbosity=0)
    print(json.dumps([row for collection in collections() for row in measure(collection)]))
