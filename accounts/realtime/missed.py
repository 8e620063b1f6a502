"""What changed while a page was on its way: after the server began to write it, and before its socket was there.

Each hint is noted with its time before it is sent. A page's socket says when its page was begun; it joins its groups
first and looks at the notes then, so a change in between is either noted or still heard. A page that is up to date asks
for nothing.
"""

import math
import time
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from channels.layers import channel_layers
from django.core.cache import cache

KEPT = 3600  # seconds; for a page that is older everything has changed
SKEW = 1.0  # seconds between the clocks of two machines


async def tell(group: str, hint: dict[str, str], subject: str) -> None:
    """Notes that the subject has changed, and sends the hint to the group. Raises the errors of Redis."""
    await sync_to_async(cache.set, thread_sensitive=False)(_name(subject), time.time(), KEPT)
    await channel_layers["default"].group_send(group, hint)


async def has_changed(subject: str, since: float) -> bool:
    if time.time() - since > KEPT:
        return True
    noted = await sync_to_async(cache.get, thread_sensitive=False)(_name(subject), 0.0)
    return bool(noted >= since - SKEW)


def since_of(query: bytes) -> float:
    """Unix time in seconds from `since=…`; infinity, which nothing comes after, where there is no such number."""
    try:
        moment = float(parse_qs(query.decode("latin-1"))["since"][0])
    except (KeyError, ValueError):
        return math.inf
    return math.inf if math.isnan(moment) else moment


def _name(subject: str) -> str:
    return f"changed:{subject}"
