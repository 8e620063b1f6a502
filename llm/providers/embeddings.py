"""Speak OpenAI's embeddings protocol, limited to the features that compatible servers support."""

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

    `timeout`: seconds for one request. `max_retries`: the number of times that a failed request is sent again.
    """

    def __init__(self, base_url: str, api_key: str, timeout: float, max_retries: int) -> None:
        self._server = Connection(base_url, api_key, timeout)
        self._timeout = timeout
        self._max_retries = max_retries

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[Any], int]:
        """Return the vectors of the texts, unchecked, and the tokens that the server reports, or 0 without a report.

        Raises `ModelError`.
        """
        # Plain numbers: not every server knows base64.
        answer = await self._request_with_retries({"model": model, "input": list(texts), "encoding_format": "float"})
        try:
            vectors = [row["embedding"] for row in sorted(answer["data"], key=lambda row: row["index"])]
        except (TypeError, LookupError) as error:
            raise errors.wrong_endpoint_error() from error
        return vectors, number_at(answer, "usage", "prompt_tokens") or number_at(answer, "usage", "total_tokens")

    async def _request_with_retries(self, body: JsonObject) -> Any:
        for attempt in count():
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._server.request_json("/embeddings", body)
            except (ModelError, TimeoutError) as error:
                model_error = error if isinstance(error, ModelError) else errors.timeout_error()
            if attempt == self._max_retries or not model_error.retryable:
                raise model_error
            await asyncio.sleep(min(MAX_WAIT, model_error.retry_after or FIRST_WAIT * 2**attempt))
