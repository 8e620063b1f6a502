"""Let workers embed texts for web processes, which never load the bundled embedder. Batches wait in a queue in Redis.

1. `request_vectors` stores a batch in Redis under a key that expires, puts its id into a list, and waits for
   the answer.
2. A thread in each worker of the queue `background` takes the ids (`serve_in_thread`). Searches have priority.
3. The worker writes the answer into a list with the id of the batch in its name. This list expires, too.

Memory is bounded: the size of a batch (`files.index.embedders.split_batches`) and the number of waiting batches are
limited, and a batch expires when its process no longer waits for it.
"""

import base64
import json
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from django.utils.translation import gettext_noop
from redis.exceptions import RedisError

from core.background import streams
from core.errors import ModelError
from core.outside import wait_outside
from files.index.vectors import Vector

SEARCH_QUEUE = "embeddings:searches"  # list of ids, served first
TEXT_QUEUE = "embeddings:texts"  # list of ids
SERVED_KEY = "embeddings:served"  # a key that exists while a worker takes ids
SERVED_SECONDS = 10  # lifetime of that key; a worker renews it with each read
MAX_WAITING = 256  # waiting batches per list
BLOCK_SECONDS = 1.0  # seconds that a read blocks in Redis; the connection times out after 2
RETRY_PAUSE = 0.5  # seconds between attempts while Redis is away
ANSWER_SECONDS = 30  # lifetime of an answer that nobody reads
FAILED = "failed"
RETRY_AFTER = 5  # seconds after which a refused call may be sent again
QUEUE_UNAVAILABLE = gettext_noop(
    "The bundled embedder does not answer: no worker for background work is running, or it has too much to do."
)
EMBEDDER_FAILED = gettext_noop(
    "The bundled embedder failed with these texts. The log of the worker of background work says why."
)
QUEUE_FULL = gettext_noop("Too many texts wait to be embedded at the moment. Try again in a few seconds.")

logger = logging.getLogger(__name__)


class EmbedderUnavailable(ModelError):
    """No worker embedded the texts (503)."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail, retryable=True, retry_after=RETRY_AFTER)
        self.status = 503
        self.extra["retry_after"] = RETRY_AFTER


def request_vectors(texts: Sequence[str], *, search: bool, timeout: float) -> list[Vector | None]:
    """Return one vector per text, as `files.index.bundled.embed_batch` does. `timeout`: seconds to wait for the answer.

    Raises `EmbedderUnavailable`: `embedder_away` if no worker takes batches or answers in time, `embedder_busy` if too
    many batches wait, `embedder_failed` if the embedder failed.
    """
    with wait_outside():
        try:
            answer = _wait_for_answer(SEARCH_QUEUE if search else TEXT_QUEUE, json.dumps(list(texts)), timeout)
        except (RedisError, OSError) as error:
            raise EmbedderUnavailable("embedder_away", QUEUE_UNAVAILABLE) from error
    if answer is None:
        raise EmbedderUnavailable("embedder_away", QUEUE_UNAVAILABLE)
    if answer == FAILED:
        raise EmbedderUnavailable("embedder_failed", EMBEDDER_FAILED)
    rows = np.frombuffer(base64.b64decode(answer), dtype="<f4").reshape(len(texts), -1)
    return [row if row.any() else None for row in rows]


def serve_in_thread() -> None:
    """Start a daemon thread that embeds the batches of other processes."""
    threading.Thread(target=_serve_forever, name="embeddings", daemon=True).start()


def _wait_for_answer(waiting: str, batch: str, timeout: float) -> str | None:
    """Return the answer of a worker; None if it does not come in time. Raises RedisError and `EmbedderUnavailable`."""
    connection: Any = streams()
    key = uuid4().hex
    with connection.pipeline(transaction=False) as pipe:
        served, length = pipe.exists(SERVED_KEY).llen(waiting).execute()
    if not served:
        raise EmbedderUnavailable("embedder_away", QUEUE_UNAVAILABLE)
    if length >= MAX_WAITING:
        raise EmbedderUnavailable("embedder_busy", QUEUE_FULL)
    deadline = time.monotonic() + timeout
    with connection.pipeline(transaction=False) as pipe:
        pipe.set(_batch_key(key), batch, px=round(timeout * 1000))
        pipe.rpush(waiting, key)
        pipe.execute()
    while (left := deadline - time.monotonic()) > 0:
        if answer := connection.blpop([_answer_key(key)], timeout=min(BLOCK_SECONDS, left)):
            return str(answer[1])
    return None


def _serve_forever() -> None:
    while True:
        try:
            _serve_next()
        except (RedisError, OSError):
            time.sleep(RETRY_PAUSE)  # Redis is away
        except Exception:
            logger.exception("texts could not be embedded")


def _serve_next() -> None:
    """Embed the next batch. Waits at most `BLOCK_SECONDS` seconds for one. Raises RedisError."""
    connection: Any = streams()
    connection.set(SERVED_KEY, "1", ex=SERVED_SECONDS)
    popped = connection.blpop([SEARCH_QUEUE, TEXT_QUEUE], timeout=BLOCK_SECONDS)
    if not popped:
        return
    key = popped[1]
    batch = connection.getdel(_batch_key(key))
    if batch is None:  # it has expired
        return
    answer = FAILED
    try:
        answer = _embed_and_encode(json.loads(batch))
    finally:
        with connection.pipeline(transaction=False) as pipe:
            pipe.rpush(_answer_key(key), answer).expire(_answer_key(key), ANSWER_SECONDS).execute()


def _embed_and_encode(texts: list[str]) -> str:
    from files.index import bundled  # noqa: PLC0415 - only a process that embeds loads the embedder

    empty_vector = np.zeros(bundled.DIMENSIONS, dtype=np.float32)
    rows = [empty_vector if vector is None else vector for vector in bundled.embed_batch(texts)]
    return base64.b64encode(np.stack(rows).astype("<f4").tobytes()).decode()


def _batch_key(key: str) -> str:
    return f"embeddings:batch:{key}"


def _answer_key(key: str) -> str:
    return f"embeddings:vectors:{key}"
