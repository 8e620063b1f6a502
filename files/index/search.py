"""Search in the files that a user may see, by words (BM25) and by meaning (vectors).

`search_many` does this for each phrasing of a question:

1. It ranks the visible chunks by BM25 and by the cosines of vectors (`ranking`).
2. It adds both scores with weights. Each score is first standardised to its deviation from the mean, in standard
   deviations.
3. If the collection benefits from it, it expands the query with words of the best chunks (`feedback`), and ranks again.

A chunk then gets its highest score of all phrasings. Equal passages of files with the same content are returned once.
Every query filters by the files, so no other chunk is ranked, counted or returned. If all chunks and the query have
vectors, a search returns `min(limit, visible chunks)` hits, since chunks without a word of the query are ranked by
meaning alone.

`cut_excerpts` cuts the most relevant part out of each hit, for pages.
"""

import logging
import math
import re
from bisect import bisect_right
from collections.abc import Collection as Group
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
from django.db.models import QuerySet

from core.errors import ModelError
from core.sentences import Sentence
from files.index import feedback, ranking
from files.index.embedders import embed_query
from files.index.language import UNSPACED_RUN
from files.index.ledger import NO_PAYER, Payer
from files.index.lexemes import get_word_keys, strip_prefix
from files.index.ranking import PreparedSearch, Query
from files.index.vectors import Vector
from files.index.words import MAX_PARTS
from files.models import Chunk, Embedder, File, FileText

log = logging.getLogger(__name__)

WORD_WEIGHT = 0.65
VECTOR_WEIGHT = 0.35
POOL_SIZE = 100  # combined chunks per ranking
MAX_LIMIT = 100
MAX_QUERY = 2_000  # used characters of a query
CLOSE_DISTANCE = 160  # characters within which matched words count as close
EXCERPT_LEAD = 80  # characters of an excerpt before the first match
EXCERPT_LENGTH = 320  # characters of an excerpt
# From this cosine on a passage counts as related. With the bundled embedder, small talk seldom reaches it with any
# passage. A lower cosine does not prove that a passage is unrelated, since it may answer in other words.
MIN_RELATED_COSINE = 0.2

Spans = tuple[tuple[int, int], ...]

_WORD = re.compile(r"\w(?:[\u00ad\u200b\u2060]?\w)*")
# Compounds as in `files.index.words`, in the text as it stands.
_TOKEN = re.compile(r"\w(?:[-\u00ad\u200b\u2010-\u2013\u2060\u2212/\\.:@&+#,'’]{0,3}\w)*")


@dataclass(frozen=True, slots=True)
class ChunkHit:
    """A chunk that a search has found: characters [start, end) of the file's text.

    `page` counts from 1; 0 in files without pages. `score` is 0 to 1, only comparable within one search. `highlights`
    are [start, end) of matched words in `text`. `heading` and `table_head` are defined in
    `files.index.chunking.ChunkSpan`. `named`: a word of the query is in these or in the name of the file. `cosine` is
    the cosine to the nearest phrasing, only comparable within one embedder; 0 without vectors.
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
    cosine: float
    heading: str = ""
    table_head: str = ""
    named: bool = False

    @property
    def related(self) -> bool:
        """Return whether the chunk has a word of the query or a similar meaning. A high rank alone is not enough."""
        return bool(self.highlights) or self.named or self.cosine >= MIN_RELATED_COSINE


@dataclass(frozen=True, slots=True)
class PassageExcerpt:
    """The part of a hit with most of the matched words. `parts` are its (text, matched) pieces.

    `page` is the page of the match; 0 in files without pages. `heading` is the path of headings of the hit.
    """

    file: UUID
    name: str
    page: int
    heading: str
    start: int
    end: int
    parts: list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits of a search, best first. `notes`: sentences for users about failures of an embedder or the re-ranker."""

    hits: list[ChunkHit]
    notes: tuple[Sentence, ...] = ()


def search(*, query: str, files: QuerySet[File], limit: int = 10, payer: Payer = NO_PAYER) -> list[ChunkHit]:
    """Return the best chunks of `files`, at most 100. A query without a letter or digit finds nothing.

    If an embedder does not answer, chunks are ranked by words only.
    """
    return search_many(queries=[query], files=files, limit=limit, payer=payer).hits


def search_many(
    *, queries: Sequence[str], files: QuerySet[File], limit: int = 10, payer: Payer = NO_PAYER
) -> SearchResult:
    """Search for several phrasings of one question. A chunk gets the best of its scores."""
    storable_queries = [each for query in queries if _WORD.search(each := _strip_unstorable(query))]
    limit = min(limit, MAX_LIMIT)
    if not (storable_queries and limit > 0):
        return SearchResult([])
    prepared = ranking.prepare_search(files, storable_queries)
    if not prepared.collection.chunks:
        return SearchResult([])
    scores: dict[int, float] = {}
    cosines: dict[int, float] = {}
    failures: dict[Sentence, None] = {}  # an ordered set
    for query in prepared.queries:
        for chunk, (score, cosine) in _rank(query, files, prepared, payer, failures).items():
            scores[chunk] = max(score, scores.get(chunk, 0.0))
            cosines[chunk] = max(cosine, cosines.get(chunk, 0.0))
    best = _order_chunks(scores, prepared)[:limit]
    keys = {key for query in prepared.queries for key in query.keys}
    return SearchResult(_hits({chunk: (scores[chunk], cosines[chunk]) for chunk in best}, keys), tuple(failures))


def _order_chunks(scores: Mapping[int, float], prepared: PreparedSearch) -> list[int]:
    """Return the chunks, best first. Of passages with the same content the best one stays."""
    order = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))
    return ranking.drop_copies(order) if prepared.collection.copies else order


def _strip_unstorable(query: str) -> str:
    """Return the query without NUL and lone surrogates, which PostgreSQL does not store."""
    return query[:MAX_QUERY].replace("\0", " ").encode(errors="replace").decode()


def _rank(
    query: Query, files: QuerySet[File], prepared: PreparedSearch, payer: Payer, failures: dict[Sentence, None]
) -> dict[int, tuple[float, float]]:
    """Return (score, cosine) by chunk id for the best chunks of both rankings.

    Adds a sentence to `failures` for each embedder that failed.
    """
    collection = prepared.collection
    entries = ranking.load_postings(files, query.keys, collection)
    bm25 = ranking.score_postings(entries, collection, query.weights, query.unmarked)
    rankings = _rank_by_vectors(query.text, files, prepared, bm25.best(POOL_SIZE), payer, failures)
    scores = _combine(bm25, rankings)
    if feedback.is_worthwhile(collection) and scores:
        order = _order_chunks(scores, prepared)[: feedback.EXPANDING_CHUNKS]
        counts = {chunk: math.exp(scores[chunk] - scores[order[0]]) for chunk in order}
        best = feedback.feedback_chunks(counts)
        expanded = feedback.expand_query(query, entries, counts, best, files, collection)
        bm25 = ranking.score_postings(expanded.entries, collection, expanded.weights, query.unmarked)
        for vector_ranking in rankings:
            vector_ranking.apply_feedback(counts, bm25.best(POOL_SIZE))
        scores = _combine(bm25, rankings)
    cosines = {chunk: cosine for vector_ranking in rankings for chunk, cosine in vector_ranking.cosines.items()}
    return {chunk: (1 / (1 + math.exp(-score)), cosines.get(chunk, 0.0)) for chunk, score in scores.items()}


@dataclass(slots=True)
class _VectorRanking:
    """Cosines between query and chunks for one embedder, by chunk id, before and after feedback."""

    embedder: Embedder
    vector: Vector
    cosines: dict[int, float]
    cosines_after_feedback: dict[int, float]

    def apply_feedback(self, best: Group[int], also: Sequence[int]) -> None:
        """Move the query towards the mean of the `best` chunks, and include the chunks `also`."""
        both = ranking.two_cosines(self.embedder, self.vector, best, {*self.cosines, *also})
        if not both:
            return
        self.cosines = {chunk: near for chunk, (near, _) in both.items()}
        # The cosine to the sum of both vectors, not divided by the length of the sum, which does not change the order.
        self.cosines_after_feedback = {
            chunk: near + feedback.FEEDBACK_WEIGHT * towards for chunk, (near, towards) in both.items()
        }


def _rank_by_vectors(
    query: str,
    files: QuerySet[File],
    prepared: PreparedSearch,
    also: Sequence[int],
    payer: Payer,
    failures: dict[Sentence, None],
) -> list[_VectorRanking]:
    """Return one ranking per embedder, of the nearest chunks and of the chunks `also`.

    While `reembed` runs, two embedders have chunks, and their cosines are not comparable.
    """
    rankings: list[_VectorRanking] = []
    for embedder in prepared.embedders:
        try:
            vector = embed_query(embedder, query, payer)
        except ModelError as error:
            log.warning("a search compared words only, embedder %s failed: %s", embedder, error)
            failures[_words_only_note(embedder.name, error.sentence)] = None
            continue
        if vector is None:
            continue
        cosines = ranking.nearest(files, embedder, vector, also, count=POOL_SIZE, visible=prepared.collection.chunks)
        rankings.append(_VectorRanking(embedder, vector, cosines, cosines))
    return rankings


def _words_only_note(name: str, why: Sentence) -> Sentence:
    return Sentence(
        "The embedder “{name}” failed (“{why}”), so the search compared words only.",
        name=name,
        why=why,
    )


def _combine(bm25: ranking.Scores, rankings: Sequence[_VectorRanking]) -> dict[int, float]:
    """Return the weighted sum of the deviations by words and by meaning, by chunk id."""
    near: dict[int, float] = {}
    for vector_ranking in rankings:
        cosines_after_feedback = vector_ranking.cosines_after_feedback
        near |= zip(
            cosines_after_feedback,
            _deviations(np.fromiter(cosines_after_feedback.values(), dtype=np.float64)),
            strict=True,
        )
    lowest = min(near.values(), default=0.0)
    pool = list({*bm25.best(POOL_SIZE), *near})
    if not pool:
        return {}
    far = np.fromiter((near.get(chunk, lowest) for chunk in pool), dtype=np.float64)
    scores = WORD_WEIGHT * np.array(_deviations(bm25.for_chunks(pool))) + VECTOR_WEIGHT * far
    return dict(zip(pool, scores.tolist(), strict=True))


def _deviations(values: npt.NDArray[np.float64]) -> list[float]:
    """Return the deviations from the mean in standard deviations; all 0 if all values are equal."""
    spread = values.std() if len(values) else 0.0
    deviations: list[float] = ((values - values.mean()) / spread if spread else np.zeros(len(values))).tolist()
    return deviations


def _hits(best: Mapping[int, tuple[float, float]], keys: Group[str]) -> list[ChunkHit]:
    """Return the hits in the order of `best`, which maps a chunk id to (score, cosine)."""
    names = ("ordinal", "page", "start", "end", "text", "heading", "table_head", "language")
    rows = Chunk.objects.select_related("file").only(*names, "file__name", "file__language").in_bulk(best)
    chunks = [rows[chunk] for chunk in best if chunk in rows]  # a file may have been deleted meanwhile
    marks: dict[int, Spans] = {}  # by chunk id; the negative id stands for the text above the chunk
    for language in {chunk.configuration for chunk in chunks}:
        language_chunks = [chunk for chunk in chunks if chunk.configuration == language]
        texts = {chunk.pk: chunk.text for chunk in language_chunks}
        marks |= _highlights({**texts, **{-chunk.pk: chunk.above for chunk in language_chunks}}, language, keys)
    return [
        ChunkHit(
            file=chunk.file_id,
            name=chunk.file.name,
            chunk=chunk.pk,
            ordinal=chunk.ordinal,
            page=chunk.page,
            start=chunk.start,
            end=chunk.end,
            score=best[chunk.pk][0],
            text=chunk.text,
            highlights=marks.get(chunk.pk, ()),
            cosine=best[chunk.pk][1],
            heading=chunk.heading,
            table_head=chunk.table_head,
            named=bool(marks.get(-chunk.pk)),
        )
        for chunk in chunks
    ]


def _highlights(texts: Mapping[int, str], language: str, keys: Group[str]) -> dict[int, Spans]:
    """Return the [start, end) of the matches in each text, ascending and disjoint, by the keys of `texts`."""
    if not texts or not keys:
        return {}
    tokens = {match[0] for text in texts.values() for match in _TOKEN.finditer(text)}
    tokens = {token for token in tokens if not UNSPACED_RUN.search(token)}
    wholes = {token: whole for token in tokens if (whole := _without_signs(token)) is not None}
    words = {word for token in tokens for word in _WORD.findall(token)}
    keys_by_word = get_word_keys(words | set(wholes.values()), language)
    matched = {word for word in words if not keys_by_word[word].all.isdisjoint(keys)}
    matched |= {whole for whole in wholes.values() if not keys_by_word[whole].words.isdisjoint(keys)}
    literal = _pairs_pattern(keys)
    return {key: _merge_overlaps(sorted(_matched_spans(text, matched, wholes, literal))) for key, text in texts.items()}


def _without_signs(token: str) -> str | None:
    """Return a compound without its signs; None for a single word."""
    parts = _WORD.findall(token)
    return "".join(parts) if 1 < len(parts) <= MAX_PARTS else None


def _pairs_pattern(keys: Group[str]) -> re.Pattern[str]:
    """Return a pattern for pairs of characters in unspaced scripts. It is a lookahead, since pairs overlap."""
    pairs = {lexeme for key in keys if UNSPACED_RUN.fullmatch(lexeme := strip_prefix(key))}
    return re.compile(f"(?=({'|'.join(map(re.escape, sorted(pairs))) or '(?!)'}))", re.IGNORECASE)


def _matched_spans(
    text: str, matched: Group[str], wholes: Mapping[str, str], pairs: re.Pattern[str]
) -> Iterator[tuple[int, int]]:
    for token in _TOKEN.finditer(text):
        if wholes.get(token[0]) in matched:
            yield token.span()
        else:
            for word in _WORD.finditer(text, *token.span()):
                if word[0] in matched:
                    yield word.span()
    for pair in pairs.finditer(text):
        yield pair.span(1)


def _merge_overlaps(spans: list[tuple[int, int]]) -> Spans:
    """Join sorted spans that overlap or touch."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def cut_excerpts(hits: Sequence[ChunkHit]) -> list[PassageExcerpt]:
    """Return the most relevant part of each hit, for pages."""
    rows = FileText.objects.filter(file__in=[hit.file for hit in hits]).values_list("file", "spans")
    spans = dict(rows)
    return [_excerpt(hit, spans.get(hit.file, [])) for hit in hits]


def _excerpt(hit: ChunkHit, spans: Sequence[Sequence[int]]) -> PassageExcerpt:
    best = _densest_position(hit)
    start, end = _excerpt_bounds(hit.text, best)
    inside = [mark for mark in hit.highlights if start <= mark[0] and mark[1] <= end]
    return PassageExcerpt(
        file=hit.file,
        name=hit.name,
        page=bisect_right(spans, hit.start + best, key=lambda span: span[0]),
        heading=hit.heading,
        start=hit.start + start,
        end=hit.start + end,
        parts=list(_split_matches(hit, start, end, inside)),
    )


def _densest_position(hit: ChunkHit) -> int:
    """Return the position with the most distinct matched words nearby; 0 without a match."""

    def density(at: int) -> tuple[int, int]:
        near = [mark for mark in hit.highlights if at <= mark[0] and mark[1] <= at + CLOSE_DISTANCE] or [(at, at)]
        return len({hit.text[left:right].casefold() for left, right in near}), at - near[-1][1]

    return max((left for left, _ in hit.highlights), key=density, default=0)


def _excerpt_bounds(text: str, best: int) -> tuple[int, int]:
    """Return the [start, end) of an excerpt around `best`, cut between words."""
    start = max(0, best - EXCERPT_LEAD)
    if start:
        start = min(best, start + len(text[start:best].partition(" ")[0]) + 1)
    end = start + EXCERPT_LENGTH
    if end < len(text):
        end = max(text.rfind(" ", start, end), best + EXCERPT_LEAD)
    return start, min(end, len(text))


def _split_matches(
    hit: ChunkHit, start: int, end: int, inside: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, bool]]:
    yield ("… " if start else ""), False
    at = start
    for left, right in inside:
        yield hit.text[at:left], False
        yield hit.text[left:right], True
        at = right
    yield hit.text[at:end] + (" …" if end < len(hit.text) else ""), False
