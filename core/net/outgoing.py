"""Notes of the requests that leave the workspace, taken where they are sent, so also of those that then fail."""

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
    """Yield a list that collects the requests that this task, and the tasks that it starts, send in the block."""
    noted: list[OutgoingRequest] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note(host: str, what: str) -> None:
    """Note a request. Without `noting` around it this does nothing."""
    noted = _noted.get()
    if noted is not None:
        noted.append({"host": host, "what": what})
