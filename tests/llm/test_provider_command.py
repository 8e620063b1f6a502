"""`manage.py provider` changes the named values, and nothing else."""

from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from core.errors import ModelError
from llm.learning import learn_refused_window
from llm.models import Model, Provider

pytestmark = pytest.mark.django_db

URL = "http://127.0.0.1:9/v1"


@pytest.fixture
def provider() -> Provider:
    row = Provider.objects.create(name=uuid4().hex, kind="anthropic", base_url=URL, api_key="the-key", enabled=False)
    Model.objects.create(provider=row, name="a", context_window=9_000, set_by_hand=["context_window"])
    return row


def run(provider: Provider, *words: str) -> str:
    out = StringIO()
    call_command("provider", provider.name, *words, stdout=out)
    provider.refresh_from_db()
    return out.getvalue()


def test_a_second_model_keeps_address_kind_key_and_state(provider: Provider) -> None:
    run(provider, "--model", "b:8192")
    assert (provider.kind, provider.base_url, provider.api_key, provider.enabled) == (
        "anthropic",
        URL,
        "the-key",
        False,
    )
    assert sorted(provider.models.values_list("name", "context_window")) == [("a", 9_000), ("b", 8_192)]


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["--kind", "openai"], {"kind": "openai"}),
        (["--base-url", "http://127.0.0.1:8/v1"], {"base_url": "http://127.0.0.1:8/v1"}),
        (["--base-url", ""], {"base_url": ""}),
        (["--api-key", "another"], {"api_key": "another"}),
        ([], {}),
    ],
)
def test_only_what_is_named_changes(provider: Provider, words: list[str], changed: dict[str, str]) -> None:
    before = {"kind": "anthropic", "base_url": URL, "api_key": "the-key", "enabled": False}
    run(provider, *words)
    assert {name: getattr(provider, name) for name in before} == before | changed


def test_a_models_settings_stay_where_they_are_not_named(provider: Provider) -> None:
    run(provider, "--model", "a", "--max-images", "7", "--max-output", "500")
    run(provider, "--model", "a", "--tools")
    model = provider.models.get(name="a")
    assert (model.context_window, model.max_images, model.max_output, model.tools) == (9_000, 7, 500, True)


def test_a_new_provider_is_openais_and_switched_on() -> None:
    name = uuid4().hex
    call_command("provider", name, stdout=StringIO())
    row = Provider.objects.get(name=name)
    assert (row.kind, row.base_url, row.enabled) == ("openai", "", True)


def test_what_was_learnt_of_a_model_is_shown_and_forgotten(provider: Provider) -> None:
    model = provider.models.get(name="a")
    learn_refused_window(model, ModelError("context_too_long", "x", retryable=False, limit=3_000), 5_000)
    output = run(provider, "--model", "a")
    assert "a: 9,000 tokens (3,000 in force, learnt: a refusal on " in output and " named 3,000" in output
    output = run(provider, "--forget", "a")
    assert "a: 9,000 tokens" in output and "in force" not in output
    model.refresh_from_db()
    assert (model.window, model.window_evidence) == (9_000, {})
    with pytest.raises(CommandError, match="no model named c"):
        run(provider, "--forget", "c")


def test_a_window_that_is_named_takes_the_place_of_a_learnt_one(provider: Provider) -> None:
    model = provider.models.get(name="a")
    learn_refused_window(model, ModelError("context_too_long", "x", retryable=False, limit=3_000), 5_000)
    run(provider, "--model", "a:7000")
    model.refresh_from_db()
    assert model.window == 7_000
