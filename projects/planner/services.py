"""Change objectives, tasks and checklists, and record their history, for pages, the API, models' tools and runs.

Each function does this in one transaction:

1. It locks the user's tasks, and reads the row again. Raises `NotFound` if the row is deleted or another user's.
2. It checks the change (`rules`).
3. It writes the row and its history (`TaskChange`), and notifies open pages.
4. It returns the row as it is stored.

A row that a model creates is `proposed` until the user accepts it, or changes, moves, extends or runs it. Otherwise a
document that a model reads could put tasks into the prompts of other conversations.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from django.db import models, transaction
from django.db.models import F, Max
from django.utils import timezone

from accounts.access.holds import require_free
from accounts.models import User
from accounts.realtime import News, notify
from core.errors import ProductError
from core.rows import set_fields
from core.sentences import Sentence
from projects.planner import drafts
from projects.planner.models import codes
from projects.planner.models.task import MAX_MODEL, CodeSeries, Task, TaskChange
from projects.planner.queries import today, visible_task
from projects.planner.rules import (
    Actor,
    DraftItem,
    NewTask,
    TaskChanges,
    TaskFields,
    check_fields,
    check_is_user,
    check_kind,
    check_may_change,
    check_not_declined,
    check_not_moved,
)

_DERIVED = {"finished"}  # follows from `status`, whose change is recorded


@transaction.atomic
def create(*, actor: Actor, new: NewTask) -> Task:
    """Create a row at the end of its list, with the next code of its series, and request a draft of its checklist."""
    check_kind(new.level, new.horizon)
    lock_tasks(actor.user)
    parent = None if new.parent is None else visible_task(actor.user, new.parent.pk)
    row = Task(owner=actor.user, level=new.level, horizon=new.horizon)
    fields: TaskFields = {
        "title": new.title,
        "notes": new.notes,
        "project": new.project,
        "parent": parent,
        "archetype": new.archetype or (Task.Archetype.USER if new.level == Task.Level.TASK else ""),
    }
    if new.breakpoint or new.needs:
        fields["breakpoint"] = new.breakpoint
        fields["needs"] = new.needs
    set_fields(row, check_fields(actor, row, fields))
    row.date = _resolve_date(actor.user, new, parent)
    if new.level == Task.Level.ITEM and parent is not None:
        check_may_change(actor, parent)
        check_not_moved(parent)
        check_not_declined(actor, parent)
        _accept_by_acting(actor, parent)
    _insert(actor, [row])
    if new.draft:
        drafts.request_draft(actor, row)
    return row


@transaction.atomic
def update(*, actor: Actor, task: Task, fields: TaskFields) -> Task:
    """Change fields of a row. Raises the errors of `rules.check_fields`.

    A breakpoint that is removed and set again is active again. If a user's own task becomes a task for a model, a draft
    of its checklist is requested, as for a new task.
    """
    row = _lock_task(actor, task)
    check_may_change(actor, row)
    archetype_before = row.archetype
    if fields.get("status", row.status) != Task.Status.DROPPED:
        _accept_by_acting(actor, row)
    _write(actor, row, check_fields(actor, row, fields))
    if not drafts.can_be_drafted(row):
        drafts.set_draft(row)
    elif archetype_before == Task.Archetype.USER and not row.children.filter(level=Task.Level.ITEM).exists():
        drafts.request_draft(actor, row)
    return row


def set_status(*, actor: Actor, task: Task, status: str) -> Task:
    """Set the status: open, doing, waiting, done or dropped. Raises `breakpoint` (409) if one stops the model."""
    return update(actor=actor, task=task, fields={"status": status})


@transaction.atomic
def accept(*, actor: Actor, task: Task) -> Task:
    """Accept a proposed row, with its checklist. A second call changes nothing. A declined row opens again.

    If a model's or hybrid day task has no checklist, a draft of it is requested.
    """
    check_is_user(actor, Sentence("accepts a task"))
    row = _lock_task(actor, task)
    if row.declined:
        _write(actor, row, check_fields(actor, row, {"status": Task.Status.OPEN}))
    _accept_by_acting(actor, row)
    for item in row.children.filter(level=Task.Level.ITEM, proposed=True):
        _accept_by_acting(actor, item)
    return row


@transaction.atomic
def decline(*, actor: Actor, task: Task) -> Task:
    """Drop a proposed row with its checklist, so that no prompt contains it.

    Raises `not_proposed` (409) for a row that the user has accepted.
    """
    check_is_user(actor, Sentence("declines a task"))
    row = _lock_task(actor, task)
    if not row.proposed:
        sentence = Sentence("{code} was accepted, so it cannot be declined. Drop or delete it instead.", code=row.code)
        raise ProductError("not_proposed", sentence, status=409)
    _write(actor, row, check_fields(actor, row, {"status": Task.Status.DROPPED}))
    drafts.set_draft(row)
    return row


@transaction.atomic
def clear_breakpoint(*, actor: Actor, task: Task) -> Task:
    """Clear a breakpoint, so that work may pass it. A second call changes nothing. Raises `no_breakpoint` (409)."""
    check_is_user(actor, Sentence("clears a breakpoint"))
    row = _lock_task(actor, task)
    if not row.breakpoint:
        raise ProductError(
            "no_breakpoint",
            Sentence("{code} is not a breakpoint, so there is nothing to clear.", code=row.code),
            status=409,
        )
    _accept_by_acting(actor, row)
    changes: TaskChanges = {} if row.cleared else {"cleared": timezone.now()}
    if row.status == Task.Status.WAITING:
        changes["status"] = Task.Status.OPEN
    _write(actor, row, changes)
    return row


@transaction.atomic
def reorder(*, actor: Actor, task: Task, after: Task | None) -> Task:
    """Move a row behind `after` in its list (`Task.objects.in_list_of`), or to the start. Raises `not_beside`."""
    check_is_user(actor, Sentence("changes the order"))
    row = _lock_task(actor, task)
    others = list(Task.objects.in_list_of(row).exclude(pk=row.pk))
    place = 0
    if after is not None:
        if after not in others:
            raise ProductError("not_beside", "A row can only be put behind a row of the same list. Choose one of them.")
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
    """Continue a day task on another day with a new code. Returns the new task.

    The old task stays with the status moved and a link to the new one. Its unfinished items are moved in the same way;
    finished items stay. A draft that has no items yet is requested again for the new task. Raises `not_a_day_task`,
    `finished` (409) and `same_day`.
    """
    row = _lock_task(actor, task)
    check_may_change(actor, row)
    check_not_moved(row)
    if (row.level, row.horizon) != (Task.Level.TASK, Task.Horizon.DAY):
        raise ProductError("not_a_day_task", ("Only day tasks can be moved; their checklist items move with them."))
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
        raise ProductError("same_day", Sentence("{code} is already on this day. Choose another day.", code=row.code))
    _accept_by_acting(actor, row)
    new = _copy_to_day(row, day, row.parent)
    _insert(actor, [new])
    items = list(row.children.filter(level=Task.Level.ITEM, status__in=Task.UNFINISHED))
    copies = [_copy_to_day(item, day, new) for item in items]
    _insert(actor, copies)
    for old, copy in zip([row, *items], [new, *copies], strict=True):
        _write(actor, old, {"status": Task.Status.MOVED, "moved_to": copy, "finished": timezone.now()})
    if row.draft:
        drafts.set_draft(row)
        drafts.request_draft(actor, new)
    return new


@transaction.atomic
def delete(*, actor: Actor, task: Task) -> None:
    """Delete a row with its checklist. Tasks below it stay without a parent. The history stays; codes are not reused.

    Raises `legal_hold` (409).
    """
    check_is_user(actor, Sentence("deletes"))
    row = _lock_task(actor, task)
    for child in row.children.exclude(level=Task.Level.ITEM).select_related("parent"):
        _write(actor, child, {"parent": None})
    _remove(actor, [*row.children.filter(level=Task.Level.ITEM), row])


@transaction.atomic
def draft_checklist(*, actor: Actor, task: Task, items: Sequence[DraftItem], only_first: bool = False) -> list[Task]:
    """Replace the unfinished items of a day task with `items`, after the finished ones. Returns the new items.

    A model cannot replace an active breakpoint. `only_first`: raises `has_checklist` (409) if the task has an item,
    since the user may have written it meanwhile. Raises `empty_checklist`.
    """
    row = _lock_task(actor, task)
    check_may_change(actor, row)
    check_not_moved(row)
    check_not_declined(actor, row)
    _accept_by_acting(actor, row)
    if only_first and row.children.filter(level=Task.Level.ITEM).exists():
        raise ProductError(
            "has_checklist", Sentence("{code} already has a checklist. Leave it as it is.", code=row.code), status=409
        )
    if not items:
        raise ProductError("empty_checklist", "Write at least one item. To empty the checklist, delete its items.")
    unfinished = list(row.children.filter(level=Task.Level.ITEM, status__in=Task.UNFINISHED))
    if any(item.blocking for item in unfinished):
        check_is_user(actor, Sentence("removes a breakpoint"))
    drafted = []
    for item in items:
        new = Task(owner=actor.user, level=Task.Level.ITEM, horizon=Task.Horizon.DAY, date=row.date)
        fields: TaskFields = {"title": item.title, "parent": row, "breakpoint": item.breakpoint, "needs": item.needs}
        set_fields(new, check_fields(actor, new, fields))
        drafted.append(new)
    _remove(actor, unfinished)
    _insert(actor, drafted)
    return drafted


@transaction.atomic
def mark_draft_begun(*, user: User, task: Task, ended: bool = False) -> None:
    """Mark that a run drafts the missing checklist of a task, or that the run has `ended` without a checklist."""
    lock_tasks(user)
    row = Task.objects.visible_to(user).filter(pk=task.pk).first()
    if row is None or not drafts.can_be_drafted(row) or row.children.filter(level=Task.Level.ITEM).exists():
        return
    if not ended or row.draft == Task.Draft.BEGUN:
        drafts.set_draft(row, "" if ended else Task.Draft.BEGUN)


def lock_tasks(user: User) -> None:
    """Lock all tasks of a user, since codes, positions and breakpoints of a task depend on other rows."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)


def _lock_task(actor: Actor, task: Task) -> Task:
    """Lock the user's tasks, and return the row as stored. Raises `NotFound`."""
    lock_tasks(actor.user)
    return visible_task(actor.user, task.pk)


def _accept_by_acting(actor: Actor, row: Task) -> None:
    """Accept a proposed row because the user acts on it. An act of a model does not accept it."""
    if actor.model or not row.proposed:
        return
    _write(actor, row, {"proposed": False})
    if not row.children.filter(level=Task.Level.ITEM).exists():
        drafts.request_draft(actor, row)


def _resolve_date(user: User, new: NewTask, parent: Task | None) -> date:
    if new.level == Task.Level.ITEM and parent is not None:
        if new.date not in (None, parent.date):
            raise ProductError(
                "wrong_day",
                Sentence("An item has the day of its task, {date}. Leave the date out.", date=str(parent.date)),
            )
        return parent.date
    return codes.first_day(new.horizon, new.date or today(user))


def _copy_to_day(row: Task, day: date, parent: Task | None) -> Task:
    """Return an unsaved copy of a row on another day, with an open status and without a code."""
    return Task(
        owner=row.owner,
        level=row.level,
        horizon=row.horizon,
        date=day,
        title=row.title,
        notes=row.notes,
        archetype=row.archetype,
        breakpoint=row.breakpoint,
        needs=row.needs,
        cleared=row.cleared,
        project=row.project,
        parent=parent,
        model=row.model,
        proposed=row.proposed,
        proposed_in=row.proposed_in,
    )


def _insert(actor: Actor, rows: Sequence[Task]) -> None:
    """Store new rows at the end of one list, with the next codes of one series."""
    if not rows:
        return
    first = rows[0]
    parent = first.parent
    if first.level == Task.Level.ITEM and parent is not None:
        series = codes.item_series(parent.code)
    else:
        series = codes.series(first.level, first.horizon, first.date)
    numbers = _next_numbers(actor.user, series, len(rows))
    last = Task.objects.in_list_of(first).aggregate(last=Max("position"))["last"]
    for place, (row, number) in enumerate(zip(rows, numbers, strict=True), start=0 if last is None else last + 1):
        row.code = codes.format_code(series, number)
        row.position = place
        if actor.model:
            row.model = actor.model[:MAX_MODEL]
            row.proposed = not actor.user.accepts_model_tasks
            row.proposed_in = actor.conversation if row.proposed else None
    Task.objects.bulk_create(rows)
    if first.level == Task.Level.ITEM and parent is not None:
        drafts.set_draft(parent)
    _record(actor, [(row, "created", "", row.title) for row in rows])


def _next_numbers(user: User, series: str, count: int) -> range:
    """Reserve the next numbers of a series. The caller holds the lock. Raises `numbers_used_up` (409)."""
    counter, _ = CodeSeries.objects.get_or_create(owner=user, series=series)
    if counter.last + count > codes.MAX_NUMBER:
        raise ProductError(
            "numbers_used_up",
            Sentence(
                "Codes end at {series}{max_number}, and codes of deleted rows are not reused: {last} are left. "
                "Change an existing row, or choose another day or task.",
                series=series,
                max_number=str(codes.MAX_NUMBER),
                last=codes.MAX_NUMBER - counter.last,
            ),
            status=409,
        )
    CodeSeries.objects.filter(pk=counter.pk).update(last=F("last") + count)
    return range(counter.last + 1, counter.last + count + 1)


def _write(actor: Actor, row: Task, changes: TaskChanges) -> None:
    values: Mapping[str, object] = changes
    before = {name: getattr(row, name) for name in values}
    changed = {name: value for name, value in values.items() if value != before[name]}
    if not changed:
        return
    set_fields(row, changed)
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
    notify(actor.user.pk, News.TASKS)


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
