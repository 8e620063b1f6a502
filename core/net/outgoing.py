"""Record requests that leave the workspace. They are recorded when they are sent, so failed requests are included."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypedDict


class OutgoingRequest(TypedDict):
    """A request that left the workspace. `host`: its receiver; `what`: the address, query or arguments, verbatim."""

    host: str
    what: str


_requests: ContextVar[list[OutgoingRequest] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[list[OutgoingRequest]]:
    """Yield a list of the requests that this task, and tasks that it starts, send within the block."""
    requests: list[OutgoingRequest] = []
    token = _requests.set(requests)
    try:
        yield requests
    finally:
        _requests.reset(token)


def note(host: str, what: str) -> None:
    """Record a request. Outside of `noting` this does nothing."""
    requests = _requests.get()
    if requests is not None:
        requests.append({"host": host, "what": what})
