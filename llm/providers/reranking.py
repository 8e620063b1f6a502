"""Speak the two protocols of re-rankers, which score how well a text answers a query.

Cohere, Jina, vLLM and llama.cpp speak Cohere's `POST /rerank`. Text Embeddings Inference has its own protocol.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from core.json_types import JsonObject
from llm.providers import errors
from llm.providers.connection import Connection, number_at

TEI = "tei"
# Texts per request, by protocol. Text Embeddings Inference accepts 32 by default, the others at least `MAX_DOCUMENTS`.
BATCH_SIZES = {TEI: 32}
MAX_DOCUMENTS = 100


class RerankScores(NamedTuple):
    """Scores of texts for one query, and the usage.

    `scores`: one per text, on the model's own scale; higher is better. `tokens`: the number that the server reports, or
    0. `searches`: the number that the server bills; without a report, one per request.
    """

    scores: list[float]
    tokens: int
    searches: int


class RerankingClient:
    """Client of a re-ranker. `timeout`: seconds for the scores of all texts."""

    def __init__(self, protocol: str, base_url: str, api_key: str, timeout: float) -> None:
        self._server = Connection(base_url, api_key, timeout)
        self._protocol = protocol
        self._timeout = timeout

    async def scores(self, model: str, query: str, texts: Sequence[str]) -> RerankScores:
        """Return the scores of the texts. Raises `ModelError`."""
        size = BATCH_SIZES.get(self._protocol, MAX_DOCUMENTS)
        batches = [texts[first : first + size] for first in range(0, len(texts), size)]
        try:
            async with asyncio.timeout(self._timeout):
                parts = await asyncio.gather(*(self._score_batch(model, query, batch) for batch in batches))
        except TimeoutError as error:
            raise errors.timeout_error() from error
        tokens = [part.tokens for part in parts]
        scores = [score for part in parts for score in part.scores]
        return RerankScores(scores, sum(tokens) if all(tokens) else 0, sum(part.searches for part in parts))

    async def _score_batch(self, model: str, query: str, texts: Sequence[str]) -> RerankScores:
        answer = await self._server.request_json("/rerank", self._build_body(model, query, texts))
        rows, member = (answer, "score") if self._protocol == TEI else (_read_results(answer), "relevance_score")
        try:
            scores = {int(row["index"]): float(row[member]) for row in rows}
        except (TypeError, ValueError, LookupError) as error:
            raise errors.wrong_endpoint_error() from error
        if len(rows) != len(texts) or set(scores) != set(range(len(texts))):
            raise errors.malformed_error()
        if not all(math.isfinite(score) for score in scores.values()):
            raise errors.malformed_error()
        tokens = number_at(answer, "usage", "total_tokens") or number_at(answer, "meta", "tokens", "input_tokens")
        searches = number_at(answer, "meta", "billed_units", "search_units") or 1
        return RerankScores([scores[index] for index in range(len(texts))], tokens, searches)

    def _build_body(self, model: str, query: str, texts: Sequence[str]) -> JsonObject:
        if self._protocol == TEI:
            # Without `truncate`, the server refuses a text that is too long instead of cutting it silently.
            return {"query": query, "texts": list(texts), "raw_scores": False, "truncate": False}
        body: JsonObject = {"query": query, "documents": list(texts), "top_n": len(texts)}
        return {"model": model, **body} if model else body


def _read_results(answer: Any) -> Any:
    try:
        return answer["results"]
    except (TypeError, LookupError) as error:
        raise errors.wrong_endpoint_error() from error
