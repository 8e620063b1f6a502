"""Celery tasks of files: each loads a row, calls one function, and returns."""

import time
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_ready

from core.background import enqueue
from files import ingest, storage
from files.index import chunks, embedding_queue, indexing
from files.ingest import INDEXINGS
from llm import tokens

SWEEP_EVERY = 15  # seconds, as in the schedule


@shared_task
def read_file(file_id: str) -> None:
    for read_id in ingest.read_waiting(UUID(file_id)):
        enqueue(INDEXINGS.task, read_id)


@shared_task
def index_file(file_id: str) -> None:
    ingest.index_waiting(UUID(file_id))


@shared_task
def sweep_files() -> None:
    """Have files chunked or their words indexed again if an older version did that. Runs every 5 seconds."""
    if chunks.files_with_outdated_chunks().exists():
        enqueue("files.tasks.cut_outdated")
    elif indexing.files_with_outdated_words().exists():
        enqueue("files.tasks.index_outdated_words")


@shared_task
def cut_outdated() -> None:
    chunks.renew_outdated_chunks()


@shared_task
def index_outdated_words() -> None:
    indexing.index_outdated_words()


@shared_task
def sweep_blobs() -> None:
    """Sweep one of 256 parts of the storage, chosen by the clock. A run every 15 s covers all parts in 64 minutes."""
    storage.sweep(f"{int(time.time() / SWEEP_EVERY) % 256:02x}")
    storage.sweep_unfinished()


@worker_ready.connect
def _start(sender: Any, **kwargs: Any) -> None:
    """Start the thread that embeds for web processes, and load the vocabulary, which takes half a second."""
    if "background" in sender.app.amqp.queues.consume_from:
        embedding_queue.serve_in_thread()
    tokens.count("")
