"""Assigning validated values to rows."""

from collections.abc import Mapping

from django.db.models import Model


def set_fields(row: Model, fields: Mapping[str, object]) -> None:
    """Set fields of a row by name, without storing it. The names come from a form, a serializer or a table of ours."""
    for name, value in fields.items():
        setattr(row, name, value)
