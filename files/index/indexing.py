"""Make chunks searchable: store the postings of their lexemes, and their vectors."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from core.audit.services import record
from core.errors import ModelError
from core.locks import lock
from files.index.embedders import active_embedder, embed
from files.index.language import configuration_of, readable
from files.index.ledger import NOBODY, Payer
from files.index.vectors import Vector
from files.models import Chunk, Embedder, File, Posting

log = logging.getLogger(__name__)

WORDS_BATCH = 500  # chunks per statement
VECTORS_BATCH = 256
ACTIVE_LOCK = "active embedder"  # the lock for changes of the active embedder
LARGEST_INDEXED = 4_000  # dimensions; pgvector's limit for HNSW over half precision

# int2 is enough for a frequency, since PostgreSQL keeps at most 255 positions of a lexeme, and for a chunk's length.
WRITE_POSTINGS = """
WITH read AS MATERIALIZED (
    SELECT id, to_tsvector(%(language)s::regconfig, content) AS lexemes
    FROM unnest(%(ids)s::bigint[], %(texts)s::text[]) AS given (id, content)
), words AS MATERIALIZED (
    SELECT id, lexeme, cardinality(positions) AS frequency FROM read, unnest(lexemes)
), lengths AS MATERIALIZED (
    SELECT id, least(sum(frequency), 32767) AS length FROM words GROUP BY id
), written AS (
    INSERT INTO files_posting (file_id, lexeme, entries)
    SELECT %(file)s, lexeme, string_agg(int8send(id) || int2send(frequency::int2) || int2send(length::int2), ''::bytea)
    FROM words JOIN lengths USING (id) GROUP BY lexeme
    ON CONFLICT (file_id, lexeme) DO UPDATE SET entries = files_posting.entries || excluded.entries
)
SELECT coalesce(sum(length), 0)::bigint FROM lengths
"""

WRITE_VECTORS = """
UPDATE files_chunk SET embedder_id = %(embedder)s, embedding = given.embedding::vector
FROM unnest(%(ids)s::bigint[], %(vectors)s::text[]) AS given (id, embedding) WHERE files_chunk.id = given.id
"""


def index_chunks(file: File) -> None:
    """Make the chunks of a file searchable; this can be repeated. A file without chunks is not searchable.

    If the embedder fails, the chunks are searchable by their words; `manage.py reembed` adds the vectors.
    """
    chunks = list(Chunk.objects.filter(file=file).order_by("ordinal").defer("embedding"))
    for chunk in chunks:
        chunk.file = file  # the index includes the file's name
    index_words(file, chunks)
    try:
        embed_chunks(chunks, active_embedder(), Payer(file.owner_id))
    except ModelError as error:
        log.warning("file %s is searchable by words only: %s", file.pk, error)
    file.searchable = bool(chunks)
    File.objects.filter(pk=file.pk).update(searchable=file.searchable)


@transaction.atomic
def index_words(file: File, chunks: Sequence[Chunk]) -> None:
    """Replace a file's postings by the postings of all its chunks, and store the totals that BM25 needs."""
    # The lock makes concurrent workers write the file's postings one after the other.
    File.objects.select_for_update().get(pk=file.pk)
    Posting.objects.filter(file=file).delete()
    file.language = configuration_of("\n".join(chunk.text for chunk in chunks))
    file.indexed_chunks = len(chunks)
    file.indexed_words = 0
    with connection.cursor() as cursor:
        for batch in _batches(chunks, WORDS_BATCH):
            parameters: Mapping[str, Any] = {
                "language": file.language,
                "file": file.pk,
                "ids": [chunk.pk for chunk in batch],
                "texts": [readable(chunk.searched) for chunk in batch],
            }
            cursor.execute(WRITE_POSTINGS, parameters)
            file.indexed_words += cursor.fetchone()[0]
    file.save(update_fields=["language", "indexed_chunks", "indexed_words"])


def embed_chunks(chunks: Sequence[Chunk], embedder: Embedder, payer: Payer = NOBODY) -> None:
    """Store the vectors of chunks in batches. Stored batches stay if a later one fails. Raises `ModelError`."""
    for batch, vectors in embed_batches(chunks, embedder, payer):
        literals = [None if vector is None else str(vector.tolist()) for vector in vectors]
        parameters: Mapping[str, Any] = {
            "embedder": embedder.pk,
            "ids": [chunk.pk for chunk in batch],
            "vectors": literals,
        }
        with connection.cursor() as cursor:
            cursor.execute(WRITE_VECTORS, parameters)


def embed_batches(
    chunks: Sequence[Chunk], embedder: Embedder, payer: Payer = NOBODY
) -> Iterator[tuple[Sequence[Chunk], Sequence[Vector | None]]]:
    """Yield batches of chunks with their vectors; None for a chunk without words. Raises `ModelError`."""
    for batch in _batches(chunks, VECTORS_BATCH):
        yield batch, embed(embedder, [chunk.searched for chunk in batch], payer)


def activate(embedder: Embedder) -> None:
    """Make this embedder the active one, which embeds new chunks. Search asks every embedder that has chunks.

    Raises `ModelError` if it does not return vectors of its dimensions; then the previous one stays active.
    """
    embed(embedder, ["Is anybody there?"])
    with transaction.atomic():
        lock(ACTIVE_LOCK)
        Embedder.objects.filter(active=True).exclude(pk=embedder.pk).update(active=False)
        if Embedder.objects.filter(pk=embedder.pk, active=False).update(active=True):
            record(user=None, action="embedder.activated", row=embedder, name=embedder.name)
    embedder.active = True


def reembed(embedder: Embedder) -> Iterator[tuple[int, int]]:
    """Embed every chunk that has no vector of this embedder. Yield (done, all) after each batch. Can be resumed.

    A chunk keeps its old vector until the new one is stored, so search finds it at any time. Raises `ModelError`.
    """
    waiting = Chunk.objects.filter(Q(embedder=None) | ~Q(embedder=embedder))
    total = waiting.count()
    done = 0
    last = 0
    while True:
        rows = waiting.filter(pk__gt=last).order_by("pk").select_related("file")
        batch = list(rows.only("text", "heading", "table_head", "file__name")[:VECTORS_BATCH])
        if batch:
            embed_chunks(batch, embedder)
            last = batch[-1].pk
            done += len(batch)
            yield done, max(done, total)
        elif last:
            last = 0  # a second pass: a worker may still have used the previous embedder
        else:
            return


def create_vector_index(dimensions: int) -> None:
    """Create the index for vectors of this size, if there is none and pgvector supports it.

    Must run outside a transaction. Without the index, search compares all vectors.
    """
    if not 1 <= dimensions <= LARGEST_INDEXED:
        return
    name = f"chunk_embedding_{int(dimensions)}"
    with connection.cursor() as cursor:
        # An interrupted build leaves an invalid index, which PostgreSQL updates but never uses.
        cursor.execute("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid", [name])
        if cursor.fetchone():
            cursor.execute(f"DROP INDEX CONCURRENTLY {name}")
        cursor.execute(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON files_chunk "
            f"USING hnsw ((embedding::halfvec({int(dimensions)})) halfvec_cosine_ops) "
            f"WHERE vector_dims(embedding) = {int(dimensions)}"
        )


def _batches(chunks: Sequence[Chunk], size: int) -> Iterator[Sequence[Chunk]]:
    for first in range(0, len(chunks), size):
        yield chunks[first : first + size]
