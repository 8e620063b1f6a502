"""Test that facts of models are found by the shape of servers' answers, and that impossible values are left out."""

import asyncio
from functools import partial
from typing import Any

import pytest

from llm.discovery import shapes
from llm.discovery.servers import Discovery, discover
from tests.llm import model_servers
from tests.llm.model_servers import FOREVER, HTML, ModelServer, Redirect, names


def found_at(server: ModelServer, *names: str, kind: str = "openai", path: str = "/v1", key: str = "key") -> Discovery:
    return asyncio.run(discover(kind, server.url + path, key, names))


def test_vllm_says_the_window_it_was_started_with_for_its_adapters_too() -> None:
    with model_servers.vllm() as server:
        discovery = found_at(server)
    assert discovery.facts == {"qwen": {"context_window": 32_768}, "sql-adapter": {"context_window": 32_768}}
    assert server.paths_asked == ["/v1/models"]


def test_of_openrouters_lengths_the_smaller_holds_and_prices_are_those_of_a_million_tokens() -> None:
    with model_servers.openrouter() as server:
        facts = found_at(server, path="/api/v1").facts
    assert facts["vendor/clever"] == {
        "context_window": 131_072,
        "max_output": 65_536,
        "vision": True,
        "tools": True,
        "reasoning": True,
        "input_price": "3",
        "output_price": "15",
        "cached_input_price": "0.3",
        "cache_write_price": "3.75",
    }
    plain = {"context_window": 8_192, "vision": False, "tools": False, "reasoning": False}
    assert facts["vendor/plain"] == plain | {"input_price": "0", "output_price": "0"}


def test_llama_cpp_gives_each_slot_less_than_the_model_was_trained_for() -> None:
    with model_servers.llama_cpp() as server:
        facts = found_at(server, "any-name-will-do").facts
    assert facts["any-name-will-do"] == facts["model.gguf"] == {"context_window": 8_192, "vision": False}


def test_a_llama_cpp_server_of_many_models_is_asked_about_each_without_loading_it() -> None:
    with model_servers.llama_cpp() as server:
        server.paths["/props?model=model.gguf&autoload=false"] = server.paths["/props"]
        server.paths["/props"] = {"role": "router", "default_generation_settings": {"n_ctx": 0}}
        assert found_at(server).facts["model.gguf"]["context_window"] == 8_192


def test_lm_studio_has_the_length_that_is_loaded() -> None:
    with model_servers.lm_studio() as server:
        facts = found_at(server).facts
    assert facts["qwen/qwen3-4b"] == {"context_window": 16_384, "vision": False, "tools": True}
    assert facts["idle"] == {}


def test_litellms_max_tokens_is_the_answer_and_of_two_deployments_the_least_holds() -> None:
    with model_servers.litellm() as server:
        facts = found_at(server).facts
    assert facts["smart"] == {
        "context_window": 128_000,
        "max_output": 8_192,
        "vision": False,
        "tools": True,
        "input_price": "4",
        "output_price": "15",
        "cached_input_price": "0.3",
    }
    assert facts["odd"] == {"max_output": 4_096}


OLLAMA = {"vision": False, "tools": True, "reasoning": True}


@pytest.mark.parametrize(
    ("loaded", "parameters", "window", "native"),
    [
        (4_096, None, 4_096, 32_768),
        (8_192, "num_ctx   16384", 8_192, 16_384),
        (None, 'stop "<|eot|>"\nnum_ctx                        16384', 16_384, 16_384),
        (None, None, None, 32_768),
        (None, "num_ctx 262144", 131_072, 131_072),
    ],
)
def test_ollama_is_known_behind_either_protocol(
    loaded: int | None, parameters: str | None, window: int | None, native: int
) -> None:
    with model_servers.ollama(loaded=loaded, parameters=parameters) as server:
        openai = found_at(server, "llama3.2").facts["llama3.2"]
        own = found_at(server, "llama3.2", kind="ollama", path="").facts["llama3.2"]
        everything = found_at(server, kind="ollama", path="").facts
    assert openai == OLLAMA | ({} if window is None else {"context_window": window})
    assert own == everything["llama3.2:latest"] == OLLAMA | {"context_window": native}
    assert {each.path for each in server.requests if each.method == "POST"} == {"/api/show"}


def test_anthropic_lists_windows_answers_abilities_and_retirement() -> None:
    with model_servers.anthropic() as server:
        facts = found_at(server, kind="anthropic", path="").facts
        assert found_at(server, kind="anthropic", path="", key="other").facts == {}
    abilities = {"vision": True, "tools": True, "reasoning": True, "efforts": ["low", "medium", "high"]}
    window = {"context_window": 1_000_000, "max_output": 128_000}
    assert facts["claude-opus-5-5"] == abilities | window | {"retires_on": None}
    assert (facts["claude-old"]["context_window"], facts["claude-old"]["retires_on"]) == (200_000, "2026-12-10")


def test_geminis_own_list_is_beside_its_endpoint_of_openais_protocol() -> None:
    with model_servers.gemini() as server:
        facts = found_at(server, path="/v1beta/openai").facts
    expected = {"context_window": 1_048_576, "max_output": 65_536, "reasoning": True}
    assert facts["models/gemini-3-pro"] == facts["gemini-3-pro"] == expected
    assert server.requests[-1].headers["x-goog-api-key"] == "key"
    assert "authorization" not in server.requests[-1].headers


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        # Ollama's /api/show, Mistral's /v1/models, LM Studio's /api/v1/models, LiteLLM's /model/info, Gemini's models
        (partial(shapes.read_ollama, allocated=None, native=True), {"capabilities": ["embedding"]}),
        (shapes.read_mistral, {"capabilities": {"completion_chat": False}}),
        (partial(shapes.read_lm_studio, name="nomic"), {"type": "embedding"}),
        (shapes.read_litellm, {"mode": "embedding"}),
        (shapes.read_gemini, {"supportedGenerationMethods": ["embedContent"]}),
    ],
)
def test_servers_say_which_models_only_embed(shape: shapes.Shape, row: dict[str, Any]) -> None:
    assert shape(shapes.ModelDescription(row, []))["chat"] is False
    assert "chat" not in shape(shapes.ModelDescription({}, []))


@pytest.mark.parametrize("nonsense", [-1, 0, 255, "32768", 1e6, True, 10**12, [], {}, 8192.0])
def test_a_window_that_cannot_be_is_not_taken_and_noted(nonsense: Any) -> None:
    with model_servers.vllm(max_model_len=nonsense) as server:
        discovery = found_at(server)
    assert not discovery.facts.get("qwen")
    assert discovery.answered
    assert [note.partition(" is ")[0] for note in discovery.impossible_values] == ["qwen: max_model_len"]


def test_a_window_that_is_null_is_just_not_said() -> None:
    with model_servers.vllm(max_model_len=None) as server:
        assert found_at(server) == Discovery(answered=True)


@pytest.mark.parametrize("price", ["-1", "NaN", "Infinity", "free", "", -0.000001, True, [], "1e30"])
def test_a_price_that_cannot_be_is_not_taken(price: Any) -> None:
    with model_servers.openrouter(pricing={"prompt": price, "completion": "0.000001"}) as server:
        discovery = found_at(server, path="/api/v1")
    assert "input_price" not in discovery.facts["vendor/clever"]
    assert discovery.facts["vendor/clever"]["output_price"] == "1"
    assert len(discovery.impossible_values) == 1


@pytest.mark.parametrize("day", ["soon", 20261210, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_day_that_cannot_be_is_not_taken(day: Any) -> None:
    with model_servers.anthropic(lifecycle="deprecated", retires_at=day) as server:
        discovery = found_at(server, kind="anthropic", path="")
    assert "retires_on" not in discovery.facts["claude-opus-5-5"]
    assert len(discovery.impossible_values) == 1


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        None,
        5,
        "text",
        HTML,
        b"",
        {"data": None},
        {"data": {"a": 1}},
        {"data": [None, 3, {"id": 4}]},
        b"[" * 99999,
    ],
)
def test_a_server_that_says_something_else_changes_nothing(body: Any) -> None:
    paths = ("/v1/models", "/api/version", "/api/ps", "/props", "/api/v1/models", "/model/info")
    with ModelServer(dict.fromkeys(paths, body)) as server:
        assert found_at(server, "mine").facts == {}
    with model_servers.ollama() as server:
        server.shown["mine"] = body if not isinstance(body, bytes) else None
        server.paths["/api/ps"] = body
        assert found_at(server, "mine").facts.get("mine") is None


def test_whatever_is_at_every_path_is_no_server_of_models() -> None:
    with ModelServer({"/v1/models": names("mine")}, unknown=HTML, polite=True) as server:
        discovery = found_at(server)
    assert (discovery.facts, discovery.answered) == ({}, True)
    assert {each.method for each in server.requests} == {"GET"}


def test_redirects_are_not_followed_and_the_key_stays() -> None:
    with model_servers.vllm() as other, ModelServer({"/v1/models": Redirect(f"{other.url}/v1/models")}) as server:
        assert found_at(server) == Discovery()
        assert other.requests == []


def test_only_what_is_below_the_typed_address_is_asked() -> None:
    with ModelServer({"/team/v1/models": names("mine")}) as server:
        found_at(server, path="/team/v1")
    assert all(path.startswith("/team/") for path in server.paths_asked)
    assert {each.headers.get("authorization") for each in server.requests} == {"Bearer key"}


def test_a_list_of_megabytes_is_read_up_to_a_limit() -> None:
    with model_servers.vllm() as server:
        row = server.paths["/v1/models"]["data"][0]
        row["description"] = "x" * 4_000_000  # gateways to all models there are have a page of text about each
        assert found_at(server).facts["qwen"]["context_window"] == 32_768
        row["description"] = "x" * 9_000_000
        discovery = found_at(server)
    assert discovery.facts == {}
    assert discovery.impossible_values == ["/v1/models is longer than 8 MB"]


def test_a_server_that_never_ends_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm.discovery.servers.TIMEOUT", 0.3)
    with model_servers.llama_cpp() as server:
        server.paths["/api/version"] = FOREVER
        assert found_at(server).facts["model.gguf"]["context_window"] == 8_192
