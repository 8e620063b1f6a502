"""Calls of embedders and re-rankers in the ledger: their payers, and the limits for programs that embed."""

from collections.abc import Iterator
from decimal import Decimal

import openai
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from openai import OpenAI

from accounts.models import Limit
from chat.ledger.models import ModelCall
from chat.ledger.sums import UsageReport, sum_days
from chat.models import Attachment, Conversation, Message
from chat.tools.files import FileScope, SearchFiles
from core.errors import ModelError
from files.index.embedders import active_embedder, embed
from files.index.finding import find_passages
from files.index.indexing import reembed
from files.index.ledger import Payer
from files.models import Embedder, File
from tests.application import Application
from tests.conftest import Person
from tests.files.collections import indexed, new_owner
from tests.files.rerankers import ScriptedReranker, row_of
from tests.product import free_port
from tests.scripted_model import ScriptedModel

TEXTS = ["falcon garden", "falcon island"]


@pytest.fixture
def remote() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


def active(model: ScriptedModel, **more: object) -> Embedder:
    Embedder.objects.filter(active=True).update(active=False)
    place = {"kind": "openai", "base_url": model.openai_url, "model": "small", "dimensions": 32, **more}
    return Embedder.objects.create(name="Remote", input_price=Decimal(2), active=True, **place)


def calls() -> list[ModelCall]:
    return list(ModelCall.objects.filter(provider_name__in=["Remote", "Ours", "Bundled"]).order_by("pk"))


@pytest.mark.django_db
def test_what_is_indexed_is_its_owners_and_what_is_searched_the_searchers(remote: ScriptedModel) -> None:
    active(remote)
    owner, other = new_owner(), new_owner()
    file = indexed(owner, TEXTS)
    place = Conversation.objects.create(owner=other)
    find_passages(
        queries=["falcon"], files=File.objects.filter(pk=file.pk), payer=Payer(other.pk, conversation=place.pk)
    )
    first, second = calls()
    assert (first.person, first.purpose, first.model, first.model_name) == (owner, "embedding", None, "small")
    assert first.input > 0 and not first.counted and first.cost == Decimal(2) * first.input / 1_000_000
    assert (second.person, second.conversation, second.input, second.output) == (other, place, len("falcon") // 4, 0)
    sums = UsageReport(None, None, timezone.get_default_timezone(), {"person_id": owner.pk}).total()
    assert (sums.calls, sums.answers, sums.input, sums.cost) == (1, 0, first.input, first.cost)


@pytest.mark.django_db
def test_what_the_workspace_makes_anew_is_nobodys(remote: ScriptedModel) -> None:
    file = indexed(new_owner(), TEXTS)
    list(reembed(active(remote)))
    assert file.chunks.exclude(embedder=active_embedder()).count() == 0
    assert {call.person for call in calls()} == {None} and sum(call.input for call in calls()) > 0


@pytest.mark.django_db
def test_a_tool_searches_for_its_conversation(remote: ScriptedModel) -> None:
    active(remote)
    file = indexed(owner := new_owner(), TEXTS)
    place = Conversation.objects.create(owner=owner)
    message = Message.objects.create(conversation=place, role="user", parts=[])
    Attachment.objects.create(message=message, file=file, name=file.name, ordinal=0)
    SearchFiles(FileScope(place, None, ""))._search(["falcon"])
    assert (calls()[-1].conversation, calls()[-1].person) == (place, owner)


@pytest.mark.django_db
def test_an_embedder_that_is_away_has_read_nothing() -> None:
    embedder = Embedder(name="Remote", kind="openai", base_url=f"http://127.0.0.1:{free_port()}/v1", model="small")
    with pytest.raises(ModelError):
        embed(embedder, ["words"], timeout=1)
    assert not calls()


@pytest.mark.django_db
@pytest.mark.parametrize("tei", [False, True])
def test_a_reranker_is_paid_by_searches_or_by_tokens(tei: bool) -> None:
    owner = new_owner()
    files = File.objects.filter(pk=indexed(owner, [f"falcon {at} points" for at in range(40)]).pk)
    with ScriptedReranker(tei=tei) as server:
        row_of(server, candidates=40, search_price=Decimal(2), input_price=Decimal("0.5") if tei else None).save()
        find_passages(queries=["falcon"], files=files, limit=40, payer=Payer(owner.pk))
    [call] = calls()
    assert (call.purpose, call.person, call.counted, call.output) == ("reranking", owner, True, 0)
    searches = 2 if tei else 1  # requests
    assert call.cost == Decimal(2) * searches / 1000 + (Decimal("0.5") * call.input / 1_000_000 if tei else 0)


def test_what_programs_embed_is_theirs_and_refused_over_a_limit(
    application: Application, person: Person, openai_client: OpenAI
) -> None:
    used = openai_client.embeddings.create(model="bundled", input=["A falcon.", "An island."]).usage.prompt_tokens
    [call] = ModelCall.objects.filter(person=person.user)
    assert (call.purpose, call.input, call.cost) == ("embedding", used, Decimal(0)) and call.token is not None
    Limit.objects.create(user=person.user, unit="turns", per="day", amount=0)
    openai_client.embeddings.create(model="bundled", input="A falcon.")
    Limit.objects.create(user=person.user, unit="tokens", per="day", amount=used)
    with pytest.raises(openai.RateLimitError) as refused:
        openai_client.with_options(max_retries=0).embeddings.create(model="bundled", input="A falcon.")
    assert refused.value.code == "limit_reached" and int(refused.value.response.headers["Retry-After"]) > 0
    assert ModelCall.objects.filter(person=person.user).count() == 2


@pytest.mark.django_db
def test_the_admin_sums_them_by_purpose_and_sets_their_prices(admin_client: Client, remote: ScriptedModel) -> None:
    embedder = active(remote, api_key="kept")
    indexed(new_owner(), TEXTS)
    sum_days()
    page = admin_client.get(reverse("admin:chat_modelcall_sums")).content.decode()
    assert "Remote: small" in page and "Embedding" in page
    url = reverse("admin:files_embedder_change", args=[embedder.pk])
    assert admin_client.post(url, {"input_price": "3.5"}).status_code == 302
    embedder.refresh_from_db()
    assert (embedder.input_price, embedder.api_key, embedder.name) == (Decimal("3.5"), "kept", "Remote")
