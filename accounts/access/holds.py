"""Legal holds, which keep users and clean-up jobs from removing rows.

To put rows under holds: 1. find the paths from the row to the `legal_hold` of a person or a conversation; 2. call
`register_hold(Project, "owner__legal_hold")` in `AppConfig.ready()`; 3. call `require_free` before the row is deleted
and `require_movable` before it is handed over. Rows of an unregistered kind have no holds.

Where the product hides rows before it erases them, users can still hide a row under a hold. Everything else is refused,
including a transfer to a user who could remove the row.
"""

from functools import reduce
from operator import or_
from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from core.errors import ProductError
from core.sentences import Sentence

Row = TypeVar("Row", bound=Model)

_paths: dict[str, tuple[str, ...]] = {}  # by the label of the model


def register_hold(kind: type[Model], *paths: str) -> None:
    """Register paths from a row of this kind to the `legal_hold` of a person or a conversation.

    A row is under a hold if one of them is true. Several apps may add paths to one kind.
    """
    _paths[kind._meta.label] = _paths.get(kind._meta.label, ()) + paths


def paths_to_holds(kind: type[Model]) -> tuple[str, ...]:
    """Return the registered paths of this kind; empty if its rows cannot be under a hold."""
    return _paths.get(kind._meta.label, ())


def without_holds(rows: QuerySet[Row]) -> QuerySet[Row]:
    """Return the rows that are not under a hold."""
    paths = paths_to_holds(rows.model)
    return rows.exclude(_any_hold(paths)) if paths else rows


def is_held(*rows: Model) -> bool:
    """Return whether any of these rows is under a hold. The rows are of one kind. Makes one query."""
    paths = paths_to_holds(type(rows[0])) if rows else ()
    if not paths:
        return False
    return type(rows[0])._base_manager.filter(_any_hold(paths), pk__in=[row.pk for row in rows]).exists()


def require_free(*rows: Model) -> None:
    """Raise `legal_hold` (409) if any of these rows is under a hold. The rows are of one kind."""
    if is_held(*rows):
        raise ProductError("legal_hold", "This is under a legal hold, so it cannot be removed.", status=409)


def require_movable(*rows: Model) -> None:
    """Raise `legal_hold` (409) if any of these rows is under a hold, since its owner must not change then.

    The rows are of one kind.
    """
    if is_held(*rows):
        sentence = Sentence("This is under a legal hold, so it cannot become somebody else's.")
        raise ProductError("legal_hold", sentence, status=409)


def require_rewritable(row: Model, before: str, text: str) -> None:
    """Raise `legal_hold` (409) if the row is under a hold and its text or name would change from `before` to `text`."""
    if before and before != text and is_held(row):
        sentence = Sentence("This is under a legal hold, so its name and texts cannot change. Make a new one instead.")
        raise ProductError("legal_hold", sentence, status=409)


def _any_hold(paths: tuple[str, ...]) -> Q:
    return reduce(or_, (Q((path, True)) for path in paths))
