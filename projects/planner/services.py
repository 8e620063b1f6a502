"""Every change to objectives, tasks and checklists, with its history, in one transaction.

Page, API, chat tool and run come through here. The rules are in `rules`. Every function raises `NotFound` for a
row that is not the user's or is gone, and returns the row as it is now.

What a model makes is `proposed` until its person accepts it, or changes, moves, extends or runs it, which shows that
they have seen it. A document that a model reads could otherwise write into the prompts of other conversations.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from django.db import models, transaction
from django.db.models import F, Max
from django.utils import timezone

from accounts.access.holds import require_free
from accounts.models import User
from accounts.realtime import News, tell
from core.errors import ProductError
from core.sentences import Sentence
from projects.planner import drafts
from projects.planner.models import codes
from projects.planner.models.task import MAX_MODEL, CodeSeries, Task, TaskChange
from projects.planner.queries import today, visible_task
from projects.planner.rules import (
    Actor,
    DraftItem,
    NewTask,
    check_hand,
    check_here,
    check_kind,
    check_not_declined,
    check_person,
    checked,
)

_DERIVED = {"finished"}  # follows from another column, whose change is recorded


@transaction.atomic
def create(*, actor: Actor, new: NewTask) -> Task:
    """At the end of its list, with the next code of its series. A model drafts its checklist, if that is wanted."""
    check_kind(new.level, new.horizon)
    lock_tasks(actor.user)
    parent = None if new.parent is None else visible_task(actor.user, new.parent.pk)
    is_task, is_item = new.level == Task.Level.TASK, new.level == Task.Level.ITEM
    row = Task(owner=actor.user, level=new.level, horizon=new.horizon)
    fields: dict[str, Any] = {"title": new.title, "notes": new.notes, "project": new.project, "parent": parent}
    fields["archetype"] = new.archetype or (Task.Archetype.USER if is_task else "")
    if new.breakpoint or new.needs:
        fields |= {"breakpoint": new.breakpoint, "needs": new.needs}
    for name, value in checked(actor, row, fields).items():
        setattr(row, name, value)
    row.date = _day(actor.user, new, parent)
    if is_item and parent is not None:
        check_hand(actor, parent)
        check_here(parent)
        check_not_declined(actor, parent)
        _seen(actor, parent)
    _insert(actor, [row])
    if new.draft:
        drafts.ask(actor, row)
    return row


@transaction.atomic
def update(*, actor: Actor, task: Task, fields: Mapping[str, Any]) -> Task:
    """`fields`: any of title, notes, archetype, project, parent, status, breakpoint, needs (see `rules.checked`).

    A breakpoint that is taken away and set again stands anew. The user's own task that becomes a model's has its
    checklist drafted as if it had been made so.
    """
    row = _locked(actor, task)
    check_hand(actor, row)
    was = row.archetype
    if fields.get("status", row.status) != Task.Status.DROPPED:
        _seen(actor, row)
    _write(actor, row, checked(actor, row, fields))
    if not drafts.fits(row):
        drafts.put(row)
    elif was == Task.Archetype.USER and not row.children.filter(level=Task.Level.ITEM).exists():
        drafts.ask(actor, row)
    return row


def set_status(*, actor: Actor, task: Task, status: str) -> Task:
    """open, doing, waiting, done or dropped. Raises `breakpoint` (409) for a model that one stands in the way of."""
    return update(actor=actor, task=task, fields={"status": status})


@transaction.atomic
def accept(*, actor: Actor, task: Task) -> Task:
    """Takes over what a model has proposed: the row, and its checklist as it is now. Accepting again changes nothing.

    A model then drafts the checklist of a model's or hybrid task of a day that has none. One that was declined opens
    again.
    """
    check_person(actor, Sentence("accepts a task"))
    row = _locked(actor, task)
    if row.declined:
        _write(actor, row, checked(actor, row, {"status": Task.Status.OPEN}))
    _seen(actor, row)
    for item in row.children.filter(level=Task.Level.ITEM, proposed=True):
        _seen(actor, item)
    return row


@transaction.atomic
def decline(*, actor: Actor, task: Task) -> Task:
    """Drops what a model has proposed, with its checklist; it never stands in a prompt. Raises `not_proposed` (409)."""
    check_person(actor, Sentence("declines a task"))
    row = _locked(actor, task)
    if not row.proposed:
        sentence = Sentence("{code} is accepted, so it cannot be declined. Drop or delete it instead.", code=row.code)
        raise ProductError("not_proposed", sentence, status=409)
    _write(actor, row, checked(actor, row, {"status": Task.Status.DROPPED}))
    drafts.put(row)
    return row


@transaction.atomic
def clear_breakpoint(*, actor: Actor, task: Task) -> Task:
    """The user has confirmed or given what the item needs, so work may pass it. Clearing it again changes nothing."""
    check_person(actor, Sentence("clears a breakpoint"))
    row = _locked(actor, task)
    if not row.breakpoint:
        raise ProductError(
            "no_breakpoint",
            Sentence("{code} is not a breakpoint, so there is nothing to clear.", code=row.code),
            status=409,
        )
    _seen(actor, row)
    changes: dict[str, Any] = {} if row.cleared else {"cleared": timezone.now()}
    if row.status == Task.Status.WAITING:
        changes["status"] = Task.Status.OPEN
    _write(actor, row, changes)
    return row


@transaction.atomic
def reorder(*, actor: Actor, task: Task, after: Task | None) -> Task:
    """Puts it behind one of those in its order (`Task.objects.beside`), or first."""
    check_person(actor, Sentence("changes the order"))
    row = _locked(actor, task)
    others = list(Task.objects.beside(row).exclude(pk=row.pk))
    place = 0
    if after is not None:
        if after not in others:
            raise ProductError("not_beside", "It can only be put behind another of the same list. Choose one of them.")
        place = others.index(after) + 1
    others.insert(place, row)
    before = row.position
    shifted = [(position, each) for position, each in enumerate(others) if each.position != position]
    for position, each in shifted:
        each.position = position
    Task.objects.bulk_update([each for _, each in shifted], ["position"])
    if row.position != before:
        _record(actor, [(row, "position", before, row.position)])
    return row


@transaction.atomic
def move(*, actor: Actor, task: Task, day: date) -> Task:
    """Goes on with a day task on another day, under a new code; returns the new one.

    The old one stays with status moved and a link. What is unfinished of its checklist goes along, as new open items
    that the old ones link to; what is finished stays where it was done. A draft that has brought no item yet is due
    on the new day.
    """
    row = _locked(actor, task)
    check_hand(actor, row)
    check_here(row)
    if (row.level, row.horizon) != (Task.Level.TASK, Task.Horizon.DAY):
        raise ProductError("not_a_day_task", "Only day tasks are moved; checklist items go along with theirs.")
    if row.status not in Task.UNFINISHED:
        raise ProductError(
            "finished",
            Sentence(
                "{code} is {status}. Reopen it first, then move it.",
                code=row.code,
                status=Task.STATUS_WORDS[row.status],
            ),
            status=409,
        )
    if day == row.date:
        raise ProductError("same_day", Sentence("{code} is of this day already. Choose another.", code=row.code))
    _seen(actor, row)
    new = _copy(row, date=day, parent=row.parent)
    _insert(actor, [new])
    items = list(row.children.filter(level=Task.Level.ITEM, status__in=Task.UNFINISHED))
    copies = [_copy(item, date=day, parent=new) for item in items]
    _insert(actor, copies)
    for old, copy in zip([row, *items], [new, *copies], strict=True):
        _write(actor, old, {"status": Task.Status.MOVED, "moved_to": copy, "finished": timezone.now()})
    if row.draft:
        drafts.put(row)
        drafts.ask(actor, new)
    return new


@transaction.atomic
def delete(*, actor: Actor, task: Task) -> None:
    """With its checklist. The tasks below stay, without a parent; the history stays, and no code is given again.

    Raises `legal_hold` (409).
    """
    check_person(actor, Sentence("deletes"))
    row = _locked(actor, task)
    for child in row.children.exclude(level=Task.Level.ITEM).select_related("parent"):
        _write(actor, child, {"parent": None})
    _remove(actor, [*row.children.filter(level=Task.Level.ITEM), row])


@transaction.atomic
def draft_checklist(*, actor: Actor, task: Task, items: Sequence[DraftItem], only_first: bool = False) -> list[Task]:
    """Puts `items` in the place of the unfinished ones of a day task, behind the finished ones; returns the new ones.

    A model cannot draft over a breakpoint that stands. `only_first`: raises `has_checklist` (409) where there is an
    item, which somebody else has written meanwhile.
    """
    row = _locked(actor, task)
    check_hand(actor, row)
    check_here(row)
    check_not_declined(actor, row)
    _seen(actor, row)
    if only_first and row.children.filter(level=Task.Level.ITEM).exists():
        raise ProductError(
            "has_checklist", Sentence("{code} has a checklist by now. Leave it as it is.", code=row.code), status=409
        )
    if not items:
        raise ProductError("empty_checklist", "Give at least one item. To empty the checklist, delete its items.")
    unfinished = list(row.children.filter(level=Task.Level.ITEM, status__in=Task.UNFINISHED))
    if any(item.blocking for item in unfinished):
        check_person(actor, Sentence("takes a breakpoint away"))
    drafted = []
    for item in items:
        new = Task(owner=actor.user, level=Task.Level.ITEM, horizon=Task.Horizon.DAY, date=row.date)
        fields = {"title": item.title, "parent": row, "breakpoint": item.breakpoint, "needs": item.needs}
        for name, value in checked(actor, new, fields).items():
            setattr(new, name, value)
        drafted.append(new)
    _remove(actor, unfinished)
    _insert(actor, drafted)
    return drafted


@transaction.atomic
def draft_begun(*, user: User, task: Task, over: bool = False) -> None:
    """A run drafts the checklist of a task that has none, or is `over` without one."""
    lock_tasks(user)
    row = Task.objects.visible_to(user).filter(pk=task.pk).first()
    if row is None or not drafts.fits(row) or row.children.filter(level=Task.Level.ITEM).exists():
        return
    if not over or row.draft == Task.Draft.BEGUN:
        drafts.put(row, "" if over else Task.Draft.BEGUN)


def lock_tasks(user: User) -> None:
    """Changes of one person's tasks come one after the other: numbers, places and breakpoints depend on other rows."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)


def _locked(actor: Actor, task: Task) -> Task:
    lock_tasks(actor.user)
    return visible_task(actor.user, task.pk)


def _seen(actor: Actor, row: Task) -> None:
    """A person who acts on what a model has proposed accepts it; a model accepts nothing."""
    if actor.model or not row.proposed:
        return
    _write(actor, row, {"proposed": False})
    if not row.children.filter(level=Task.Level.ITEM).exists():
        drafts.ask(actor, row)


def _day(user: User, new: NewTask, parent: Task | None) -> date:
    if new.level == Task.Level.ITEM and parent is not None:
        if new.date not in (None, parent.date):
            raise ProductError(
                "wrong_day",
                Sentence("A checklist item is of the day of its task, {date}. Leave it out.", date=str(parent.date)),
            )
        return parent.date
    return codes.first_day(new.horizon, new.date or today(user))


def _copy(row: Task, **changes: Any) -> Task:
    names = ("owner", "level", "horizon", "title", "notes", "archetype", "breakpoint", "needs", "cleared", "project")
    return Task(**{name: getattr(row, name) for name in (*names, "model", "proposed", "proposed_in")}, **changes)


def _insert(actor: Actor, rows: Sequence[Task]) -> None:
    """`rows` go to the end of one list and one series."""
    if not rows:
        return
    first, parent = rows[0], rows[0].parent
    if first.level == Task.Level.ITEM and parent is not None:
        series = codes.item_series(parent.code)
    else:
        series = codes.series(first.level, first.horizon, first.date)
    numbers = _take(actor.user, series, len(rows))
    last = Task.objects.beside(first).aggregate(last=Max("position"))["last"]
    for place, (row, number) in enumerate(zip(rows, numbers, strict=True), start=0 if last is None else last + 1):
        row.code, row.position = codes.make(series, number), place
        if actor.model:
            row.model, row.proposed = actor.model[:MAX_MODEL], not actor.user.accepts_model_tasks
            row.proposed_in = actor.conversation if row.proposed else None
    Task.objects.bulk_create(rows)
    if first.level == Task.Level.ITEM and parent is not None:
        drafts.put(parent)
    _record(actor, [(row, "created", "", row.title) for row in rows])


def _take(user: User, series: str, count: int) -> range:
    """The next numbers of a series; the caller holds the lock."""
    counter, _ = CodeSeries.objects.get_or_create(owner=user, series=series)
    if counter.last + count > codes.MAX_NUMBER:
        raise ProductError(
            "numbers_used_up",
            Sentence(
                "The numbers end at {series}{max_number}, deleted ones count, and {last} "
                "are left. Change one that is there, or choose another day or task.",
                series=series,
                max_number=str(codes.MAX_NUMBER),
                last=codes.MAX_NUMBER - counter.last,
            ),
            status=409,
        )
    CodeSeries.objects.filter(pk=counter.pk).update(last=F("last") + count)
    return range(counter.last + 1, counter.last + count + 1)


def _write(actor: Actor, row: Task, changes: Mapping[str, Any]) -> None:
    before = {name: getattr(row, name) for name in changes}
    changed = {name: value for name, value in changes.items() if value != before[name]}
    if not changed:
        return
    for name, value in changed.items():
        setattr(row, name, value)
    row.save(update_fields=[*changed, "updated"])
    _record(actor, [(row, name, before[name], value) for name, value in changed.items() if name not in _DERIVED])


def _remove(actor: Actor, rows: Sequence[Task]) -> None:
    require_free(*rows)
    _record(actor, [(row, "deleted", row.title, "") for row in rows])
    Task.objects.filter(pk__in=[row.pk for row in rows]).delete()


def _record(actor: Actor, changes: Iterable[tuple[Task, str, object, object]]) -> None:
    TaskChange.objects.bulk_create(
        TaskChange(
            owner_id=row.owner_id,
            code=row.code,
            user=actor.user,
            model=actor.model,
            field=field,
            before=_as_text(before),
            after=_as_text(after),
        )
        for row, field, before, after in changes
    )
    tell(actor.user.pk, News.TASKS)


def _as_text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Task():
            return value.code
        case models.Model():
            return str(value.pk)
        case date():
            return value.isoformat()
        case _:
            return str(value)
