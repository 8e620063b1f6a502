"""Register the parts of higher apps: models whose rows take storage, temporary files, and the reader of scanned pages.

To add a model that takes storage:

1. Give it `owner` and `size`, in bytes.
2. Call `register_stored_model` in `AppConfig.ready()`.
"""

from typing import Protocol
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from accounts.models import User
from llm.models import Model as LanguageModel


class PageReader(Protocol):
    def __call__(self, model: LanguageModel, owner: UUID, picture: bytes) -> str:
        """Return the text of a page, passed as PNG; empty for a page without text. Raises `ModelError`."""


_stored: list[type[Model]] = []
_readers: list[PageReader] = []
_temporary: list[Q] = []


def register_stored_model(kind: type[Model]) -> None:
    """Register a model whose rows take `size` bytes of their `owner`'s storage."""
    _stored.append(kind)


def stored_rows(user: User) -> list[QuerySet[Model]]:
    """Return the rows of each registered model that take storage of this user."""
    return [kind._default_manager.filter(owner=user) for kind in _stored]


def register_temporary(condition: Q) -> None:
    """Register the condition of files that are deleted together with a row of a higher app.

    If their owner uploads the same content, the upload becomes a separate file.
    """
    _temporary.append(condition)


def temporary_condition() -> Q:
    """Return the condition of files that are deleted together with a row of a higher app."""
    return Q(*_temporary, _connector=Q.OR) if _temporary else Q(pk=None)


def register_page_reader(reader: PageReader) -> None:
    """Register the function that has a model read scanned pages. Raises ValueError for a second one."""
    if _readers:
        raise ValueError(f"the reader {_readers[0]!r} is registered already")
    _readers.append(reader)


def page_reader() -> PageReader:
    return _readers[0]
