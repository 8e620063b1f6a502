"""The origin of an act: its interface, address, request and token.

A middleware, a socket and `manage.py` set the origin for all code that runs inside them, so that services need no
parameter for it. Without an origin the product acts by itself, as in a worker or a scheduled task.
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
    """The origin of acts. `name`: an actor who is no user of the workspace, such as the system user of a command.

    `recorded` collects (kind, id) of each row about which an act is recorded. None collects nothing.
    """

    how: How = How.SYSTEM
    address: str = ""
    request_id: str = ""
    name: str = ""
    token_id: UUID | None = None
    token_name: str = ""
    recorded: set[tuple[str, str]] | None = field(default=None)


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def current_origin() -> Origin:
    return _origin.get() or Origin()


@contextmanager
def use_origin(current_origin: Origin) -> Iterator[Origin]:
    """Set the origin of the acts that the block records."""
    token = _origin.set(current_origin)
    try:
        yield current_origin
    finally:
        _origin.reset(token)


def set_token(token_id: UUID, name: str) -> None:
    """Add the token of the current request to the origin, and mark the origin as the API."""
    current = _origin.get()
    if current is not None:
        current.how = How.API
        current.token_id = token_id
        current.token_name = name
