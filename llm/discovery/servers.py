"""Ask a server for facts of its models.

1. `discover` asks for the list of models. Most vendors put all facts there (`shapes.read_list`).
2. If the list has no facts, it tries the specific addresses of known servers, one after the other (`_LOOKUPS`).

The shape of an answer identifies the server; its status does not. Only addresses below the configured one get requests
and the key. Redirects are not followed.

To add a server:

1. Write the shape of its answer in `llm.discovery.shapes`.
2. Write a function here that returns its facts by model, and add it to `_LOOKUPS`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2

from core.net.fetch import read_body
from llm.discovery import shapes
from llm.discovery.shapes import ModelDescription
from llm.types.facts import ModelFacts

TIMEOUT = 2.0  # seconds for each answer
MAX_BYTES = 8 * 1024 * 1024  # of an answer; the lists of large gateways have more than one million bytes
MAX_CONCURRENT_REQUESTS = 8  # concurrent requests about single models
# Hosts of vendors. Their lists are complete, so the addresses of local servers are not tried there.
VENDORS = {
    *("api.openai.com", "api.anthropic.com", "openrouter.ai", "api.deepseek.com", "api.x.ai", "api.mistral.ai"),
    *("api.groq.com", "generativelanguage.googleapis.com"),
}


@dataclass(frozen=True, slots=True)
class Discovery:
    """The facts that a server reports, by model.

    `source`: the path of the answer. `impossible_values`: sentences about values that cannot be, which are left out.
    `answered`: the server returned a list or facts, so it is reachable.
    """

    facts: dict[str, ModelFacts] = field(default_factory=dict)
    source: str = ""
    impossible_values: list[str] = field(default_factory=list)
    answered: bool = False


class DiscoveredServer:
    """A server at its configured address. `impossible_values` collects the values that its answers cannot have."""

    def __init__(self, kind: str, base_url: str, api_key: str, client: httpx2.AsyncClient) -> None:
        parts = urlsplit(base_url)
        path = parts.path.rstrip("/")
        self.kind = kind
        self.host = parts.hostname
        self.base_url = urlunsplit(parts._replace(path=path, query="", fragment=""))
        root = path.removesuffix("/v1").removesuffix("/api")
        self.root = urlunsplit(parts._replace(path=root, query="", fragment=""))
        self.impossible_values: list[str] = []
        self._api_key = api_key.strip()
        self._client = client

    async def request_json(self, url: str, *, body: Any = None, google: bool = False) -> Any:
        """Return the JSON of the answer, whatever its status.

        None for a redirect, a failure, and an answer without JSON.
        """
        try:
            method = "GET" if body is None else "POST"
            headers = self._headers(google=google)
            async with (
                asyncio.timeout(TIMEOUT),
                self._client.stream(method, url, json=body, headers=headers) as response,
            ):
                if 300 <= response.status_code < 400:
                    return None
                content, is_longer = await read_body(response, MAX_BYTES)
            if is_longer:
                self.impossible_values.append(f"{urlsplit(url).path} is longer than 8 MB")
                return None
            return json.loads(content)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, RecursionError):
            return None

    def _headers(self, *, google: bool) -> dict[str, str]:
        version = {"anthropic-version": "2023-06-01"} if self.kind == "anthropic" else {}
        if not self._api_key:
            return version
        if google:
            return {"x-goog-api-key": self._api_key}
        return version | {"x-api-key": self._api_key} if version else {"authorization": f"Bearer {self._api_key}"}


async def discover(kind: str, base_url: str, api_key: str, names: Sequence[str]) -> Discovery:
    """Return the facts that the server at this address reports about its models and about these names. Does not raise.

    `kind`: the kind in the provider's row.
    """
    async with httpx2.AsyncClient(follow_redirects=False, timeout=TIMEOUT) as client:
        server = DiscoveredServer(kind, base_url, api_key, client)
        url = f"{server.root}/v1/models?limit=1000" if kind == "anthropic" else f"{server.base_url}/models"
        body = None if kind == "ollama" else await server.request_json(url)
        facts_in_list = shapes.read_list(body, server.impossible_values)
        if any(facts_in_list.values()):
            return Discovery(facts_in_list, "/v1/models", server.impossible_values, answered=True)
        all_names = list(dict.fromkeys([*facts_in_list, *names]))
        for source, look_up in _LOOKUPS:
            if server.host in VENDORS and look_up is not _look_up_gemini:
                continue
            if facts := await look_up(server, all_names):
                return Discovery(facts, source, server.impossible_values, answered=True)
        return Discovery(impossible_values=server.impossible_values, answered=bool(facts_in_list))


async def _look_up_gemini(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    """Read Google's native list, since its list in OpenAI's protocol has only names."""
    if not (server.base_url.endswith("/openai") or any(name.startswith("models/") for name in names)):
        return {}
    body = await server.request_json(f"{server.base_url.removesuffix('/openai')}/models?pageSize=1000", google=True)
    rows = [(row.get("name"), row) for row in shapes.list_rows(body, "models") if "inputTokenLimit" in row]
    by_name = shapes.read_models(rows, shapes.read_gemini, server.impossible_values)
    return by_name | {name.removeprefix("models/"): facts for name, facts in by_name.items()}


async def _look_up_ollama(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    version = await server.request_json(f"{server.root}/api/version")
    if not (isinstance(version, Mapping) and isinstance(version.get("version"), str)):
        return {}
    loaded_models = shapes.list_rows(await server.request_json(f"{server.root}/api/ps"), "models")
    if not names:
        tags = shapes.list_rows(await server.request_json(f"{server.root}/api/tags"), "models")
        names = [row["name"] for row in tags if isinstance(row.get("name"), str)]
    semaphore = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    async def show(name: str) -> ModelFacts | None:
        async with semaphore:
            answer = await server.request_json(f"{server.root}/api/show", body={"model": name})
        model = ModelDescription(answer, server.impossible_values)
        if model.get("model_info") is None and model.get("capabilities") is None:
            return None
        descriptions = [
            ModelDescription(row, server.impossible_values) for row in loaded_models if _is_same_model(row, name)
        ]
        allocated = shapes.smallest(*(each.window("context_length") for each in descriptions))
        return shapes.read_ollama(model, allocated, native=server.kind == "ollama")

    all_facts = await asyncio.gather(*(show(name) for name in names))
    return {name: facts for name, facts in zip(names, all_facts, strict=True) if facts is not None}


def _is_same_model(row: Mapping[str, Any], name: str) -> bool:
    full = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    return full in (row.get("name"), row.get("model"))


async def _look_up_llama_cpp(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    """Read llama.cpp's properties.

    A server with one model answers to any name. A router is asked about each model, and does not load it for this.
    """
    props = await server.request_json(f"{server.root}/props")
    if not isinstance(props, Mapping) or not ("default_generation_settings" in props or props.get("role") == "router"):
        return {}
    if props.get("role") != "router":
        return shapes.read_models([(name, props) for name in names], shapes.read_llama_cpp, server.impossible_values)
    answers = [
        await server.request_json(f"{server.root}/props?model={quote(name, safe='')}&autoload=false") for name in names
    ]
    return shapes.read_models(zip(names, answers, strict=True), shapes.read_llama_cpp, server.impossible_values)


async def _look_up_lm_studio(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    body = await server.request_json(f"{server.root}/api/v1/models")
    facts: dict[str, ModelFacts] = {}
    for row in shapes.list_rows(body, "models"):
        if not isinstance(row.get("loaded_instances"), list):
            continue
        loaded_names = [each.get("id") for each in row["loaded_instances"] if isinstance(each, Mapping)]
        for name in names:
            if name == row.get("key") or name in loaded_names:
                shape = partial(shapes.read_lm_studio, name=name)
                facts |= shapes.read_models([(name, row)], shape, server.impossible_values)
    return facts


async def _look_up_litellm(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    rows = shapes.list_rows(await server.request_json(f"{server.root}/model/info"))
    descriptions = [(row.get("model_name"), row["model_info"]) for row in rows if "model_info" in row]
    return shapes.read_models(descriptions, shapes.read_litellm, server.impossible_values)


Lookup = Callable[[DiscoveredServer, Sequence[str]], Awaitable[dict[str, ModelFacts]]]
_LOOKUPS: tuple[tuple[str, Lookup], ...] = (
    ("/v1beta/models", _look_up_gemini),
    ("/api/show", _look_up_ollama),
    ("/props", _look_up_llama_cpp),
    ("/api/v1/models", _look_up_lm_studio),
    ("/model/info", _look_up_litellm),
)
