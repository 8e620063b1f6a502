"""Template contexts of the task pages. Each takes a fixed number of queries."""

import calendar
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from django.db.models import Count, Q, QuerySet
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import User
from core.errors import ProductError
from core.requests import choices
from projects.models import Project
from projects.planner.models.codes import HORIZONS, first_day
from projects.planner.models.task import Task, TaskChange, TaskProgress, TaskQuerySet
from projects.planner.queries import today, with_checklists, with_links, with_progress
from projects.planner.quick_add import Period
from projects.planner.rules import PARENTS

DAYS_PER_WEEK = 7
CHANGES_PER_PAGE = 50  # changes on one page of the history
SHOWN_CHARACTERS = 120  # characters shown of a changed value
FIELDS = {
    "created": gettext_lazy("Created"),
    "deleted": gettext_lazy("Deleted"),
    "title": gettext_lazy("Title"),
    "notes": gettext_lazy("Notes"),
    "archetype": gettext_lazy("Whose"),
    "status": gettext_lazy("Status"),
    "breakpoint": gettext_lazy("Breakpoint"),
    "needs": gettext_lazy("Breakpoint needs"),
    "cleared": gettext_lazy("Breakpoint cleared"),
    "project": gettext_lazy("Project"),
    "parent": gettext_lazy("Under"),
    "position": gettext_lazy("Place"),
    "moved_to": gettext_lazy("Continues as"),
    "proposed": gettext_lazy("Proposed by a model"),
}


@dataclass(frozen=True, slots=True)
class OpenRows:
    """The rows that an address opens: the ids of the row to `edit` and of the task whose checklist is `open`."""

    edit: str = ""
    open: str = ""


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task in a list.

    `up` and `down`: the id of the row after which the task stands when it is moved one step up or down. Empty means the
    first place; None means that no step is possible.
    """

    task: Task
    up: str | None = None
    down: str | None = None
    items: list["TaskLine"] = field(default_factory=list)
    editing: bool = False
    open: bool = False


@dataclass(frozen=True, slots=True)
class TaskList:
    level: str
    lines: list[TaskLine]

    @property
    def unfinished(self) -> int:
        return sum(line.task.status in Task.UNFINISHED for line in self.lines)

    @property
    def done(self) -> int:
        return sum(line.task.status == Task.Status.DONE for line in self.lines)


@dataclass(frozen=True, slots=True)
class CalendarCell:
    """A day or month in a calendar, with the progress of its tasks. `here`: it is marked as the current one."""

    period: Period
    count: TaskProgress
    here: bool


def board(user: User, period: Period, opened: OpenRows) -> Mapping[str, object]:
    """Return the context for the page of a day, month or year."""
    now = today(user)
    waiting = waiting_tasks(user, period, now)
    return {
        "period": period,
        "today": now,
        "lists": [TaskList(level, build_lines(list_rows(user, level, period), opened)) for level in _levels(period)],
        "tabs": [_tab_period(period, each, now) for each in ("day", "month", "year")],
        "before": period.shift(-1),
        "after": period.shift(1),
        "waiting": waiting,
        "waiting_ids": {task.pk for task, _item in waiting},
        **_calendar(user, period),
    }


def _levels(period: Period) -> list[str]:
    return [level for level, horizons in HORIZONS.items() if level != Task.Level.ITEM and period.horizon in horizons]


def list_rows(user: User, level: str, period: Period) -> Sequence[Task]:
    rows = Task.objects.visible_to(user).filter(level=level, horizon=period.horizon, date=period.start)
    return with_progress(list(with_checklists(with_links(rows))))


def build_lines(rows: Sequence[Task], opened: OpenRows) -> list[TaskLine]:
    """Return the lines of a list. `rows`: all rows of the list, in their order."""
    ids = [str(row.pk) for row in rows]
    shown = []
    for index, row in enumerate(rows):
        items = [] if row.level == Task.Level.ITEM else build_lines(row.checklist, opened)
        shown.append(
            TaskLine(
                task=row,
                up=("" if index == 1 else ids[index - 2]) if index else None,
                down=ids[index + 1] if index + 1 < len(ids) else None,
                items=items,
                editing=opened.edit == ids[index],
                open=opened.open == ids[index] or any(item.editing for item in items),
            )
        )
    return shown


def waiting_tasks(user: User, period: Period, now: date) -> list[tuple[Task, Task | None]]:
    """Return the tasks of a day that wait for the user, each with its waiting item. Today also shows other days'."""
    if period.horizon != Task.Horizon.DAY:
        return []
    condition = Q(status=Task.Status.WAITING) | Q(
        children__level=Task.Level.ITEM, children__status=Task.Status.WAITING, status__in=Task.UNFINISHED
    )
    rows = Task.objects.visible_to(user).filter(condition, level=Task.Level.TASK, horizon=Task.Horizon.DAY)
    if period.start != now:
        rows = rows.filter(date=period.start)
    return [(row, _stopping_item(row)) for row in with_checklists(rows.distinct())]


def _stopping_item(row: Task) -> Task | None:
    """Return the waiting item of the checklist, else the first active breakpoint."""
    stops = [item for item in row.checklist if item.status == Task.Status.WAITING or item.blocking]
    return next((item for item in stops if item.status == Task.Status.WAITING), stops[0] if stops else None)


def today_count(user: User) -> TaskProgress:
    rows = _countable(user).filter(horizon=Task.Horizon.DAY, date=today(user))
    counts = rows.aggregate(done=_DONE, total=_TOTAL)
    return TaskProgress(counts["done"], counts["total"])


def _countable(user: User) -> TaskQuerySet:
    """Return the user's tasks and objectives, except the dropped, moved and proposed ones."""
    rows = Task.objects.visible_to(user).exclude(level=Task.Level.ITEM).filter(proposed=False)
    return rows.exclude(status__in=(Task.Status.DROPPED, Task.Status.MOVED))


_DONE = Count("pk", filter=Q(status=Task.Status.DONE))
_TOTAL = Count("pk")


def _calendar(user: User, period: Period) -> Mapping[str, object]:
    """Return the context of the calendar: the week of a day, the weeks of a month, or the months of a year."""
    horizon, start = period
    if horizon == "day":
        week = (period.shift(n - start.weekday()) for n in range(DAYS_PER_WEEK))
        return {"week": _cells(user, "day", [each.start for each in week if each], start)}
    if horizon == "month":
        last = calendar.monthrange(start.year, start.month)[1]
        days = [start.replace(day=n) for n in range(1, last + 1)]
        cells: list[CalendarCell | None] = [None] * start.weekday()
        cells += _cells(user, "day", days, today(user))
        cells += [None] * (-len(cells) % DAYS_PER_WEEK)
        return {"weeks": [cells[at : at + DAYS_PER_WEEK] for at in range(0, len(cells), DAYS_PER_WEEK)]}
    months = [start.replace(month=n) for n in range(1, 13)]
    return {"months": _cells(user, "month", months, first_day("month", today(user)))}


def _cells(user: User, horizon: str, days: Sequence[date], here: date) -> list[CalendarCell]:
    rows = _countable(user).filter(horizon=horizon, date__range=(days[0], days[-1])).order_by("date")
    totals = rows.values("date").annotate(done=_DONE, total=_TOTAL).values_list("date", "done", "total")
    counts = {day: TaskProgress(done, total) for day, done, total in totals}
    return [CalendarCell(Period(horizon, day), counts.get(day, TaskProgress(0, 0)), day == here) for day in days]


def _tab_period(period: Period, horizon: str, now: date) -> Period:
    """Return the day, month or year that a tab opens: it contains `period`, or is inside it.

    If it is inside, it is the current one if `period` is current, else the first one.
    """
    inside = first_day(period.horizon, now) == period.start
    return Period(horizon, first_day(horizon, now if inside else period.start))


def task_page(user: User, task: Task, opened: OpenRows) -> Mapping[str, object]:
    """Return the context for the page of a task or an objective."""
    own = with_links(Task.objects.visible_to(user).filter(pk=task.pk))
    row = with_progress(list(with_checklists(own)))[0]
    below = with_links(Task.objects.visible_to(user).filter(parent=row).exclude(level=Task.Level.ITEM))
    return {
        "line": build_lines([row], opened)[0],
        "period": Period.of(row),
        "below": with_progress(list(below)),
        "parents": _possible_parents(user, row),
        "projects": choices(Project.objects.visible_to(user), row.project),
        "waiting": [(row, item)] if (item := _waiting_item(row)) else [],
    }


def _waiting_item(row: Task) -> Task | None:
    is_waiting = Task.Status.WAITING in (row.status, *(item.status for item in row.checklist))
    return _stopping_item(row) if is_waiting and row.status in Task.UNFINISHED else None


def _possible_parents(user: User, task: Task) -> QuerySet[Task]:
    """Return the possible parents: the unfinished rows of the same month or year, and the current parent."""
    fits = Q(pk=task.parent_id)
    for level, horizon in PARENTS[task.level, task.horizon]:
        date_ = first_day(horizon, task.date)
        fits |= Q(level=level, horizon=horizon, date=date_, status__in=Task.UNFINISHED)
    return Task.objects.visible_to(user).filter(fits).order_by("date", "level", "position", "code")


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change in the history of a task. `item`: the item's part of its code; empty for the task itself."""

    row: TaskChange
    item: str
    what: str
    before: str
    after: str


def history(user: User, task: Task, before: str = "") -> Mapping[str, object]:
    """Return one page of changes of a task and its checklist, newest first, and the cursor of the next page.

    `before` is such a cursor. Raises `bad_cursor`.
    """
    rows = TaskChange.objects.visible_to(user).of(task).select_related("user")
    if before:
        if not (before.isascii() and before.isdigit() and len(before) < 19):
            raise ProductError("bad_cursor", "This page of the history does not exist. Open the task again.")
        rows = rows.filter(pk__lt=int(before))
    page = list(rows[: CHANGES_PER_PAGE + 1])
    shown = page[:CHANGES_PER_PAGE]
    projects = Project.objects.visible_to(user) if any(row.field == "project" for row in shown) else ()
    names = {str(project.pk): project.name for project in projects}
    changes = [
        ShownChange(
            row=row,
            item=row.code.removeprefix(task.code).removeprefix("."),
            what=str(FIELDS.get(row.field, row.field)),
            before=_display_value(row.field, row.before, names),
            after=_display_value(row.field, row.after, names),
        )
        for row in shown
    ]
    return {"changes": changes, "older": shown[-1].pk if len(page) > CHANGES_PER_PAGE else None}


def _display_value(name: str, value: str, projects: dict[str, str]) -> str:
    if name == "cleared":
        return ""  # the value is the time of the change, which its row shows
    if not value:
        return _("nothing") if name in ("project", "parent", "notes", "needs") else ""
    if name == "status":
        return str(dict(Task.Status.choices).get(value, value))
    if name == "project":
        return projects.get(value, _("a project that is not yours"))
    if name == "position":
        return str(int(value) + 1)
    return Truncator(value).chars(SHOWN_CHARACTERS)
