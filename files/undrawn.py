"""Pages that could not be drawn, so that nobody waits for the same failure again.

They are in the cache, one entry a file, for an hour: a machine that was busy may draw the page later. Reading the file
again clears them.
"""

import logging
from uuid import UUID

from django.core.cache import cache
from redis.exceptions import RedisError

KEPT = 3_600  # seconds
MOST_PAGES = 1_000  # of one file; of more the oldest are forgotten

logger = logging.getLogger(__name__)


def failure_of(file_id: UUID, page: int) -> str | None:
    """Return the code of the error with which drawing the page failed lately; None where it did not."""
    return _failures(file_id).get(page)


def remember_failure(file_id: UUID, page: int, code: str) -> None:
    """Note that drawing the page failed. Of two failures of a file at once, one may be lost."""
    failures = {**_failures(file_id), page: code}
    newest = dict(list(failures.items())[-MOST_PAGES:])
    try:
        cache.set(_key(file_id), newest, KEPT)
    except RedisError:
        logger.warning("the failure to draw a page is not remembered: Redis is away")


def forget_failures(file_id: UUID) -> None:
    """Have every page of the file drawn anew."""
    try:
        cache.delete(_key(file_id))
    except RedisError:
        logger.warning("failures to draw pages are not forgotten before they end: Redis is away")


def _failures(file_id: UUID) -> dict[int, str]:
    try:
        return cache.get(_key(file_id)) or {}
    except RedisError:
        return {}


def _key(file_id: UUID) -> str:
    return f"undrawn:{file_id}"
