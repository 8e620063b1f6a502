"""Record requests that leave the workspace. They are recorded when they are sent, so failed requests are included."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypedDict


class OutgoingRequest(TypedDict):
    """A request that left the workspace. `host`: its receiver; `what`: the address, query or arguments, verbatim."""

    host: str
    what: str


_noted: ContextVar[list[OutgoingRequest] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[list[OutgoingRequest]]:
    """Yield a list of the requests that this task, and tasks that it starts, send within the block."""
    noted: list[OutgoingRequest] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note(host: str, what: str) -> None:
    """Record a request. Outside of `noting` this does nothing."""
    noted = _noted.get()
    if noted is not None:
        noted.append({"host": host, "what": what})
