import socket
import threading
from decimal import Decimal

import pytest

from llm.known_models import can_chat_by_name, suggest


def test_a_vendors_model_has_its_window_prices_and_abilities() -> None:
    suggestion = suggest("openai", "gpt-4o")
    assert suggestion is not None
    assert (suggestion.window, suggestion.input_price, suggestion.output_price) == (
        128_000,
        Decimal("2.5"),
        Decimal(10),
    )
    assert (suggestion.vision, suggestion.tools) == (True, True)


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5"])
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_names_of_gateways_and_dated_names_are_understood(kind: str, name: str) -> None:
    suggestion = suggest(kind, name)
    assert suggestion is not None
    assert (suggestion.window, suggestion.input_price) == (200_000, Decimal(3))


def test_the_host_decides_whose_prices_hold() -> None:
    suggestion = suggest("openai", "deepseek-chat", base_url="https://api.deepseek.com/v1")
    assert suggestion is not None
    assert suggestion.window
    assert suggestion.vision is None
    assert suggest("openai", "deepseek-chat") is None


@pytest.mark.parametrize("name", ["llama3.1:8b", "gpt-oss-20b", "smollm2-135m", "nobody-knows-me", ""])
def test_a_model_that_anyone_can_serve_is_not_guessed(name: str) -> None:
    assert suggest("openai", name, base_url="http://localhost:11434/v1") is None


def test_a_vendors_model_behind_an_unknown_gateway_is_known() -> None:
    suggestion = suggest("openai", "claude-sonnet-4-5", base_url="https://gateway.example/v1")
    assert suggestion is not None
    assert suggestion.window == 200_000


@pytest.mark.parametrize(
    ("name", "abilities"),
    [
        ("gpt-3.5-turbo", (False, True)),
        ("o3-mini", (False, True)),
        ("gpt-5.1", (True, True)),
        ("claude-2", (False, False)),
    ],
)
def test_abilities_follow_the_family(name: str, abilities: tuple[bool, bool]) -> None:
    suggestion = suggest("openai", name)
    assert suggestion is not None
    assert (suggestion.vision, suggestion.tools) == abilities


@pytest.mark.parametrize(
    "name",
    [
        *("text-embedding-3-small", "openai/text-embedding-ada-002", "nomic-embed-text:latest", "mxbai-embed-large"),
        *("snowflake-arctic-embed2", "qwen3-embedding:0.6b", "jina-embeddings-v3", "bge-m3", "BAAI/bge-reranker-v2-m3"),
        *("all-minilm:22m", "voyage-3-large", "rerank-english-v3.0", "whisper-1", "gpt-4o-mini-tts"),
        *("gpt-4o-transcribe", "omni-moderation-latest", "dall-e-3", "gpt-image-1", "gpt-realtime"),
    ],
)
def test_a_name_says_that_a_model_does_other_work_than_answering(name: str) -> None:
    assert not can_chat_by_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("gpt-5.1", "gpt-4o-search-preview", "llama3.2:3b", "gemma-3-27b-it", "qwen3:8b", "deepseek-r1:7b"),
        *("mistral-small", "vendor/claude-sonnet-4-5", "phi4", "embla-7b", "gemini-2.5-flash", "command-r7b"),
    ],
)
def test_other_names_are_of_models_that_answer(name: str) -> None:
    assert can_chat_by_name(name)


def test_nothing_is_asked_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: opened.append(address))
    threads = threading.active_count()
    assert suggest("anthropic", "claude-opus-4-5") is not None
    assert threading.active_count() == threads  # the library's updater would be one
    assert opened == []
