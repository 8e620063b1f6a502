"""The two protocols of re-rankers, which read a query and a text together and say how well one answers the other.

Cohere's `POST /rerank` is spoken by Cohere, Jina, vLLM and llama.cpp, the other one by Text Embeddings Inference.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from llm.providers import errors
from llm.providers.connection import Connection, said

TEI = "tei"
# Texts of one request: Text Embeddings Inference takes 32 unless it is started otherwise, the others a hundred or more.
BATCH = {TEI: 32}
MOST = 100


class Judged(NamedTuple):
    """A score for each text, the higher the better, on a scale of the model's own; the tokens that the server says it
    has read, 0 where it does not say; searches as it bills them, one a request where it does not say."""

    scores: list[float]
    tokens: int
    searches: int


class Client:
    """`patience`: seconds until all texts have to be judged."""

    def __init__(self, protocol: str, base_url: str, api_key: str, patience: float) -> None:
        self._server = Connection(base_url, api_key, patience)
        self._protocol, self._patience = protocol, patience

    async def scores(self, model: str, query: str, texts: Sequence[str]) -> Judged:
        """Raises `ModelError`."""
        size = BATCH.get(self._protocol, MOST)
        batches = [texts[first : first + size] for first in range(0, len(texts), size)]
        try:
            async with asyncio.timeout(self._patience):
                found = await asyncio.gather(*(self._scores(model, query, batch) for batch in batches))
        except TimeoutError as error:
            raise errors.timed_out() from error
        tokens = [each.tokens for each in found]
        scores = [score for each in found for score in each.scores]
        return Judged(scores, sum(tokens) if all(tokens) else 0, sum(each.searches for each in found))

    async def _scores(self, model: str, query: str, texts: Sequence[str]) -> Judged:
        answer = await self._server.answer("/rerank", self._body(model, query, texts))
        rows, named = (answer, "score") if self._protocol == TEI else (_results(answer), "relevance_score")
        try:
            scores = {int(row["index"]): float(row[named]) for row in rows}
        except (TypeError, ValueError, LookupError) as error:
            raise errors.wrong_endpoint() from error
        if len(rows) != len(texts) or set(scores) != set(range(len(texts))):
            raise errors.malformed()
        if not all(math.isfinite(score) for score in scores.values()):
            raise errors.malformed()
        tokens = said(answer, "usage", "total_tokens") or said(answer, "meta", "tokens", "input_tokens")
        searches = said(answer, "meta", "billed_units", "search_units") or 1
        return Judged([scores[at] for at in range(len(texts))], tokens, searches)

    def _body(self, model: str, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self._protocol == TEI:
            # What is too long is to be refused, not cut without a word.
            return {"query": query, "texts": list(texts), "raw_scores": False, "truncate": False}
        named = {"model": model} if model else {}
        return {**named, "query": query, "documents": list(texts), "top_n": len(texts)}


def _results(answer: Any) -> Any:
    try:
        return answer["results"]
    except (TypeError, LookupError) as error:
        raise errors.wrong_endpoint() from error
