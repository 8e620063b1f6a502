"""The list of tasks as the model sees it: which ones, and their text. Plain values in and out; no Django, no clock."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date

from projects.tasks import codes


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
    """The rule of context.md, section 7: all tasks of the day `on`, finished ones too, and all that were mentioned.

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
