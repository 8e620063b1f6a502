"""Batches that a worker embeds for a web process, over the tests' Redis."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from core.background import streams
from files.index import embedders, embedding_queue
from files.index.bundled import embed_batch
from files.index.embedding_queue import EmbedderUnavailable, request_vectors
from files.index.search import search_many
from files.models import File
from tests.files.collections import indexed, new_owner
from tests.product import WAIT

TEXTS = ["A dog barks.", "", "Income tax is due in May."]


@pytest.fixture(autouse=True)
def _own_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of a running product takes from it."""
    for name in ("SEARCH_QUEUE", "TEXT_QUEUE", "SERVED_KEY"):
        monkeypatch.setattr(embedding_queue, name, f"embeddings:{name}:{uuid4()}")


@contextmanager
def serving() -> Iterator[None]:
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            embedding_queue._serve_next()

    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(serve)
        streams().set(embedding_queue.SERVED_KEY, "1", ex=30)
        try:
            yield
        finally:
            ended.set()
            worker.result(WAIT)


def unserved() -> None:
    """A worker has been there a moment ago, and takes nothing any more."""
    streams().set(embedding_queue.SERVED_KEY, "1", ex=30)


def test_a_worker_gives_the_vectors_that_this_process_would_make() -> None:
    with serving():
        vectors = request_vectors(TEXTS, search=False, timeout=WAIT)
    for vector, local in zip(vectors, embed_batch(TEXTS), strict=True):
        if local is None:
            assert vector is None
        else:
            assert vector == pytest.approx(local, abs=1e-6)


def test_texts_that_utf_8_cannot_hold_are_embedded_as_well() -> None:
    with serving():
        [vector] = request_vectors(["a dog \ud800 \0 barks"], search=True, timeout=WAIT)
    assert vector is not None


def test_without_a_worker_a_batch_is_refused_at_once_and_leaves_nothing() -> None:
    with pytest.raises(EmbedderUnavailable) as refused:
        request_vectors(TEXTS, search=True, timeout=WAIT)
    assert (refused.value.code, refused.value.status) == ("embedder_away", 503)
    assert refused.value.headers == {"Retry-After": "5"}
    assert streams().llen(embedding_queue.SEARCH_QUEUE) == 0


def test_a_worker_that_does_not_answer_is_away_and_a_later_one_does_not_do_that_batch() -> None:
    unserved()
    with pytest.raises(EmbedderUnavailable, match="embedder_away"):
        request_vectors(TEXTS, search=True, timeout=0.2)
    client: Any = streams()
    [key] = client.lrange(embedding_queue.SEARCH_QUEUE, 0, -1)
    assert streams().get(f"embeddings:batch:{key}") is None
    embedding_queue._serve_next()
    assert streams().llen(embedding_queue.SEARCH_QUEUE) == 0
    assert streams().exists(f"embeddings:vectors:{key}") == 0


def test_more_than_may_wait_are_refused() -> None:
    unserved()
    streams().rpush(embedding_queue.TEXT_QUEUE, *map(str, range(embedding_queue.MAX_WAITING)))
    with pytest.raises(EmbedderUnavailable, match="embedder_busy"):
        request_vectors(TEXTS, search=False, timeout=WAIT)
    streams().delete(embedding_queue.TEXT_QUEUE)


def test_a_search_is_embedded_before_texts_of_programs() -> None:
    for waiting in (embedding_queue.TEXT_QUEUE, embedding_queue.SEARCH_QUEUE):
        streams().set(f"embeddings:batch:{waiting}", json.dumps(["a dog"]), ex=30)
        streams().rpush(waiting, waiting)
    embedding_queue._serve_next()
    assert streams().llen(embedding_queue.SEARCH_QUEUE) == 0 and streams().llen(embedding_queue.TEXT_QUEUE) == 1
    embedding_queue._serve_next()
    client: Any = streams()
    assert 0 < client.ttl(f"embeddings:vectors:{embedding_queue.TEXT_QUEUE}") <= embedding_queue.ANSWER_SECONDS


def test_a_batch_that_cannot_be_embedded_is_answered_and_the_next_one_is_served() -> None:
    streams().set("embeddings:batch:broken", "[1]", ex=30)
    streams().rpush(embedding_queue.TEXT_QUEUE, "broken")
    with pytest.raises(AttributeError):
        embedding_queue._serve_next()
    assert streams().lpop("embeddings:vectors:broken") == embedding_queue.FAILED


@pytest.mark.django_db
def test_a_search_goes_by_words_alone_and_says_so_where_no_worker_embeds(monkeypatch: pytest.MonkeyPatch) -> None:
    file = indexed(new_owner(), ["A kettle boils.", "A ladder leans."])
    files = File.objects.filter(pk=file.pk)
    monkeypatch.setattr(embedders, "_in_workers", True)
    result = search_many(queries=["kettle", "ladder"], files=files)
    assert {hit.text for hit in result.hits} == {"A kettle boils.", "A ladder leans."}
    [note] = result.notes
    assert note.english.startswith("The embedder “Bundled” failed (“The bundled embedder does not answer: no worker")
    with serving():
        result = search_many(queries=["kettle"], files=files)
    assert result.notes == () and result.hits[0].cosine > 0
