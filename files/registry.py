"""What apps above files add to them, each in its `AppConfig.ready()`: rows that take storage, and a reader of pages."""

from typing import Protocol
from uuid import UUID

from django.db.models import Model, QuerySet

from accounts.models import User
from llm.models import Model as LanguageModel


class PageReader(Protocol):
    def __call__(self, model: LanguageModel, owner: UUID, picture: bytes) -> str:
        """Return what stands on a page, given as PNG; empty where that is nothing. Raises `ModelError`."""


_stored: list[type[Model]] = []
_readers: list[PageReader] = []


def count_as_stored(kind: type[Model]) -> None:
    """Register a model whose `owner` has `size` bytes in the storage."""
    _stored.append(kind)


def stored_rows(user: User) -> list[QuerySet[Model]]:
    """Return the rows of each registered model that take storage of this person."""
    return [kind._default_manager.filter(owner=user) for kind in _stored]


def read_pages_with(reader: PageReader) -> None:
    """Register the reader of pages that are pictures, which asks a model. Raises ValueError for a second one."""
    if _readers:
        raise ValueError(f"pages are read by {_readers[0]!r} already")
    _readers.append(reader)


def page_reader() -> PageReader:
    return _readers[0]
