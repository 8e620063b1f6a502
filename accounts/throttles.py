"""How often a person and their programs may call the API: so many calls a minute of each kind.

Counted per person, not per token: a new token does not make room. A kind is a scope, or `uploads`; the numbers are
`settings.API_RATES`, and 0 sets no limit. The counters are in the cache, one per minute of the clock, so all processes
count together and a count needs no history.
"""

import time
from dataclasses import dataclass

from django.conf import settings
from django.core.cache import cache
from django.http import HttpResponseBase
from redis.exceptions import RedisError

from accounts.models import User
from llm.errors import ProductError

WINDOW = 60  # seconds


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left after this call; `used` may be above `limit`. `reset` is in seconds, at least 1."""

    limit: int
    used: int
    reset: int

    def write(self, response: HttpResponseBase) -> None:
        """The header fields of draft-ietf-httpapi-ratelimit-headers-06."""
        response["RateLimit-Limit"] = str(self.limit)
        response["RateLimit-Remaining"] = str(max(0, self.limit - self.used))
        response["RateLimit-Reset"] = str(self.reset)


def count(user: User, kind: str) -> Allowance | None:
    """Counts one call; None where there is no limit."""
    limit = settings.API_RATES.get(kind, 0)
    if not limit:
        return None
    window, into = divmod(time.time(), WINDOW)
    key = f"calls:{kind}:{user.pk}:{window:.0f}"
    try:
        cache.add(key, 0, 2 * WINDOW)
        used = cache.incr(key)
    except (RedisError, ValueError):
        return None  # Redis is away, or has just forgotten the key: better uncounted than refused
    return Allowance(limit, used, max(1, round(WINDOW - into)))


def require(allowance: Allowance | None, kind: str) -> None:
    """Raises `throttled` (429) once more calls were made than are allowed."""
    if allowance is not None and allowance.used > allowance.limit:
        raise ProductError(
            "throttled",
            f"These were more than {allowance.limit:,} calls of the kind “{kind}” within a minute, the most that are "
            f"taken. Try again in {allowance.reset} s.",
            status=429,
            retry_after=allowance.reset,
        )
