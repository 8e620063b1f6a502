"""Collections of documents and questions, with judgements of which document answers which question.

Three collections are generated from invented words. They have the shape of public ones: abstracts, titles, and long
documents with headings. The environment variable `COLLECTIONS` may name a folder with more collections, each in a
folder of its own in BEIR's layout: corpus.jsonl, queries.jsonl, and qrels/test.tsv. Instead of corpus.jsonl there may
be a folder `documents` with files of any kind that the product reads; their names are the ids. Nothing is downloaded.
"""

import json
import math
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from readers.api import read as read_file

FOLDERS = "COLLECTIONS"


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents and queries by id. `relevant`: for each query, its relevant documents and their scores, at least 1."""

    name: str
    documents: Mapping[str, "CollectionDocument"]
    queries: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]


class CollectionDocument(NamedTuple):
    """Text of a document, with the name of its file, its media type and the [start, end) of its pages."""

    text: str
    name: str
    media_type: str = "text/markdown"
    pages: Sequence[Sequence[int]] = ()


class Shape(NamedTuple):
    """The number of documents, of parts per document, and of words per part. A single part has no heading."""

    documents: int
    parts: int
    words: int


SHAPES = {"abstracts": Shape(500, 1, 120), "titles": Shape(800, 1, 14), "long documents": Shape(120, 6, 260)}
QUERIES = 60
QUERY_WORDS = (3, 3)  # words of a query: words of its topic, and common words
TOPIC, OF_TOPIC = 12, 0.08  # words per topic, and their share in a text about the topic
COMMON = 2_000  # words that occur in texts on any topic; the first ones are the most frequent


def collections() -> Iterator[Collection]:
    yield from (generated(name, shape) for name, shape in SHAPES.items())
    if folder := os.environ.get(FOLDERS):
        yield from (read(each) for each in sorted(Path(folder).iterdir()) if (each / "queries.jsonl").is_file())


def read(folder: Path) -> Collection:
    """Read a collection. Queries without judgements are never used."""
    documents = dict(_files(folder / "documents") if (folder / "documents").is_dir() else _texts(folder))
    queries = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
    relevant: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) > 0 and query in queries:
            relevant.setdefault(query, {})[document] = int(score)
    return Collection(folder.name, documents, queries, relevant)


def _texts(folder: Path) -> Iterator[tuple[str, CollectionDocument]]:
    for row in _rows(folder / "corpus.jsonl"):
        yield row["_id"], CollectionDocument(f"{row.get('title', '')}\n{row['text']}".strip(), f"{row['_id']}.md")


def _files(folder: Path) -> Iterator[tuple[str, CollectionDocument]]:
    for path in sorted(folder.iterdir()):
        extracted = read_file(path, path.name)
        yield path.name, CollectionDocument(extracted.text, path.name, extracted.media_type, extracted.spans)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def generated(name: str, shape: Shape) -> Collection:
    """Generate a collection. Each document has one topic. A query has some words of one topic, and common words."""
    rng = random.Random(name)
    common = [_word(rng) for _ in range(COMMON)]
    topics = [[_word(rng) for _ in range(TOPIC)] for _ in range(QUERIES)]
    documents: dict[str, CollectionDocument] = {}
    relevant: dict[str, dict[str, int]] = {}
    for number in range(shape.documents):
        topic = number % QUERIES
        parts = [_part(rng, topics[topic], common, shape) for _ in range(shape.parts)]
        documents[str(number)] = CollectionDocument("\n\n".join(parts), f"{number}.md")
        relevant.setdefault(str(topic), {})[str(number)] = 1
    from_topic, from_common = QUERY_WORDS
    queries = {
        str(at): " ".join([*rng.sample(topic, from_topic), *rng.choices(common, k=from_common)])
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
