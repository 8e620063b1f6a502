"""Which tasks are looked at: one by its id or code, rows with what showing them needs, and the list for the model."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from uuid import UUID

from django.db.models import Prefetch, Q
from django.utils import timezone

from accounts.models import User
from core.requests import identifier, or_404
from personas.texts import BUILT_IN, Texts
from projects.planner.models import codes
from projects.planner.models.task import Progress, Task, TaskChange, TaskQuerySet


def today(user: User, at: datetime | None = None) -> date:
    """The day it is for the user, now or at a moment."""
    return timezone.localdate(at, user.zone)


def visible_task(user: User, key: object) -> Task:
    """`key` is an id or a code. Raises `NotFound`."""
    rows = with_links(Task.objects.visible_to(user))
    found = rows.filter(code=key) if codes.is_code(str(key)) else rows.filter(pk=identifier(key, "task"))
    return or_404(found.first(), "task")


def written_by_hand(items: Sequence[Task]) -> bool:
    """Whether these are items, of one person, of which no model has made any."""
    made = TaskChange.objects.filter(field="created", code__in=[row.code for row in items]).exclude(model="")
    return bool(items) and not made.filter(owner=items[0].owner_id).exists()


def with_links(rows: TaskQuerySet) -> TaskQuerySet:
    """With the rows that showing one or changing it looks at."""
    return rows.select_related("parent", "project", "moved_to", "moved_from")


def with_checklists(rows: TaskQuerySet) -> TaskQuerySet:
    """Each with its `checklist`."""
    items = Task.objects.filter(level=Task.Level.ITEM).select_related("moved_to")
    checklist = Prefetch("children", queryset=items, to_attr="checklist")
    return rows.prefetch_related(checklist)  # type: ignore[no-redef]  # the model says which type it has


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


@dataclass(frozen=True, slots=True)
class PromptTasks:
    """What stands in the prompt, in its order: tasks with their checklist. `meant` are the codes of those that were
    mentioned, of today's too. `conversation` is the one whose prompt it is."""

    on: date
    today: tuple[Task, ...] = ()
    mentioned: tuple[Task, ...] = ()
    meant: frozenset[str] = frozenset()
    conversation: UUID | None = None


def tasks_of(mentioned: Iterable[str]) -> set[str]:
    """The codes of objectives and tasks that are meant: an item that is mentioned means its task."""
    return {str(codes.parse(code).task) for code in mentioned}


def tasks_for_prompt(
    *,
    user: User,
    on: date,
    mentioned: Iterable[str] = (),
    whole_day: bool = True,
    conversation: UUID | None = None,
) -> PromptTasks:
    """What the model is shown: see `prompt_tasks` for the rule. `on` is the user's today. Without the `whole_day` only
    what is mentioned.

    What a model has proposed and nobody has accepted is left out, unless the user mentions it: the list stands in the
    system part, and a document may have had the model write it. It stands in the prompts of the `conversation` in which
    it was proposed, whose model wrote it, as long as it waits for the user.

    `mentioned` are the codes that the user's messages of that day mention (`codes.mentions`). What the day's own tasks
    mention counts too (seed: WENDY, "@mentioned in the task list of the Day"); what stands there only for that brings
    nothing more. The project of a conversation does not narrow it: the rule says all of the day's tasks, and every one
    of them is the user's own.
    """
    mentioned = set(mentioned)
    counts = Q(proposed=False)
    if conversation is not None:
        counts |= Q(proposed_in=conversation, status__in=Task.UNFINISHED)
    of_day = Q(counts, level=Task.Level.TASK, horizon=Task.Horizon.DAY, date=on)
    rows = with_checklists(Task.objects.visible_to(user).select_related("moved_to"))
    if not whole_day:
        found = list(rows.filter(code__in=tasks_of(mentioned))) if mentioned else []
        named = tuple(sorted(found, key=lambda row: row.code))
        return PromptTasks(on, (), named, frozenset(row.code for row in named), conversation)
    found = list(rows.filter(of_day | Q(code__in=tasks_of(mentioned))))
    listed = {code for row in found if _is_of(row, on) and not row.proposed for code in _mentions(row)}
    if missing := tasks_of(listed) - {row.code for row in found}:
        found += rows.filter(code__in=missing, proposed=False)
    return replace(prompt_tasks(found, on=on, mentioned=mentioned | listed), conversation=conversation)


def prompt_tasks(rows: Iterable[Task], *, on: date, mentioned: Iterable[str]) -> PromptTasks:
    """Return all tasks of the day `on`, finished ones too, and all that were mentioned.

    The rule: docs/develop/context.md, “Tasks”.

    Day tasks bring their checklist. Nothing is there because something else is: an objective brings no tasks and a task
    no objective. Today's tasks are in the user's order, those mentioned in that of their codes, so that neither depends
    on when it was mentioned. Raises `codes.BadCode` for what is no code.
    """
    meant = tasks_of(mentioned)
    today, others = [], []
    for row in rows:
        if _is_of(row, on):
            today.append(row)
        elif row.code in meant:
            others.append(row)
    return PromptTasks(
        on,
        tuple(sorted(today, key=_place)),
        tuple(sorted(others, key=lambda row: row.code)),
        frozenset(row.code for row in (*today, *others) if row.code in meant),
    )


def render(tasks: PromptTasks, texts: Texts = BUILT_IN) -> str:
    """The text of section `tasks`, the same bytes until one of these tasks changes; empty when there are none.

    Notes are shown where the code was mentioned, since that is when the user asks about this one; they would make a
    list that goes along with every message long.
    """
    lines: list[str] = []
    for title, rows in (
        (texts.fill("tasks_today", date=tasks.on.isoformat()), tasks.today),
        (texts["tasks_mentioned"], tasks.mentioned),
    ):
        if rows:
            lines += [title, *(line for row in rows for line in _lines(row, tasks))]
    return "\n".join(filter(None, (texts["tasks"], *lines))) if lines else ""


def _lines(row: Task, tasks: PromptTasks) -> Iterator[str]:
    kind = f"{row.archetype} task" if row.archetype else "objective"
    proposed = f", {_proposed(row, tasks)}" if row.proposed else ""
    yield f"- {row.code} [{_state(row)}] {row.title} ({kind}{proposed})"
    if row.code in tasks.meant:
        yield from (f"    {line}" for line in row.notes.splitlines())
    items = (each for each in row.checklist if not each.proposed or _waits_here(each, tasks))
    for item in sorted(items, key=_place):
        needs = item.needs or "the user's word"
        remarks = [f"breakpoint, needs: {needs}"] if item.blocking else []
        remarks += [_proposed(item, tasks)] if item.proposed and not row.proposed else []
        remark = f" ({'; '.join(remarks)})" if remarks else ""
        yield f"  - {item.code[len(row.code) :]} [{_state(item)}] {item.title}{remark}"


def _waits_here(row: Task, tasks: PromptTasks) -> bool:
    """Whether it was proposed in the conversation whose prompt this is, and waits for its person."""
    return row.to_decide and row.proposed_in is not None and row.proposed_in == tasks.conversation


def _proposed(row: Task, tasks: PromptTasks) -> str:
    waits = "waiting for the user to accept it" if _waits_here(row, tasks) else "not accepted"
    return f"proposed by {row.model} and {waits}"


def _state(row: Task) -> str:
    return f"moved to {row.moved_to.code}" if row.moved_to else row.status


def _place(row: Task) -> tuple[int, str]:
    return row.position, row.code


def _is_of(row: Task, day: date) -> bool:
    return (row.level, row.horizon, row.date) == (Task.Level.TASK, Task.Horizon.DAY, day)


def _mentions(row: Task) -> Iterable[str]:
    rows = (row, *(item for item in row.checklist if not item.proposed))
    texts = [text for each in rows for text in (each.title, each.notes)]
    return codes.mentions("\n".join(texts))
