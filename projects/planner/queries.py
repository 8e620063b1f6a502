"""Queries of tasks: one by its id or code, rows with their checklists and progress, and the tasks in a prompt."""

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
from projects.planner.models.task import Task, TaskChange, TaskProgress, TaskQuerySet


def today(user: User, at: datetime | None = None) -> date:
    """Return the date in the user's time zone, now or at a moment."""
    return timezone.localdate(at, user.zone)


def visible_task(user: User, key: object) -> Task:
    """Return a task of the user by its id or its code. Raises `NotFound`."""
    rows = with_links(Task.objects.visible_to(user))
    matching = rows.filter(code=key) if codes.is_code(str(key)) else rows.filter(pk=identifier(key, "task"))
    return or_404(matching.first(), "task")


def are_written_by_user(items: Sequence[Task]) -> bool:
    """Return whether there are items and a user created all of them. All items belong to one user."""
    created = TaskChange.objects.filter(field="created", code__in=[row.code for row in items]).exclude(model="")
    return bool(items) and not created.filter(owner=items[0].owner_id).exists()


def with_links(rows: TaskQuerySet) -> TaskQuerySet:
    """Load the related rows that are needed to show or change a task."""
    return rows.select_related("parent", "project", "moved_to", "moved_from")


def with_checklists(rows: TaskQuerySet) -> TaskQuerySet:
    """Load the `checklist` of each task."""
    items = Task.objects.filter(level=Task.Level.ITEM).select_related("moved_to")
    checklist = Prefetch("children", queryset=items, to_attr="checklist")
    return rows.prefetch_related(checklist)  # type: ignore[no-redef]  # the model declares its type


def with_progress(rows: Sequence[Task]) -> Sequence[Task]:
    """Set `progress` of each row. Return the same rows. Items have no progress.

    The progress of a day task counts its checklist. The progress of other rows counts the tasks below at any depth.
    Dropped and moved rows do not count. Takes at most four queries for any number of rows, since there are four levels.
    """
    counts: dict[UUID, list[int]] = defaultdict(lambda: [0, 0])
    below = {row.pk: {row.pk} for row in rows if row.level != Task.Level.ITEM}
    level = Q()  # only the first round counts items: the checklists of the rows themselves
    while below:
        deeper: dict[UUID, set[UUID]] = {}
        children = Task.objects.filter(level, parent__in=below)
        for pk, parent, kind, status in children.values_list("pk", "parent_id", "level", "status"):
            if kind != Task.Level.ITEM:
                deeper[pk] = below[parent]
            if kind != Task.Level.OBJECTIVE and status not in (Task.Status.DROPPED, Task.Status.MOVED):
                for root in below[parent]:
                    counts[root][0] += status == Task.Status.DONE
                    counts[root][1] += 1
        below = deeper
        level = ~Q(level=Task.Level.ITEM)
    for row in rows:
        row.progress = None if row.level == Task.Level.ITEM else TaskProgress(*counts[row.pk])
    return rows


@dataclass(frozen=True, slots=True)
class PromptTasks:
    """Tasks in a prompt, in their order, with their checklists.

    `mentioned`: mentioned tasks of other days. `mentioned_codes`: the codes of all mentioned tasks, those of today
    included. `conversation`: the id of the conversation of the prompt.
    """

    on: date
    today: tuple[Task, ...] = ()
    mentioned: tuple[Task, ...] = ()
    mentioned_codes: frozenset[str] = frozenset()
    conversation: UUID | None = None

    @property
    def rows(self) -> tuple[Task, ...]:
        """Return all tasks, in the order of the prompt."""
        return (*self.today, *self.mentioned)


def mentioned_task_codes(mentioned: Iterable[str]) -> set[str]:
    """Return the codes of the mentioned objectives and tasks. A mentioned item counts as its task."""
    return {str(codes.parse(code).task) for code in mentioned}


def tasks_for_prompt(
    *,
    user: User,
    on: date,
    mentioned: Iterable[str] = (),
    whole_day: bool = True,
    conversation: UUID | None = None,
) -> PromptTasks:
    """Return the tasks for a prompt by the rule in `prompt_tasks`. Without `whole_day`, only mentioned tasks.

    `on`: today for the user. `mentioned`: codes that the user's messages of that day mention (`codes.find_mentions`).
    Tasks that are mentioned in the day's tasks are included too (seed: WENDY, "@mentioned in the task list of the
    Day"), but not tasks that only these mention.

    A task that a model has proposed and the user has not accepted is left out, unless the user mentions it. The reason:
    the list is in the system part of the prompt, and a document may have made the model propose the task. In prompts of
    the `conversation` in which it was proposed, the task is included while it waits for the user.

    The project of the conversation does not filter: the rule includes all tasks of the day, and all are the user's.
    """
    mentioned = set(mentioned)
    accepted = Q(proposed=False)
    if conversation is not None:
        accepted |= Q(proposed_in=conversation, status__in=Task.UNFINISHED)
    of_day = Q(accepted, level=Task.Level.TASK, horizon=Task.Horizon.DAY, date=on)
    rows = with_checklists(Task.objects.visible_to(user).select_related("moved_to"))
    if not whole_day:
        mentioned_rows = list(rows.filter(code__in=mentioned_task_codes(mentioned))) if mentioned else []
        mentioned_rows.sort(key=lambda row: row.code)
        return PromptTasks(on, (), tuple(mentioned_rows), frozenset(row.code for row in mentioned_rows), conversation)
    tasks = list(rows.filter(of_day | Q(code__in=mentioned_task_codes(mentioned))))
    mentioned_in_tasks = {code for row in tasks if _is_of_day(row, on) and not row.proposed for code in _mentions(row)}
    if missing := mentioned_task_codes(mentioned_in_tasks) - {row.code for row in tasks}:
        tasks += rows.filter(code__in=missing, proposed=False)
    return replace(prompt_tasks(tasks, on=on, mentioned=mentioned | mentioned_in_tasks), conversation=conversation)


def prompt_tasks(rows: Iterable[Task], *, on: date, mentioned: Iterable[str]) -> PromptTasks:
    """Return all tasks of the day `on`, finished ones too, and all that were mentioned.

    The rule is in docs/develop/context.md, “Tasks”. Day tasks come with their checklist. Otherwise no row includes
    another one: an objective does not include its tasks, nor a task its objective. Today's tasks are in the user's
    order, mentioned tasks in the order of their codes, so the order does not depend on the time of a mention. Raises
    `codes.BadCode`.
    """
    mentioned_codes = mentioned_task_codes(mentioned)
    today = []
    others = []
    for row in rows:
        if _is_of_day(row, on):
            today.append(row)
        elif row.code in mentioned_codes:
            others.append(row)
    return PromptTasks(
        on,
        tuple(sorted(today, key=_sort_key)),
        tuple(sorted(others, key=lambda row: row.code)),
        frozenset(row.code for row in (*today, *others) if row.code in mentioned_codes),
    )


def render(tasks: PromptTasks, texts: Texts = BUILT_IN) -> str:
    """Return the text of the section `tasks`; empty without tasks. The text only changes when one of the tasks does.

    Notes are only included for mentioned tasks, since the user asks about these. All notes would make prompts long.
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
    if row.code in tasks.mentioned_codes:
        yield from (f"    {line}" for line in row.notes.splitlines())
    items = (each for each in row.checklist if not each.proposed or _awaits_decision_here(each, tasks))
    for item in sorted(items, key=_sort_key):
        needs = item.needs or "the user's word"
        remarks = [f"breakpoint, needs: {needs}"] if item.blocking else []
        remarks += [_proposed(item, tasks)] if item.proposed and not row.proposed else []
        remark = f" ({'; '.join(remarks)})" if remarks else ""
        yield f"  - {item.code[len(row.code) :]} [{_state(item)}] {item.title}{remark}"


def _awaits_decision_here(row: Task, tasks: PromptTasks) -> bool:
    """Return whether the task was proposed in the conversation of this prompt, and waits for the user."""
    return row.to_decide and row.proposed_in is not None and row.proposed_in == tasks.conversation


def _proposed(row: Task, tasks: PromptTasks) -> str:
    waits = "waiting for the user to accept it" if _awaits_decision_here(row, tasks) else "not accepted"
    return f"proposed by {row.model} and {waits}"


def _state(row: Task) -> str:
    return f"moved to {row.moved_to.code}" if row.moved_to else row.status


def _sort_key(row: Task) -> tuple[int, str]:
    return row.position, row.code


def _is_of_day(row: Task, day: date) -> bool:
    return (row.level, row.horizon, row.date) == (Task.Level.TASK, Task.Horizon.DAY, day)


def _mentions(row: Task) -> Iterable[str]:
    rows = (row, *(item for item in row.checklist if not item.proposed))
    texts = [text for each in rows for text in (each.title, each.notes)]
    return codes.find_mentions("\n".join(texts))
