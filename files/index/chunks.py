"""The rows of a file's chunks: made from its text, and made anew when `chunking` has become better.

Citations name characters of the file's text, not chunks, so they lead to the same place afterwards.
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
from files.index.indexing import embedded, index_words
from files.models import Chunk, File, FileText

log = logging.getLogger(__name__)

A_WHILE = 10.0  # seconds after which whoever cuts files anew lets others have the worker


def chunks_of(file: File, media_type: str, text: str, spans: Sequence[Sequence[int]]) -> list[Chunk]:
    """Rows that are not stored yet. `spans` as those of `FileText`."""
    return [
        Chunk(
            file=file,
            ordinal=ordinal,
            page=bisect_right(spans, piece.start, key=lambda span: span[0]),
            start=piece.start,
            end=piece.end,
            text=text[piece.start : piece.end],
            heading=piece.heading,
            table_head=piece.table_head,
            tokens=piece.tokens,
        )
        for ordinal, piece in enumerate(chunking.pieces(text, media_type=media_type))
    ]


def outdated() -> "QuerySet[File]":
    """Files whose chunks are of an older version, and at which nobody is at work."""
    free = Q(heartbeat=None) | Q(heartbeat__lt=Now() - STALE_AFTER)
    return File.objects.filter(free, searchable=True, chunker__lt=chunking.VERSION)


def cut_outdated() -> None:
    """Cuts such files anew, one after another, for a while. Search finds the old chunks until the new are whole."""
    until = time.monotonic() + A_WHILE
    while time.monotonic() < until:
        pk = outdated().order_by("chunker", "pk").values_list("pk", flat=True).first()
        if pk is None:
            return
        try:
            if claim(outdated(), pk):
                cut_anew(pk)
        except ModelError as error:
            log.warning("files keep their older chunks for now: %s", error)
            return


def cut_anew(pk: UUID) -> None:
    """Raises `ModelError` when the embedder does not answer; the old chunks then stay."""
    content = FileText.objects.filter(file=pk).select_related("file").first()
    if content is None:  # deleted meanwhile, or an image
        File.objects.filter(pk=pk).update(chunker=chunking.VERSION)
        return
    file = content.file
    chunks = chunks_of(file, file.media_type, content.text, content.spans)
    embedder = active_embedder()
    for batch, vectors in embedded(chunks, embedder):
        for chunk, vector in zip(batch, vectors, strict=True):
            chunk.embedder, chunk.embedding = (None, None) if vector is None else (embedder, vector)
    with transaction.atomic():
        # Not if it is being read once more, or somebody else was faster.
        waiting = File.objects.select_for_update().filter(pk=pk, searchable=True, chunker__lt=chunking.VERSION)
        if waiting.exists():
            Chunk.objects.filter(file=pk).delete()
            Chunk.objects.bulk_create(chunks, batch_size=500)
            index_words(file, chunks)
            File.objects.filter(pk=pk).update(chunker=chunking.VERSION)
