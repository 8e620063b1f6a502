"""Asks a server what it serves: which one it is shows in the shape of its answers, never in their status.

Only addresses below the typed one are asked, and only they get the key; redirects are not followed.
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
from llm.discovery.shapes import Facts, Said

SECONDS = 2.0  # for each answer
MAX_BYTES = 8 * 1024 * 1024  # of one answer; the lists of large gateways have more than one million
AT_ONCE = 8  # questions about single models
# Their lists say what they say; what people run themselves is not looked for there.
VENDORS = {
    *("api.openai.com", "api.anthropic.com", "openrouter.ai", "api.deepseek.com", "api.x.ai", "api.mistral.ai"),
    *("api.groq.com", "generativelanguage.googleapis.com"),
}


@dataclass(frozen=True, slots=True)
class Discovery:
    """`facts` by model, `source` the path they were read at; `strange`: what cannot be and was not taken.

    `answered`: the server gave a list or facts, so that it is there.
    """

    facts: dict[str, Facts] = field(default_factory=dict)
    source: str = ""
    strange: list[str] = field(default_factory=list)
    answered: bool = False


class Server:
    """One server under its typed address; `strange` collects what cannot be."""

    def __init__(self, kind: str, base_url: str, api_key: str, client: httpx2.AsyncClient) -> None:
        parts = urlsplit(base_url)
        path = parts.path.rstrip("/")
        self.kind, self.host = kind, parts.hostname
        self.typed = urlunsplit(parts._replace(path=path, query="", fragment=""))
        above = path.removesuffix("/v1").removesuffix("/api")
        self.root = urlunsplit(parts._replace(path=above, query="", fragment=""))
        self.strange: list[str] = []
        self._key, self._client = api_key.strip(), client

    async def ask(self, url: str, *, body: Any = None, google: bool = False) -> Any:
        """The JSON of the answer, whatever its status; None when there is none to take."""
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
    """What the server at this address says of its models, and of those with these names. Raises nothing of its own.

    `kind` is that of the provider's row.
    """
    async with httpx2.AsyncClient(follow_redirects=False, timeout=SECONDS) as client:
        server = Server(kind, base_url, api_key, client)
        url = f"{server.root}/v1/models?limit=1000" if kind == "anthropic" else f"{server.typed}/models"
        body = None if kind == "ollama" else await server.ask(url)
        found = shapes.listed(body, server.strange)
        if any(found.values()):
            return Discovery(found, "/v1/models", server.strange, answered=True)
        wanted = list(dict.fromkeys([*found, *names]))
        for source, look in _LOOKS:
            if server.host in VENDORS and look is not _gemini:
                continue
            if said := await look(server, wanted):
                return Discovery(said, source, server.strange, answered=True)
        return Discovery(strange=server.strange, answered=bool(found))


async def _gemini(server: Server, names: Sequence[str]) -> dict[str, Facts]:
    """Its endpoint of OpenAI's protocol lists but names; its own list is beside it."""
    if not (server.typed.endswith("/openai") or any(name.startswith("models/") for name in names)):
        return {}
    body = await server.ask(f"{server.typed.removesuffix('/openai')}/models?pageSize=1000", google=True)
    own = [(row.get("name"), row) for row in shapes.rows(body, "models") if "inputTokenLimit" in row]
    found = shapes.of_models(own, shapes.gemini, server.strange)
    return found | {name.removeprefix("models/"): facts for name, facts in found.items()}


async def _ollama(server: Server, names: Sequence[str]) -> dict[str, Facts]:
    version = await server.ask(f"{server.root}/api/version")
    if not (isinstance(version, Mapping) and isinstance(version.get("version"), str)):
        return {}
    loaded = shapes.rows(await server.ask(f"{server.root}/api/ps"), "models")
    if not names:
        tags = shapes.rows(await server.ask(f"{server.root}/api/tags"), "models")
        names = [row["name"] for row in tags if isinstance(row.get("name"), str)]
    at_once = asyncio.Semaphore(AT_ONCE)

    async def show(name: str) -> Facts | None:
        async with at_once:
            said = Said(await server.ask(f"{server.root}/api/show", body={"model": name}), server.strange)
        if said.at("model_info") is None and said.at("capabilities") is None:
            return None
        allocated = [Said(row, server.strange).window("context_length") for row in loaded if _same(row, name)]
        return shapes.ollama(said, shapes.smaller(*allocated), native=server.kind == "ollama")

    shown = await asyncio.gather(*(show(name) for name in names))
    return {name: facts for name, facts in zip(names, shown, strict=True) if facts is not None}


def _same(row: Mapping[str, Any], name: str) -> bool:
    full = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    return full in (row.get("name"), row.get("model"))


async def _llama_cpp(server: Server, names: Sequence[str]) -> dict[str, Facts]:
    """A server of one model answers to any name; one of several is asked about each, without loading it."""
    props = await server.ask(f"{server.root}/props")
    if not isinstance(props, Mapping) or not ("default_generation_settings" in props or props.get("role") == "router"):
        return {}
    if props.get("role") != "router":
        return shapes.of_models([(name, props) for name in names], shapes.llama_cpp, server.strange)
    asked = [await server.ask(f"{server.root}/props?model={quote(name, safe='')}&autoload=false") for name in names]
    return shapes.of_models(zip(names, asked, strict=True), shapes.llama_cpp, server.strange)


async def _lm_studio(server: Server, names: Sequence[str]) -> dict[str, Facts]:
    body = await server.ask(f"{server.root}/api/v1/models")
    found: dict[str, Facts] = {}
    for row in shapes.rows(body, "models"):
        if not isinstance(row.get("loaded_instances"), list):
            continue
        loaded = [each.get("id") for each in row["loaded_instances"] if isinstance(each, Mapping)]
        for name in names:
            if name == row.get("key") or name in loaded:
                shape = partial(shapes.lm_studio, name=name)
                found |= shapes.of_models([(name, row)], shape, server.strange)
    return found


async def _litellm(server: Server, names: Sequence[str]) -> dict[str, Facts]:
    rows = shapes.rows(await server.ask(f"{server.root}/model/info"))
    described = [(row.get("model_name"), row["model_info"]) for row in rows if "model_info" in row]
    return shapes.of_models(described, shapes.litellm, server.strange)


Look = Callable[[Server, Sequence[str]], Awaitable[dict[str, Facts]]]
_LOOKS: tuple[tuple[str, Look], ...] = (
    ("/v1beta/models", _gemini),
    ("/api/show", _ollama),
    ("/props", _llama_cpp),
    ("/api/v1/models", _lm_studio),
    ("/model/info", _litellm),
)
