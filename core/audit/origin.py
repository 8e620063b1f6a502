"""The origin of an act: the interface, the address, the request and the token.

A middleware, a socket and `manage.py` set it for all that happens inside them, so that no service takes a parameter for
it. Where none is set, the product acts by itself: a worker, or a scheduled task.
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
    """The origin of acts. `name`: who acts outside of the workspace; for a command, the user of the operating system.

    `recorded` collects (kind, id) of the rows about which an act was recorded; None collects nothing.
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
    """Add the token to the origin: a program sent the current request."""
    current = _origin.get()
    if current is not None:
        current.how = How.API
        current.token_id = token_id
        current.token_name = name
