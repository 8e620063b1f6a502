"""The fields of log lines: the ids of the request, the person and the turn.

They are set for all code that runs inside a request and for the jobs that the request starts. So one id finds the
lines of the web server, the worker and the model call.
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
    """Return a copy of the current fields by name (`NAMES`), without unset fields."""
    return dict(_fields.get() or {})


@contextmanager
def log_context(values: Mapping[str, object], fields: dict[str, str] | None = None) -> Iterator[None]:
    """Set the fields of the log lines in the block: these values and the values that `add_log_fields` adds.

    Fields from outside the block do not apply. `fields`: the dictionary to store them in, for a caller that reads them
    after the block.
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
    """Return the ids of a request's trace and its first span.

    If the request's id has the form of a trace id (32 hexadecimal digits, hyphens ignored), it becomes the trace id.
    The ids that we make have this form. Otherwise the trace id is a digest of the request's id.
    """
    plain = request_id.replace("-", "").lower()
    digest = hashlib.blake2b(request_id.encode(), digest_size=24).digest()
    own = int(plain, 16) if _ID_OF_TRACE.fullmatch(plain) else 0
    return own or int.from_bytes(digest[8:]), int.from_bytes(digest[:8])
