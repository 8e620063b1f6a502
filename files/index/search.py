"""Search in the files that somebody may see: words (BM25) and meaning (vectors), each by its deviation, mixed.

Where there are many chunks it is done twice: the best of the first ranking say more of what is wanted (`feedback`).

The files are a filter inside every query, so nothing else is ranked, counted or returned. As long as the chunks have
vectors, `min(limit, visible chunks)` of them come back: what shares no word with the query is ranked by meaning alone.
For pages, of each passage that was found the part is cut out where most of the words stand.
"""

import logging
import math
import re
from bisect import bisect_right
from collections import defaultdict
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
from files.index.embedders import HURRIED, embed
from files.index.language import UNSPACED_RUN
from files.index.ledger import NOBODY, Payer
from files.index.lexemes import lexemes_of
from files.index.ranking import Asked, Query
from files.index.vectors import Vector
from files.models import Chunk, Embedder, File, FileText

log = logging.getLogger(__name__)

WORDS_SHARE, MEANING_SHARE = 0.65, 0.35
POOL = 100  # the best of each ranking are mixed
MAX_LIMIT = 100
MAX_QUERY = 2_000  # characters that are read
NEAR = 160  # characters within which words stand together
BEFORE, EXCERPT = 80, 320  # characters of a result shown before such a place, and in all
# With the bundled embedder small talk seldom comes to it, beside any text. What a passage answers in other words may
# stay below, too: so it says what is related, not what is unrelated.
RELATED = 0.2

Spans = tuple[tuple[int, int], ...]

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk: characters [start, end) of the file's text. `page` counts from 1, 0 where there are none.

    `score` is 0 to 1 and compares hits of one search only. `highlights` are [start, end) of matched words in `text`.
    `heading` and `table_head` as in `files.index.chunking.Piece`; `named`: a word of the query stands in these or in
    the file's name. `cosine` is that of the nearest phrasing, 0 without vectors, and compares hits of one embedder.
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
        """Whether anything but its rank speaks for it: a word of the query, or a meaning near to it."""
        return bool(self.highlights) or self.named or self.cosine >= RELATED


@dataclass(frozen=True, slots=True)
class Result:
    """The part of a found passage where most of the words asked for are; `parts` are its pieces, each with whether it
    matched. `page` is that of the match, 0 where there are none; `heading` the path of headings of the passage."""

    file: UUID
    name: str
    page: int
    heading: str
    start: int
    end: int
    parts: list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Passages, best first. `notes`: sentences for people about what an embedder or the re-ranker did not do."""

    hits: list[Hit]
    notes: tuple[Sentence, ...] = ()


def search(*, query: str, files: QuerySet[File], limit: int = 10, payer: Payer = NOBODY) -> list[Hit]:
    """The best chunks of `files`, best first, at most 100. A query without a letter or digit finds nothing.

    An embedder that does not answer leaves the ranking to the words.
    """
    return search_many(queries=[query], files=files, limit=limit, payer=payer).hits


def search_many(
    *, queries: Sequence[str], files: QuerySet[File], limit: int = 10, payer: Payer = NOBODY
) -> SearchResult:
    """Several phrasings of one question: a chunk counts with the best of its scores. `payer`: who searches."""
    cleaned = [each for query in queries if _WORD.search(each := _cleaned(query))]
    limit = min(limit, MAX_LIMIT)
    if not (cleaned and limit > 0):
        return SearchResult([])
    asked = ranking.asked(files, cleaned)
    if not asked.collection.chunks:
        return SearchResult([])
    scores: dict[int, float] = {}
    cosines: dict[int, float] = {}
    lexemes: dict[str, set[str]] = defaultdict(set)
    failures: dict[Sentence, None] = {}  # sentences, each once, in order
    for query in asked.queries:
        for language, found in query.words.items():
            lexemes[language].update(found)
        for chunk, (score, cosine) in _mixed(query, files, asked, payer, failures).items():
            scores[chunk] = max(score, scores.get(chunk, 0.0))
            cosines[chunk] = max(cosine, cosines.get(chunk, 0.0))
    best = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))[:limit]
    return SearchResult(_hits({chunk: (scores[chunk], cosines[chunk]) for chunk in best}, lexemes), tuple(failures))


def _cleaned(query: str) -> str:
    """PostgreSQL stores neither NUL nor lone surrogates."""
    return query[:MAX_QUERY].replace("\0", " ").encode(errors="replace").decode()


def _mixed(
    query: Query, files: QuerySet[File], asked: Asked, payer: Payer, failures: dict[Sentence, None]
) -> dict[int, tuple[float, float]]:
    """(score, cosine) by chunk id, of the union of the two pools. Adds a sentence for each embedder that failed."""
    collection = asked.collection
    entries = ranking.postings(files, ranking.positions_of(query.words))
    bm25 = ranking.scored(entries, collection, query.weights)
    meanings = _meanings(query.text, files, asked, bm25.best(POOL), payer, failures)
    scores = _scores(bm25, meanings)
    if collection.chunks >= feedback.FEWEST and scores:
        order = sorted(scores, key=lambda chunk: (-scores[chunk], chunk))[: feedback.BEST]
        counts = {chunk: math.exp(scores[chunk] - scores[order[0]]) for chunk in order}
        best = feedback.listened_to(counts)
        added = feedback.added(query, entries, counts, best, files, collection)
        bm25 = ranking.scored(added.entries, collection, added.weights)
        for meaning in meanings:
            meaning.look_again(counts, bm25.best(POOL))
        scores = _scores(bm25, meanings)
    cosines = {chunk: cosine for meaning in meanings for chunk, cosine in meaning.cosines.items()}
    return {chunk: (1 / (1 + math.exp(-score)), cosines.get(chunk, 0.0)) for chunk, score in scores.items()}


@dataclass(slots=True)
class _Meaning:
    """Cosines of one embedder, by chunk id, to the query; `pulled` are those to the query as feedback has moved it."""

    embedder: Embedder
    vector: Vector
    cosines: dict[int, float]
    pulled: dict[int, float]

    def look_again(self, best: Group[int], also: Sequence[int]) -> None:
        both = ranking.two_cosines(self.embedder, self.vector, best, {*self.cosines, *also})
        if not both:
            return
        self.cosines = {at: near for at, (near, _) in both.items()}
        # A cosine to the sum of both, but for its length, which changes no order.
        self.pulled = {at: near + feedback.PULL * towards for at, (near, towards) in both.items()}


def _meanings(
    query: str, files: QuerySet[File], asked: Asked, also: Sequence[int], payer: Payer, failures: dict[Sentence, None]
) -> list[_Meaning]:
    """Of the nearest chunks and of those in `also`, by embedder: while `reembed` is under way there are chunks of two,
    whose cosines do not compare."""
    found: list[_Meaning] = []
    for embedder in asked.embedders:
        try:
            vector = embed(embedder, [query], payer, timeout=HURRIED)[0]
        except ModelError as error:
            log.warning("search by words only, embedder %s: %s", embedder, error)
            failures[_by_words(embedder.name, error.sentence)] = None
            continue
        if vector is None:
            continue
        cosines = ranking.nearest(files, embedder, vector, also, count=POOL, visible=asked.collection.chunks)
        found.append(_Meaning(embedder, vector, cosines, cosines))
    return found


def _by_words(name: str, why: Sentence) -> Sentence:
    return Sentence(
        "The embedder “{name}” did not answer (“{why}”), so the passages were found by their words alone.",
        name=name,
        why=why,
    )


def _scores(bm25: ranking.Scores, meanings: Sequence[_Meaning]) -> dict[int, float]:
    """By chunk id: how far it stands out by its words and by its meaning, each on a scale of its own."""
    near: dict[int, float] = {}
    for meaning in meanings:
        near |= zip(meaning.pulled, _deviations(np.fromiter(meaning.pulled.values(), dtype=np.float64)), strict=True)
    lowest = min(near.values(), default=0.0)
    pool = list({*bm25.best(POOL), *near})
    if not pool:
        return {}
    far = np.fromiter((near.get(chunk, lowest) for chunk in pool), dtype=np.float64)
    scores = WORDS_SHARE * np.array(_deviations(bm25.of(pool))) + MEANING_SHARE * far
    return dict(zip(pool, scores.tolist(), strict=True))


def _deviations(values: npt.NDArray[np.float64]) -> list[float]:
    """From the mean, in standard deviations; all 0 where all are equal."""
    spread = values.std() if len(values) else 0.0
    found: list[float] = ((values - values.mean()) / spread if spread else np.zeros(len(values))).tolist()
    return found


def _hits(best: Mapping[int, tuple[float, float]], lexemes: dict[str, set[str]]) -> list[Hit]:
    """`best`: score and cosine by chunk id, the best first."""
    names = ("ordinal", "page", "start", "end", "text", "heading", "table_head", "file__name", "file__language")
    rows = Chunk.objects.select_related("file").only(*names).in_bulk(best)
    chunks = [rows[chunk] for chunk in best if chunk in rows]  # a file may have been deleted meanwhile
    marks: dict[int, Spans] = {}  # by chunk id; what stands above a chunk is under the negative one
    for language, found in lexemes.items():
        of_language = [chunk for chunk in chunks if chunk.file.language == language]
        texts = {chunk.pk: chunk.text for chunk in of_language}
        marks |= _highlights({**texts, **{-chunk.pk: chunk.above for chunk in of_language}}, language, found)
    return [
        Hit(
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


def _highlights(texts: Mapping[int, str], language: str, lexemes: Group[str]) -> dict[int, Spans]:
    """By the keys of `texts`, [start, end) of the matches, ascending and apart. `language` is that of the texts."""
    if not texts or not lexemes:
        return {}
    said = {word for text in texts.values() for word in _WORD.findall(text)}
    known = lexemes_of({word for word in said if not UNSPACED_RUN.search(word)}, language)
    forms = {word for word, found in known.items() if not found.isdisjoint(lexemes)}
    literal = _literal(lexemes)
    return {key: _joined(_spans(text, forms, literal)) for key, text in texts.items()}


def _literal(lexemes: Group[str]) -> re.Pattern[str]:
    """For lexemes that are no single words: addresses, and pairs of unspaced scripts. A lookahead, as pairs overlap."""
    odd = [lexeme for lexeme in lexemes if not _WORD.fullmatch(lexeme) or UNSPACED_RUN.fullmatch(lexeme)]
    return re.compile(f"(?=({'|'.join(map(re.escape, odd)) or '(?!)'}))", re.IGNORECASE)


def _spans(text: str, forms: set[str], literal: re.Pattern[str]) -> list[tuple[int, int]]:
    found = [match.span() for match in _WORD.finditer(text) if match[0] in forms]
    return sorted(found + [match.span(1) for match in literal.finditer(text)])


def _joined(spans: list[tuple[int, int]]) -> Spans:
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def passages(hits: Sequence[Hit]) -> list[Result]:
    """For pages: of each passage the place that says most."""
    rows = FileText.objects.filter(file__in=[hit.file for hit in hits]).values_list("file", "spans")
    spans = dict(rows)
    return [_result(hit, spans.get(hit.file, [])) for hit in hits]


def _result(hit: Hit, spans: Sequence[Sequence[int]]) -> Result:
    best = _best(hit)
    start, end = _excerpt(hit.text, best)
    inside = [mark for mark in hit.highlights if start <= mark[0] and mark[1] <= end]
    return Result(
        file=hit.file,
        name=hit.name,
        page=bisect_right(spans, hit.start + best, key=lambda span: span[0]),
        heading=hit.heading,
        start=hit.start + start,
        end=hit.start + end,
        parts=list(_parts(hit, start, end, inside)),
    )


def _best(hit: Hit) -> int:
    """Where in the hit's text the most different words that matched stand closest together; 0 if none matched."""

    def together(at: int) -> tuple[int, int]:
        near = [mark for mark in hit.highlights if at <= mark[0] and mark[1] <= at + NEAR] or [(at, at)]
        return len({hit.text[left:right].casefold() for left, right in near}), at - near[-1][1]

    return max((left for left, _ in hit.highlights), key=together, default=0)


def _excerpt(text: str, best: int) -> tuple[int, int]:
    """[start, end) of what is shown around `best`, cut between words."""
    start = max(0, best - BEFORE)
    if start:
        start = min(best, start + len(text[start:best].partition(" ")[0]) + 1)
    end = start + EXCERPT
    if end < len(text):
        end = max(text.rfind(" ", start, end), best + BEFORE)
    return start, min(end, len(text))


def _parts(hit: Hit, start: int, end: int, inside: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    yield ("… " if start else ""), False
    at = start
    for left, right in inside:
        yield hit.text[at:left], False
        yield hit.text[left:right], True
        at = right
    yield hit.text[at:end] + (" …" if end < len(hit.text) else ""), False
