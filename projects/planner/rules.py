"""Check changes to objectives, tasks and checklist items by users and models. This module writes no rows.

A model may create any of them for its user. It may change model and hybrid tasks and their checklists, but
neither the user's own tasks nor objectives (docs/develop/context.md, “Tasks”). It may not delete or reorder. It may not
pass a breakpoint: only the user clears it or finishes its item.

To add a field that can be changed:

1. Add it to `TaskFields`.
2. Write a check like `_title`, and register it in `_CHECKS`.
3. Name it in `projects.planner.pages.FIELDS` for the history.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict
from uuid import UUID

from django.utils import timezone

from accounts.models import User
from core.errors import NotFound, ProductError
from core.sentences import Sentence
from projects.models import Project
from projects.planner.models.codes import HORIZONS
from projects.planner.models.task import MAX_NEEDS, MAX_TITLE, Task

MAX_NOTES = 4_000  # characters
# (level, horizon) → (level, horizon) of possible parents. A parent is always of a higher level, so there are no cycles.
PARENTS: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("objective", "year"): (),
    ("objective", "month"): (("objective", "year"),),
    ("task", "month"): (("objective", "year"), ("objective", "month")),
    ("task", "day"): (("objective", "year"), ("objective", "month"), ("task", "month")),
    ("item", "day"): (("task", "day"),),
}
_UNSTORABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")  # control characters, and surrogates


@dataclass(frozen=True, slots=True)
class Actor:
    """Author of a change: a user, or the model with this name that works for them in this conversation."""

    user: User
    model: str = ""
    conversation: UUID | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """Task to create.

    `date` is any day of the year or month. None means the user's today, or the task's day for an item. `archetype` is
    for tasks; empty means the user's. Items need a `parent`, and only items may have `breakpoint` and `needs`. `draft`:
    a model drafts the checklist of a day task that is not the user's own.
    """

    title: str
    level: str = Task.Level.TASK
    horizon: str = Task.Horizon.DAY
    date: datetime.date | None = None
    archetype: str = ""
    parent: Task | None = None
    breakpoint: bool = False
    needs: str = ""
    notes: str = ""
    project: Project | None = None
    draft: bool = True


@dataclass(frozen=True, slots=True)
class DraftItem:
    title: str
    breakpoint: bool = False
    needs: str = ""


class TaskFields(TypedDict, total=False):
    """Fields of a task that a user or a model may change."""

    title: str
    notes: str
    archetype: str
    project: Project | None
    parent: Task | None
    status: str
    breakpoint: bool
    needs: str


class TaskChanges(TaskFields, total=False):
    """Changed columns of a task: `TaskFields`, columns that follow from them, and columns that only services set."""

    cleared: datetime.datetime | None
    finished: datetime.datetime | None
    moved_to: Task
    proposed: bool


def check_kind(level: str, horizon: str) -> None:
    """Raise `unknown_kind` for a level that does not exist at this horizon."""
    if horizon not in HORIZONS.get(level, ()):
        raise ProductError(
            "unknown_kind",
            "An objective is for a year or a month, a task for a month or a day, and a checklist item for a day.",
        )


def check_may_change(actor: Actor, row: Task) -> None:
    """Raise `for_the_user` (403) if a model changes a row that only the user may change."""
    task = row.parent if row.level == Task.Level.ITEM else row
    if actor.model and (task is None or task.archetype in ("", Task.Archetype.USER)):
        raise ProductError(
            "for_the_user",
            Sentence("{code} is the user's own, so a model may not change it. Ask the user.", code=row.code),
            status=403,
        )


def check_is_user(actor: Actor, action: Sentence) -> None:
    """Raise `only_the_user` (403) if the actor is a model. `action` completes the sentence “Only the user …”."""
    if actor.model:
        raise ProductError("only_the_user", Sentence("Only the user {what}. Ask them.", what=action), status=403)


def check_not_moved(row: Task) -> None:
    """Raise `was_moved` (409) for a task that was moved and now has another code."""
    if row.moved_to is not None:
        raise ProductError(
            "was_moved",
            Sentence(
                "{code} was moved and continues as {code2}. Change {code2}.", code=row.code, code2=row.moved_to.code
            ),
            status=409,
        )


def check_not_declined(actor: Actor, row: Task) -> None:
    """Raise `declined` (409) if a model changes a declined proposal or an item of one."""
    task = row.parent if row.level == Task.Level.ITEM else None
    if actor.model and (row.declined or (task is not None and task.declined)):
        sentence = Sentence("{code} was declined. Only the user can accept it; leave it as it is.", code=row.code)
        raise ProductError("declined", sentence, status=409)


def breakpoint_before(row: Task) -> Task | None:
    """Return the first active breakpoint in a task's checklist, or for an item the first one up to its position."""
    if row.level != Task.Level.ITEM:
        items = row.children.filter(level=Task.Level.ITEM)
    else:
        items = Task.objects.in_list_of(row).filter(position__lte=row.position)
    return next((item for item in items.order_by("position", "code") if item.blocking), None)


def check_fields(actor: Actor, row: Task, fields: TaskFields) -> TaskChanges:
    """Validate fields, and return the columns that they change. Raises the errors of the checks below."""
    values: Mapping[str, Any] = fields
    changes: TaskChanges = {}
    for name, check in _CHECKS.items():
        if name in values:
            changes |= check(actor, row, values[name])
    if "breakpoint" in fields or "needs" in fields:
        changes |= _breakpoint(actor, row, fields)
    return changes


def _check_text(text: str, most: int, what: Sentence, *, one_line: bool) -> str:
    """Return the text in its stored form. Raises `text_too_long` instead of truncating the text."""
    text = _UNSTORABLE.sub(" ", text)
    text = " ".join(text.split()) if one_line else text.strip()
    if len(text) > most:
        raise ProductError(
            "text_too_long",
            Sentence(
                "{what} has {text} characters. The maximum is {most}. Shorten it.",
                what=what,
                text=len(text),
                most=most,
            ),
        )
    return text


def _title(actor: Actor, row: Task, value: str) -> TaskChanges:
    title = _check_text(value, MAX_TITLE, Sentence("The title"), one_line=True)
    if not title:
        raise ProductError("empty_title", "Give it a title of at least one character.")
    return {"title": title}


def _notes(actor: Actor, row: Task, value: str) -> TaskChanges:
    return {"notes": _check_text(value, MAX_NOTES, Sentence("The text of the notes"), one_line=False)}


def _archetype(actor: Actor, row: Task, value: str) -> TaskChanges:
    if row.level != Task.Level.TASK:
        if value:
            raise ProductError("not_a_task", "Only tasks have an archetype. Leave it out.")
        return {}
    if value not in Task.Archetype.values:
        raise ProductError(
            "unknown_archetype",
            Sentence("There is no archetype “{value}”. The archetypes are user, model and hybrid.", value=value),
        )
    return {"archetype": value}


def _project(actor: Actor, row: Task, value: Project | None) -> TaskChanges:
    if value is None or value.pk == row.project_id:
        return {"project": value}
    if row.level == Task.Level.ITEM:
        raise ProductError("item_has_no_project", "An item has the project of its task. Leave the project out.")
    if not Project.objects.visible_to(actor.user).filter(pk=value.pk).exists():
        raise NotFound("project")
    return {"project": value}


def _parent(actor: Actor, row: Task, value: Task | None) -> TaskChanges:
    is_item = row.level == Task.Level.ITEM
    if value is None:
        if is_item:
            raise ProductError("no_parent", "A checklist item belongs to a task. Choose its task.")
        return {"parent": None}
    if value.owner_id != actor.user.pk:
        raise NotFound("task")
    if is_item and row.parent_id not in (None, value.pk):
        raise ProductError("item_stays", "An item cannot move to another checklist. Create it again in the other one.")
    if (value.level, value.horizon) not in PARENTS[row.level, row.horizon]:
        raise ProductError(
            "wrong_parent",
            Sentence(
                "A checklist item belongs to a day task, a day task to a month task or an objective, a month "
                "task to an objective, a month to a year. {code} cannot contain this.",
                code=value.code,
            ),
        )
    return {"parent": value}


def _status(actor: Actor, row: Task, value: str) -> TaskChanges:
    if value == row.status:
        return {}
    check_not_moved(row)
    check_not_declined(actor, row)
    if value not in Task.Status.values or value == Task.Status.MOVED:
        raise ProductError(
            "unknown_status",
            "The status is open, doing, waiting, done or dropped. To continue on another day, move the task.",
        )
    breakpoint = breakpoint_before(row) if actor.model else None
    # A task may be in progress while its checklist has a breakpoint. An item after the breakpoint may not.
    after_breakpoint = breakpoint is not None and row.level == Task.Level.ITEM
    if breakpoint and (
        value in (Task.Status.DONE, Task.Status.DROPPED) or (after_breakpoint and value == Task.Status.DOING)
    ):
        raise ProductError(
            "breakpoint",
            Sentence(
                "The user has not cleared the breakpoint {code}. Ask for what it needs, and stop until then.",
                code=breakpoint.code,
            ),
            status=409,
        )
    return {"status": value, "finished": None if value in Task.UNFINISHED else timezone.now()}


def _breakpoint(actor: Actor, row: Task, fields: TaskFields) -> TaskChanges:
    is_set = bool(fields.get("breakpoint", row.breakpoint))
    needs = _check_text(fields.get("needs", row.needs), MAX_NEEDS, Sentence("What the breakpoint needs"), one_line=True)
    if not is_set:
        if row.blocking:
            check_is_user(actor, Sentence("removes a breakpoint"))
        if "needs" in fields and needs:
            raise ProductError("no_breakpoint", "Only a breakpoint needs something from the user. Set it as one.")
        return {"breakpoint": False, "needs": "", "cleared": None}
    if row.level != Task.Level.ITEM:
        raise ProductError("not_an_item", "Only checklist items can be breakpoints. Set it on an item of the task.")
    return {"breakpoint": True, "needs": needs}


_CHECKS: dict[str, Callable[[Actor, Task, Any], TaskChanges]] = {
    "title": _title,
    "notes": _notes,
    "archetype": _archetype,
    "project": _project,
    "parent": _parent,
    "status": _status,
}
