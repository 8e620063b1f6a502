import io
from collections.abc import Iterator

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from files.index.embedders import active_embedder
from files.index.indexing import index_chunks
from files.index.ranking import ENTRY
from files.index.search import search
from files.models import Chunk, Embedder, File, Posting
from tests.files.collections import indexed, new_owner
from tests.product import free_port
from tests.scripted_model import ScriptedModel

SENTENCES = [
    "The lighthouse keeper wrote a letter about the storm of the night before.",
    "A tomato plant needs water in the morning and sun for the rest of the day.",
    "The committee will publish the budget for the coming year on the first of May.",
]


@pytest.fixture
def kept(committed: None) -> Iterator[None]:
    """Committed rows, and the embedders as they were afterwards."""
    before = active_embedder()
    yield
    Embedder.objects.exclude(pk=before.pk).delete()
    Embedder.objects.filter(pk=before.pk).update(active=True)


@pytest.fixture
def remote(kept: None) -> Iterator[Embedder]:
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
    found = {}
    for posting in Posting.objects.filter(file=file):
        for chunk, frequency, length in np.frombuffer(posting.entries, dtype=ENTRY).tolist():
            found[chunk, posting.lexeme] = (frequency, length)
    expected: dict[tuple[int, str], tuple[int, int]] = {}
    with connection.cursor() as cursor:
        for chunk in file.chunks.all():
            cursor.execute(
                "SELECT lexeme, cardinality(positions) FROM unnest(to_tsvector('english', %s))", [chunk.text]
            )
            frequencies = dict(cursor.fetchall())
            length = sum(frequencies.values())
            expected |= {(chunk.pk, lexeme): (frequency, length) for lexeme, frequency in frequencies.items()}
    assert found == expected
    assert file.indexed_words == sum(frequency for frequency, _ in expected.values())


@pytest.mark.django_db
def test_every_chunk_with_words_gets_a_vector_of_the_active_embedder() -> None:
    file = indexed(new_owner(), [*SENTENCES, " "])
    assert {chunk.embedder_id for chunk in file.chunks.all()} == {active_embedder().pk}
    assert [chunk.embedding is None for chunk in file.chunks.all()] == [False, False, False, True]


@pytest.mark.django_db
def test_indexing_again_replaces_what_was_there() -> None:
    file = indexed(new_owner(), SENTENCES)
    postings = set(Posting.objects.filter(file=file).values_list("lexeme", flat=True))
    index_chunks(file)
    assert set(Posting.objects.filter(file=file).values_list("lexeme", flat=True)) == postings
    file.chunks.exclude(ordinal=1).delete()
    index_chunks(file)
    assert not Posting.objects.filter(file=file, lexeme="lighthous").exists()
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
    assert len(bytes(Posting.objects.get(file=file, lexeme="harbour").entries)) == 1_100 * ENTRY.itemsize


@pytest.mark.django_db
def test_deleting_a_file_deletes_its_postings() -> None:
    file = indexed(new_owner(), SENTENCES)
    key = file.pk
    file.delete()
    assert not Posting.objects.filter(file_id=key).exists()


@pytest.mark.django_db
def test_without_its_embedder_a_file_is_searchable_by_words_until_reembed_adds_the_vectors() -> None:
    Embedder.objects.filter(active=True).update(active=False)
    gone = Embedder.objects.create(
        name="Gone",
        kind=Embedder.Kind.OPENAI,
        base_url=f"http://127.0.0.1:{free_port()}/v1",
        model="small",
        active=True,
    )
    file = indexed(new_owner(), SENTENCES)
    assert file.searchable is True
    assert seen(file) == [1, 1, 0]
    assert not Chunk.objects.filter(embedder=gone).exists()


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


def test_an_embedder_that_does_not_answer_does_not_become_active(kept: None) -> None:
    before = active_embedder()
    url = f"http://127.0.0.1:{free_port()}/v1"
    Embedder.objects.create(name="Absent", kind=Embedder.Kind.OPENAI, base_url=url, model="m", dimensions=32)
    with pytest.raises(CommandError, match="cannot be reached"):
        reembed("--embedder", "Absent")
    assert active_embedder() == before


@pytest.mark.django_db
def test_reembed_names_the_embedders_when_there_is_none_of_that_name() -> None:
    active_embedder()
    with pytest.raises(CommandError, match="There are: Bundled"):
        reembed("--embedder", "nobody")
