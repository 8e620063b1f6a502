import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from django.db import connection

from core.errors import ModelError
from files.index import embedders
from files.index.embedders import active_embedder, create_client
from files.index.ledger import SearchUsage
from files.index.vectors import Vector
from files.models import Embedder
from tests.product import free_port
from tests.scripted_model import ScriptedModel

DIMENSIONS = 32


@pytest.fixture
def scripted_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


def remote(url: str, *, dimensions: int = DIMENSIONS) -> Embedder:
    return Embedder(
        name="Remote", kind=Embedder.Kind.OPENAI, base_url=url, api_key="k", model="small", dimensions=dimensions
    )


def vectors_of(embedder: Embedder, *texts: str) -> list[Vector]:
    vectors = create_client(embedder).embed(texts, SearchUsage())
    present = [vector for vector in vectors if vector is not None]
    assert len(present) == len(texts)
    return present


def test_the_bundled_embedder_puts_related_texts_closer_than_unrelated_ones() -> None:
    dog, puppy, tax = vectors_of(Embedder(), "A dog barks.", "The puppy is barking.", "Income tax is due in May.")
    assert dog @ puppy > dog @ tax


def test_a_text_has_the_same_unit_vector_alone_and_among_others_of_any_length() -> None:
    texts = ["short", "a longer text " * 40, "middling length here"]
    together = vectors_of(Embedder(), *texts)
    for text, vector in zip(texts, together, strict=True):
        assert vector.shape == (256,)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
        assert vectors_of(Embedder(), text)[0] == pytest.approx(vector, abs=1e-5)


def test_no_batch_of_the_bundled_embedder_is_padded_over_its_bound() -> None:
    texts = ["x" * length for length in (1, 5, 900, 1_025, 30_000, 40_000, 1_000_000, *[3] * 100)]
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    batches = list(embedders.split_batches(order, texts))
    assert [at for batch in batches for at in batch] == order
    for batch in batches:
        longest = min(embedders.MAX_TEXT_LENGTH, max(len(texts[at]) for at in batch))
        assert len(batch) == 1 or len(batch) * longest <= embedders.BATCH_CHARACTERS
        assert len(batch) <= embedders.BUNDLED_BATCH


def test_the_bundled_embedder_reads_the_beginning_of_a_text_of_megabytes() -> None:
    start = "The dog barks at the moon. " * 3_000
    short, long = vectors_of(Embedder(), start[: embedders.MAX_TEXT_LENGTH], start + "tax " * 1_000_000)
    assert long == pytest.approx(short, abs=1e-5)


def test_a_text_in_capitals_means_the_same_as_in_small_letters() -> None:
    text = "the treaty was signed by both governments"
    small, capitals, headed = vectors_of(Embedder(), text, text.upper(), f"NATO\n{text.upper()}")
    assert capitals == pytest.approx(small, abs=1e-5)
    assert headed == pytest.approx(vectors_of(Embedder(), f"NATO\n{text}")[0], abs=1e-5)


def test_a_text_without_a_word_has_no_vector() -> None:
    first, second, third = create_client(Embedder()).embed(["", "word", " \n"], SearchUsage())
    assert first is None
    assert second is not None
    assert third is None


def test_a_remote_embedder_gives_unit_vectors_in_the_order_of_many_texts(scripted_model: ScriptedModel) -> None:
    texts = [f"text {number}" for number in range(150)]
    embedder = remote(scripted_model.openai_url)
    together = vectors_of(embedder, *texts)
    assert len(scripted_model.requests("text 149")) == 1
    assert len(scripted_model.requests()) > 1
    for at in (0, 63, 64, 149):
        assert np.linalg.norm(together[at]) == pytest.approx(1, abs=1e-5)
        assert together[at] == pytest.approx(vectors_of(embedder, texts[at])[0], abs=1e-6)


def test_a_remote_embedder_is_not_asked_about_empty_texts(scripted_model: ScriptedModel) -> None:
    assert create_client(remote(scripted_model.openai_url)).embed(["", " "], SearchUsage()) == [None, None]
    assert scripted_model.requests() == []


class LeavingClient(SearchUsage):
    """Usage of a call whose client leaves while the first batch is embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.abandoned = threading.Event()

    def add(self, reported: int, counted: int, searches: int = 0) -> None:
        super().add(reported, counted, searches)
        self.abandoned.set()


@pytest.mark.parametrize("bundled", [True, False])
def test_no_further_batch_is_embedded_for_a_client_that_has_left(bundled: bool, scripted_model: ScriptedModel) -> None:
    embedder = Embedder() if bundled else remote(scripted_model.openai_url)
    texts, usage = [f"text {number}" for number in range(200)], LeavingClient()
    with pytest.raises(ModelError) as caught:
        create_client(embedder).embed(texts, usage, usage.abandoned)
    assert caught.value.code == "abandoned"
    assert len(scripted_model.requests()) == (0 if bundled else 1)
    assert 0 < usage.reported + usage.counted < embedders.count_tokens(texts)  # what was embedded is still counted


def test_vectors_of_another_size_than_the_row_says_are_refused_with_the_right_size(
    scripted_model: ScriptedModel,
) -> None:
    with pytest.raises(ModelError, match="32 dimensions, not 768") as caught:
        create_client(remote(scripted_model.openai_url, dimensions=768)).embed(["text"], SearchUsage())
    assert caught.value.code == "wrong_dimensions"


def test_an_endpoint_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(ModelError) as caught:
        create_client(remote(f"http://127.0.0.1:{free_port()}/v1"), timeout=1).embed(["text"], SearchUsage())
    assert caught.value.code == "provider_unreachable"


def test_an_endpoint_that_is_no_embedder_is_said_to_be_none(scripted_model: ScriptedModel) -> None:
    with pytest.raises(ModelError) as caught:
        create_client(remote(scripted_model.url), timeout=1).embed(["text"], SearchUsage())
    assert caught.value.code == "model_not_found"


def test_the_bundled_embedder_becomes_active_once_when_several_ask_at_once(committed: None) -> None:
    Embedder.objects.filter(active=True).update(active=False)

    def ask(_: int) -> object:
        try:
            return active_embedder().pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1
    assert Embedder.objects.filter(active=True).count() == 1


@pytest.mark.django_db
def test_an_embedder_that_is_active_stays_the_active_one() -> None:
    Embedder.objects.filter(active=True).update(active=False)
    chosen = Embedder.objects.create(name="Chosen", active=True)
    assert active_embedder() == chosen
