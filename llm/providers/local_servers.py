"""What servers of one's own say beside their protocol: the window that they have really given a model,
and how many tokens a prompt has.

Who is there is judged by the shape of the answers, never by their status: servers answer what they do not know with
pages, and with 200.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from core.errors import ModelError
from llm.providers.connection import Connection
from llm.providers.streaming import members, tokens
from llm.types.model_call import Allocated

PATIENCE = 2.0  # seconds


async def ask(server: Connection, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object that the server answers to a GET, or to a POST with `body`; an empty one for anything else."""
    try:
        async with asyncio.timeout(PATIENCE):
            return members(await server.answer(path, body))
    except (ModelError, TimeoutError):
        return {}


async def counted(server: Connection, body: Mapping[str, Any]) -> int | None:
    """The tokens of a request of Chat Completions, by vLLM or llama.cpp; None from anybody else."""
    said = await ask(server, "/tokenize", body)
    if "count" in said:  # vLLM
        return tokens(said["count"]) or None
    if not isinstance(said.get("tokens"), list):
        return None
    prompt = (await ask(server, "/apply-template", body)).get("prompt")
    if not isinstance(prompt, str):
        return None
    found = (await ask(server, "/tokenize", {"content": prompt})).get("tokens")
    return len(found) or None if isinstance(found, list) else None


async def allocated(server: Connection, model: str) -> Allocated | None:
    """From Ollama or llama.cpp, whichever it is."""
    running = (await ask(server, "/api/ps")).get("models")
    if isinstance(running, list):
        names = (model, f"{model}:latest")
        loaded = [each for each in running if isinstance(each, dict) and each.get("name") in names]
        return Allocated("ollama", tokens(loaded[0].get("context_length")) or None if loaded else None)
    settings = (await ask(server, "/props")).get("default_generation_settings")
    if isinstance(settings, dict):
        return Allocated("llama.cpp", tokens(settings.get("n_ctx")) or None)
    return None
