"""Legal holds: rows that nobody and no sweep may remove, whoever they belong to.

Each app registers in `AppConfig.ready()` which of its rows a hold keeps, and by which paths the hold reaches them:
`register_hold(Project, "owner__legal_hold")`. A kind that no app has registered has none. People hide what is under a
hold where the product hides before it erases; everything else is refused, also to hand it over to somebody who could
remove it.
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
    """Register paths from a row of this kind to the `legal_hold` of a person or a conversation. One that is true keeps
    the row. Several apps may add paths to one kind."""
    _paths[kind._meta.label] = _paths.get(kind._meta.label, ()) + paths


def paths_to_holds(kind: type[Model]) -> tuple[str, ...]:
    """Return the registered paths of this kind; empty where no hold keeps its rows."""
    return _paths.get(kind._meta.label, ())


def free(rows: QuerySet[Row]) -> QuerySet[Row]:
    """Those that no hold keeps."""
    paths = paths_to_holds(rows.model)
    return rows.exclude(_reached(paths)) if paths else rows


def is_held(*rows: Model) -> bool:
    """Whether a hold keeps one of these, which are of one kind; as they are stored, in one query."""
    paths = paths_to_holds(type(rows[0])) if rows else ()
    if not paths:
        return False
    return type(rows[0])._base_manager.filter(_reached(paths), pk__in=[row.pk for row in rows]).exists()


def require_free(*rows: Model) -> None:
    """Raises `legal_hold` (409) where a hold keeps one of these, which are of one kind."""
    if is_held(*rows):
        raise ProductError("legal_hold", "This is under a legal hold, so it cannot be removed.", status=409)


def require_movable(*rows: Model) -> None:
    """Raises `legal_hold` (409) where a hold keeps one of these, which are of one kind, with whom it belongs to."""
    if is_held(*rows):
        sentence = Sentence("This is under a legal hold, so it cannot become somebody else's.")
        raise ProductError("legal_hold", sentence, status=409)


def require_rewritable(row: Model, before: str, text: str) -> None:
    """Raises `legal_hold` (409) where a hold keeps the row, and another text, or name, would take the place of this."""
    if before and before != text and is_held(row):
        sentence = Sentence(
            "This is under a legal hold, so its texts and its name stay as they are. Make a new one beside it."
        )
        raise ProductError("legal_hold", sentence, status=409)


def _reached(paths: tuple[str, ...]) -> Q:
    return reduce(or_, (Q(**{path: True}) for path in paths))
