"""The append-only file of the Redis of answers, rewritten after an erasure.

A deleted stream leaves its text in that file until Redis rewrites it. By itself Redis does so only when the file has
doubled, and never below 64 MB.

1. `request_rewrite` counts erasures.
2. A sweeper calls `rewrite_if_due` every minute. It asks for a rewrite at most once in `EVERY`.
"""

import logging
from typing import Any

import redis
from redis.exceptions import ResponseError

from core.background import streams

EVERY = 300  # seconds; a rewrite forks Redis and writes all that it holds
DUE = "append-only:due"
PAUSED = "append-only:paused"
RUNNING = "in progress"  # part of the error when another rewrite is under way

logger = logging.getLogger(__name__)


def request_rewrite() -> None:
    """Note that text was deleted. Raises what Redis raises."""
    streams().incr(DUE)


def rewrite_if_due() -> None:
    """Ask Redis to rewrite its file where text was deleted since the last time.

    A Redis without such a file, one that does not permit it, and one that is away are no errors.
    """
    client: Any = streams()
    try:
        erasures = int(client.get(DUE) or 0)
        if not erasures or not client.set(PAUSED, 1, nx=True, ex=EVERY):
            return
        if client.info("persistence").get("aof_enabled"):
            client.bgrewriteaof()
        client.decrby(DUE, erasures)  # those that were noted meanwhile are due the next time
    except ResponseError as error:
        # One that is running may have begun before the text was deleted.
        if RUNNING not in str(error):
            logger.info("Redis does not rewrite its append-only file: %s", error)
            client.delete(DUE)
    except (redis.RedisError, OSError) as error:
        logger.info("Redis is away; its append-only file is rewritten later: %s", error)
