"""Where an act comes from: through which door, from which address, in which request, with which token.

A middleware, a socket and `manage.py` say it for all that happens inside them, so that no service takes a parameter for
it. Where nobody has said it, the product acts by itself: a worker, the clock.
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
    """`name` is who acts where nobody of the workspace does: of a command, the user of the operating system.

    `recorded` holds (kind, id) of the rows of which something was recorded here; None where nobody asks for it.
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
def acting(came: Origin) -> Iterator[Origin]:
    """What is recorded inside came from there."""
    token = _origin.set(came)
    try:
        yield came
    finally:
        _origin.reset(token)


def with_token(token_id: UUID, name: str) -> None:
    """The request at hand is a program's, with this token."""
    came = _origin.get()
    if came is not None:
        came.how, came.token_id, came.token_name = How.API, token_id, name
