"""The history of a task as its page shows it: who changed what, in words."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import User
from core.errors import ProductError
from projects.models import Project
from projects.models.task import Task, TaskChange

SHOWN = 50  # changes on one page
MOST = 120  # characters shown of a value
WORDS = {
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
    "moved_to": gettext_lazy("Goes on as"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """`item` is the end of an item's code, as C03, empty for the task itself; `model` is who did it for `who`."""

    when: datetime
    who: str
    model: str
    item: str
    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class History:
    """Newest first; `older` is the cursor of the next page, None on the last."""

    changes: list[Change]
    older: int | None


def history(user: User, task: Task, before: str = "") -> History:
    """One page; `before` is the cursor of the page before. Raises `ProductError` for a cursor that is none."""
    rows = TaskChange.objects.visible_to(user).of(task).select_related("user")
    if before:
        if not (before.isascii() and before.isdigit() and len(before) < 19):
            raise ProductError("bad_cursor", "This page of the history does not exist. Open the task again.")
        rows = rows.filter(pk__lt=int(before))
    found = list(rows[: SHOWN + 1])
    shown = found[:SHOWN]
    names = _projects(user, shown)
    return History(
        changes=[_change(row, task, names) for row in shown], older=shown[-1].pk if len(found) > SHOWN else None
    )


def _projects(user: User, rows: Iterable[TaskChange]) -> dict[str, str]:
    if not any(row.field == "project" for row in rows):
        return {}
    return {str(pk): name for pk, name in Project.objects.visible_to(user).values_list("pk", "name")}


def _change(row: TaskChange, task: Task, projects: dict[str, str]) -> Change:
    return Change(
        when=row.created,
        who=row.user.get_username() if row.user else "",
        model=row.model,
        item=row.code.removeprefix(task.code).removeprefix("."),
        what=str(WORDS.get(row.field, row.field)),
        before=_value(row.field, row.before, projects),
        after=_value(row.field, row.after, projects),
    )


def _value(name: str, value: str, projects: dict[str, str]) -> str:
    if name == "cleared":
        return ""  # when it was is when the change was
    if not value:
        return _("nothing") if name in ("project", "parent", "notes", "needs") else ""
    if name == "status":
        return str(dict(Task.Status.choices).get(value, value))
    if name == "project":
        return projects.get(value, _("a project that is not yours"))
    if name == "position":
        return str(int(value) + 1)
    return Truncator(value).chars(MOST)
