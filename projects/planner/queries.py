"""The list of tasks as the model sees it: which ones, and their text. Plain values in and out; no Django, no clock."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from uuid import UUID

from django.db.models import Prefetch, Q
from django.utils import timezone

from accounts.models import User
from core.lookups import identifier, or_404
from projects.models import codes
from projects.models.task import Progress, Task, TaskQuerySet


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """`status` and `archetype` are the words of `Task`; `needs` is what a breakpoint that stands waits for."""

    code: str
    title: str
    status: str
    archetype: str = ""
    notes: str = ""
    position: int = 0
    needs: str = ""
    moved_to: str = ""
    items: tuple["TaskEntry", ...] = ()


@dataclass(frozen=True, slots=True)
class PromptTasks:
    """What stands in the prompt, in its order."""

    on: date
    today: tuple[TaskEntry, ...] = ()
    mentioned: tuple[TaskEntry, ...] = ()


def tasks_of(mentioned: Iterable[str]) -> set[str]:
    """The codes of objectives and tasks that are meant: an item that is mentioned means its task."""
    return {str(codes.parse(code).task) for code in mentioned}


def prompt_tasks(entries: Iterable[TaskEntry], *, on: date, mentioned: Iterable[str]) -> PromptTasks:
    """The rule of docs/context.md, “Tasks”: all tasks of the day `on`, finished ones too, and all that were mentioned.

    Day tasks bring their checklist. Nothing is there because something else is: an objective brings no tasks and a task
    no objective. Notes are kept where the code was mentioned, since that is when the user asks about this one; they
    would make a list that goes along with every message long. Today's tasks are in the user's order, those mentioned in
    that of their codes, so that neither depends on when it was mentioned. Raises `codes.BadCode` for what is no code.
    """
    meant = tasks_of(mentioned)
    today, others = [], []
    for entry in entries:
        code = codes.parse(entry.code)
        shown = replace(
            entry if entry.code in meant else replace(entry, notes=""),
            items=tuple(replace(item, notes="") for item in sorted(entry.items, key=_place)),
        )
        if code.level == "task" and code.horizon == "day" and code.start == on:
            today.append(shown)
        elif entry.code in meant:
            others.append(shown)
    return PromptTasks(on, tuple(sorted(today, key=_place)), tuple(sorted(others, key=lambda entry: entry.code)))


def render(tasks: PromptTasks) -> str:
    """The text of section `tasks`, the same bytes until one of these tasks changes; empty when there are none."""
    lines = []
    if tasks.today:
        lines += [f"Tasks of today, {tasks.on.isoformat()}:", *(line for each in tasks.today for line in _lines(each))]
    if tasks.mentioned:
        lines += ["Mentioned today:", *(line for each in tasks.mentioned for line in _lines(each))]
    return "\n".join(lines)


def _lines(entry: TaskEntry) -> Iterable[str]:
    kind = f"{entry.archetype} task" if entry.archetype else "objective"
    yield f"- {entry.code} [{_state(entry)}] {entry.title} ({kind})"
    yield from (f"    {line}" for line in entry.notes.splitlines())
    for item in entry.items:
        waits = f" (breakpoint, needs: {item.needs})" if item.needs else ""
        yield f"  - {item.code[len(entry.code) :]} [{_state(item)}] {item.title}{waits}"


def _state(entry: TaskEntry) -> str:
    return f"moved to {entry.moved_to}" if entry.moved_to else entry.status


def _place(entry: TaskEntry) -> tuple[int, str]:
    return entry.position, entry.code


def today(user: User, at: datetime | None = None) -> date:
    """The day it is for the user, now or at a moment."""
    return timezone.localdate(at, user.zone)


def visible_task(user: User, key: object) -> Task:
    """`key` is an id or a code. Raises `NotFound`."""
    rows = with_links(Task.objects.visible_to(user))
    found = rows.filter(code=key) if codes.is_code(str(key)) else rows.filter(pk=identifier(key, "task"))
    return or_404(found.first(), "task")


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
    """What the model is shown: see `prompt_tasks` for the rule. `on` is the user's today.

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
