"""Embedders, which turn texts into vectors of length 1: the bundled one, and any OpenAI-compatible `/embeddings`."""

import re
import threading
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Protocol
from uuid import UUID

import numpy as np

from core.background import submit
from core.crypto import KEY_LOST, is_lost
from core.errors import ModelError
from core.outside import wait_outside
from core.sentences import Sentence
from files.index.embedding_queue import request_vectors
from files.index.ledger import NO_PAYER, Payer, SearchUsage, record_call
from files.index.vectors import Vector, normalize
from files.models import Embedder
from llm import tokens
from llm.providers import OPENAI_URL, errors
from workspace.models.version import VersionedCache

BUNDLED_NAME = "Bundled"
BUNDLED_BATCH = 32  # texts; all are padded to the longest one
# Characters of a padded batch. The bundled embedder needs about 2 kB for each token, which may be one character.
BATCH_CHARACTERS = 32_768
MAX_TEXT_LENGTH = 65_536  # characters of a text that the bundled embedder reads
SAMPLE_CHARACTERS = 2_000  # characters that show the script of a text
REMOTE_BATCH = 64  # texts
INDEXING_TIMEOUT = 60.0  # seconds for an answer while a file is indexed
SEARCH_TIMEOUT = 5.0  # seconds for an answer while a user waits for results
SEARCH_WORKER_TIMEOUT = 2.0  # seconds for a worker's answer while a user waits; the answer usually takes milliseconds
TRIAL_TEXT = "Is anybody there?"  # a text that tries an embedder
MAX_HALVINGS = 3  # halvings of texts that are too long for an endpoint


# Latin, Cyrillic, Chinese, Japanese and Korean letters.
_KNOWN_LETTERS = re.compile(
    "[A-Za-z\u00aa-\u024f\u0400-\u052f\u1e00-\u1eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\uff21-\uff5a\U00020000-\U0003ffff]"
)


class EmbeddingClient(Protocol):
    def embed(
        self, texts: Sequence[str], usage: SearchUsage, abandoned: threading.Event | None = None
    ) -> list[Vector | None]:
        """Return one vector for each text; None for a text without known words. Adds to `usage`.

        Raises `ModelError`, with the code `abandoned` if `abandoned` is set before all batches are embedded.
        """


def active_embedder() -> Embedder:
    """Return the active embedder. Without one, store and activate the bundled one. Safe for simultaneous calls."""
    embedder = Embedder.objects.filter(active=True).first()
    if embedder is not None:
        return embedder
    Embedder.objects.bulk_create([Embedder(name=BUNDLED_NAME, active=True)], ignore_conflicts=True)
    if not Embedder.objects.filter(active=True).exists():
        Embedder.objects.filter(name=BUNDLED_NAME).update(active=True)
    return Embedder.objects.get(active=True)


def get_embedders(ids: Collection[UUID], version: UUID | None) -> list[Embedder]:
    """Return the embedders with these ids from the cache, which is at least as new as this version of the workspace."""
    rows = _EMBEDDERS.get(version)
    return [rows[pk] for pk in sorted(ids) if pk in rows]


_EMBEDDERS = VersionedCache(lambda: Embedder.objects.in_bulk())


def embed(
    embedder: Embedder, texts: Sequence[str], payer: Payer = NO_PAYER, *, timeout: float = INDEXING_TIMEOUT
) -> list[Vector | None]:
    """Return one vector for each passage; None for one without known words or, if bundled, in an unknown script.

    Calls to a server are stored in the ledger. Raises `ModelError`.
    """
    return _embed(embedder, [_add_prefix(embedder.passage_prefix, text) for text in texts], payer, timeout)


def embed_query(embedder: Embedder, query: str, payer: Payer = NO_PAYER) -> Vector | None:
    """Return the vector of a question, with the short timeout for a user who waits. Otherwise as `embed`."""
    return _embed(embedder, [_add_prefix(embedder.query_prefix, query)], payer, SEARCH_TIMEOUT)[0]


def _add_prefix(prefix: str, text: str) -> str:
    return f"{prefix}{text}" if text.strip() else text


def _embed(embedder: Embedder, texts: Sequence[str], payer: Payer, timeout: float) -> list[Vector | None]:
    client = create_client(embedder, timeout=timeout)
    if embedder.kind == Embedder.Kind.BUNDLED:
        return client.embed([text if _is_known_script(text) else "" for text in texts], SearchUsage())
    with record_call(embedder, payer, count_tokens(texts)) as usage:
        return client.embed(texts, usage)


def count_tokens(texts: Sequence[str]) -> int:
    """Return the number of tokens of all texts, counted by the catch-all tokenizer."""
    return sum(map(tokens.count, texts))


def create_client(embedder: Embedder, *, timeout: float = INDEXING_TIMEOUT) -> EmbeddingClient:
    """Return the client of an embedder. `timeout`: seconds for one request. Raises `ModelError` (`secret_lost`)."""
    if embedder.kind == Embedder.Kind.BUNDLED:
        return _BundledClient(timeout)
    if is_lost(embedder.api_key):
        raise ModelError("secret_lost", KEY_LOST, retryable=False)
    return _remote_client(embedder.base_url, embedder.api_key, embedder.model, embedder.dimensions, timeout)


def fetch_dimensions(base_url: str, api_key: str, model: str) -> int:
    """Return the number of dimensions of a model's vectors, as its server answers. Raises `ModelError`."""
    from llm.providers.embeddings import EmbeddingsClient  # noqa: PLC0415 - most processes call no model

    client = EmbeddingsClient(base_url, api_key, INDEXING_TIMEOUT, max_retries=0)
    with wait_outside():
        rows, _ = submit(client.embed(model, [TRIAL_TEXT])).result()
    try:
        return len(rows[0])
    except (TypeError, LookupError) as error:
        raise errors.wrong_endpoint_error() from error


def embed_bundled(texts: Sequence[str]) -> list[Vector | None]:
    """Return one vector per text from the bundled embedder, even if another embedder is active."""
    return _BundledClient(INDEXING_TIMEOUT).embed(texts, SearchUsage())


class _BundledClient:
    """Client of the bundled embedder. It runs in this process or, after `embed_in_workers`, in a worker."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def embed(
        self, texts: Sequence[str], usage: SearchUsage, abandoned: threading.Event | None = None
    ) -> list[Vector | None]:
        # Batches have texts of similar length, since all texts of a batch are padded to the longest one.
        order = sorted((at for at, text in enumerate(texts) if text.strip()), key=lambda at: len(texts[at]))
        vectors: list[Vector | None] = [None] * len(texts)
        for batch in split_batches(order, texts):
            _raise_if_abandoned(abandoned)
            usage.add(0, count_tokens([texts[at] for at in batch]))
            rows = self._embed_batch([texts[at][:MAX_TEXT_LENGTH] for at in batch])
            for at, vector in zip(batch, rows, strict=True):
                vectors[at] = vector
        return vectors

    def _embed_batch(self, texts: list[str]) -> list[Vector | None]:
        if _in_workers:
            search = self._timeout <= SEARCH_TIMEOUT
            return request_vectors(texts, search=search, timeout=SEARCH_WORKER_TIMEOUT if search else self._timeout)
        from files.index.bundled import embed_batch  # noqa: PLC0415 - web processes never embed

        return embed_batch(texts)


def _raise_if_abandoned(abandoned: threading.Event | None) -> None:
    if abandoned is not None and abandoned.is_set():
        raise ModelError("abandoned", "The client left before all texts were embedded.", retryable=False)


def _is_known_script(text: str) -> bool:
    """Return whether the bundled embedder knows the script of most letters of a text.

    In other scripts its vectors made the ranking worse: docs/decisions/0057 has the measurements.
    """
    letters = "".join(filter(str.isalpha, text[:SAMPLE_CHARACTERS]))
    return 2 * len(_KNOWN_LETTERS.findall(letters)) >= len(letters)


_in_workers = False


def embed_in_workers() -> None:
    """Run the bundled embedder in workers from now on, and not in this process."""
    global _in_workers
    _in_workers = True


def split_batches(order: Sequence[int], texts: Sequence[str]) -> Iterator[list[int]]:
    """Split the indexes of texts, shortest text first, so that no padded batch exceeds its limits."""
    batch: list[int] = []
    for index in order:
        padded = (len(batch) + 1) * min(len(texts[index]), MAX_TEXT_LENGTH)
        if batch and (len(batch) == BUNDLED_BATCH or padded > BATCH_CHARACTERS):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@lru_cache(maxsize=8)
def _remote_client(base_url: str, api_key: str, model: str, dimensions: int, timeout: float) -> "_RemoteClient":
    return _RemoteClient(base_url, api_key, model, dimensions, timeout)


class _RemoteClient:
    def __init__(self, base_url: str, api_key: str, model: str, dimensions: int, timeout: float) -> None:
        from llm.providers.embeddings import EmbeddingsClient  # noqa: PLC0415 - most processes call no model

        self._model = model
        self._dimensions = dimensions
        self._client = EmbeddingsClient(
            base_url or OPENAI_URL, api_key, timeout, max_retries=2 if timeout > SEARCH_TIMEOUT else 0
        )

    def embed(
        self, texts: Sequence[str], usage: SearchUsage, abandoned: threading.Event | None = None
    ) -> list[Vector | None]:
        with_words = [at for at, text in enumerate(texts) if text.strip()]
        vectors: list[Vector | None] = [None] * len(texts)
        for first in range(0, len(with_words), REMOTE_BATCH):
            _raise_if_abandoned(abandoned)
            batch = with_words[first : first + REMOTE_BATCH]
            for at, vector in zip(batch, self._embed_batch([texts[at] for at in batch], usage), strict=True):
                vectors[at] = vector
        return vectors

    def _embed_batch(self, texts: list[str], usage: SearchUsage) -> list[Vector | None]:
        """Embed a batch. Texts that are too long for the model, often above 512 tokens, are halved and sent again."""
        for attempt in range(MAX_HALVINGS + 1):
            try:
                return self._request(texts, usage)
            except ModelError as error:
                if error.code != "context_too_long" or attempt == MAX_HALVINGS:
                    raise
                longest = max(map(len, texts))
                texts = [text[: max(1, longest // 2)] for text in texts]
        raise AssertionError("the last attempt returns or raises")

    def _request(self, texts: list[str], usage: SearchUsage) -> list[Vector | None]:
        with wait_outside():
            rows, reported = submit(self._client.embed(self._model, texts)).result()
        usage.add(reported, 0 if reported else count_tokens(texts))
        try:
            vectors = [np.asarray(row, dtype=np.float32) for row in rows]
        except (TypeError, ValueError) as error:
            raise errors.wrong_endpoint_error() from error
        self._check_dimensions(vectors, len(texts))
        return [normalize(vector) for vector in vectors]

    def _check_dimensions(self, vectors: list[Vector], expected: int) -> None:
        if len(vectors) != expected:
            raise errors.malformed_error()
        sizes = {vector.shape for vector in vectors}
        if sizes != {(self._dimensions,)}:
            size = next(iter(sizes))[0]
            sentence = Sentence(
                "The embedder returns vectors with {size} dimensions, not {dimensions}. Correct its row.",
                size=size,
                dimensions=self._dimensions,
            )
            raise ModelError("wrong_dimensions", sentence, retryable=False)
