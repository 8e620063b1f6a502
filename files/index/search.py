"""Search in the files that somebody may see: words (BM25) and meaning (vectors), each normalised, mixed 0.6 : 0.4.

The files are a filter inside every query, so nothing else is ranked, counted or returned. As long as the chunks have
vectors, `min(limit, visible chunks)` of them come back: what shares no word with the query is ranked by meaning alone.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from core.errors import ModelError
from files.index import ranking
from files.index.embedders import HURRIED, client_of
from files.index.highlights import Spans, highlights
from files.index.ranking import Collection, Words
from files.models import Chunk, Embedder, File

log = logging.getLogger(__name__)

WORDS_SHARE, MEANING_SHARE = 0.6, 0.4
POOL = 100  # the best of each ranking are mixed
MAX_LIMIT = 100
MAX_QUERY = 2_000  # characters that are read

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk: characters [start, end) of the file's text. `page` counts from 1, 0 where there are none.

    `score` is 0 to 1 and compares hits of one search only. `highlights` are [start, end) of matched words in `text`.
    """

    file: UUID
    name: str
    chunk: int
    ordinal: int
    page: int
    start: int
    end: int
    score: float
    text: str
    highlights: Spans


def search(*, query: str, files: QuerySet[File], limit: int = 10) -> list[Hit]:
    """The best chunks of `files`, best first, at most 100. A query without a letter or digit finds nothing.

    An embedder that cannot be reached leaves the ranking to the words.
    """
    return search_many(queries=[query], files=files, limit=limit)


def search_many(*, queries: Sequence[str], files: QuerySet[File], limit: int = 10) -> list[Hit]:
    """Several phrasings of one question: a chunk counts with the best of its scores."""
    collection = Collection.of(files)
    asked = [cleaned for query in queries if _WORD.search(cleaned := _cleaned(query))]
    limit = min(limit, MAX_LIMIT)
    if not (asked and collection.chunks and limit > 0):
        return []
    scores: dict[int, float] = {}
    lexemes: dict[str, set[str]] = defaultdict(set)
    for query in asked:
        words = ranking.words_of(query, collection.languages)
        for language, found in words.items():
            lexemes[language].update(found)
        for chunk, score in _mixed(query, words, files, collection).items():
            scores[chunk] = max(score, scores.get(chunk, 0.0))
    best = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))[:limit]
    return _hits(best, scores, lexemes)


def _cleaned(query: str) -> str:
    """PostgreSQL stores neither NUL nor lone surrogates."""
    return query[:MAX_QUERY].replace("\0", " ").encode(errors="replace").decode()


def _mixed(query: str, words: Words, files: QuerySet[File], collection: Collection) -> dict[int, float]:
    """Scores by chunk id, of the union of the two pools."""
    bm25 = ranking.bm25(files, words, collection)
    best = bm25.best(POOL)
    meaning = _meaning(query, files, collection.chunks, best)
    candidates = {*best, *meaning}
    highest = max((bm25.of(chunk) for chunk in best), default=0.0)
    return {
        chunk: WORDS_SHARE * (bm25.of(chunk) / highest if highest else 0.0) + MEANING_SHARE * meaning.get(chunk, 0.0)
        for chunk in candidates
    }


def _meaning(query: str, files: QuerySet[File], visible: int, also: Sequence[int]) -> dict[int, float]:
    """Normalised cosines of the nearest chunks and of those in `also`.

    While `reembed` is under way there are chunks of two embedders, whose cosines do not compare: each its own scale.
    """
    found: dict[int, float] = {}
    for embedder in Embedder.objects.filter(Exists(Chunk.objects.filter(embedder=OuterRef("pk")))):
        try:
            vector = client_of(embedder, timeout=HURRIED).embed([query])[0]
        except ModelError as error:
            log.warning("search by words only, embedder %s: %s", embedder, error)
            continue
        if vector is None:
            continue
        near = ranking.nearest(files, embedder, vector, count=POOL, visible=visible)
        missing = [chunk for chunk in also if chunk not in near]
        found |= _spread(near | ranking.cosines(embedder, vector, missing))
    return found


def _spread(cosines: dict[int, float]) -> dict[int, float]:
    """From the lowest, 0, to the highest, 1."""
    if not cosines:
        return {}
    low, high = min(cosines.values()), max(cosines.values())
    return {chunk: (cosine - low) / (high - low) if high > low else 1.0 for chunk, cosine in cosines.items()}


def _hits(best: Sequence[int], scores: dict[int, float], lexemes: dict[str, set[str]]) -> list[Hit]:
    rows = Chunk.objects.select_related("file").defer("embedding").in_bulk(best)
    chunks = [rows[chunk] for chunk in best if chunk in rows]  # a file may have been deleted meanwhile
    marks: dict[int, Spans] = {}
    for language, found in lexemes.items():
        texts = {chunk.pk: chunk.text for chunk in chunks if chunk.file.language == language}
        marks |= highlights(texts, language, found)
    return [
        Hit(
            file=chunk.file_id,
            name=chunk.file.name,
            chunk=chunk.pk,
            ordinal=chunk.ordinal,
            page=chunk.page,
            start=chunk.start,
            end=chunk.end,
            score=scores[chunk.pk],
            text=chunk.text,
            highlights=marks.get(chunk.pk, ()),
        )
        for chunk in chunks
    ]
