"""Cache of pages that could not be drawn, so that no user waits for the same failure again.

It has one entry per file. An entry lasts an hour, since a busy machine may be able to draw the page later. The next
reading of the file clears its entry.
"""

import logging
from uuid import UUID

from django.core.cache import cache
from redis.exceptions import RedisError

CACHE_SECONDS = 3_600  # seconds
MAX_PAGES = 1_000  # per file; the oldest are removed first

logger = logging.getLogger(__name__)


def recent_failure(file_id: UUID, page: int) -> str | None:
    """Return the error code of a recent failure to draw the page; None if there was none."""
    return _failures(file_id).get(page)


def remember_failure(file_id: UUID, page: int, code: str) -> None:
    """Store that drawing the page failed. One of two simultaneous failures of a file may be lost."""
    failures = {**_failures(file_id), page: code}
    newest = dict(list(failures.items())[-MAX_PAGES:])
    try:
        cache.set(_key(file_id), newest, CACHE_SECONDS)
    except RedisError:
        logger.warning("the failure to draw a page was not cached: Redis is unavailable")


def forget_failures(file_id: UUID) -> None:
    """Remove the stored failures of all pages of the file."""
    try:
        cache.delete(_key(file_id))
    except RedisError:
        logger.warning("the cached failures to draw pages were not removed: Redis is unavailable")


def _failures(file_id: UUID) -> dict[int, str]:
    try:
        return cache.get(_key(file_id)) or {}
    except RedisError:
        return {}


def _key(file_id: UUID) -> str:
    return f"undrawn:{file_id}"
