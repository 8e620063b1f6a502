"""Collections of documents and questions, with judgements of which document answers which question.

Three collections are generated from invented words, in the shape of public ones: abstracts, titles, and long documents
with headings. The variable `COLLECTIONS` may name a folder of others, one folder each in BEIR's layout: corpus.jsonl,
queries.jsonl, and qrels/test.tsv. None is downloaded.
"""

import json
import math
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

FOLDERS = "COLLECTIONS"


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents and queries by id. `relevant`: by query, the relevance of documents, at least 1."""

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]


class Shape(NamedTuple):
    """The shape of a generated collection: documents, parts of a document, words of a part. One part has no heading."""

    documents: int
    parts: int
    words: int


SHAPES = {"abstracts": Shape(500, 1, 120), "titles": Shape(800, 1, 14), "long documents": Shape(120, 6, 260)}
QUERIES = 60
ASKED = (3, 3)  # words of a query: of its topic, and common ones
TOPIC, OF_TOPIC = 12, 0.08  # words of a topic, and their share of a text about it
COMMON = 2_000  # words of texts on any topic; the first ones are frequent


def collections() -> Iterator[Collection]:
    yield from (generated(name, shape) for name, shape in SHAPES.items())
    if folder := os.environ.get(FOLDERS):
        yield from (read(each) for each in sorted(Path(folder).iterdir()) if (each / "corpus.jsonl").is_file())


def read(folder: Path) -> Collection:
    """Read a collection in BEIR's layout. Questions without judgements are never asked."""
    documents = {row["_id"]: f"{row.get('title', '')}\n{row['text']}".strip() for row in _rows(folder / "corpus.jsonl")}
    queries = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
    relevant: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) > 0 and query in queries:
            relevant.setdefault(query, {})[document] = int(score)
    return Collection(folder.name, documents, queries, relevant)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def generated(name: str, shape: Shape) -> Collection:
    """Generate a collection. Each document has one topic, and a query has some words of a topic."""
    source = random.Random(name)
    common = [_word(source) for _ in range(COMMON)]
    topics = [[_word(source) for _ in range(TOPIC)] for _ in range(QUERIES)]
    documents: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for number in range(shape.documents):
        topic = number % QUERIES
        parts = [_part(source, topics[topic], common, shape) for _ in range(shape.parts)]
        documents[str(number)] = "\n\n".join(parts)
        relevant.setdefault(str(topic), {})[str(number)] = 1
    own, others = ASKED
    queries = {
        str(at): " ".join([*source.sample(topic, own), *source.choices(common, k=others)])
        for at, topic in enumerate(topics)
    }
    return Collection(name, documents, queries, relevant)


def _part(source: random.Random, topic: list[str], common: list[str], shape: Shape) -> str:
    text = " ".join(
        source.choice(topic) if source.random() < OF_TOPIC else common[int(source.paretovariate(0.6)) % COMMON]
        for _ in range(shape.words)
    )
    return f"## {source.choice(topic)}\n\n{text}" if shape.parts > 1 else text


def _word(source: random.Random) -> str:
    return "".join(source.choice("bdfgklmnprstvz") + source.choice("aeiou") for _ in range(source.randint(2, 4)))


def ndcg(ranked: Iterable[str], relevant: Mapping[str, int], depth: int) -> float:
    gains = [relevant.get(document, 0) for document in ranked][:depth]
    return _discounted(gains) / _discounted(sorted(relevant.values(), reverse=True)[:depth])


def _discounted(gains: Iterable[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))
