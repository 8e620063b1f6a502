"""What only administrators set, kept by each process for as long as it stands in the database as it was read.

One row holds a version. Triggers of the database put another in its place whenever a provider, a model, a budget
profile, a system prompt, a group of people or the workspace's settings change, in the same transaction and by whatever
way: a service, the admin, SQL by hand. Whoever begins a turn or carries one out reads the version along with rows that
they need anyway. What was kept under another is read again.

Versions are random and not counted, so that one of a transaction that was rolled back never comes again. What
a model teaches with every answer (`token_ratio`, `ratio_samples`, `reported_counts`) makes no new version.
"""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar
from uuid import UUID, uuid4

from django.db import models
from django.db.models import Q

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_KEPT = 20_000  # values of one `KeptOf`; then it begins anew


class WorkspaceVersion(models.Model):
    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.UUIDField(default=uuid4)

    class Meta:
        app_label = "llm"
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="one_workspace_version")]

    def __str__(self) -> str:
        return str(self.version)


class Kept(Generic[Value]):
    """What `read` returns, of this process. Whoever changes a row of it takes a copy first."""

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read = read
        self._kept: tuple[UUID, Value] | None = None  # one name, so that other threads see both or neither

    def at(self, version: UUID | None = None) -> Value:
        """As it was at this version or later; without one as it is now, by a query for the version.

        `version` must have been read after whatever the same transaction has changed itself.
        """
        version = version or version_now()
        kept = self._kept
        if kept is None or kept[0] != version:
            kept = (version or uuid4(), self._read())  # where there is none, nobody finds it again
            self._kept = kept
        return kept[1]

    @property
    def last(self) -> Value | None:
        """As it was read last, whatever has changed since."""
        return self._kept[1] if self._kept is not None else None


class KeptOf(Generic[Key, Value]):
    """As `Kept`, of many things: what `read` returns of each, by its key."""

    def __init__(self, read: Callable[[Key, UUID | None], Value]) -> None:
        self._read = read
        self._all: Kept[dict[Key, Value]] = Kept(dict)

    def at(self, key: Key, version: UUID | None = None) -> Value:
        """As it was at this version or later; `read` is given the version."""
        version = version or version_now()
        found = self._all.at(version)
        if key not in found:
            if len(found) >= MOST_KEPT:
                found.clear()
            found[key] = self._read(key, version)
        return found[key]


def version_now() -> UUID | None:
    """None where there is none, which nothing is kept under."""
    return WorkspaceVersion.objects.values_list("version", flat=True).first()
