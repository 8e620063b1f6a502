"""What turns texts into vectors of length 1: the bundled word vectors, or any OpenAI-compatible `/embeddings`."""

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Protocol
from uuid import UUID

import numpy as np

from core.background import submit
from core.crypto import LOST, is_lost
from core.errors import ModelError
from core.outside import wait_outside
from core.sentences import Sentence
from files.index.embedding_queue import request_vectors
from files.index.ledger import NOBODY, Payer, Read, written_down
from files.index.vectors import Vector, unit
from files.models import Embedder
from llm import tokens
from llm.providers import OPENAI_URL, errors
from workspace.models.version import VersionedCache

BUNDLED_NAME = "Bundled"
BUNDLED_BATCH = 32  # texts; they are padded to the longest of a batch
# The bundled embedder takes about 2 kB of memory for each token of a padded batch, and a token may be one character.
BATCH_CHARACTERS = 32_768
LONGEST_TEXT = 65_536  # characters of one text that it reads
REMOTE_BATCH = 64
PATIENT, HURRIED = 60.0, 5.0  # seconds for an answer: while a file is indexed; while somebody waits for results
SEARCH_SECONDS = 2.0  # for a worker's answer, which takes milliseconds, while somebody waits for results
HALVINGS = 3


class Client(Protocol):
    def embed(self, texts: Sequence[str], read: Read) -> list[Vector | None]:
        """One vector a text; None for a text without words. What is read is added to `read`. Raises `ModelError`."""


def active_embedder() -> Embedder:
    """The bundled one becomes a row, and active, when no other is. Safe when several processes ask at once."""
    found = Embedder.objects.filter(active=True).first()
    if found is not None:
        return found
    Embedder.objects.bulk_create([Embedder(name=BUNDLED_NAME, active=True)], ignore_conflicts=True)
    if not Embedder.objects.filter(active=True).exists():
        Embedder.objects.filter(name=BUNDLED_NAME).update(active=True)
    return Embedder.objects.get(active=True)


def embedders_of(ids: Collection[UUID], version: UUID | None) -> list[Embedder]:
    """The rows of these as they were at this version of the workspace or later."""
    rows = _EMBEDDERS.get(version)
    return [rows[pk] for pk in sorted(ids) if pk in rows]


_EMBEDDERS = VersionedCache(lambda: Embedder.objects.in_bulk())


def embed(
    embedder: Embedder, texts: Sequence[str], payer: Payer = NOBODY, *, timeout: float = PATIENT
) -> list[Vector | None]:
    """As `Client.embed`, written down in the ledger unless it is the bundled one, which no server is asked for."""
    client = client_of(embedder, timeout=timeout)
    if embedder.kind == Embedder.Kind.BUNDLED:
        return client.embed(texts, Read())
    with written_down(embedder, payer, counted(texts)) as read:
        return client.embed(texts, read)


def counted(texts: Sequence[str]) -> int:
    """Tokens, by the catch-all tokenizer."""
    return sum(map(tokens.count, texts))


def client_of(embedder: Embedder, *, timeout: float = PATIENT) -> Client:
    """`timeout`: seconds until an endpoint has to have answered one request. Raises `ModelError` (`secret_lost`)."""
    if embedder.kind == Embedder.Kind.BUNDLED:
        return _Bundled(timeout)
    if is_lost(embedder.api_key):
        raise ModelError("secret_lost", LOST, retryable=False)
    return _remote(embedder.base_url, embedder.api_key, embedder.model, embedder.dimensions, timeout)


def bundled(texts: Sequence[str]) -> list[Vector | None]:
    """By the one that every installation has, whichever is active."""
    return _Bundled(PATIENT).embed(texts, Read())


class _Bundled:
    """The bundled embedder, in this process or, after `embed_elsewhere`, in a worker."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def embed(self, texts: Sequence[str], read: Read) -> list[Vector | None]:
        read.add(0, counted(texts))
        # Batches of like length: a short text costs as much as the longest it is padded to.
        order = sorted((at for at, text in enumerate(texts) if text.strip()), key=lambda at: len(texts[at]))
        vectors: list[Vector | None] = [None] * len(texts)
        for batch in batches(order, texts):
            rows = self._embed_batch([texts[at][:LONGEST_TEXT] for at in batch])
            for at, vector in zip(batch, rows, strict=True):
                vectors[at] = vector
        return vectors

    def _embed_batch(self, texts: list[str]) -> list[Vector | None]:
        if _elsewhere:
            search = self._timeout <= HURRIED
            return request_vectors(texts, search=search, timeout=SEARCH_SECONDS if search else self._timeout)
        # Not imported before it is needed: web processes never embed.
        vectors: list[Vector | None] = import_module("files.index.bundled").embed_batch(texts)
        return vectors


_elsewhere = False


def embed_elsewhere() -> None:
    """Have workers do the work of the bundled embedder from now on, not this process."""
    global _elsewhere
    _elsewhere = True


def batches(order: Sequence[int], texts: Sequence[str]) -> Iterator[list[int]]:
    """Split the indexes of texts, shortest text first, so that no padded batch is over its bounds."""
    batch: list[int] = []
    for at in order:
        padded = (len(batch) + 1) * min(len(texts[at]), LONGEST_TEXT)
        if batch and (len(batch) == BUNDLED_BATCH or padded > BATCH_CHARACTERS):
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


@lru_cache(maxsize=8)
def _remote(base_url: str, api_key: str, model: str, dimensions: int, timeout: float) -> "_Remote":
    return _Remote(base_url, api_key, model, dimensions, timeout)


class _Remote:
    def __init__(self, base_url: str, api_key: str, model: str, dimensions: int, timeout: float) -> None:
        self._model, self._dimensions = model, dimensions
        # Not imported before it is needed: most processes never speak HTTP to a model.
        embeddings = import_module("llm.providers.embeddings")
        self._client = embeddings.EmbeddingsClient(
            base_url or OPENAI_URL, api_key, timeout, again=2 if timeout > HURRIED else 0
        )

    def embed(self, texts: Sequence[str], read: Read) -> list[Vector | None]:
        wordy = [at for at, text in enumerate(texts) if text.strip()]
        vectors: list[Vector | None] = [None] * len(texts)
        for first in range(0, len(wordy), REMOTE_BATCH):
            batch = wordy[first : first + REMOTE_BATCH]
            for at, vector in zip(batch, self._shortened([texts[at] for at in batch], read), strict=True):
                vectors[at] = vector
        return vectors

    def _shortened(self, texts: list[str], read: Read) -> list[Vector | None]:
        """Many models read 512 tokens of their own kind: what is too long for one is judged by its first half."""
        for attempt in range(HALVINGS + 1):
            try:
                return self._ask(texts, read)
            except ModelError as error:
                if error.code != "context_too_long" or attempt == HALVINGS:
                    raise
                longest = max(map(len, texts))
                texts = [text[: max(1, longest // 2)] for text in texts]
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, texts: list[str], read: Read) -> list[Vector | None]:
        with wait_outside():
            found, said = submit(self._client.embed(self._model, texts)).result()
        read.add(said, 0 if said else counted(texts))
        try:
            vectors = [np.asarray(each, dtype=np.float32) for each in found]
        except (TypeError, ValueError) as error:
            raise errors.wrong_endpoint() from error
        self._check(vectors, len(texts))
        return [unit(vector) for vector in vectors]

    def _check(self, vectors: list[Vector], expected: int) -> None:
        if len(vectors) != expected:
            raise errors.malformed()
        sizes = {vector.shape for vector in vectors}
        if sizes != {(self._dimensions,)}:
            size = next(iter(sizes))[0]
            sentence = Sentence(
                "The embedder answers with {size} dimensions; its row says {dimensions}. Correct the row.",
                size=size,
                dimensions=self._dimensions,
            )
            raise ModelError("wrong_dimensions", sentence, retryable=False)
