"""Register functions that run when a person is deleted.

An app registers a function in `AppConfig.ready()`: `on_user_delete(delete_reminders_of)`.
"""

from collections.abc import Callable

from accounts.models import User

_functions: list[Callable[[User], None]] = []


def on_user_delete(function: Callable[[User], None]) -> None:
    """Register a function that is called in the transaction that deletes a person, before their row is deleted."""
    _functions.append(function)


def delete_unowned(person: User) -> None:
    """Call the registered functions. Call this in the transaction that deletes the person."""
    for function in _functions:
        function(person)
