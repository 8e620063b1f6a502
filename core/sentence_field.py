"""Store a sentence in a model field, see `core.sentences`."""

from typing import Any

from django.db import models
from django.db.models.query_utils import DeferredAttribute

from core.sentences import Sentence


class _SentenceAttribute(DeferredAttribute):
    """Converts an assigned text into a sentence, so that an unsaved row has the same type as a loaded one."""

    def __set__(self, row: models.Model, value: Sentence | str) -> None:
        row.__dict__[self.field.attname] = _loaded(value)


class SentenceColumn(models.TextField[Sentence | str, Sentence]):
    """A `Sentence` in Python, and the text of `Sentence.dump` in the database. Migrations see a text column."""

    descriptor_class = _SentenceAttribute

    def deconstruct(self) -> Any:
        name, _path, args, keywords = super().deconstruct()
        return name, "django.db.models.TextField", args, keywords

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Sentence | None:
        """Return the sentence; None for the null of an outer join."""
        return _loaded(value)  # type: ignore[no-any-return]  # a sentence for text, None for None

    def to_python(self, value: Any) -> Any:
        return _loaded(value)

    def get_prep_value(self, value: Any) -> Any:
        return value.dump() if isinstance(value, Sentence) else value

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.get_prep_value(self.value_from_object(obj)))


def _loaded(value: Any) -> Any:
    """Return stored text as a sentence. Return other values, such as database expressions, unchanged."""
    return Sentence.load(value) if isinstance(value, str) else value
