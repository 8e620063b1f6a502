"""The fields of log lines: the ids of the request, the person and the turn.

All code inside a request has them, and so do the jobs that the request leads to: one id finds the lines of the web
server, the worker and the call of the model.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

NAMES = ("request_id", "user_id", "turn_id")
_ID_OF_TRACE = re.compile(r"[0-9a-f]{32}")

_fields: ContextVar[dict[str, str] | None] = ContextVar("fields of log lines", default=None)


def log_fields() -> dict[str, str]:
    """Return a copy of the current fields, by the names of `NAMES`, without those that are not set."""
    return dict(_fields.get() or {})


@contextmanager
def log_context(values: Mapping[str, object], fields: dict[str, str] | None = None) -> Iterator[None]:
    """Give the log lines of the block these values, those that `add_log_fields` adds, and none from outside.

    `fields`: the dictionary that holds them, for a caller that reads them after the block.
    """
    fields = {} if fields is None else fields
    fields.update({name: str(values[name]) for name in NAMES if values.get(name)})
    token = _fields.set(fields)
    try:
        yield
    finally:
        _fields.reset(token)


def add_log_fields(**values: object) -> None:
    """Add fields to all further log lines of the current request or job, on every thread that works for it."""
    fields = _fields.get()
    if fields is not None:
        fields.update({name: str(value) for name, value in values.items() if value})


def trace_of(request_id: str) -> tuple[int, int]:
    """Return the ids of a request's trace and of its first span.

    The id of the trace is the request's where that has the form of one (32 hexadecimal digits, hyphens aside), as the
    ids that we make have; else a digest of it.
    """
    plain = request_id.replace("-", "").lower()
    digest = hashlib.blake2b(request_id.encode(), digest_size=24).digest()
    own = int(plain, 16) if _ID_OF_TRACE.fullmatch(plain) else 0
    return own or int.from_bytes(digest[8:]), int.from_bytes(digest[:8])
