"""What the lines of the log say of where they come from: the request, the person, the answer.

It is known to all that happens inside a request, and goes along with the jobs that it leads to: one id finds the lines
of the web server, the worker and the call of the model.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

NAMES = ("request_id", "user_id", "turn_id")
_ID_OF_TRACE = re.compile(r"[0-9a-f]{32}")

_known: ContextVar[dict[str, str] | None] = ContextVar("what the log knows", default=None)


def known() -> dict[str, str]:
    """By the names of `NAMES`; what is not known is left out."""
    return dict(_known.get() or {})


@contextmanager
def knowing(of: Mapping[str, object], mine: dict[str, str] | None = None) -> Iterator[None]:
    """Lines written inside say this, and what `learn` adds, and nothing of what is known outside. `mine` is where it is
    kept, for whoever wants to know it later."""
    mine = {} if mine is None else mine
    mine.update({name: str(of[name]) for name in NAMES if of.get(name)})
    token = _known.set(mine)
    try:
        yield
    finally:
        _known.reset(token)


def learn(**of: object) -> None:
    """From now on the lines of the request or job at hand say this, too, on every thread that works for it."""
    mine = _known.get()
    if mine is not None:
        mine.update({name: str(value) for name, value in of.items() if value})


def trace_of(request_id: str) -> tuple[int, int]:
    """The ids of a request's trace and of its first span, in which the trace's is the request's where that has its form
    (32 hexadecimal digits, hyphens aside), as those have that we make."""
    plain, digest = request_id.replace("-", "").lower(), hashlib.blake2b(request_id.encode(), digest_size=24).digest()
    own = int(plain, 16) if _ID_OF_TRACE.fullmatch(plain) else 0
    return own or int.from_bytes(digest[8:]), int.from_bytes(digest[:8])
