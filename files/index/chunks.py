"""Store the chunks of files, and renew them when the rules of `chunking` have a new version.

Citations name characters of a file's text, not chunks, so they stay valid when chunks are renewed.
"""

import logging
import time
from bisect import bisect_right
from collections.abc import Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from core.background import STALE_AFTER, claim
from core.errors import ModelError
from files.index import chunking
from files.index.embedders import active_embedder
from files.index.indexing import embed_batches, index_words
from files.models import Chunk, File, FileText

log = logging.getLogger(__name__)

TIME_SLICE = 10.0  # seconds that a worker renews chunks before it turns to other tasks


def build_chunks(file: File, media_type: str, text: str, spans: Sequence[Sequence[int]]) -> list[Chunk]:
    """Return the unsaved chunks of a file. `spans` has the form of `FileText.spans`."""
    return [
        Chunk(
            file=file,
            ordinal=ordinal,
            page=bisect_right(spans, chunk.start, key=lambda span: span[0]),
            start=chunk.start,
            end=chunk.end,
            text=text[chunk.start : chunk.end],
            heading=chunk.heading,
            table_head=chunk.table_head,
            tokens=chunk.tokens,
        )
        for ordinal, chunk in enumerate(chunking.chunk_spans(text, media_type=media_type))
    ]


def files_with_outdated_chunks() -> "QuerySet[File]":
    """Return the files that have chunks of an older version and that no worker has claimed."""
    free = Q(heartbeat=None) | Q(heartbeat__lt=Now() - STALE_AFTER)
    return File.objects.filter(free, searchable=True, chunker__lt=chunking.VERSION)


def renew_outdated_chunks() -> None:
    """Renew the chunks of outdated files for `TIME_SLICE`.

    Search finds the old chunks until the new ones are complete.
    """
    deadline = time.monotonic() + TIME_SLICE
    while time.monotonic() < deadline:
        pk = files_with_outdated_chunks().order_by("chunker", "pk").values_list("pk", flat=True).first()
        if pk is None:
            return
        try:
            if claim(files_with_outdated_chunks(), pk):
                renew_chunks(pk)
        except ModelError as error:
            log.warning("outdated chunks are renewed later, the embedder failed: %s", error)
            return


def renew_chunks(pk: UUID) -> None:
    """Replace the chunks of a file. Raises `ModelError` if the embedder fails; the file then keeps its old chunks."""
    content = FileText.objects.filter(file=pk).select_related("file").first()
    if content is None:  # an image, or a file that was deleted meanwhile
        File.objects.filter(pk=pk).update(chunker=chunking.VERSION)
        return
    file = content.file
    chunks = build_chunks(file, file.media_type, content.text, content.spans)
    embedder = active_embedder()
    for batch, vectors in embed_batches(chunks, embedder):
        for chunk, vector in zip(batch, vectors, strict=True):
            chunk.embedder = None if vector is None else embedder
            chunk.embedding = vector
    with transaction.atomic():
        # A worker may be reading the file again, or another worker may have renewed its chunks.
        outdated_file = File.objects.select_for_update().filter(pk=pk, searchable=True, chunker__lt=chunking.VERSION)
        if outdated_file.exists():
            Chunk.objects.filter(file=pk).delete()
            Chunk.objects.bulk_create(chunks, batch_size=500)
            index_words(file, chunks)
            File.objects.filter(pk=pk).update(chunker=chunking.VERSION)
