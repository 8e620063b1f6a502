"""Make chunks searchable: store the postings of their lexemes, and their vectors."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from core.audit.services import record
from core.background import STALE_AFTER, claim
from core.errors import ModelError
from core.locks import lock
from files.index.embedders import TRIAL_TEXT, active_embedder, embed, fetch_dimensions
from files.index.language import detect_configurations, key_prefix
from files.index.ledger import NO_PAYER, Payer
from files.index.lexemes import unmarked_prefix
from files.index.vectors import Vector
from files.index.words import indexed_text
from files.models import Chunk, Embedder, File, Posting

log = logging.getLogger(__name__)

WORDS_BATCH = 500  # chunks per statement
VECTORS_BATCH = 256
TIME_SLICE = 10.0  # seconds that a worker indexes words anew before it turns to other tasks
ACTIVE_LOCK = "active embedder"  # the lock for changes of the active embedder
MAX_INDEXED = 4_000  # dimensions; pgvector's limit for HNSW over half precision

# Version of the postings. A background task indexes the words of files with older ones anew.
# 1: each passage in its own language, identifiers by their parts, words without the marks on their letters.
VERSION = 1

# int2 is enough for a frequency, since PostgreSQL keeps at most 255 positions of a lexeme, and for a chunk's length.
WRITE_POSTINGS = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(languages)s::text[], %(prefixes)s::text[], %(unmarked_prefixes)s::text[],
        %(words)s::text[], %(variants)s::text[], %(unmarked)s::text[])
    AS given (id, language, prefix, unmarked_prefix, words, variants, unmarked)
), lexemes AS MATERIALIZED (
    SELECT id, prefix || lexeme AS lexeme, cardinality(positions) AS frequency, true AS counts
    FROM given, unnest(to_tsvector(language::regconfig, words))
    UNION ALL SELECT id, prefix || lexeme, cardinality(positions), false
    FROM given, unnest(to_tsvector(language::regconfig, variants)) WHERE variants <> ''
    UNION ALL SELECT id, unmarked_prefix || lexeme, cardinality(positions), false
    FROM given, unnest(to_tsvector(language::regconfig, unmarked)) WHERE unmarked <> ''
), merged AS MATERIALIZED (
    SELECT id, lexeme, least(sum(frequency), 255) AS frequency FROM lexemes GROUP BY id, lexeme
), lengths AS MATERIALIZED (
    SELECT id, least(coalesce(sum(frequency) FILTER (WHERE counts), 0), 32767) AS length FROM lexemes GROUP BY id
), written AS (
    INSERT INTO files_posting (file_id, lexeme, entries)
    SELECT %(file)s, lexeme, string_agg(int8send(id) || int2send(frequency::int2) || int2send(length::int2), ''::bytea)
    FROM merged JOIN lengths USING (id) GROUP BY lexeme
    ON CONFLICT (file_id, lexeme) DO UPDATE SET entries = files_posting.entries || excluded.entries
)
SELECT coalesce(sum(length), 0)::bigint FROM lengths
"""

WRITE_LANGUAGES = """
UPDATE files_chunk SET language = given.language
FROM unnest(%(ids)s::bigint[], %(languages)s::text[]) AS given (id, language)
WHERE files_chunk.id = given.id AND files_chunk.language <> given.language
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
    file.language, languages = detect_configurations([chunk.text for chunk in chunks])
    for chunk, language in zip(chunks, languages, strict=True):
        chunk.language = language
    file.languages = dict(Counter(languages))
    file.indexed_chunks = len(chunks)
    file.indexed_words = 0
    file.word_index = VERSION
    with connection.cursor() as cursor:
        for batch in _split_batches(chunks, WORDS_BATCH):
            texts = [indexed_text(chunk.searched) for chunk in batch]
            parameters: Mapping[str, Any] = {
                "file": file.pk,
                "ids": [chunk.pk for chunk in batch],
                "languages": [chunk.language for chunk in batch],
                "prefixes": [key_prefix(chunk.language) for chunk in batch],
                "unmarked_prefixes": [unmarked_prefix(chunk.language) for chunk in batch],
                "words": [text.words for text in texts],
                "variants": [text.variants for text in texts],
                "unmarked": [text.unmarked for text in texts],
            }
            cursor.execute(WRITE_LANGUAGES, parameters)
            cursor.execute(WRITE_POSTINGS, parameters)
            file.indexed_words += cursor.fetchone()[0]
    file.save(update_fields=["language", "languages", "indexed_chunks", "indexed_words", "word_index"])


def files_with_outdated_words() -> "QuerySet[File]":
    """Return the files whose postings have an older version and that no worker has claimed."""
    free = Q(heartbeat=None) | Q(heartbeat__lt=Now() - STALE_AFTER)
    return File.objects.filter(free, searchable=True, word_index__lt=VERSION)


def index_outdated_words() -> None:
    """Index the words of outdated files anew for `TIME_SLICE`.

    Search uses the old postings until the new ones are stored. Vectors stay, so no embedder is called.
    """
    deadline = time.monotonic() + TIME_SLICE
    while time.monotonic() < deadline:
        pk = files_with_outdated_words().order_by("word_index", "pk").values_list("pk", flat=True).first()
        if pk is None:
            return
        if claim(files_with_outdated_words(), pk):
            _renew_words(pk)


@transaction.atomic
def _renew_words(pk: UUID) -> None:
    file = File.objects.select_for_update().filter(pk=pk, searchable=True, word_index__lt=VERSION).first()
    if file is None:  # deleted, or being read again
        return
    chunks = list(Chunk.objects.filter(file=file).order_by("ordinal").defer("embedding"))
    for chunk in chunks:
        chunk.file = file
    index_words(file, chunks)
    File.objects.filter(pk=pk).update(heartbeat=None)


def embed_chunks(chunks: Sequence[Chunk], embedder: Embedder, payer: Payer = NO_PAYER) -> None:
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
    chunks: Sequence[Chunk], embedder: Embedder, payer: Payer = NO_PAYER
) -> Iterator[tuple[Sequence[Chunk], Sequence[Vector | None]]]:
    """Yield batches of chunks with their vectors; None for a chunk without words. Raises `ModelError`."""
    for batch in _split_batches(chunks, VECTORS_BATCH):
        yield batch, embed(embedder, [chunk.searched for chunk in batch], payer)


def add_embedder(
    *, name: str, base_url: str, model: str, api_key: str = "", query_prefix: str = "", passage_prefix: str = ""
) -> Embedder:
    """Store an embedder with an OpenAI-compatible server, which is asked for its dimensions.

    Raises `ModelError` if the server does not answer, and ValidationError for a name that is taken or a bad URL.
    """
    embedder = Embedder(
        name=name,
        kind=Embedder.Kind.OPENAI,
        base_url=base_url,
        model=model,
        api_key=api_key,
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
    )
    embedder.full_clean()
    embedder.dimensions = fetch_dimensions(base_url, api_key, model)
    with transaction.atomic():
        embedder.save(force_insert=True)
        record(user=None, action="embedder.added", row=embedder, name=embedder.name)
    return embedder


def activate(embedder: Embedder) -> None:
    """Make this embedder the active one, which embeds new chunks. Search uses every embedder that has chunks.

    Raises `ModelError` if it does not return vectors of its dimensions; then the previous one stays active.
    """
    embed(embedder, [TRIAL_TEXT])
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
            last = 0  # a second pass, since a worker may have used the previous embedder during the first one
        else:
            return


def create_vector_index(dimensions: int) -> None:
    """Create the index for vectors of this size, if there is none and pgvector supports it.

    Must run outside a transaction. Without the index, search compares all vectors.
    """
    if not 1 <= dimensions <= MAX_INDEXED:
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


def _split_batches(chunks: Sequence[Chunk], size: int) -> Iterator[Sequence[Chunk]]:
    for first in range(0, len(chunks), size):
        yield chunks[first : first + size]
