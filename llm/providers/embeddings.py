"""Client for OpenAI's embeddings protocol, limited to the features that compatible servers support."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from core.errors import ModelError
from core.json_types import JsonObject
from llm.providers import errors
from llm.providers.connection import Connection, number_at

# Seconds between attempts; each wait is twice the previous one.
FIRST_WAIT = 0.5
MAX_WAIT = 30.0


class EmbeddingsClient:
    """Client of an embeddings server.

    `patience`: time limit of a request in seconds. `again`: number of retries of a failed request.
    """

    def __init__(self, base_url: str, api_key: str, patience: float, again: int) -> None:
        self._server = Connection(base_url, api_key, patience)
        self._patience = patience
        self._again = again

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[Any], int]:
        """Return the vectors of the texts, unchecked, and the tokens that the server reports, or 0 without a report.

        Raises `ModelError`.
        """
        # Plain numbers: not every server knows base64.
        answer = await self._answer({"model": model, "input": list(texts), "encoding_format": "float"})
        try:
            vectors = [row["embedding"] for row in sorted(answer["data"], key=lambda row: row["index"])]
        except (TypeError, LookupError) as error:
            raise errors.wrong_endpoint() from error
        return vectors, number_at(answer, "usage", "prompt_tokens") or number_at(answer, "usage", "total_tokens")

    async def _answer(self, body: JsonObject) -> Any:
        for attempt in count():
            try:
                async with asyncio.timeout(self._patience):
                    return await self._server.answer("/embeddings", body)
            except (ModelError, TimeoutError) as error:
                failure = error if isinstance(error, ModelError) else errors.timed_out()
            if attempt == self._again or not failure.retryable:
                raise failure
            await asyncio.sleep(min(MAX_WAIT, failure.retry_after or FIRST_WAIT * 2**attempt))
