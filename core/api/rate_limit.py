"""How many calls a person may make in a minute.

So many calls a minute of each kind, counted per person, not per token: a new token does not make room. A kind is a
scope, or `uploads`; the numbers are `settings.API_RATES`, and 0 sets no limit. The counters are in the cache, one per
minute of the clock, so all processes count together and a count needs no history. Tries of passwords are counted in
the same way, see `accounts.access.login_throttle`.
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
class Allowance:
    """What is left after this call; `used` may be above `limit`. `reset` is in seconds, at least 1; `key` counts."""

    limit: int
    used: int
    reset: int
    key: str

    @property
    def exceeded(self) -> bool:
        return self.used > self.limit

    def write(self, response: HttpResponseBase) -> None:
        """The header fields of draft-ietf-httpapi-ratelimit-headers-06."""
        response["RateLimit-Limit"] = str(self.limit)
        response["RateLimit-Remaining"] = str(max(0, self.limit - self.used))
        response["RateLimit-Reset"] = str(self.reset)


def count(user: AbstractUser, kind: str) -> Allowance | None:
    """Counts one call; None where there is no limit."""
    return counted(f"calls:{kind}:{user.pk}", settings.API_RATES.get(kind, 0), WINDOW)


def counted(what: str, limit: int, seconds: int) -> Allowance | None:
    """Counts one more of `what` in the present window of so many seconds of the clock; a limit of 0 is none."""
    if not limit:
        return None
    window, into = divmod(time.time(), seconds)
    key = f"{what}:{window:.0f}"
    try:
        cache.add(key, 0, 2 * seconds)
        used = cache.incr(key)
    except (RedisError, ValueError):
        return None  # Redis is away, or has just forgotten the key: better uncounted than refused
    return Allowance(limit, used, max(1, round(seconds - into)), key)


def take_back(allowance: Allowance, times: int = 1) -> None:
    """Uncount so many of what turned out not to count. Nobody gets a credit: the count does not fall below 0."""
    with suppress(RedisError, ValueError):
        left = cache.decr(allowance.key, times)
        if left < 0:
            cache.incr(allowance.key, -left)


def forget(allowance: Allowance) -> None:
    """Counts from nothing again."""
    with suppress(RedisError):
        cache.delete(allowance.key)


def require(allowance: Allowance | None, kind: str) -> None:
    """Raises `throttled` (429) once more calls were made than are allowed."""
    if allowance is not None and allowance.exceeded:
        raise ProductError(
            "throttled",
            Sentence(
                "These were more than {limit} calls of the kind “{kind}” within a minute, the most that are "
                "taken. Try again in {reset} s.",
                limit=allowance.limit,
                kind=kind,
                reset=allowance.reset,
            ),
            status=429,
            retry_after=allowance.reset,
        )
