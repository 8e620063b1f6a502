"""What the lines of the log say of where they come from: the request, the person, the answer.

It is known to all that happens inside a request, and goes along with the jobs that it leads to: one id finds the lines
of the web server, the worker and the call of the model.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

NAMES = ("request_id", "user_id", "turn_id")

_known: ContextVar[dict[str, str] | None] = ContextVar("what the log knows", default=None)


def known() -> dict[str, str]:
    """By the names of `NAMES`; what is not known is left out."""
    return dict(_known.get() or {})


@contextmanager
def knowing(of: Mapping[str, object], mine: dict[str, str] | None = None) -> Iterator[None]:
    """Lines written inside say this, and what `learn` adds, and nothing of what is known outside. `mine` is where it is
    kept, for whoever wants to know it later."""
    mine = {} if mine is None else mine
    mine.update({name: str(of[name]) for name in NAMES if of.get(name)})
    token = _known.set(mine)
    try:
        yield
    finally:
        _known.reset(token)


def learn(**of: object) -> None:
    """From now on the lines of the request or job at hand say this, too, on every thread that works for it."""
    mine = _known.get()
    if mine is not None:
        mine.update({name: str(value) for name, value in of.items() if value})
