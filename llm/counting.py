"""A prompt's tokens as its provider counts them, before it is sent; asked seldom, and kept by what is in the prompt."""

import hashlib
from contextlib import suppress

from django.core.cache import cache
from redis import RedisError

from core.background import on_database
from llm.models import Model
from llm.services import shared_client
from llm.types.model_call import ModelRequest

KEPT = 3_600  # seconds


async def exact_count(model: Model, request: ModelRequest, *, ask: bool = True) -> int | None:
    """Messages and tools together, in tokens; None where the provider does not count, or not in time. Without `ask`
    only what it has counted before."""
    key, count = _key(model, request), None
    with suppress(RedisError):
        count = await on_database(cache.get, key)
    if count is None and ask:
        count = await shared_client(model.provider).count_tokens(request)
        if count is not None:
            with suppress(RedisError):
                await on_database(cache.set, key, count, KEPT)
    return count


def _key(model: Model, request: ModelRequest) -> str:
    counted = (request.messages, request.tools, request.tool_choice, request.required_tool, request.response_format)
    said = repr((str(model.provider_id), request.model, request.several_system_messages, counted))
    return f"tokens:{hashlib.sha256(said.encode()).hexdigest()}"
