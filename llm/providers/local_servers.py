"""Ask local servers for facts outside of the chat protocol: the window allocated for a model, the tokens in a prompt.

The shape of an answer identifies the server. The status does not, since some servers answer unknown paths with a page
and status 200.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from core.errors import ModelError
from core.json_types import JsonObject
from llm.providers.connection import Connection
from llm.providers.streaming import as_object, token_count
from llm.types.model_call import AllocatedWindow

REQUEST_TIMEOUT = 2.0  # seconds


async def request_object(server: Connection, path: str, body: Mapping[str, Any] | None = None) -> JsonObject:
    """Send a GET, or a POST with `body`, and return the JSON object of the answer; {} after a failure."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            return as_object(await server.request_json(path, body))
    except (ModelError, TimeoutError):
        return {}


async def count_prompt(server: Connection, body: Mapping[str, Any]) -> int | None:
    """Return the tokens in a Chat Completions request, as vLLM or llama.cpp counts them; None for other servers."""
    answer = await request_object(server, "/tokenize", body)
    if "count" in answer:  # vLLM
        return token_count(answer["count"]) or None
    if not isinstance(answer.get("tokens"), list):
        return None
    prompt = (await request_object(server, "/apply-template", body)).get("prompt")
    if not isinstance(prompt, str):
        return None
    prompt_tokens = (await request_object(server, "/tokenize", {"content": prompt})).get("tokens")
    return len(prompt_tokens) or None if isinstance(prompt_tokens, list) else None


async def allocated_window(server: Connection, model: str) -> AllocatedWindow | None:
    """Return the window that Ollama or llama.cpp has allocated for a model; None for other servers."""
    running_models = (await request_object(server, "/api/ps")).get("models")
    if isinstance(running_models, list):
        names = (model, f"{model}:latest")
        matching_models = [each for each in running_models if isinstance(each, dict) and each.get("name") in names]
        return AllocatedWindow(
            "ollama", token_count(matching_models[0].get("context_length")) or None if matching_models else None
        )
    settings = (await request_object(server, "/props")).get("default_generation_settings")
    if isinstance(settings, dict):
        return AllocatedWindow("llama.cpp", token_count(settings.get("n_ctx")) or None)
    return None
