"""The entry point of search: find passages by words and by meaning, then order them with the active re-ranker."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from django.db.models import QuerySet

from core.errors import ModelError
from core.sentences import Sentence
from files.index.ledger import NO_PAYER, Payer
from files.index.reranking import Judgement, cached_judgement, text_to_judge
from files.index.search import SearchResult, search_many
from files.models import File, Reranker

log = logging.getLogger(__name__)


def find_passages(
    *, queries: Sequence[str], files: QuerySet[File], limit: int = 10, payer: Payer = NO_PAYER
) -> SearchResult:
    """Search as `search_many` does, then order the hits with the active re-ranker, which reads only the first query.

    If the re-ranker fails, the hits stay in the order of the search, and a note says why.
    """
    reranker = Reranker.objects.filter(active=True).first()
    if reranker is None:
        return search_many(queries=queries, files=files, limit=limit, payer=payer)
    most = max(limit, reranker.candidates) if limit > 0 else 0
    result = search_many(queries=queries, files=files, limit=most, payer=payer)
    hits = result.hits
    judged = hits[: reranker.candidates]
    others = hits[reranker.candidates :]
    if len(judged) < 2:
        return replace(result, hits=hits[:limit])
    try:
        judgement = cached_judgement(reranker, queries[0], [text_to_judge(hit) for hit in judged], payer)
    except ModelError as error:
        log.warning("the hits of a search were not reordered, re-ranker %s failed: %s", reranker, error)
        return SearchResult(hits[:limit], (*result.notes, _not_reordered_note(reranker.name, error.sentence)))
    scored = [replace(hit, score=score) for hit, score in zip(judged, judgement.scores, strict=True)]
    scored.sort(key=lambda hit: -hit.score)  # a stable sort: equal hits keep their order
    others = [replace(hit, score=min(hit.score, scored[-1].score)) for hit in others]
    notes = (_shortened_note(reranker.name, judgement),) if judgement.cut else ()
    return SearchResult([*scored, *others][:limit], (*result.notes, *notes))


def _not_reordered_note(name: str, why: Sentence) -> Sentence:
    return Sentence(
        "The re-ranker “{name}” failed (“{why}”), so the passages are in the order of the search.",
        name=name,
        why=why,
    )


def _shortened_note(name: str, judgement: Judgement) -> Sentence:
    return Sentence(
        "The re-ranker “{name}” read only the first {longest} tokens of {cut} of {scores} passages.",
        name=name,
        cut=judgement.cut,
        scores=len(judgement.scores),
        longest=judgement.longest,
    )
