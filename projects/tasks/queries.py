"""Objectives, tasks and checklist items, read: what is whose, how far it is, and what the model is shown of it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from uuid import UUID

from django.db.models import Prefetch, Q
from django.utils import timezone

from accounts.models import User
from llm.errors import NotFound
from projects.services import identifier
from projects.tasks import codes
from projects.tasks.block import PromptTasks, TaskEntry, prompt_tasks, tasks_of
from projects.tasks.models import Progress, Task, TaskQuerySet


def today(user: User, at: datetime | None = None) -> date:
    """The day it is for the user, now or at a moment."""
    return timezone.localdate(at, user.zone)


def visible_task(user: User, key: object) -> Task:
    """`key` is an id or a code. Raises `NotFound`."""
    rows = with_links(Task.objects.visible_to(user))
    found = rows.filter(code=key) if codes.is_code(str(key)) else rows.filter(pk=identifier(key, "task"))
    task = found.first()
    if task is None:
        raise NotFound("task")
    return task


def with_links(rows: TaskQuerySet) -> TaskQuerySet:
    """With the rows that showing one or changing it looks at."""
    return rows.select_related("parent", "project", "moved_to", "moved_from")


def with_progress(rows: Sequence[Task]) -> Sequence[Task]:
    """The same rows, each with its `progress`; an item has none.

    Of a day task it counts the checklist, of all else the tasks below at any depth. What was dropped or moved does
    not count. At most four queries for any number of rows, since there are four levels to descend.
    """
    counts: dict[UUID, list[int]] = defaultdict(lambda: [0, 0])
    below = {row.pk: {row.pk} for row in rows if row.level != Task.Level.ITEM}
    level = Q()  # items only in the first round: those of the rows themselves
    while below:
        deeper: dict[UUID, set[UUID]] = {}
        found = Task.objects.filter(level, parent__in=below)
        for pk, parent, kind, status in found.values_list("pk", "parent_id", "level", "status"):
            if kind != Task.Level.ITEM:
                deeper[pk] = below[parent]
            if kind != Task.Level.OBJECTIVE and status not in (Task.Status.DROPPED, Task.Status.MOVED):
                for root in below[parent]:
                    counts[root][0] += status == Task.Status.DONE
                    counts[root][1] += 1
        below, level = deeper, ~Q(level=Task.Level.ITEM)
    for row in rows:
        row.progress = None if row.level == Task.Level.ITEM else Progress(*counts[row.pk])
    return rows


def tasks_for_prompt(*, user: User, on: date, mentioned: Iterable[str] = ()) -> PromptTasks:
    """What the model is shown: see `task_block.prompt_tasks` for the rule. `on` is the user's today.

    `mentioned` are the codes that the user's messages of that day mention (`codes.mentions`). What the day's own tasks
    mention counts too (seed: WENDY, "@mentioned in the task list of the Day"); what stands there only for that brings
    nothing more. The project of a conversation does not narrow it: the rule says all of the day's tasks, and every one
    of them is the user's own.
    """
    mentioned = set(mentioned)
    of_day = Q(level=Task.Level.TASK, horizon=Task.Horizon.DAY, date=on)
    rows = Task.objects.visible_to(user).select_related("moved_to")
    items = Task.objects.filter(level=Task.Level.ITEM).select_related("moved_to")
    checklist = Prefetch("children", queryset=items, to_attr="checklist")
    found = list(rows.filter(of_day | Q(code__in=tasks_of(mentioned))).prefetch_related(checklist))
    listed = {code for row in found if _is_of(row, on) for code in _mentions(row)}
    if missing := tasks_of(listed) - {row.code for row in found}:
        found += rows.filter(code__in=missing).prefetch_related(checklist)
    return prompt_tasks([_entry(row, _checklist(row)) for row in found], on=on, mentioned=mentioned | listed)


def _is_of(row: Task, day: date) -> bool:
    return (row.level, row.horizon, row.date) == (Task.Level.TASK, Task.Horizon.DAY, day)


def _checklist(row: Task) -> list[Task]:
    return getattr(row, "checklist", [])


def _mentions(row: Task) -> Iterable[str]:
    texts = [text for each in (row, *_checklist(row)) for text in (each.title, each.notes)]
    return codes.mentions("\n".join(texts))


def _entry(row: Task, items: Iterable[Task] = ()) -> TaskEntry:
    return TaskEntry(
        code=row.code,
        title=row.title,
        status=row.status,
        archetype=row.archetype,
        notes=row.notes,
        position=row.position,
        needs=(row.needs or "the user's word") if row.blocking else "",
        moved_to=row.moved_to.code if row.moved_to else "",
        items=tuple(_entry(item) for item in items),
    )
