"""How well search ranks: nDCG@10 over collections with questions and judgements.

    python -m scripts.bench.retrieval

Three are made here, of invented words but shaped like public ones: abstracts, titles, and long documents with headings.
`COLLECTIONS` names a folder of others, one folder each, as BEIR lays them out: corpus.jsonl, queries.jsonl, and
qrels/test.tsv. None is fetched.
"""

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.services import Services

FOLDERS = "COLLECTIONS"
PROGRAM = "import django; django.setup(); from scripts.bench.retrieval_run import main; main()"


@dataclass(frozen=True, slots=True)
class Collection:
    """`relevant`: by query, how relevant documents are to it, at least 1."""

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]] = field(default_factory=dict)


def read(folder: Path) -> Collection:
    """A collection as BEIR lays it out."""
    documents = {row["_id"]: f"{row.get('title', '')}\n{row['text']}".strip() for row in _rows(folder / "corpus.jsonl")}
    queries = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
    relevant: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) > 0:
            relevant.setdefault(query, {})[document] = int(score)
    return Collection(folder.name, documents, {each: queries[each] for each in relevant if each in queries}, relevant)


def collections() -> Iterator[Collection]:
    yield from map(made, SHAPES)
    if folder := os.environ.get(FOLDERS):
        yield from (read(each) for each in sorted(Path(folder).iterdir()) if (each / "corpus.jsonl").is_file())


def rows() -> list[dict[str, Any]]:
    """Each row: name, value, unit."""
    services = Services()
    urls = {"DATABASE_URL": services.database, "REDIS_URL": services.redis}
    environment = {**os.environ, **urls, "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.setdefault("SECRET_KEY", "only-for-benchmarks-only-for-benchmarks-only-for-benchmarks")
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, check=True)
    finally:
        services.end()
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def ndcg(ranked: Iterable[str], relevant: Mapping[str, int], depth: int = 10) -> float:
    gains = [relevant.get(document, 0) for document in ranked][:depth]
    ideal = sorted(relevant.values(), reverse=True)[:depth]
    return _discounted(gains) / _discounted(ideal)


def _discounted(gains: Iterable[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


SHAPES = {"abstracts": (500, 120, 1), "titles": (800, 14, 1), "long documents": (120, 260, 6)}
QUERIES = 60
OF_TOPIC = 0.08  # of a document's words


def made(name: str) -> Collection:
    """Documents of one topic each, in words of which a query has some; `SHAPES`: how many, words of a part, parts."""
    source = random.Random(name)
    count, words, parts = SHAPES[name]
    common = [_word(source) for _ in range(2_000)]
    topics = [[_word(source) for _ in range(12)] for _ in range(QUERIES)]
    documents: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for number in range(count):
        topic = number % QUERIES
        text = [_part(source, topics[topic], common, words, heading=parts > 1) for _ in range(parts)]
        documents[str(number)] = "\n\n".join(text)
        relevant.setdefault(str(topic), {})[str(number)] = 1
    queries = {
        str(at): " ".join([*source.sample(topic, 3), *source.choices(common, k=3)]) for at, topic in enumerate(topics)
    }
    return Collection(name, documents, queries, relevant)


def _part(source: random.Random, topic: list[str], common: list[str], words: int, *, heading: bool) -> str:
    text = [
        source.choice(topic) if source.random() < 0.08 else common[int(source.paretovariate(0.6)) % 2_000]
        for _ in range(words)
    ]
    return (f"## {source.choice(topic)}\n\n" if heading else "") + " ".join(text)


def _word(source: random.Random) -> str:
    return "".join(source.choice("bdfgklmnprstvz") + source.choice("aeiou") for _ in range(source.randint(2, 4)))


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:<40} {row['value']:>8} {row['unit']}")
