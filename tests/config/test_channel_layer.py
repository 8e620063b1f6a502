"""The connection over which web processes hear of news for their sockets."""

from typing import Any

from channels.layers import channel_layers
from django.conf import settings
from redis.asyncio import Redis


async def test_a_socket_is_taken_after_the_connection_to_redis_was_lost() -> None:
    """As after a restart of Redis while a process has no socket: it notices with the next one."""
    layer: Any = channel_layers.make_backend("default")
    await layer.new_channel()
    redis = Redis.from_url(settings.CHANNELS_URL)
    assert await redis.client_kill_filter(_type="pubsub")
    channel = await layer.new_channel()
    await layer.send(channel, {"type": "news"})
    assert await layer.receive(channel) == {"type": "news"}
    await layer.flush()
    await redis.aclose()
