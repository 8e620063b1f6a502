"""Jobs: rows that one worker claims and completes. If a worker dies, the sweeper hands its jobs to another worker.

To add a kind of job:

1. Give its table a status, a `heartbeat`, an `attempt`, and an index on `heartbeat` of the rows that have not ended.
2. Describe the table with a `JobKind`, in the module that does the work.
3. Write a Celery task that takes the row's id and calls `claim`. If that returns the row, the task does the work inside
   `alive`. It writes to the row only through `claimed`, which matches no row once the claim is lost.
4. `register` the kind in `AppConfig.ready`, with `give_up` for a job that keeps losing its worker.
5. Store a row and call `hand_over`. A message that the broker loses is sent again by the sweeper.

The row is the source of truth; the broker only makes jobs start early. A claim is one conditional update, so only one
of several workers succeeds. Its conditions use only the row's own columns: after it has waited for another claim of
the same row, PostgreSQL checks these again, but not a join. All times come from the clock of the database, since the
clocks of machines differ.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import F, Model, Q, QuerySet
from django.db.models.functions import Now

from core.background import STALE_AFTER, UNCLAIMED_AFTER, enqueue, heartbeat

NO_ROWS = Q(pk__in=())

Row = TypeVar("Row", bound=Model)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class JobKind(Generic[Row]):
    """How the jobs of one kind are claimed: the conditions and columns of their table.

    `task` is the Celery task that takes a row's id. Any worker may claim rows in `waiting`. Rows in `running` have a
    worker. That worker is lost once the heartbeat is older than `stale_after`. Then another worker may claim the row if
    it is in `resumable`.
    """

    model: type[Row]
    task: str
    waiting: Q
    running: Q
    resumable: Q
    on_claim: Mapping[str, object] = field(default_factory=dict)  # columns that a claim sets
    heartbeat_column: str = "heartbeat"
    lease: timedelta = timedelta(0)  # how far ahead a claim sets the heartbeat, for a kind that does not renew it
    stale_after: timedelta = STALE_AFTER
    unclaimed_after: timedelta = UNCLAIMED_AFTER  # if a job waits longer, the broker lost it or all workers are busy
    attempt_column: str | None = "attempt"  # counts claims, which distinguishes a claim from earlier ones
    tries_column: str | None = None  # counts claims since the last progress; None: `attempt_column` counts tries
    max_tries: int | None = None  # a lost job with this number of tries is not handed out again
    swept: Q = field(default_factory=Q)  # the condition of a partial index; it holds for all rows that a sweep selects
    batch: int | None = None  # rows that one sweep hands out, in the order of their heartbeats; None: all

    def hand_over(self, pk: UUID) -> None:
        """Send the row's id to a worker when the transaction commits."""
        transaction.on_commit(partial(enqueue, self.task, pk))

    def claim(self, pk: UUID, *related: str) -> Row | None:
        """Claim a row that is free, and return it with these relations; None if it is not free."""
        free = self._rows(self.waiting | self._resumable()).filter(pk=pk)
        changes: dict[str, Any] = {self.heartbeat_column: Now() + self.lease, **self.on_claim}
        for column in (self.attempt_column, self.tries_column):
            if column is not None:
                changes[column] = F(column) + 1
        if not free.update(**changes):
            return None
        rows = self._rows(Q(pk=pk))
        return (rows.select_related(*related) if related else rows).first()

    def claimed(self, row: Row) -> "QuerySet[Row]":
        """Return a query set of this row only. It is empty once the claim that returned `row` is lost or has ended."""
        rows = self._rows(self.running).filter(pk=row.pk)
        if self.attempt_column is None:
            return rows
        return rows.filter(**{self.attempt_column: getattr(row, self.attempt_column)})

    def alive(self, row: Row) -> AbstractContextManager[None]:
        """Return a context in which the heartbeat of a claimed row is renewed every few seconds."""
        return heartbeat(self.claimed(row))

    def renew(self, row: Row) -> bool:
        """Renew the heartbeat of a claimed row. Returns False once the claim is lost."""
        return bool(self.claimed(row).update(**{self.heartbeat_column: Now()}))

    def lost(self) -> "QuerySet[Row]":
        """Return the rows whose worker is lost."""
        return self._rows(self.swept & self.running & self._older_than(self.stale_after))

    def exhausted(self) -> "QuerySet[Row]":
        """Return the lost rows that have used up their tries."""
        return self.lost().exclude(self._has_tries())

    def to_hand_out(self) -> list[UUID]:
        """Return the ids of rows that a worker should claim: rows that wait too long, and lost rows that are resumable.

        A waiting row is returned once per `unclaimed_after`, since this renews its heartbeat. A kind with a `batch`
        keeps the heartbeat, which is the row's place in the queue, and returns the first rows each time.
        """
        waits = self.waiting & self._older_than(self.unclaimed_after)
        rows = self._rows(self.swept & (waits | self._resumable())).order_by(self.heartbeat_column)
        ids: list[UUID] = list(rows.values_list("pk", flat=True)[: self.batch])
        if self.batch is None:
            self._rows(self.waiting).filter(pk__in=ids).update(**{self.heartbeat_column: Now()})
        return ids

    def _rows(self, condition: Q) -> "QuerySet[Row]":
        return self.model._default_manager.filter(condition)

    def _older_than(self, age: timedelta) -> Q:
        return Q(**{f"{self.heartbeat_column}__lt": Now() - age})

    def _resumable(self) -> Q:
        return self.resumable & self._older_than(self.stale_after) & self._has_tries()

    def _has_tries(self) -> Q:
        column = self.tries_column or self.attempt_column
        return Q() if self.max_tries is None else Q(**{f"{column}__lt": self.max_tries})


@dataclass(frozen=True, kw_only=True)
class _Registration:
    kind: JobKind[Any]
    give_up: Callable[[Any], object] | None
    on_lost: "Callable[[QuerySet[Any]], object] | None"


_registrations: dict[str, _Registration] = {}


def register(
    kind: JobKind[Row],
    *,
    give_up: Callable[[Row], object] | None = None,
    on_lost: "Callable[[QuerySet[Row]], object] | None" = None,
) -> None:
    """Register a kind of job with the sweeper.

    `give_up` ends a lost job that has used up its tries. Its row is locked. Each sweep calls `on_lost` with the lost
    rows that have tries left, even if there are none. It ends these jobs or makes them wait again.
    """
    _registrations[kind.task] = _Registration(kind=kind, give_up=give_up, on_lost=on_lost)


def kinds() -> list[JobKind[Any]]:
    """Return every registered kind."""
    return [registration.kind for registration in _registrations.values()]


def sweep(kind: JobKind[Any]) -> None:
    """Give up jobs of a kind that keep losing their workers, and hand out those that wait for a worker."""
    registration = _registrations[kind.task]
    if registration.give_up is not None:
        for pk in kind.exhausted().values_list("pk", flat=True):
            with transaction.atomic():
                # The lock keeps a late heartbeat from arriving between this check and the end of the job.
                row = kind.exhausted().filter(pk=pk).select_for_update(skip_locked=True).first()
                if row is not None:
                    registration.give_up(row)
    if registration.on_lost is not None:
        registration.on_lost(kind.lost().filter(kind._has_tries()))
    for pk in kind.to_hand_out():
        enqueue(kind.task, pk)


def sweep_all() -> None:
    """Sweep every kind. An error in one kind is logged, and the other kinds are still swept."""
    for kind in kinds():
        try:
            sweep(kind)
        except Exception:
            logger.exception("the jobs of %s were not swept", kind.task)
