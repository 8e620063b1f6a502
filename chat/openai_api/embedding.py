"""Answer `embeddings` with the vectors of the workspace's active embedder."""

import asyncio
import base64
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict
from uuid import UUID
from weakref import WeakValueDictionary

import numpy as np
from django.utils.text import slugify

from accounts.models import User
from chat.ledger.searching import record_search_call
from chat.openai_api.errors import invalid_request
from core.audit.origin import current_origin
from core.errors import ProductError
from core.json_types import JsonObject
from files.index.embedders import active_embedder, count_tokens, create_client
from files.index.ledger import Payer
from files.index.vectors import Vector
from files.models import Embedder
from llm import tokens

MAX_INPUTS = 2_048
MAX_TOKENS = 8_192  # per input, by the catch-all tokenizer; OpenAI's embedding models have the same limit
# Some clients send the tokens of OpenAI's embedding models instead of the text.
INPUT_ENCODING = "cl100k_base"
MAX_WAITING = 32  # waiting calls per user


class EmbeddingEntry(TypedDict):
    """The vector of one text: numbers, or base64 of little-endian float32."""

    object: str
    index: int
    embedding: list[float] | str


class EmbeddingUsage(TypedDict):
    """The tokens of a request."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    """The answer to a request of embeddings."""

    object: str
    data: list[EmbeddingEntry]
    model: str
    usage: EmbeddingUsage


class PersonalCalls:
    """Let each user run one embedding call at a time in this process. Use it only on the event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        self._waiting: Counter[UUID] = Counter()

    @asynccontextmanager
    async def turn(self, person: UUID) -> AsyncIterator[None]:
        """Run the block after the user's earlier calls. Raises `too_many_embeddings` (429)."""
        lock = self._locks.setdefault(person, asyncio.Lock())
        if self._waiting[person] > MAX_WAITING:
            sentence = "Too many of your embedding calls already wait. Try again in a few seconds."
            raise ProductError("too_many_embeddings", sentence, status=429, retry_after=5)
        self._waiting[person] += 1
        try:
            async with lock:
                yield
        finally:
            self._waiting -= Counter([person])  # also removes a count of zero


def answer(user: User, body: JsonObject, abandoned: threading.Event) -> EmbeddingList:
    """Embed the texts of a request. The caller has removed the null members of `body`.

    `abandoned` is set when the client has left. Then no further batch of texts is embedded.
    Raises `model_not_found` (404), `ProductError` (400), `limit_reached` (429), and `ModelError` of the embedder.
    """
    embedder = active_embedder()
    _require_model(embedder, body.get("model"))
    if body.get("dimensions", embedder.dimensions) != embedder.dimensions:
        raise invalid_request("dimensions", f"The embedder returns {embedder.dimensions} dimensions only.")
    encoding = body.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise invalid_request("encoding_format", "“encoding_format” is float or base64.")
    texts = _texts(body.get("input"))
    zero = np.zeros(embedder.dimensions, dtype=np.float32)  # for a text in which the embedder knows no word
    client = create_client(embedder)
    payer = Payer(user.pk, current_origin().token_id)
    with record_search_call(embedder, payer, count_tokens(texts), limited=True) as read:
        vectors = [zero if vector is None else vector for vector in client.embed(texts, read, abandoned)]
    used = read.reported + read.counted
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _encode_vector(vector, encoding)}
            for index, vector in enumerate(vectors)
        ],
        "model": embedder_name(embedder),
        "usage": {"prompt_tokens": used, "total_tokens": used},
    }


def embedder_name(embedder: Embedder) -> str:
    """Return the name that programs send as the model to use the embedder."""
    return embedder.model or slugify(embedder.name) or str(embedder.pk)


def _require_model(embedder: Embedder, name: Any) -> None:
    """Refuse any other model than the embedder. Vectors from another model would be worse than an error."""
    if name is None:
        raise invalid_request("model", "You must provide “model”.", "missing_required_parameter")
    if name not in (embedder_name(embedder), str(embedder.pk)):
        sentence = f"The only model for embeddings here is “{embedder_name(embedder)}”. Send it as “model”."
        raise ProductError("model_not_found", sentence, status=404, param="model")


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) and not _are_tokens(value) else [value]
    if not 1 <= len(values) <= MAX_INPUTS:
        raise invalid_request("input", f"“input” must have from 1 to {MAX_INPUTS:,} texts.")
    return [_text(each, f"input[{number}]") for number, each in enumerate(values)]


def _text(value: Any, where: str) -> str:
    text = _decode_tokens(value, where) if _are_tokens(value) else value
    if not isinstance(text, str):
        raise invalid_request(
            where, "“input” must be a text, a list of texts, or their tokens (cl100k_base).", "invalid_type"
        )
    if not text.strip():
        raise invalid_request(where, "An empty text has no embedding.")
    length = tokens.count(text)
    if length > MAX_TOKENS:
        sentence = f"This input has {length:,} tokens. The maximum is {MAX_TOKENS:,}. Split it."
        raise invalid_request(where, sentence, "context_length_exceeded")
    return text


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def _decode_tokens(numbers: list[int], where: str) -> str:
    try:
        return tokens.tokenizer(INPUT_ENCODING).decode(numbers)
    except ValueError as error:
        raise invalid_request(where, "These are not tokens of cl100k_base.") from error


def _encode_vector(vector: Vector, encoding: str) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
