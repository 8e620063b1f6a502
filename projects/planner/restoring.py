"""Restore tasks of an export with their codes, times and statuses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from accounts.models import User
from projects.models import Project
from projects.planner.models import codes
from projects.planner.models.task import CodeSeries, Task
from projects.planner.services import lock_tasks

LEVEL_ORDER = (Task.Level.OBJECTIVE, Task.Level.TASK, Task.Level.ITEM)  # parents before the rows below them


@dataclass(frozen=True, slots=True)
class TaskCopy:
    """A task of an export. `parent` and `moved_to` are codes. The other fields are those of `Task`."""

    code: str
    title: str
    notes: str
    archetype: str
    status: str
    breakpoint: bool
    needs: str
    cleared: datetime | None
    project: Project | None
    parent: str
    position: int
    moved_to: str
    model: str
    proposed: bool
    created: datetime
    finished: datetime | None


@dataclass(slots=True)
class RestoredTasks:
    """The result of a restoration: the ids of the stored tasks, parents first, and the codes that were not stored.

    `existing`: the number of tasks whose code is used already. `refused`: texts that are no codes.
    """

    stored: list[UUID] = field(default_factory=list)
    existing: int = 0
    refused: Sequence[str] = ()


@transaction.atomic
def restore_tasks(*, user: User, copies: Iterable[TaskCopy]) -> RestoredTasks:
    """Store the tasks that the user lacks, with their codes and times. A task with a used code is not stored."""
    lock_tasks(user)
    result = RestoredTasks()
    refused: list[str] = []
    existing: dict[str, UUID] = dict(Task.objects.visible_to(user).values_list("code", "pk"))
    moved: list[TaskCopy] = []
    for level, copy in _by_level(copies, refused):
        if copy.code in existing:
            result.existing += 1
            continue
        row = _row(user, level, copy, existing)
        try:
            with transaction.atomic():
                row.clean_fields(exclude=["owner", "parent", "project", "moved_to"])
                row.save(force_insert=True)
        except (ValidationError, IntegrityError):
            refused.append(copy.code)
            continue
        Task.objects.filter(pk=row.pk).update(created=copy.created)
        _use_number(user, row)
        existing[copy.code] = row.pk
        result.stored.append(row.pk)
        if copy.moved_to:
            moved.append(copy)
    for copy in moved:
        target = existing.get(copy.moved_to)
        if target is not None and not Task.objects.filter(moved_to=target).exists():
            Task.objects.filter(pk=existing[copy.code]).update(moved_to=target)
    result.refused = refused
    return result


def _by_level(copies: Iterable[TaskCopy], refused: list[str]) -> list[tuple[codes.Code, TaskCopy]]:
    """Return the tasks with their parsed codes, parents first. Appends invalid codes to `refused`."""
    rows: list[tuple[codes.Code, TaskCopy]] = []
    for copy in copies:
        try:
            rows.append((codes.parse(copy.code), copy))
        except codes.BadCode:
            refused.append(copy.code[: codes.MAX_LENGTH])
    return sorted(rows, key=lambda row: LEVEL_ORDER.index(Task.Level(row[0].level)))


def _row(user: User, code: codes.Code, copy: TaskCopy, existing: dict[str, UUID]) -> Task:
    is_item = code.item is not None
    parent = str(code.task) if is_item else copy.parent
    return Task(
        owner=user,
        level=code.level,
        horizon=code.horizon,
        code=str(code),
        date=code.start,
        title=copy.title,
        notes=copy.notes,
        archetype=copy.archetype,
        status=copy.status,
        breakpoint=copy.breakpoint,
        needs=copy.needs,
        cleared=copy.cleared,
        project=None if is_item else copy.project,
        parent_id=existing.get(parent),
        position=copy.position,
        model=copy.model,
        proposed=copy.proposed,
        finished=copy.finished,
    )


def _use_number(user: User, row: Task) -> None:
    """Keep the number of the row's code from being used again."""
    number = int(row.code[-2:])
    counter, _ = CodeSeries.objects.get_or_create(owner=user, series=row.code[:-2])
    if counter.last < number:
        CodeSeries.objects.filter(pk=counter.pk).update(last=number)
