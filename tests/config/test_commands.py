import os
import re
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from config.management.commands.doctor import client_addresses
from llm.models import Model, Provider
from readers.api import active_layers
from tests.product import ROOT, Product
from tests.scripted_model import ScriptedModel
from tests.valkey import Valkey

KEY = "sk-not-for-the-process-list-42"


def provider(*arguments: str) -> str:
    out = StringIO()
    call_command("provider", *arguments, stdout=out)
    return out.getvalue()


def models() -> list[tuple[str, int, bool]]:
    return list(Model.objects.order_by("name").values_list("name", "context_window", "default"))


@pytest.mark.django_db
def test_a_provider_and_its_models_are_made_and_made_again() -> None:
    words = ["Ours", "--base-url", "http://localhost:11434/v1", "--api-key", KEY, "--default"]
    words += ["--model", "llama3.2:3b:8192", "--model", "gpt-4o", "--model", "mystery:latest"]
    for _ in range(2):
        output = provider(*words)
        assert KEY not in output
        assert models() == [("gpt-4o", 128_000, False), ("llama3.2:3b", 8_192, True), ("mystery:latest", 4_096, False)]
    assert "mystery:latest: 4,096 tokens (unknown; set it with NAME:WINDOW)" in output
    assert "llama3.2:3b: 8,192 tokens, the default" in output
    row = Provider.objects.get()
    assert (row.name, row.base_url, row.api_key) == ("Ours", "http://localhost:11434/v1", KEY)


@pytest.mark.django_db
def test_a_second_run_changes_what_it_names_and_keeps_the_rest() -> None:
    provider("Ours", "--api-key", KEY, "--model", "a:1000", "--model", "b:1000")
    provider("Ours", "--kind", "anthropic", "--model", "a:2000")
    assert models() == [("a", 2_000, False), ("b", 1_000, False)]
    row = Provider.objects.get()
    assert (row.kind, row.api_key) == ("anthropic", KEY)


@pytest.mark.django_db
def test_the_key_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    provider("By file", "--api-key-file", str(file))
    monkeypatch.setenv("PROVIDER_API_KEY", KEY + "2")
    provider("By environment")
    assert dict(Provider.objects.values_list("name", "api_key")) == {"By file": KEY, "By environment": KEY + "2"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Ours", "--default"], "Name at least one model"),
        (["Ours", "--model", "a:100"], "greater than or equal to 256"),
        (["Ours", "--base-url", "localhost:11434"], "Begin with http://"),
        (["Ours", "--model", " "], "give NAME or NAME:WINDOW"),
        (["Ours", "--api-key-file", "/nowhere/key"], "cannot be read"),
        (["", "--model", "a"], "cannot be blank"),
    ],
)
def test_what_cannot_be_is_refused_in_words_and_nothing_is_stored(words: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=re.escape(sentence)):
        provider(*words)
    assert not Provider.objects.exists()


def doctor(environment: Mapping[str, str], **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", "doctor", "--no-color"],
        cwd=ROOT,
        env={**environment, **changes},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_product_in_good_order_has_nothing_to_mend(product: Product) -> None:
    result = doctor(product.environment, EMAIL_URL="")  # that of the tests' product leads nowhere
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stdout + result.stderr
    for subject in ("Python", "Database", "pgvector", "Migrations", "Redis", "Worker", "Broker", "Encodings", "Model"):
        assert any(line.startswith(f"ok    {subject}: ") for line in lines), result.stdout
    for layer in active_layers():
        assert re.search(rf"^ok    Reader of uploads: .* thanks to {layer}$", result.stdout, re.MULTILINE), (
            result.stdout
        )
    for subject in ("Text recognition", "Photos of phones"):  # whether the machine has the programs is its own affair
        assert re.search(rf"^(ok|warn) +{subject}: ", result.stdout, re.MULTILINE), result.stdout
    assert "secret-of-the-scripted-provider" not in result.stdout + result.stderr


def test_what_is_wrong_is_said_with_how_to_mend_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    password = "hunter2-of-the-services"
    result = doctor(
        os.environ,
        SECRET_KEY="short",
        ENCRYPTION_KEYS="short",
        DATABASE_URL=f"postgresql://user:{password}@127.0.0.1:9/x",
        REDIS_URL=f"redis://:{password}@127.0.0.1:9/0",
        DATA_DIR=str(tmp_path / "file" / "data"),
        ALLOWED_HOSTS="chat.example",
        DEBUG="true",
    )
    assert result.returncode == 1
    for line in ("Data directory", "Database", "Redis", "Broker", "Secret key", "Debug"):
        assert re.search(rf"^fail  {line}: .*(→|;)", result.stdout, re.MULTILINE), result.stdout
    assert "warn  HTTPS" in result.stdout
    assert password not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_redis_that_cannot_be_used_is_named_by_its_variable(product: Product, tmp_path: Path) -> None:
    with Valkey(tmp_path, "--replicaof", "127.0.0.1 1") as replica:
        result = doctor(product.environment, CACHE_URL=replica.url)
    text = f"Redis at 127.0.0.1:{replica.port} is a replica, which refuses writes; set CACHE_URL to the primary"
    assert text in result.stdout
    assert result.returncode == 1


def test_behind_a_proxy_it_is_said_whose_address_counts(settings: Settings) -> None:
    settings.HTTPS_ONLY, settings.TRUSTED_PROXIES = True, 0
    [unset] = client_addresses()
    settings.TRUSTED_PROXIES = 1
    [trusted] = client_addresses()
    assert (unset.state, trusted.state) == ("warn", "ok")
    assert "TRUSTED_PROXIES" in unset.remedy.english and "from X-Forwarded-For" in trusted.detail.english


def test_keys_that_cannot_be_decrypted_and_a_silent_provider_are_found(
    product: Product, committed: None, scripted_model_row: Model
) -> None:
    result = doctor(product.environment, ENCRYPTION_KEYS="another-key-" * 6)
    assert "fail  Stored API keys: cannot be decrypted: Scripted" in result.stdout
    with ScriptedModel() as ended_model:
        url = ended_model.openai_url
    before = scripted_model_row.provider.base_url
    Provider.objects.filter(pk=scripted_model_row.provider_id).update(base_url=url)
    try:
        result = doctor(product.environment)
    finally:
        Provider.objects.filter(pk=scripted_model_row.provider_id).update(base_url=before)
    assert result.returncode == 1
    assert re.search(
        r"^fail  Model: scripted cannot answer\. .*cannot be reached.* → Correct", result.stdout, re.MULTILINE
    )
