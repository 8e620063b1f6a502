import io
from collections.abc import Iterator

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from files.index.chunks import build_chunks, files_with_outdated_chunks, renew_outdated_chunks
from files.index.embedders import active_embedder
from files.index.indexing import files_with_outdated_words, index_chunks, index_outdated_words
from files.index.ranking import ENTRY_TYPE
from files.index.search import search
from files.models import Chunk, Embedder, File, FileText, Posting
from tests.files.collections import indexed, new_owner
from tests.product import free_port
from tests.scripted_model import ScriptedModel

SENTENCES = [
    "The lighthouse keeper wrote a letter about the storm of the night before.",
    "A tomato plant needs water in the morning and sun for the rest of the day.",
    "The committee will publish the budget for the coming year on the first of May.",
]


@pytest.fixture
def removes_embedders(committed: None) -> Iterator[None]:
    """Committed rows. The embedders and indexes are as before afterwards."""
    before = active_embedder()
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX IF EXISTS chunk_embedding_32")
    Embedder.objects.exclude(pk=before.pk).delete()
    Embedder.objects.filter(pk=before.pk).update(active=True)


@pytest.fixture
def remote(removes_embedders: None) -> Iterator[Embedder]:
    with ScriptedModel() as model:
        yield Embedder.objects.create(
            name="Remote", kind=Embedder.Kind.OPENAI, base_url=model.openai_url, model="small", dimensions=32
        )


def seen(file: File) -> "list[int]":
    """How many chunks each of a few queries finds."""
    files = File.objects.filter(pk=file.pk)
    return [len(search(query=query, files=files)) for query in ("lighthouse", "tomato plants", "something else")]


def reembed(*arguments: str) -> str:
    out = io.StringIO()
    call_command("reembed", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_postings_hold_what_postgresql_makes_of_every_chunk() -> None:
    file = indexed(new_owner(), SENTENCES * 3)
    assert (file.searchable, file.language, file.indexed_chunks) == (True, "english", 9)
    entries = {}
    for posting in Posting.objects.filter(file=file):
        for chunk, frequency, length in np.frombuffer(posting.entries, dtype=ENTRY_TYPE).tolist():
            entries[chunk, posting.lexeme] = (frequency, length)
    expected: dict[tuple[int, str], tuple[int, int]] = {}
    with connection.cursor() as cursor:
        for chunk in file.chunks.all():
            cursor.execute(
                "SELECT lexeme, cardinality(positions) FROM unnest(to_tsvector('english', %s))", [chunk.searched]
            )
            frequencies = dict(cursor.fetchall())
            length = sum(frequencies.values())
            expected |= {(chunk.pk, f"en {lexeme}"): (frequency, length) for lexeme, frequency in frequencies.items()}
    assert entries == expected
    assert file.indexed_words == sum(frequency for frequency, _ in expected.values())


@pytest.mark.django_db
def test_every_chunk_with_words_gets_a_vector_of_the_active_embedder() -> None:
    file = indexed(new_owner(), SENTENCES)
    assert {chunk.embedder_id for chunk in file.chunks.all()} == {active_embedder().pk}
    assert [chunk.embedding is None for chunk in file.chunks.all()] == [False, False, False]


@pytest.mark.django_db
def test_indexing_again_replaces_what_was_there() -> None:
    file = indexed(new_owner(), SENTENCES)
    postings = set(Posting.objects.filter(file=file).values_list("lexeme", flat=True))
    index_chunks(file)
    assert set(Posting.objects.filter(file=file).values_list("lexeme", flat=True)) == postings
    file.chunks.exclude(ordinal=1).delete()
    index_chunks(file)
    assert not Posting.objects.filter(file=file, lexeme="en lighthous").exists()
    assert (file.indexed_chunks, seen(file)) == (1, [1, 1, 1])


@pytest.mark.django_db
def test_a_file_without_chunks_is_not_searchable() -> None:
    file = indexed(new_owner(), [])
    file.refresh_from_db()
    assert file.searchable is False


@pytest.mark.django_db
def test_more_chunks_than_one_statement_takes_are_all_indexed() -> None:
    file = indexed(new_owner(), [f"Ledger number{n} of the harbour office." for n in range(1_100)])
    files = File.objects.filter(pk=file.pk)
    for number in (0, 499, 500, 1_099):
        assert search(query=f"number{number}", files=files)[0].ordinal == number
    assert len(bytes(Posting.objects.get(file=file, lexeme="harbour").entries)) == 1_100 * ENTRY_TYPE.itemsize


@pytest.mark.django_db
def test_deleting_a_file_deletes_its_postings() -> None:
    file = indexed(new_owner(), SENTENCES)
    key = file.pk
    file.delete()
    assert not Posting.objects.filter(file_id=key).exists()


@pytest.mark.django_db
def test_without_its_embedder_a_file_is_searchable_by_words_until_reembed_adds_the_vectors() -> None:
    Embedder.objects.filter(active=True).update(active=False)
    away = Embedder.objects.create(
        name="Gone",
        kind=Embedder.Kind.OPENAI,
        base_url=f"http://127.0.0.1:{free_port()}/v1",
        model="small",
        active=True,
    )
    file = indexed(new_owner(), SENTENCES)
    assert file.searchable is True
    assert seen(file) == [1, 1, 0]
    assert not Chunk.objects.filter(embedder=away).exists()


def test_reembed_moves_every_chunk_to_another_embedder_and_back(remote: Embedder) -> None:
    before = active_embedder()
    file = indexed(new_owner(), SENTENCES * 100)
    total = Chunk.objects.count()
    assert f"{total:,} of {total:,} chunks" in reembed("--embedder", "Remote")
    assert active_embedder() == remote
    assert not Chunk.objects.exclude(embedder=remote).exists()
    assert seen(file) == [10, 10, 10]
    reembed("--embedder", before.name)
    assert not Chunk.objects.exclude(embedder=before).exists()
    file.owner.delete()


def test_search_finds_everything_while_a_reembed_is_half_done(remote: Embedder) -> None:
    file = indexed(new_owner(), SENTENCES)
    later = indexed(file.owner, [SENTENCES[0].replace("storm", "fog")])
    index_with(remote, later)
    files = File.objects.filter(owner=file.owner)
    assert {hit.file for hit in search(query="lighthouse", files=files)[:2]} == {file.pk, later.pk}
    assert len(search(query="anything at all", files=files)) == 4
    file.owner.delete()


def index_with(embedder: Embedder, file: File) -> None:
    """As a worker does between the start and the end of a reembed."""
    before = active_embedder()
    Embedder.objects.filter(pk=before.pk).update(active=False)
    Embedder.objects.filter(pk=embedder.pk).update(active=True)
    index_chunks(file)
    Embedder.objects.filter(pk=embedder.pk).update(active=False)
    Embedder.objects.filter(pk=before.pk).update(active=True)
    assert set(file.chunks.values_list("embedder", flat=True)) == {embedder.pk}


def written(chunk: Chunk) -> str:
    """PostgreSQL's number of the transaction that wrote the row last."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text FROM files_chunk WHERE id = %s", [chunk.pk])
        return str(cursor.fetchone()[0])


def test_reembed_goes_on_where_it_was_stopped(remote: Embedder) -> None:
    file = indexed(new_owner(), SENTENCES)
    done = file.chunks.get(ordinal=0)
    reembed("--embedder", "Remote")
    Chunk.objects.filter(file=file, ordinal=2).update(embedder=None)
    before = written(done)
    assert "1 of 1 chunks" in reembed()
    assert written(done) == before
    file.owner.delete()


def test_an_embedder_that_does_not_answer_does_not_become_active(removes_embedders: None) -> None:
    before = active_embedder()
    url = f"http://127.0.0.1:{free_port()}/v1"
    Embedder.objects.create(name="Absent", kind=Embedder.Kind.OPENAI, base_url=url, model="m", dimensions=32)
    with pytest.raises(CommandError, match="cannot be reached"):
        reembed("--embedder", "Absent")
    assert active_embedder() == before


@pytest.mark.django_db
def test_reembed_names_the_embedders_when_there_is_none_of_that_name() -> None:
    active_embedder()
    with pytest.raises(CommandError, match="The embedders are: Bundled"):
        reembed("--embedder", "nobody")


LEASE = "# The lease\n\n{}\n\n## Repairs\n\n{}\n\n| Room | Who pays |\n| --- | --- |\n{}"


def lease() -> str:
    prose = "Whoever lives there keeps the rooms as they were, and says so in writing when something breaks. "
    return LEASE.format(prose * 20, prose * 20, "".join(f"| room {n} | the tenant of room {n} |\n" for n in range(90)))


@pytest.mark.django_db
def test_what_stands_above_a_chunk_is_searched_with_it() -> None:
    file = File.objects.create(
        owner=new_owner(), name="winter_flat.md", size=1, sha256="0" * 64, blob="none", status=File.Status.READY
    )
    text = lease()
    Chunk.objects.bulk_create(build_chunks(file, "text/markdown", text, []))
    index_chunks(file)
    last = file.chunks.order_by("ordinal").last()
    assert last is not None and (last.heading, last.table_head[:9]) == ("The lease › Repairs", "| Room | ")
    for query in ("repairs", "winter flat", "who pays"):
        hits = search(query=query, files=File.objects.filter(pk=file.pk), limit=20)
        hit_of_last = next(hit for hit in hits if hit.chunk == last.pk)
        assert (hit_of_last.heading, hit_of_last.table_head, hit_of_last.named, hit_of_last.related) == (
            last.heading,
            last.table_head,
            True,
            True,
        )
        assert hit_of_last.text == text[hit_of_last.start : hit_of_last.end]


@pytest.mark.django_db
def test_files_of_an_older_chunker_are_cut_anew_and_keep_their_text() -> None:
    text = lease()
    file = File.objects.create(
        owner=new_owner(), name="lease.md", size=1, sha256="0" * 64, blob="none", status=File.Status.READY
    )
    file.media_type = "text/markdown"
    file.save()
    FileText.objects.create(file=file, text=text)
    Chunk.objects.create(file=file, ordinal=0, start=0, end=len(text), text=text, tokens=512)
    index_chunks(file)
    assert file in files_with_outdated_chunks()
    renew_outdated_chunks()
    file.refresh_from_db()
    chunks = list(file.chunks.all())
    assert file not in files_with_outdated_chunks() and len(chunks) > 3 and file.indexed_chunks == len(chunks)
    assert all(chunk.text == text[chunk.start : chunk.end] and chunk.embedding is not None for chunk in chunks)
    assert file.content.text == text, "characters that a citation names are where they were"
    assert search(query="who pays", files=File.objects.filter(pk=file.pk))[0].named


@pytest.mark.django_db
def test_words_of_an_older_index_are_found_until_they_are_indexed_anew() -> None:
    old, new = (
        indexed(new_owner(), SENTENCES),
        indexed(new_owner(), ["The letter of a keeper was about another storm that had come over the harbour."]),
    )
    write_as_before(old)
    files = File.objects.filter(pk__in=[old.pk, new.pk])
    chunks = dict(Chunk.objects.filter(file=old).values_list("pk", "embedder"))
    assert (old in files_with_outdated_words(), new in files_with_outdated_words()) == (True, False)
    for renewed in (False, True):
        if renewed:
            index_outdated_words()
        hits = search(query="keepers of letters", files=files)
        assert {hit.file for hit in hits[:2]} == {old.pk, new.pk}
        assert all(hit.highlights for hit in hits[:2])
    assert not files_with_outdated_words().exists()
    assert Posting.objects.filter(file=old, lexeme="en keeper").exists()
    assert not Posting.objects.filter(file=old, lexeme="keeper").exists()
    assert dict(Chunk.objects.filter(file=old).values_list("pk", "embedder")) == chunks, "vectors stay"


def write_as_before(file: File) -> None:
    """The postings of the version before: without languages, of whole texts."""
    for posting in Posting.objects.filter(file=file):
        Posting.objects.filter(file=file, lexeme=posting.lexeme).update(lexeme=posting.lexeme.removeprefix("en "))
    File.objects.filter(pk=file.pk).update(word_index=0, languages={})
    Chunk.objects.filter(file=file).update(language="")


def test_one_command_adds_an_embedder_and_computes_all_vectors(removes_embedders: None) -> None:
    file = indexed(new_owner(), SENTENCES)
    with ScriptedModel() as model:
        options = ("--url", model.openai_url, "--model", "many-languages", "--embedder", "Multilingual")
        prefixes = ("--query-prefix", "query: ", "--passage-prefix", "passage: ")
        for _ in range(2):  # a second run goes on
            reembed(*options, *prefixes)
        embedder = Embedder.objects.get(name="Multilingual")
        assert (embedder.active, embedder.dimensions, embedder.query_prefix) == (True, 32, "query: ")
        assert seen(file) == [3, 3, 3]
        assert model.requests("passage: notes") and model.requests("query: lighthouse")
    file.owner.delete()


def test_a_new_embedder_that_does_not_answer_is_not_added(removes_embedders: None) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(CommandError, match="cannot be reached"):
        reembed("--url", url, "--model", "away")
    with pytest.raises(CommandError, match="needs both"):
        reembed("--model", "away")
    assert not Embedder.objects.filter(name="away").exists()


def test_a_file_keeps_its_chunks_while_the_embedder_is_away(removes_embedders: None) -> None:
    file = indexed(new_owner(), SENTENCES)
    FileText.objects.create(file=file, text="\n".join(SENTENCES))
    away = f"http://127.0.0.1:{free_port()}/v1"
    Embedder.objects.update(active=False)
    Embedder.objects.create(
        name="Away", kind=Embedder.Kind.OPENAI, base_url=away, model="small", dimensions=32, active=True
    )
    before = list(file.chunks.values_list("pk", flat=True))
    renew_outdated_chunks()
    assert list(file.chunks.values_list("pk", flat=True)) == before and seen(file) == [3, 3, 3]
