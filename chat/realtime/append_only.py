"""Have Redis rewrite its append-only file after answers were erased.

The text of a deleted stream stays in that file until Redis rewrites it. By itself Redis does so only when the file has
doubled, and never below 64 MB.

1. `request_rewrite` counts erasures.
2. A sweeper calls `rewrite_if_due` every minute. It asks for a rewrite at most once in `REWRITE_INTERVAL` seconds.
"""

import logging
from typing import Any

import redis
from redis.exceptions import ResponseError

from core.background import streams

REWRITE_INTERVAL = 300  # seconds; a rewrite is expensive, since it forks Redis and writes all its data
DUE_KEY = "append-only:due"
PAUSED_KEY = "append-only:paused"
RUNNING_ERROR = "in progress"  # part of the error when another rewrite is under way

logger = logging.getLogger(__name__)


def request_rewrite() -> None:
    """Record that text was deleted. Passes on the errors of Redis."""
    streams().incr(DUE_KEY)


def rewrite_if_due() -> None:
    """Ask Redis to rewrite its file if text was deleted since the last rewrite.

    Raises nothing if Redis has no such file, does not permit the command, or cannot be reached.
    """
    client: Any = streams()
    try:
        erasures = int(client.get(DUE_KEY) or 0)
        if not erasures or not client.set(PAUSED_KEY, 1, nx=True, ex=REWRITE_INTERVAL):
            return
        if client.info("persistence").get("aof_enabled"):
            client.bgrewriteaof()
        client.decrby(DUE_KEY, erasures)  # erasures recorded meanwhile stay due
    except ResponseError as error:
        # Keep the erasures due: a rewrite that is already running may have begun before the text was deleted.
        if RUNNING_ERROR not in str(error):
            logger.info("Redis does not rewrite its append-only file: %s", error)
            client.delete(DUE_KEY)
    except (redis.RedisError, OSError) as error:
        logger.info("Redis is unavailable; its append-only file is rewritten later: %s", error)
