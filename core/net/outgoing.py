"""What a piece of work sends out of the workspace, noted where it is sent, so also of what then fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypedDict


class Sent(TypedDict):
    """`host`: who got it; `what`: the address, query or arguments, to the letter."""

    host: str
    what: str


_noted: ContextVar[list[Sent] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[list[Sent]]:
    """The list grows with what this task, and those that it starts, send until its end."""
    noted: list[Sent] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note(host: str, what: str) -> None:
    """Without `noting` around it nobody wants to know."""
    noted = _noted.get()
    if noted is not None:
        noted.append({"host": host, "what": what})
