"""Ask a server for facts of its models.

1. `discover` asks for the list of models. Most vendors put all facts there (`shapes.read_list`).
2. If the list has no facts, it tries the specific addresses of known servers, one after the other (`_LOOKUPS`).

The shape of an answer identifies the server; its status does not. Only addresses below the configured one are asked,
and only they get the key. Redirects are not followed.

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

SECONDS = 2.0  # time limit for each answer
MAX_BYTES = 8 * 1024 * 1024  # size limit of an answer; the lists of large gateways have more than one million bytes
CONCURRENT_REQUESTS = 8  # concurrent requests about single models
# Hosts of vendors. Their lists are complete, so the addresses of local servers are not tried there.
VENDORS = {
    *("api.openai.com", "api.anthropic.com", "openrouter.ai", "api.deepseek.com", "api.x.ai", "api.mistral.ai"),
    *("api.groq.com", "generativelanguage.googleapis.com"),
}


@dataclass(frozen=True, slots=True)
class Discovery:
    """Facts that a server reports, by model. `source`: the path of the answer. `strange`: impossible values, which are
    left out.

    `answered`: the server returned a list or facts, so it is reachable.
    """

    facts: dict[str, ModelFacts] = field(default_factory=dict)
    source: str = ""
    strange: list[str] = field(default_factory=list)
    answered: bool = False


class DiscoveredServer:
    """A server at its configured address. `strange` collects its impossible values."""

    def __init__(self, kind: str, base_url: str, api_key: str, client: httpx2.AsyncClient) -> None:
        parts = urlsplit(base_url)
        path = parts.path.rstrip("/")
        self.kind = kind
        self.host = parts.hostname
        self.typed = urlunsplit(parts._replace(path=path, query="", fragment=""))
        root = path.removesuffix("/v1").removesuffix("/api")
        self.root = urlunsplit(parts._replace(path=root, query="", fragment=""))
        self.strange: list[str] = []
        self._key = api_key.strip()
        self._client = client

    async def ask(self, url: str, *, body: Any = None, google: bool = False) -> Any:
        """Return the JSON of the answer, whatever its status; None if there is no JSON."""
        try:
            method = "GET" if body is None else "POST"
            headers = self._headers(google=google)
            async with (
                asyncio.timeout(SECONDS),
                self._client.stream(method, url, json=body, headers=headers) as response,
            ):
                if 300 <= response.status_code < 400:
                    return None
                content, more = await read_body(response, MAX_BYTES)
            if more:
                self.strange.append(f"{urlsplit(url).path} is longer than 8 MB")
                return None
            return json.loads(content)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, RecursionError):
            return None

    def _headers(self, *, google: bool) -> dict[str, str]:
        version = {"anthropic-version": "2023-06-01"} if self.kind == "anthropic" else {}
        if not self._key:
            return version
        if google:
            return {"x-goog-api-key": self._key}
        return version | {"x-api-key": self._key} if version else {"authorization": f"Bearer {self._key}"}


async def discover(kind: str, base_url: str, api_key: str, names: Sequence[str]) -> Discovery:
    """Return the facts that the server at this address reports about its models and about these names. Does not raise.

    `kind`: the kind in the provider's row.
    """
    async with httpx2.AsyncClient(follow_redirects=False, timeout=SECONDS) as client:
        server = DiscoveredServer(kind, base_url, api_key, client)
        url = f"{server.root}/v1/models?limit=1000" if kind == "anthropic" else f"{server.typed}/models"
        body = None if kind == "ollama" else await server.ask(url)
        listed = shapes.read_list(body, server.strange)
        if any(listed.values()):
            return Discovery(listed, "/v1/models", server.strange, answered=True)
        all_names = list(dict.fromkeys([*listed, *names]))
        for source, look_up in _LOOKUPS:
            if server.host in VENDORS and look_up is not _gemini:
                continue
            if facts := await look_up(server, all_names):
                return Discovery(facts, source, server.strange, answered=True)
        return Discovery(strange=server.strange, answered=bool(listed))


async def _gemini(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    """Read Google's native list. Its list in OpenAI's protocol has names only."""
    if not (server.typed.endswith("/openai") or any(name.startswith("models/") for name in names)):
        return {}
    body = await server.ask(f"{server.typed.removesuffix('/openai')}/models?pageSize=1000", google=True)
    own = [(row.get("name"), row) for row in shapes.rows(body, "models") if "inputTokenLimit" in row]
    by_name = shapes.read_models(own, shapes.gemini, server.strange)
    return by_name | {name.removeprefix("models/"): facts for name, facts in by_name.items()}


async def _ollama(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    version = await server.ask(f"{server.root}/api/version")
    if not (isinstance(version, Mapping) and isinstance(version.get("version"), str)):
        return {}
    loaded = shapes.rows(await server.ask(f"{server.root}/api/ps"), "models")
    if not names:
        tags = shapes.rows(await server.ask(f"{server.root}/api/tags"), "models")
        names = [row["name"] for row in tags if isinstance(row.get("name"), str)]
    at_once = asyncio.Semaphore(CONCURRENT_REQUESTS)

    async def show(name: str) -> ModelFacts | None:
        async with at_once:
            answer = await server.ask(f"{server.root}/api/show", body={"model": name})
        model = ModelDescription(answer, server.strange)
        if model.at("model_info") is None and model.at("capabilities") is None:
            return None
        running = [ModelDescription(row, server.strange) for row in loaded if _same(row, name)]
        allocated = shapes.smaller(*(each.window("context_length") for each in running))
        return shapes.ollama(model, allocated, native=server.kind == "ollama")

    facts_of_names = await asyncio.gather(*(show(name) for name in names))
    return {name: facts for name, facts in zip(names, facts_of_names, strict=True) if facts is not None}


def _same(row: Mapping[str, Any], name: str) -> bool:
    full = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    return full in (row.get("name"), row.get("model"))


async def _llama_cpp(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    """Read llama.cpp's properties.

    A server with one model answers to any name. A router is asked about each model without loading it.
    """
    props = await server.ask(f"{server.root}/props")
    if not isinstance(props, Mapping) or not ("default_generation_settings" in props or props.get("role") == "router"):
        return {}
    if props.get("role") != "router":
        return shapes.read_models([(name, props) for name in names], shapes.llama_cpp, server.strange)
    answers = [await server.ask(f"{server.root}/props?model={quote(name, safe='')}&autoload=false") for name in names]
    return shapes.read_models(zip(names, answers, strict=True), shapes.llama_cpp, server.strange)


async def _lm_studio(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    body = await server.ask(f"{server.root}/api/v1/models")
    facts: dict[str, ModelFacts] = {}
    for row in shapes.rows(body, "models"):
        if not isinstance(row.get("loaded_instances"), list):
            continue
        loaded = [each.get("id") for each in row["loaded_instances"] if isinstance(each, Mapping)]
        for name in names:
            if name == row.get("key") or name in loaded:
                shape = partial(shapes.lm_studio, name=name)
                facts |= shapes.read_models([(name, row)], shape, server.strange)
    return facts


async def _litellm(server: DiscoveredServer, names: Sequence[str]) -> dict[str, ModelFacts]:
    rows = shapes.rows(await server.ask(f"{server.root}/model/info"))
    described = [(row.get("model_name"), row["model_info"]) for row in rows if "model_info" in row]
    return shapes.read_models(described, shapes.litellm, server.strange)


Lookup = Callable[[DiscoveredServer, Sequence[str]], Awaitable[dict[str, ModelFacts]]]
_LOOKUPS: tuple[tuple[str, Lookup], ...] = (
    ("/v1beta/models", _gemini),
    ("/api/show", _ollama),
    ("/props", _llama_cpp),
    ("/api/v1/models", _lm_studio),
    ("/model/info", _litellm),
)
