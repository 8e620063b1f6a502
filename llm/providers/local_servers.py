"""What servers of one's own say beside their protocol: the window that they have really given a model,
and how many tokens a prompt has.

Who is there is judged by the shape of the answers, never by their status: servers answer what they do not know with
pages, and with 200.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx2

from llm.providers.streaming import tokens
from llm.types.model_call import Allocated

PATIENCE = 2.0  # seconds
MAX_ANSWER = 4 * 1024 * 1024  # bytes; a list of the tokens of a long prompt


async def ask(client: httpx2.AsyncClient, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object that the server answers to a GET, or to a POST with `body`; an empty one for anything else."""
    method = "GET" if body is None else "POST"
    try:
        async with asyncio.timeout(PATIENCE), client.stream(method, path, json=body) as response:
            answer = b""
            async for chunk in response.aiter_bytes():
                answer += chunk
                if len(answer) > MAX_ANSWER:
                    return {}
        value = json.loads(answer)
    except (httpx2.HTTPError, TimeoutError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


async def counted(client: httpx2.AsyncClient, body: Mapping[str, Any]) -> int | None:
    """The tokens of a request of Chat Completions, by vLLM or llama.cpp; None from anybody else."""
    said = await ask(client, "/tokenize", body)
    if "count" in said:  # vLLM
        return tokens(said["count"]) or None
    if not isinstance(said.get("tokens"), list):
        return None
    prompt = (await ask(client, "/apply-template", body)).get("prompt")
    if not isinstance(prompt, str):
        return None
    found = (await ask(client, "/tokenize", {"content": prompt})).get("tokens")
    return len(found) or None if isinstance(found, list) else None


async def allocated(client: httpx2.AsyncClient, model: str) -> Allocated | None:
    """From Ollama or llama.cpp, whichever it is."""
    running = (await ask(client, "/api/ps")).get("models")
    if isinstance(running, list):
        names = (model, f"{model}:latest")
        loaded = [each for each in running if isinstance(each, dict) and each.get("name") in names]
        return Allocated("ollama", tokens(loaded[0].get("context_length")) or None if loaded else None)
    settings = (await ask(client, "/props")).get("default_generation_settings")
    if isinstance(settings, dict):
        return Allocated("llama.cpp", tokens(settings.get("n_ctx")) or None)
    return None
