"""Assign validated values to rows."""

from collections.abc import Mapping

from django.db.models import Model


def set_fields(row: Model, fields: Mapping[str, object]) -> None:
    """Set fields of a row by name, without saving it. The names must come from a form, a serializer or a constant."""
    for name, value in fields.items():
        setattr(row, name, value)
