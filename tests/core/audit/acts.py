"""The acts that the tests try: a function for each act of the audit and each way to do it."""

from collections.abc import Callable

from core.audit.actions import ACTIONS
from core.audit.origin import How
from tests.core.audit.world import World

Act = Callable[[World], object]
ACTS: list[tuple[str, How, Act]] = []


def act(action: str, how: How) -> Callable[[Act], Act]:
    assert action in ACTIONS

    def decorate(does: Act) -> Act:
        ACTS.append((action, how, does))
        return does

    return decorate


def page(action: str) -> Callable[[Act], Act]:
    return act(action, How.PAGE)


def staff(action: str) -> Callable[[Act], Act]:
    return act(action, How.ADMIN)


def program(action: str) -> Callable[[Act], Act]:
    return act(action, How.API)
