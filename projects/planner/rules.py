"""What may be done with objectives, tasks and checklist items, and by whom. Nothing here writes.

A model works for a user and may create anything. It changes model and hybrid tasks and their checklists, not the
user's own tasks and not objectives: there it only talks (docs/develop/context.md, “Tasks”). It neither deletes nor
reorders, and it does not pass a breakpoint that stands: only the user clears it or finishes its item.
"""

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts.models import User
from core.errors import NotFound, ProductError
from core.sentences import Sentence
from projects.models import Project
from projects.planner.models.codes import HORIZONS
from projects.planner.models.task import MAX_NEEDS, MAX_TITLE, Task

MAX_NOTES = 4_000  # characters
# (level, horizon) → those of the parents that it may have. Each is above the next, so there is no circle.
PARENTS: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("objective", "year"): (),
    ("objective", "month"): (("objective", "year"),),
    ("task", "month"): (("objective", "year"), ("objective", "month")),
    ("task", "day"): (("objective", "year"), ("objective", "month"), ("task", "month")),
    ("item", "day"): (("task", "day"),),
}
_UNSTORABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")  # control characters, and what PostgreSQL refuses


@dataclass(frozen=True, slots=True)
class Actor:
    """Who changes something: a user, or the model of this name working for them in this conversation."""

    user: User
    model: str = ""
    conversation: UUID | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """`date` is any day of the year or month; without it, the user's today, and for an item the day of its task.

    `archetype` is for tasks, empty means the user's. Items need a `parent`; `breakpoint` and `needs` are for them.
    `draft`: a model drafts the checklist of a day task that is not the user's own.
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


def check_kind(level: str, horizon: str) -> None:
    if horizon not in HORIZONS.get(level, ()):
        raise ProductError(
            "unknown_kind",
            "Objectives are of a year or month, tasks of a month or day, checklist items of a day. Choose one of them.",
        )


def check_hand(actor: Actor, row: Task) -> None:
    """Raises `for_the_user` (403) for a model where it only talks."""
    task = row.parent if row.level == Task.Level.ITEM else row
    if actor.model and (task is None or task.archetype in ("", Task.Archetype.USER)):
        raise ProductError(
            "for_the_user",
            Sentence("{code} is the user's own; a model only talks about it. Ask the user.", code=row.code),
            status=403,
        )


def check_person(actor: Actor, what: Sentence) -> None:
    """`what` completes "Only the user …". Raises `only_the_user` (403) for a model."""
    if actor.model:
        raise ProductError("only_the_user", Sentence("Only the user {what}. Ask them.", what=what), status=403)


def check_here(row: Task) -> None:
    """Raises `was_moved` (409) for a task that goes on under another code."""
    if row.moved_to is not None:
        raise ProductError(
            "was_moved",
            Sentence(
                "{code} was moved and goes on as {code2}. Change that one.", code=row.code, code2=row.moved_to.code
            ),
            status=409,
        )


def check_not_declined(actor: Actor, row: Task) -> None:
    """Raises `declined` (409) for a model, of a proposal that was dropped, and of an item of one."""
    task = row.parent if row.level == Task.Level.ITEM else None
    if actor.model and (row.declined or (task is not None and task.declined)):
        sentence = Sentence("{code} was declined. Only the user takes it up again; leave it as it is.", code=row.code)
        raise ProductError("declined", sentence, status=409)


def breakpoint_before(row: Task) -> Task | None:
    """The first breakpoint that stands: at an item or before it in its checklist; of a task, in its checklist."""
    if row.level != Task.Level.ITEM:
        items = row.children.filter(level=Task.Level.ITEM)
    else:
        items = Task.objects.beside(row).filter(position__lte=row.position)
    return next((item for item in items.order_by("position", "code") if item.blocking), None)


def checked(actor: Actor, row: Task, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that `fields` would change, cleaned. Names it does not know are passed over.

    Known: title, notes, archetype, project (a row or None), parent (a row or None), status, breakpoint, needs.
    """
    changes: dict[str, Any] = {}
    for name, check in _CHECKS.items():
        if name in fields:
            changes |= check(actor, row, fields[name])
    if "breakpoint" in fields or "needs" in fields:
        changes |= _breakpoint(actor, row, fields)
    return changes


def _storable(text: str, most: int, what: Sentence, *, one_line: bool) -> str:
    """Raises `text_too_long`, since what would be cut off would be lost."""
    text = _UNSTORABLE.sub(" ", text)
    text = " ".join(text.split()) if one_line else text.strip()
    if len(text) > most:
        raise ProductError(
            "text_too_long",
            Sentence(
                "{what} has {text} characters, the most is {most}. Shorten it.",
                what=what,
                text=len(text),
                most=most,
            ),
        )
    return text


def _title(actor: Actor, row: Task, value: str) -> dict[str, Any]:
    title = _storable(value, MAX_TITLE, Sentence("The title"), one_line=True)
    if not title:
        raise ProductError("empty_title", "Give it a title of at least one character.")
    return {"title": title}


def _notes(actor: Actor, row: Task, value: str) -> dict[str, Any]:
    return {"notes": _storable(value, MAX_NOTES, Sentence("The text of the notes"), one_line=False)}


def _archetype(actor: Actor, row: Task, value: str) -> dict[str, Any]:
    if row.level != Task.Level.TASK:
        if value:
            raise ProductError("not_a_task", "Only tasks are the user's, the model's or both. Leave the archetype out.")
        return {}
    if value not in Task.Archetype.values:
        raise ProductError(
            "unknown_archetype",
            Sentence("There is no archetype “{value}”. They are user, model and hybrid.", value=value),
        )
    return {"archetype": value}


def _project(actor: Actor, row: Task, value: Project | None) -> dict[str, Any]:
    if value is None or value.pk == row.project_id:
        return {"project": value}
    if row.level == Task.Level.ITEM:
        raise ProductError("item_has_no_project", "A checklist item is in the project of its task. Leave it out.")
    if not Project.objects.visible_to(actor.user).filter(pk=value.pk).exists():
        raise NotFound("project")
    return {"project": value}


def _parent(actor: Actor, row: Task, value: Task | None) -> dict[str, Any]:
    is_item = row.level == Task.Level.ITEM
    if value is None:
        if is_item:
            raise ProductError("no_parent", "A checklist item belongs to a task. Say which one.")
        return {"parent": None}
    if value.owner_id != actor.user.pk:
        raise NotFound("task")
    if is_item and row.parent_id not in (None, value.pk):
        raise ProductError("item_stays", "An item stays in its checklist. Create it anew in the other one.")
    if (value.level, value.horizon) not in PARENTS[row.level, row.horizon]:
        raise ProductError(
            "wrong_parent",
            Sentence(
                "Checklist items go under day tasks, day tasks under month tasks or objectives, month tasks under "
                "objectives, and months under years. {code} cannot hold this.",
                code=value.code,
            ),
        )
    return {"parent": value}


def _status(actor: Actor, row: Task, value: str) -> dict[str, Any]:
    if value == row.status:
        return {}
    check_here(row)
    check_not_declined(actor, row)
    if value not in Task.Status.values or value == Task.Status.MOVED:
        raise ProductError(
            "unknown_status",
            "The status is open, doing, waiting, done or dropped. To go on on another day, move the task.",
        )
    breakpoint = breakpoint_before(row) if actor.model else None
    # A task may be in progress before a breakpoint in its list; an item behind one may not.
    behind = breakpoint is not None and row.level == Task.Level.ITEM
    if breakpoint and (value in (Task.Status.DONE, Task.Status.DROPPED) or (behind and value == Task.Status.DOING)):
        raise ProductError(
            "breakpoint",
            Sentence(
                "The user has not cleared the breakpoint {code}. Ask for what it needs, and stop until then.",
                code=breakpoint.code,
            ),
            status=409,
        )
    return {"status": value, "finished": None if value in Task.UNFINISHED else timezone.now()}


def _breakpoint(actor: Actor, row: Task, fields: Mapping[str, Any]) -> dict[str, Any]:
    is_set = bool(fields.get("breakpoint", row.breakpoint))
    needs = _storable(fields.get("needs", row.needs), MAX_NEEDS, Sentence("What the breakpoint needs"), one_line=True)
    if not is_set:
        if row.blocking:
            check_person(actor, Sentence("takes a breakpoint away"))
        if "needs" in fields and needs:
            raise ProductError("no_breakpoint", "Only a breakpoint needs something from the user. Make it one.")
        return {"breakpoint": False, "needs": "", "cleared": None}
    if row.level != Task.Level.ITEM:
        raise ProductError("not_an_item", "Only checklist items can be breakpoints. Put it on an item of the task.")
    return {"breakpoint": True, "needs": needs}


_CHECKS: dict[str, Callable[[Actor, Task, Any], dict[str, Any]]] = {
    "title": _title,
    "notes": _notes,
    "archetype": _archetype,
    "project": _project,
    "parent": _parent,
    "status": _status,
}
