import logging
import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from core.audit.models import Entry
from core.crypto import decrypt
from core.errors import ModelError
from llm.learning import learn_image_limit, learn_refused_window
from llm.models import Model, Provider
from tests.llm.reading_server import reading_server
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.django_db
KEY = "sk-never-to-be-seen-1234567890"


@pytest.fixture
def provider() -> Provider:
    return Provider.objects.create(name="Ours", base_url="http://127.0.0.1:9/v1", api_key=KEY)


def change_url(row: Provider | Model) -> str:
    return reverse(f"admin:llm_{row._meta.model_name}_change", args=[row.pk])


def provider_form(row: Provider, **changes: Any) -> dict[str, Any]:
    form = {"name": row.name, "kind": row.kind, "base_url": row.base_url, "enabled": "on", "silence_timeout": 120}
    return form | {"new_api_key": ""} | changes


def model_form(provider: Provider, name: str, **changes: Any) -> dict[str, Any]:
    form = {"provider": str(provider.pk), "name": name, "context_window": "", "max_output": "", "tokenizer": ""}
    more = {"vision": "unknown", "tools": "unknown", "several_system_messages": "on", "enabled": "on"}
    return form | more | {"input_price": "", "output_price": "", "order": "100", "icon": ""} | changes


def messages_of(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def test_a_stored_key_is_on_no_page_and_in_no_log(
    admin_client: Client, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = change_url(provider)
    wrong = provider_form(provider, name="", new_api_key=KEY + "x")
    responses = [
        admin_client.get(reverse("admin:llm_provider_changelist")),
        admin_client.get(url),
        admin_client.post(url, wrong),
        admin_client.post(url, provider_form(provider, new_api_key=KEY + "y"), follow=True),
        admin_client.get(reverse("admin:llm_provider_history", args=[provider.pk])),
        admin_client.get(reverse("admin:llm_provider_test", args=[provider.pk])),
    ]
    for response in responses:
        assert response.status_code == 200
        assert KEY not in response.content.decode()
    assert KEY not in caplog.text
    provider.refresh_from_db()
    assert provider.api_key == KEY + "y"


def test_a_key_is_encrypted_in_the_database(admin_client: Client) -> None:
    new = Provider(name="New", base_url="http://127.0.0.1:9/v1")
    admin_client.post(reverse("admin:llm_provider_add"), provider_form(new, new_api_key=KEY))
    stored = Provider.objects.extra(select={"raw": "api_key"}).get(name="New")
    assert KEY not in stored.raw
    assert decrypt(stored.raw) == stored.api_key == KEY


def test_an_empty_field_keeps_the_key_and_a_switch_removes_it(admin_client: Client, provider: Provider) -> None:
    admin_client.post(change_url(provider), provider_form(provider, name="Renamed"))
    provider.refresh_from_db()
    assert (provider.name, provider.api_key) == ("Renamed", KEY)
    admin_client.post(change_url(provider), provider_form(provider, clear_api_key="on"))
    provider.refresh_from_db()
    assert provider.api_key == ""
    assert "clear_api_key" not in admin_client.get(change_url(provider)).content.decode()


def test_a_new_key_and_its_removal_at_once_are_refused(admin_client: Client, provider: Provider) -> None:
    form = provider_form(provider, new_api_key="other", clear_api_key="on")
    assert "not both" in admin_client.post(change_url(provider), form).content.decode()
    provider.refresh_from_db()
    assert provider.api_key == KEY


@pytest.mark.parametrize("changes", [{"base_url": "http://elsewhere.example/v1"}, {"base_url": ""}])
def test_a_stored_key_is_not_sent_to_another_address(
    admin_client: Client, provider: Provider, changes: dict[str, str]
) -> None:
    response = admin_client.post(change_url(provider), provider_form(provider, **changes))
    assert "key belongs to the previous address" in response.content.decode()
    provider.refresh_from_db()
    assert provider.base_url == "http://127.0.0.1:9/v1"
    admin_client.post(change_url(provider), provider_form(provider, new_api_key="its own", **changes))
    provider.refresh_from_db()
    assert (provider.base_url, provider.api_key) == (changes["base_url"], "its own")


def test_the_path_of_the_address_may_change_without_the_key(admin_client: Client, provider: Provider) -> None:
    admin_client.post(change_url(provider), provider_form(provider, base_url="http://127.0.0.1:9/openai/v1"))
    provider.refresh_from_db()
    assert (provider.base_url, provider.api_key) == ("http://127.0.0.1:9/openai/v1", KEY)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("base_url", "localhost:8080", "Begin with http://"),
        ("base_url", "ftp://host", "Begin with http://"),
        ("new_api_key", "ключ", "Paste it again"),
        ("silence_timeout", "0", "greater than or equal to 1"),
    ],
)
def test_what_no_provider_can_have_is_refused(
    admin_client: Client, provider: Provider, field: str, value: str, sentence: str
) -> None:
    response = admin_client.post(change_url(provider), provider_form(provider, **{field: value}))
    assert sentence in response.content.decode()


def test_a_container_is_an_address(admin_client: Client) -> None:
    new = Provider(name="New", base_url="http://ollama:11434/v1")
    admin_client.post(reverse("admin:llm_provider_add"), provider_form(new))
    assert Provider.objects.get(name="New").base_url == "http://ollama:11434/v1"


def test_a_connection_test_shows_what_is_offered_and_adds_the_chosen(
    admin_client: Client, provider: Provider, scripted_model: ScriptedModel
) -> None:
    Provider.objects.filter(pk=provider.pk).update(base_url=scripted_model.openai_url)
    scripted_model.set_script("second", {"tokens": 1})
    url = reverse("admin:llm_provider_test", args=[provider.pk])
    page = admin_client.get(url).content.decode()
    assert "offers 2 models" in page
    assert "scripted:second" in page
    assert scripted_model.requests()[0].headers["authorization"] == "present"
    admin_client.post(url, {"model": ["scripted:second"]})
    added = provider.models.get()
    assert (added.name, added.context_window) == ("scripted:second", 4096)
    again = admin_client.get(url).content.decode()
    assert re.findall(r'name="model"\s+value="([^"]*)"', again) == ["scripted"]


def test_a_failed_connection_test_says_why(admin_client: Client, provider: Provider) -> None:
    page = admin_client.get(reverse("admin:llm_provider_test", args=[provider.pk])).content.decode()
    assert "cannot be reached" in page
    assert "provider_unreachable" in page


def test_selected_providers_are_tested_together(
    admin_client: Client, provider: Provider, scripted_model: ScriptedModel
) -> None:
    good = Provider.objects.create(name="Good", base_url=scripted_model.openai_url)
    form = {"action": "test_selected", "_selected_action": [str(provider.pk), str(good.pk)]}
    messages = messages_of(admin_client.post(reverse("admin:llm_provider_changelist"), form, follow=True))
    assert any(line.startswith("Good answers and offers 1 models") for line in messages)
    assert any(line.startswith("Ours: ") and "cannot be reached" in line for line in messages)


def test_a_known_model_is_filled_from_what_is_known(admin_client: Client, provider: Provider) -> None:
    response = admin_client.post(reverse("admin:llm_model_add"), model_form(provider, "gpt-4o"), follow=True)
    model = Model.objects.get(name="gpt-4o")
    assert (model.context_window, model.input_price, model.output_price) == (128_000, Decimal("2.5"), Decimal(10))
    assert (model.vision, model.tools) == (True, True)
    assert any("128,000 tokens" in line and "genai-prices" in line for line in messages_of(response))


def test_what_the_admin_enters_beats_what_is_known(admin_client: Client, provider: Provider) -> None:
    entered = {"context_window": "9000", "input_price": "0", "vision": "false"}
    admin_client.post(reverse("admin:llm_model_add"), model_form(provider, "gpt-4o", **entered))
    model = Model.objects.get(name="gpt-4o")
    assert (model.context_window, model.input_price, model.output_price) == (9_000, Decimal(0), Decimal(10))
    assert (model.vision, model.tools) == (False, True)


def test_an_unknown_model_gets_a_small_window_and_a_warning(admin_client: Client, provider: Provider) -> None:
    response = admin_client.post(reverse("admin:llm_model_add"), model_form(provider, "nobody-knows-me"), follow=True)
    model = Model.objects.get(name="nobody-knows-me")
    assert (model.context_window, model.input_price, model.vision) == (4096, None, False)
    assert any("its window is not known" in line for line in messages_of(response))
    assert "4,096 (assumed)" in response.content.decode()
    assert "until you enter the real one" in admin_client.get(change_url(model)).content.decode()


def test_a_stored_price_may_be_emptied(admin_client: Client, provider: Provider) -> None:
    model = Model.objects.create(provider=provider, name="gpt-4o", context_window=500, input_price=Decimal(3))
    form = model_form(provider, "gpt-4o", context_window="600", vision="on")
    admin_client.post(change_url(model), form)
    model.refresh_from_db()
    assert (model.context_window, model.input_price, model.vision, model.tools) == (600, None, True, True)


def test_the_suggestion_comes_while_the_name_is_typed(admin_client: Client, provider: Provider) -> None:
    url = reverse("admin:llm_model_suggestion")
    suggestion = admin_client.get(url, {"provider": str(provider.pk), "name": "gpt-4o"}).content.decode()
    assert "128,000 tokens" in suggestion
    assert "genai-prices" in suggestion
    unknown = admin_client.get(url, {"provider": str(provider.pk), "name": "<b>mine</b>"}).content.decode()
    assert "Nothing is known" in unknown
    assert "4,096 tokens" in unknown
    assert "Choose a provider" in admin_client.get(url, {"provider": "x", "name": "gpt-4o"}).content.decode()


def test_a_window_too_small_for_any_prompt_is_refused(admin_client: Client, provider: Provider) -> None:
    form = model_form(provider, "tiny", context_window="255")
    page = admin_client.post(reverse("admin:llm_model_add"), form).content.decode()
    assert "greater than or equal to 256" in page


def test_one_model_is_the_default_and_making_another_one_moves_it(admin_client: Client, provider: Provider) -> None:
    first = Model.objects.create(provider=provider, name="first", default=True)
    second = Model.objects.create(provider=provider, name="second")
    url = reverse("admin:llm_model_make_default", args=[second.pk])
    assert "Make this the workspace" in admin_client.get(url).content.decode()
    second.refresh_from_db()
    assert not second.default  # a link alone changes nothing
    assert admin_client.post(url, {"_form_submitted": "on"})["HX-Redirect"] == change_url(second)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.default, second.default) == (False, True)


def test_the_token_ratio_is_shown_and_cannot_be_set(admin_client: Client, provider: Provider) -> None:
    model = Model.objects.create(provider=provider, name="m", token_ratio=1.25, ratio_samples=7)
    page = admin_client.get(change_url(model)).content.decode()
    assert "1.25" in page
    admin_client.post(change_url(model), model_form(provider, "m", context_window="600", token_ratio="1.9"))
    model.refresh_from_db()
    assert (model.context_window, model.token_ratio, model.ratio_samples) == (600, 1.25, 7)


def test_a_learnt_window_is_shown_with_its_evidence_and_forgotten(admin_client: Client, provider: Provider) -> None:
    model = Model.objects.create(provider=provider, name="m", context_window=128_000, max_images=9)
    refusal = ModelError("context_too_long", "x", retryable=False, limit=4_096)
    assert learn_refused_window(model, refusal, 5_000) and learn_image_limit(model, 5, 8)
    page = admin_client.get(change_url(model)).content.decode()
    assert "4,096 tokens, learnt: a refusal on " in page and " named 4,096" in page and " named 5" in page
    listed = admin_client.get(reverse("admin:llm_model_changelist")).content.decode()
    assert "4,096 (learnt)" in listed and 'title="learnt: a refusal on ' in listed
    url = reverse("admin:llm_model_forget_learnt", args=[model.pk])
    assert "Reset the learnt facts of this model" in admin_client.get(url).content.decode()
    admin_client.post(url, {"_form_submitted": "on"})
    model.refresh_from_db()
    assert (model.window, model.image_limit) == (128_000, 9)
    assert Entry.objects.filter(action="model.learnt_forgotten").exists()


def test_typing_a_window_takes_the_place_of_a_learnt_one(admin_client: Client, provider: Provider) -> None:
    model = Model.objects.create(provider=provider, name="m", context_window=128_000)
    learn_refused_window(model, ModelError("context_too_long", "x", retryable=False, limit=4_096), 5_000)
    admin_client.post(change_url(model), model_form(provider, "m", context_window="64000"))
    model.refresh_from_db()
    assert (model.window, model.window_evidence) == (64_000, {})


@pytest.mark.parametrize(
    ("window", "obedient", "sentence", "level"),
    [
        (None, True, "so it reads whole prompts up to that length. It reported ", "success"),
        (4_096, True, "Its server probably cut the beginning. It reported ", "error"),
        (None, False, "the test shows nothing about long prompts", "warning"),
    ],
)
def test_an_admin_tests_whether_a_server_reads_a_prompt_from_its_beginning(
    admin_client: Client, window: int | None, obedient: bool, sentence: str, level: str
) -> None:
    with reading_server(window, obedient=obedient) as url:
        row = Provider.objects.create(name="Reading", base_url=url)
        model = Model.objects.create(provider=row, name="m", context_window=16_384)
        page = reverse("admin:llm_model_test_reading", args=[model.pk])
        assert "Ask this model for a word" in admin_client.get(page).content.decode()
        admin_client.post(page, {"_form_submitted": "on"})
    shown = admin_client.get(change_url(model))
    [message] = shown.context["messages"]
    assert sentence in str(message) and message.level_tag == level
    model.refresh_from_db()
    assert (model.learnt_window, model.reported_counts, model.ratio_samples) == (None, {}, 0)


def test_staff_without_the_permission_see_no_provider(client: Client, provider: Provider) -> None:
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    for url in (change_url(provider), reverse("admin:llm_provider_test", args=[provider.pk])):
        assert client.get(url).status_code == 403
