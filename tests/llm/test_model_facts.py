"""Test that the facts of a provider reach the rows, unless an admin has set other values."""

from datetime import date, timedelta
from decimal import Decimal
from importlib import import_module
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from config.management.commands import doctor
from llm import model_facts, tasks
from llm.models import Model, Provider
from llm.services import upsert_model
from tests.llm import model_servers
from tests.llm.model_servers import ModelServer
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_logged_before() -> None:
    model_facts._log_impossible_value.cache_clear()


def provider_at(server: ModelServer, *, path: str = "/v1", kind: str = "openai", **fields: Any) -> Provider:
    return Provider.objects.create(name="Ours", kind=kind, base_url=server.url + path, api_key="key", **fields)


def command(*words: str) -> str:
    out = StringIO()
    call_command("provider", "Ours", *words, stdout=out)
    return out.getvalue()


def test_a_row_that_nobody_has_set_follows_what_the_provider_says_from_day_to_day() -> None:
    with model_servers.openrouter() as server:
        model = upsert_model(provider=provider_at(server, path="/api/v1"), name="vendor/clever")
        assert (model.context_window, model.found_at) == (4_096, None)
        tasks.read_models()
        model.refresh_from_db()
        assert (model.context_window, model.max_output) == (131_072, 65_536)
        assert (model.vision, model.tools, model.reasoning) == (True, True, True)
        prices = (model.input_price, model.output_price, model.cached_input_price, model.cache_write_price)
        assert prices == (Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75"))
        assert model.found_at is not None
        server.paths["/api/v1/models"]["data"][0]["context_length"] = 64_000
        tasks.read_models()
    model.refresh_from_db()
    assert model.context_window == 64_000


def test_what_is_not_said_any_more_stays_and_nonsense_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with model_servers.vllm() as server:
        model = upsert_model(provider=provider_at(server), name="qwen")
        tasks.read_models()
        for nonsense in (-1, -1, -1):
            server.paths["/v1/models"]["data"][0]["max_model_len"] = nonsense
            tasks.read_models()
    model.refresh_from_db()
    assert (model.context_window, model.found["context_window"]) == (32_768, 32_768)
    logged = [record.getMessage() for record in caplog.records if record.name == "llm.model_facts"]
    assert logged == ["provider Ours: qwen: max_model_len is -1, which is impossible and ignored"]


def test_a_provider_that_is_away_or_switched_off_changes_nothing() -> None:
    with model_servers.vllm() as server:
        provider = provider_at(server)
        model = upsert_model(provider=provider, name="qwen")
        Provider.objects.update(enabled=False)
        tasks.read_models()
        assert server.requests == []
        Provider.objects.update(enabled=True)
    tasks.read_models()
    model.refresh_from_db()
    assert (model.context_window, model.found) == (4_096, {})


def test_a_typed_value_wins_until_an_admin_takes_what_was_found(admin_client: Client, admin_user: User) -> None:
    with model_servers.vllm() as server:
        model = upsert_model(provider=provider_at(server), name="qwen", window=16_000)
        tasks.read_models()
    model.refresh_from_db()
    assert (model.context_window, model.set_by_hand) == (16_000, ["context_window"])
    page = admin_client.get(reverse("admin:llm_model_change", args=[model.pk])).content.decode()
    assert "32,768" in page
    assert "set by an admin" in page
    admin_client.post(reverse("admin:llm_model_take_found", args=[model.pk]), {"_form_submitted": "on"})
    model.refresh_from_db()
    assert (model.context_window, model.set_by_hand) == (32_768, [])


def test_the_page_says_how_tokens_are_counted_and_what_was_read(admin_client: Client) -> None:
    model = upsert_model(provider=Provider.objects.create(name="Ours"), name="mine")

    def page() -> str:
        return admin_client.get(reverse("admin:llm_model_change", args=[model.pk])).content.decode()

    assert "Estimated with o200k_base" in page() and "Nothing yet" in page()
    counts = {"scripts": {"latin": [[1_000, 980], [0, 300], [2_000, 2_100]], "cjk": [[1_000, 820]]}}
    Model.objects.update(tokenizer="cl100k_base", reported_counts=counts)
    assert "Exact, by the tokenizer cl100k_base" in page()
    assert "Latin: 0.98 to 1.05, in 2 prompts" in page() and "Chinese, Japanese and Korean: 0.82 to 0.82" in page()


def test_a_window_learnt_from_a_refusal_goes_when_the_server_is_set_up_anew() -> None:
    with model_servers.vllm() as server:
        model = upsert_model(provider=provider_at(server), name="qwen")
        tasks.read_models()
        Model.objects.update(learnt_window=8_000)
        tasks.read_models()
        model.refresh_from_db()
        assert model.window == 8_000
        server.paths["/v1/models"]["data"][0]["max_model_len"] = 65_536
        tasks.read_models()
    model.refresh_from_db()
    assert model.window == 65_536


def test_a_retirement_is_noted_once_shown_and_taken_back(
    admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    soon = timezone.localdate() + timedelta(days=20)
    with model_servers.anthropic(lifecycle="deprecated", retires_at=f"{soon}T12:00:00Z") as server:
        model = upsert_model(provider=provider_at(server, kind="anthropic", path=""), name="claude-opus-5-5")
        tasks.read_models()
        tasks.read_models()
        model.refresh_from_db()
        assert (model.retires_on, model.context_window, model.reasoning) == (soon, 1_000_000, True)
        assert caplog.text.count("retires on") == 1
        assert (
            f"retires on {soon:%-d %b %Y}" in admin_client.get(reverse("admin:llm_model_changelist")).content.decode()
        )
        server.paths["/v1/models"]["data"][0].update(lifecycle="active", retires_at=None)
        tasks.read_models()
    model.refresh_from_db()
    assert model.retires_on is None


def test_programs_are_told_of_reasoning_and_retirement(admin_client: Client) -> None:
    provider = Provider.objects.create(name="Ours")
    model = Model.objects.create(provider=provider, name="m", reasoning=True, retires_on=date(2027, 1, 15))
    body = admin_client.get(f"/api/v1/models/{model.pk}/").json()
    assert (body["abilities"]["reasoning"], body["retires_on"]) == (True, "2027-01-15")


def test_an_unknown_model_is_tried_with_one_call_of_a_tool_but_never_by_the_daily_job(
    scripted_model: ScriptedModel,
) -> None:
    call = {"tool_calls": [{"name": "ready", "arguments": {}}]}
    able, unable = scripted_model.set_script("able", call), scripted_model.set_script("unable", {"text": "Hello"})
    provider = Provider.objects.create(name="Ours", base_url=scripted_model.openai_url)
    for name in (able, unable):
        upsert_model(provider=provider, name=name)
    tasks.read_models()
    assert not [each for each in scripted_model.requests() if each.method == "POST"]
    model_facts.update_models(provider, try_tools=True)
    tried = [each.body for each in scripted_model.requests() if each.path == "/v1/chat/completions"]
    assert [len(body["tools"]) for body in tried] == [1, 1]
    assert dict(Model.objects.values_list("name", "tools")) == {able: True, unable: False}
    scripted_model.set_script("unable", call)
    model_facts.update_models(provider, try_tools=True)  # what was tried is tried again, what somebody said is not
    assert Model.objects.get(name=unable).tools


def test_what_an_admin_says_of_tools_is_not_tried(scripted_model: ScriptedModel) -> None:
    provider = Provider.objects.create(name="Ours", base_url=scripted_model.openai_url)
    upsert_model(provider=provider, name="scripted", settings={"tools": False})
    model_facts.update_models(provider, try_tools=True)
    assert not [each for each in scripted_model.requests() if each.method == "POST"]


def test_the_command_finds_windows_out() -> None:
    with model_servers.llama_cpp() as server:
        output = command("--base-url", f"{server.url}/v1", "--model", "model.gguf")
        assert "model.gguf: 8,192 tokens" in output.splitlines()[-1]
        assert "not known" not in output
        output = command("--base-url", f"{server.url}/v1", "--model", "model.gguf:131072")
    assert "131,072 tokens (more than the 8,192 that the provider serves)" in output


def test_the_command_sets_abilities_and_the_greatest_answer() -> None:
    words = ["--base-url", "http://127.0.0.1:9/v1", "--model", "mine:8000"]
    command(*words, "--tools", "--vision", "--max-output", "900")
    model = Model.objects.get()
    assert (model.tools, model.vision, model.max_output) == (True, True, 900)
    assert model.set_by_hand == ["context_window", "max_output", "tools", "vision"]
    command(*words, "--no-tools", "--no-vision")
    model.refresh_from_db()
    assert (model.tools, model.vision, model.max_output) == (False, False, 900)
    with pytest.raises(CommandError, match="--model"):
        command("--base-url", "http://127.0.0.1:9/v1", "--tools")
    with pytest.raises(CommandError, match="greater than or equal to 1"):
        command(*words, "--max-output", "0")


def test_the_command_tests_the_connection() -> None:
    with model_servers.lm_studio() as server:
        output = command("--base-url", f"{server.url}/v1", "--test")
    assert "It answers and offers 2 models:" in output
    assert "qwen/qwen3-4b: a window of 16,384 tokens, no vision, tools" in output
    with pytest.raises(CommandError, match="cannot be reached"):
        command("--base-url", "http://127.0.0.1:9/v1", "--test")


def test_the_command_finds_out_that_tool_calls_are_written_as_text(scripted_model: ScriptedModel) -> None:
    text = '<tool_call>{"name": "ready", "arguments": {}}</tool_call>'
    name = scripted_model.set_script("writer", {"text": text, "streaming": "refused"})
    upsert_model(provider=Provider.objects.create(name="Ours", base_url=scripted_model.openai_url), name=name)
    output = command("--base-url", scripted_model.openai_url, "--test")
    assert (
        output.splitlines()[-1]
        == f"  {name}: 4,096 tokens (unknown; set it with NAME:WINDOW), tool calls written as text"
    )
    model = Model.objects.get()
    assert (model.tools, model.written_calls, model.whole_answers) == (True, True, True)
    assert list(model.learnt_on) == ["whole_answers"]


def test_the_connection_test_says_what_was_found_and_stores_it_when_told_to(admin_client: Client) -> None:
    with model_servers.litellm() as server:
        provider = provider_at(server)
        model = upsert_model(provider=provider, name="smart", window=9_000)
        url = reverse("admin:llm_provider_test", args=[provider.pk])
        page = admin_client.get(url).content.decode()
        assert "The server says: a window of 128,000 tokens, at most 8,192 tokens per answer" in page
        assert "An admin has set instead: a window of 9,000 tokens." in page
        model.refresh_from_db()
        assert model.found == {}  # a link alone changes nothing
        admin_client.post(url, {"model": ["odd"]})
    model.refresh_from_db()
    assert (model.context_window, model.max_output, model.found["source"]) == (9_000, 8_192, "/model/info")
    assert provider.models.get(name="odd").max_output == 4_096


def test_a_model_added_by_form_has_the_window_of_its_server(admin_client: Client) -> None:
    with model_servers.vllm() as server:
        provider = provider_at(server)
        form = {"provider": str(provider.pk), "name": "qwen", "vision": "unknown", "tools": "false", "enabled": "on"}
        form["order"] = "100"
        page = admin_client.post(reverse("admin:llm_model_add"), form, follow=True).content.decode()
    model = Model.objects.get()
    assert (model.context_window, model.set_by_hand) == (32_768, ["tools"])
    assert "a window of 32,768 tokens" in page
    change = form | {"context_window": "20000", "max_output": "", "vision": "", "tools": ""}
    url = reverse("admin:llm_model_change", args=[model.pk])
    admin_client.post(url, change)
    model.refresh_from_db()
    assert (model.context_window, model.set_by_hand) == (20_000, ["context_window", "tools"])
    admin_client.post(url, change | {"context_window": ""})
    model.refresh_from_db()
    assert (model.context_window, model.set_by_hand) == (32_768, ["tools"])
    admin_client.post(url, change | {"name": "another"})
    model.refresh_from_db()
    assert (model.found, model.found_at) == ({}, None)


def test_rows_of_before_keep_what_is_not_as_a_new_row_would_have_it() -> None:
    provider = Provider.objects.create(name="Ours")
    typed = {"context_window": 60_000, "input_price": Decimal("2.5"), "output_price": Decimal(10), "vision": True}
    Model.objects.create(provider=provider, name="gpt-4o", **typed)
    Model.objects.create(provider=provider, name="mine", tools=True)
    Model.objects.create(provider=provider, name="untouched")
    import_module("llm.migrations.0012_model_found").keep_what_was_set(apps, None)
    assert dict(Model.objects.values_list("name", "set_by_hand")) == {
        "gpt-4o": ["context_window", "tools"],  # of which it is known that it calls tools
        "mine": ["tools"],
        "untouched": [],
    }


def test_the_doctor_names_what_retires_soon_and_what_is_larger_than_its_server() -> None:
    soon = timezone.localdate() + timedelta(days=20)
    with model_servers.anthropic(lifecycle="deprecated", retires_at=f"{soon}T12:00:00Z") as server:
        provider = provider_at(server, kind="anthropic", path="")
        upsert_model(provider=provider, name="claude-opus-5-5", window=2_000_000)
        findings = [(each.subject.english, each.detail.english) for each in doctor._models()]
    assert findings == [
        ("Model claude-opus-5-5 of Ours", f"retires on {soon:%Y-%m-%d}"),
        ("Model claude-opus-5-5 of Ours", "its window is set to 2,000,000 tokens, but its server has 1,000,000"),
    ]
