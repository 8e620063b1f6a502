"""Ask a provider for the number of tokens in a prompt, before it is sent. Counts are cached by the prompt."""

import hashlib
from contextlib import suppress

from django.core.cache import cache
from redis import RedisError

from core.background import on_database
from llm.models import Model
from llm.services import shared_client
from llm.types.model_call import ModelRequest

CACHE_SECONDS = 3_600


async def exact_count(model: Model, request: ModelRequest, *, ask: bool = True) -> int | None:
    """Return the provider's count of messages and tools together. None if it cannot count, or not in time.

    `ask`: False returns only a cached count.
    """
    key = _key(model, request)
    count = None
    with suppress(RedisError):
        count = await on_database(cache.get, key)
    if count is None and ask:
        count = await shared_client(model.provider).count_tokens(request)
        if count is not None:
            with suppress(RedisError):
                await on_database(cache.set, key, count, CACHE_SECONDS)
    return count


def _key(model: Model, request: ModelRequest) -> str:
    counted = (request.messages, request.tools, request.tool_choice, request.required_tool, request.response_format)
    identity = repr((str(model.provider_id), request.model, request.several_system_messages, counted))
    return f"tokens:{hashlib.sha256(identity.encode()).hexdigest()}"
