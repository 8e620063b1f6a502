"""The rate limit: how many calls a person may make in a minute.

Calls of each kind are counted per person, not per token, so that a new token does not add calls. A kind is a scope or
`uploads`. `settings.API_RATES` has the limits, where 0 means no limit. The counters are in the cache, one per minute of
the clock. So all processes share them, and a count needs no history. `accounts.access.login_throttle` counts
passwords in the same way.
"""

import time
from contextlib import suppress
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.cache import cache
from django.http import HttpResponseBase
from redis.exceptions import RedisError

from core.errors import ProductError
from core.sentences import Sentence

WINDOW = 60  # seconds


@dataclass(frozen=True, slots=True)
class RateAllowance:
    """The count after a call: `used` of `limit` calls. `used` is above `limit` if the call is refused.

    `reset`: seconds until the count restarts, at least 1. `key`: the counter in the cache.
    """

    limit: int
    used: int
    reset: int
    key: str

    @property
    def exceeded(self) -> bool:
        return self.used > self.limit

    def set_headers(self, response: HttpResponseBase) -> None:
        """Set the header fields of draft-ietf-httpapi-ratelimit-headers-06."""
        response["RateLimit-Limit"] = str(self.limit)
        response["RateLimit-Remaining"] = str(max(0, self.limit - self.used))
        response["RateLimit-Reset"] = str(self.reset)


def count_call(user: AbstractUser, kind: str) -> RateAllowance | None:
    """Count one call of a person. Returns None without a limit, and while Redis is unavailable."""
    return count_in_window(f"calls:{kind}:{user.pk}", settings.API_RATES.get(kind, 0), WINDOW)


def count_in_window(subject: str, limit: int, seconds: int) -> RateAllowance | None:
    """Count one event of the subject in the current window of the clock. `seconds`: length of the window.

    Returns None for a limit of 0 (unlimited), and while Redis is unavailable.
    """
    if not limit:
        return None
    window, elapsed = divmod(time.time(), seconds)
    key = f"{subject}:{window:.0f}"
    try:
        cache.add(key, 0, 2 * seconds)
        used = cache.incr(key)
    except (RedisError, ValueError):
        return None  # Redis is unavailable or the key has just expired: do not refuse the call
    return RateAllowance(limit, used, max(1, round(seconds - elapsed)), key)


def refund(allowance: RateAllowance, times: int = 1) -> None:
    """Subtract calls that should not count. The count does not stay below 0, so that no one gets a credit."""
    with suppress(RedisError, ValueError):
        left = cache.decr(allowance.key, times)
        if left < 0:
            cache.incr(allowance.key, -left)


def reset(allowance: RateAllowance) -> None:
    """Reset the count to 0."""
    with suppress(RedisError):
        cache.delete(allowance.key)


def require_within_limit(allowance: RateAllowance | None, kind: str) -> None:
    """Raise `throttled` (429) if the calls exceed the limit."""
    if allowance is not None and allowance.exceeded:
        raise ProductError(
            "throttled",
            Sentence(
                "The limit is {limit} calls of the kind “{kind}” per minute. Try again in {reset} s.",
                limit=allowance.limit,
                kind=kind,
                reset=allowance.reset,
            ),
            status=429,
            retry_after=allowance.reset,
        )
