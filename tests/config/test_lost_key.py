"""A server with another SECRET_KEY than the stored secrets: it sends no request without its secret."""

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User, Webhook
from accounts.webhooks.sending import signature
from config.management.commands.doctor import _stored_keys
from core.crypto import LostSecret, decrypt, encrypt, secret_state
from core.errors import ProductError
from files.index.embedders import embed
from files.index.reranking import try_reranker
from files.models import Embedder, Reranker, SpeechServer
from files.speech.services import try_speech_server
from llm import model_facts, services
from llm.models import Model, Provider, ToolServer, WebSearch
from llm.tools.mcp import list_tools
from llm.tools.servers import ServerFailed, ToolServerConfig
from llm.tools.services import tool_servers, try_tool_server, try_web_search
from tests.accounts.receiver import receiving
from tests.accounts.webhooks import happened, tried
from tests.llm.raw_server import RawServer, always, answer
from tests.product import Caller

KEY = "key-never-to-be-seen-1234567890"


@pytest.fixture
def lost(db: None, settings: Settings) -> Callable[[], None]:
    """Makes everything unreadable that was stored before it is called."""

    def lose() -> None:
        settings.ENCRYPTION_KEYS = ["another key " * 5]

    return lose


def stored(row: Any, column: str = "api_key") -> str:
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT "{column}" FROM "{row._meta.db_table}" WHERE id = %s', [row.pk])  # noqa: S608
        return str(cursor.fetchone()[0])


def test_a_lost_secret_is_empty_and_says_that_it_is_lost(settings: Settings) -> None:
    token = encrypt(KEY)
    settings.ENCRYPTION_KEYS = ["another key " * 5]
    secret = decrypt(token)
    for each in (secret, copy.deepcopy(secret), pickle.loads(pickle.dumps(secret))):  # noqa: S301 - our own
        assert isinstance(each, LostSecret)
        assert (str(each), each.ciphertext, secret_state(each)) == ("", token, "lost")
    assert (secret_state(KEY), secret_state("")) == ("stored", "none")


def test_a_row_that_is_stored_meanwhile_has_its_secret_back_with_the_key(
    lost: Callable[[], None], settings: Settings
) -> None:
    before = settings.ENCRYPTION_KEYS
    provider = Provider.objects.create(name="Ours", kind="openai", base_url="http://127.0.0.2:9/v1", api_key=KEY)
    lost()
    row = Provider.objects.get()
    row.name = "Theirs"
    row.save()
    services.upsert_provider(
        name="Theirs", kind="openai", base_url=row.base_url, api_key=None, models=[], default=False
    )
    settings.ENCRYPTION_KEYS = before
    provider.refresh_from_db()
    assert (provider.name, provider.api_key) == ("Theirs", KEY)


def test_nothing_is_signed_with_an_empty_secret() -> None:
    for secret in ("", "whsec_", LostSecret("x")):
        with pytest.raises(ProductError) as refused:
            signature(secret, "msg", 1, b"{}")
        assert refused.value.code == "secret_lost"


def test_a_webhook_without_its_secret_sends_nothing_and_says_what_to_do(
    lost: Callable[[], None], client: Client, settings: Settings
) -> None:
    olga = User.objects.create_superuser("olga")
    with receiving() as receiver:
        before = settings.ENCRYPTION_KEYS
        hook = Webhook.objects.create(
            owner=olga, url=receiver.url, origin="http://x", secret="whsec_" + "a" * 32, events=["turn.finished"]
        )
        lost()
        delivery = tried(happened(olga))
        assert (delivery.status, receiver.received) == ("waiting", [])
        assert delivery.log[-1]["code"] == "secret_lost"
        assert "Remove this webhook and create it again" in delivery.log[-1]["detail"]
        client.force_login(olga)
        refused = client.post(reverse("settings:webhook_test", args=[hook.pk]))
        assert (refused.status_code, "ENCRYPTION_KEYS" in refused.content.decode()) == (409, True)
        assert "cannot be read any more" in client.get(reverse("settings:webhooks")).content.decode()
        assert [str(each.detail) for each in _stored_keys()] == [f"cannot be decrypted: olga's {hook.pk}"]
        admin = client.get(reverse("admin:accounts_webhook_change", args=[hook.pk]))
        assert "Remove this webhook and create it again" in admin.content.decode()
        settings.ENCRYPTION_KEYS = before  # the old key was put back: what waited is sent
        assert tried(delivery).status == "done"
        assert len(receiver.received) == 1


def test_no_server_is_asked_without_the_key_that_is_stored_for_it(lost: Callable[[], None]) -> None:
    with RawServer(always(answer("{}"))) as server:
        url = f"http://127.0.0.2:{server.port}"
        provider = Provider.objects.create(name="Ours", kind="openai", base_url=f"{url}/v1", api_key=KEY)
        search = WebSearch.objects.create(name="Found", base_url=url, api_key=KEY, active=True)
        tools = ToolServer.objects.create(name="tools", base_url=f"{url}/mcp", api_key=KEY)
        embedder = Embedder.objects.create(name="Theirs", kind="openai", base_url=url, model="m", api_key=KEY)
        reranker = Reranker.objects.create(name="Sorts", base_url=url, api_key=KEY)
        speech_server = SpeechServer.objects.create(name="Hears", base_url=url, api_key=KEY)
        lost()
        for row in (provider, search, tools, embedder, reranker, speech_server):
            row.refresh_from_db()
        calls: list[tuple[str, Callable[[], object]]] = [
            ("secret_lost", lambda: services.test_connection(provider=provider)),
            ("secret_lost", lambda: embed(embedder, ["words"])),
            ("secret_lost", lambda: try_reranker(reranker=reranker)),
            ("secret_lost", lambda: try_speech_server(server=speech_server)),
            ("web_search_failed", lambda: try_web_search(web_search=search)),
            ("secret_lost", lambda: try_tool_server(tool_server=tools)),
        ]
        for code, ask in calls:
            with pytest.raises(ProductError) as refused:
                ask()
            assert refused.value.code == code
            assert "ENCRYPTION_KEYS" in refused.value.detail
        assert not model_facts.ask_provider(provider).answered
        assert server.heads == []
        details = {finding.subject.english: finding.detail.english for finding in _stored_keys()}
        assert details == {
            "Stored API keys": "cannot be decrypted: Ours",
            "Keys of web search": "cannot be decrypted: Found",
            "Secrets of tool servers": "cannot be decrypted: tools",
            "Keys of embedders": "cannot be decrypted: Theirs",
            "Keys of re-rankers": "cannot be decrypted: Sorts",
            "Keys of speech servers": "cannot be decrypted: Hears",
        }


def test_a_provider_that_never_had_a_key_is_asked_as_before(lost: Callable[[], None]) -> None:
    row = ToolServer.objects.create(name="open", base_url="http://127.0.0.2:9/mcp")
    lost()
    row.refresh_from_db()
    assert [server.secrets for server in tool_servers()] == [{}]
    with pytest.raises(ServerFailed, match="cannot be reached"):
        asyncio.run(list_tools(ToolServerConfig("open", url=row.base_url)))
    keyless = Provider(name="Open", kind="openai", base_url="http://127.0.0.2:9/v1")
    without = services.shared_client(keyless)
    keyless.api_key = LostSecret("x")
    assert services.shared_client(keyless) is not without


def test_the_admin_shows_a_lost_key_and_lets_it_be_removed(lost: Callable[[], None], admin_client: Client) -> None:
    provider = Provider.objects.create(name="Ours", kind="openai", base_url="http://127.0.0.2:9/v1", api_key=KEY)
    lost()
    url = reverse("admin:llm_provider_change", args=[provider.pk])
    page = admin_client.get(url).content.decode()
    assert "ENCRYPTION_KEYS" in page
    assert "clear_api_key" in page
    fields = {"name": "Ours", "kind": "openai", "base_url": "http://127.0.0.3:9/v1", "enabled": "on", "new_api_key": ""}
    moved = admin_client.post(url, fields | {"silence_timeout": "120"})
    assert "The stored key belongs to the previous address" in moved.content.decode()
    admin_client.post(url, fields | {"silence_timeout": "120", "clear_api_key": "on"})
    assert stored(provider) == ""


def test_an_answer_goes_to_the_fallback_or_ends_with_a_sentence(caller: Caller, scripted_model_row: Model) -> None:
    base_url = scripted_model_row.provider.base_url
    keyed = Provider.objects.create(name="Keyed", kind="openai", base_url=base_url, api_key=LostSecret("no-token"))
    model = Model.objects.create(provider=keyed, name="scripted-keyed", context_window=8_000)
    try:
        ended = caller.ended(caller.ask("Hello", models=[str(model.pk)])["id"])
        assert (ended["status"], ended["error"]["code"]) == ("failed", "secret_lost")
        Model.objects.filter(pk=model.pk).update(fallback=scripted_model_row)
        ended = caller.ended(caller.ask("Hello again", models=[str(model.pk)])["id"])
        assert ended["status"] == "done"
    finally:
        keyed.delete()
