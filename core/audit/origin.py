"""The origin of an act: the interface, the address, the request and the token.

A middleware, a socket and `manage.py` set the origin for all code that runs inside them, so that services need no
parameter for it. If no origin is set, the product acts by itself, as in a worker or a scheduled task.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


class How(StrEnum):
    PAGE = "page"
    API = "api"
    ADMIN = "admin"
    COMMAND = "command"
    SYSTEM = "system"


@dataclass(slots=True)
class Origin:
    """The origin of acts. `name`: an actor outside of the workspace, such as the operating system's user of a command.

    `recorded` collects (kind, id) of the rows about which an act was recorded. With None, nothing is collected.
    """

    how: How = How.SYSTEM
    address: str = ""
    request_id: str = ""
    name: str = ""
    token_id: UUID | None = None
    token_name: str = ""
    recorded: set[tuple[str, str]] | None = field(default=None)


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def origin() -> Origin:
    return _origin.get() or Origin()


@contextmanager
def acting(origin: Origin) -> Iterator[Origin]:
    """Set the origin of the acts that the block records."""
    token = _origin.set(origin)
    try:
        yield origin
    finally:
        _origin.reset(token)


def with_token(token_id: UUID, name: str) -> None:
    """Add the token to the origin. Called when a program with a token sent the current request."""
    current = _origin.get()
    if current is not None:
        current.how = How.API
        current.token_id = token_id
        current.token_name = name
