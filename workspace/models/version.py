"""Caches of rows that only administrators change, for one version of the workspace.

1. One row holds a version. Triggers of the database replace it whenever a provider, a model, a budget profile, a system
   prompt, a group of people or the workspace's settings change, in the same transaction, even by a manual SQL command.
2. Code that begins or runs a turn reads the version along with rows that it needs anyway, and passes it on.
3. A cache returns its entry for the same version, and reads it again for another one.

Versions are random and not counted, so that the version of a rolled-back transaction never comes again. The statistics
that a model's answers change (`token_ratio`, `ratio_samples`, `reported_counts`) make no new version.
"""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar
from uuid import UUID, uuid4

from django.db import models
from django.db.models import Q

Key = TypeVar("Key")
Value = TypeVar("Value")

MAX_VALUES = 20_000  # values of one `VersionedCacheByKey`; then it begins anew


class WorkspaceVersion(models.Model):
    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.UUIDField(default=uuid4)

    class Meta:
        app_label = "llm"
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="one_workspace_version")]

    def __str__(self) -> str:
        return str(self.version)


class VersionedCache(Generic[Value]):
    """A cache of the result of `read`, for one version of the workspace. Copy a row of it before you change it."""

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read = read
        self._entry: tuple[UUID, Value] | None = None  # one attribute, so that other threads see both or neither

    def get(self, version: UUID | None = None) -> Value:
        """Return the value of this version or a later one; without one a query reads the current version.

        `version` must have been read after all changes of the same transaction.
        """
        version = version or version_now()
        entry = self._entry
        if entry is None or entry[0] != version:
            entry = (version or uuid4(), self._read())  # without a version the entry never matches again
            self._entry = entry
        return entry[1]

    @property
    def last(self) -> Value | None:
        """Return the value that was read last, for any version."""
        return self._entry[1] if self._entry is not None else None


class VersionedCacheByKey(Generic[Key, Value]):
    """A cache of the results of `read` by key, for one version of the workspace."""

    def __init__(self, read: Callable[[Key, UUID | None], Value]) -> None:
        self._read = read
        self._all: VersionedCache[dict[Key, Value]] = VersionedCache(dict)

    def get(self, key: Key, version: UUID | None = None) -> Value:
        """Return the value of this version or a later one. `read` gets the version."""
        version = version or version_now()
        values = self._all.get(version)
        if key not in values:
            if len(values) >= MAX_VALUES:
                values.clear()
            values[key] = self._read(key, version)
        return values[key]


def version_now() -> UUID | None:
    """Return the current version; None if there is no row, in which case nothing is cached."""
    return WorkspaceVersion.objects.values_list("version", flat=True).first()
