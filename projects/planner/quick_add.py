r"""Parse a task in one line, such as `Buy cacao !model #"Chocolate shop" >tomorrow ^M2026-11-T03; which kind; pay`.

Marks are words of the first line:

- `!user`, `!model` and `!hybrid` set the archetype, `!objective` makes it an objective.
- `#Project` sets the project.
- `>` sets the day, month or year: `>tomorrow`, `>friday`, `>2026-11-23`, `>2026-11`, `>2026`.
- `^` sets the parent by its code.

The checklist follows after `;` or on further lines, with or without `-`. An item with `!stop` is a breakpoint, and the
words after it name the requirement. A backslash keeps a mark as text: `\#1a`.

To add a mark:

1. Write a reader like `_project`, and register it in `_READERS`.
2. Add its sign to `_MARK` and `_ESCAPED`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import NamedTuple

from django.db import transaction
from django.urls import reverse

from accounts.models import User
from core.errors import ProductError
from core.sentences import Sentence
from projects.models import Project
from projects.planner import services
from projects.planner.models import codes
from projects.planner.models.task import Task
from projects.planner.queries import today, visible_task
from projects.planner.rules import Actor, DraftItem, NewTask

ARCHETYPES = ("user", "model", "hybrid")
OBJECTIVE = "objective"
STOP = "stop"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_WORD = re.compile(r'#["“][^"“”]*["”]|\S+')
# A single sign, a sign before another sign, and # before a number are text: "5 > 3", "!!", "issue #12".
_MARK = re.compile(r'(?!#\d+$)([!#>^])(["“]?[^\W_].*|["“].*)', re.DOTALL)
_NEXT_ITEM = re.compile(r"(?<!\\);(?=\s|$)")
_BULLET = re.compile(r"^\s*[-*•](?=\s|$)")
_STOP = re.compile(rf"(?:^|(?<=\s))!{STOP}(?=\s|$)", re.IGNORECASE)
_ESCAPED = re.compile(r"(?:(?<!\S)\\(?=[!#>^]))|\\(?=;)")


class Period(NamedTuple):
    """Year, month or day, stored as its first day."""

    horizon: str
    start: date

    @classmethod
    def of(cls, task: Task) -> "Period":
        return cls(task.horizon, task.date)

    @property
    def address(self) -> str:
        return reverse(f"tasks:{self.horizon}", args=[self.start])

    def shift(self, steps: int) -> "Period | None":
        """Return the period `steps` days, months or years later; None outside of the calendar."""
        try:
            if self.horizon == "day":
                return self._replace(start=self.start + timedelta(steps))
            months = self.start.year * 12 + self.start.month - 1 + steps * (12 if self.horizon == "year" else 1)
            return self._replace(start=date(months // 12, months % 12 + 1, self.start.day))
        except (OverflowError, ValueError):
            return None


@dataclass(slots=True)
class QuickTask:
    """Parsed line. `project` is a name as typed, `parent` a code; `archetype` is empty without a mark."""

    title: str
    period: Period
    level: str = "task"
    archetype: str = ""
    project: str = ""
    parent: str = ""
    items: list[DraftItem] = field(default_factory=list)


def parse(text: str, *, on: Period, today: date) -> QuickTask:
    """Parse a line. `on`: the period of a task without a `>` mark. Raises `mark_twice` and `unknown_mark`."""
    first, *lines = [line for line in text.splitlines() if line.strip()] or [""]
    head, *rest = _NEXT_ITEM.split(_BULLET.sub("", first, count=1))
    task = QuickTask("", on)
    words = []
    seen = set()
    for word in _WORD.findall(head):
        mark = _MARK.fullmatch(word)
        if mark is None:
            words.append(word)
            continue
        sign, value = mark.groups()
        kind = OBJECTIVE if (sign, value.lower()) == ("!", OBJECTIVE) else sign
        if kind in seen:
            raise ProductError(
                "mark_twice", Sentence("“{word}” repeats a mark of the same kind. Keep one of them.", word=word)
            )
        seen.add(kind)
        _READERS[sign](task, value, today)
    task.title = _unescape(" ".join(words))
    task.items = parse_items("\n".join([*rest, *lines]))
    if task.period.horizon == "year":
        task.level = OBJECTIVE  # only objectives have a year
    return task


def parse_items(text: str) -> list[DraftItem]:
    """Parse a checklist: one item per line, or several separated by `;`. Empty items are left out.

    Raises `empty_title` for a breakpoint without a title.
    """
    lines = (_BULLET.sub("", line, count=1) for line in text.splitlines())
    return [_item(each) for line in lines for each in _NEXT_ITEM.split(line) if each.strip()]


def _item(text: str) -> DraftItem:
    stop = _STOP.search(text)
    if stop is None:
        return DraftItem(_unescape(text))
    title = _unescape(text[: stop.start()])
    if not title:
        sentence = Sentence("The item “{item}” has no title. Write it before !stop.", item=_unescape(text))
        raise ProductError("empty_title", sentence)
    return DraftItem(title, True, _unescape(text[stop.end() :]))


def _unescape(text: str) -> str:
    return " ".join(_ESCAPED.sub("", text).split())


def _kind(task: QuickTask, value: str, today: date) -> None:
    word = value.lower()
    if word == OBJECTIVE:
        task.level = OBJECTIVE
    elif word in ARCHETYPES:
        task.archetype = word
    else:
        raise _unknown_mark("!", value, Sentence("!user, !model, !hybrid or !objective, and !stop in the checklist"))


def _project(task: QuickTask, value: str, today: date) -> None:
    task.project = value.strip('"“”').strip()
    if not task.project:
        raise _unknown_mark("#", value, Sentence('the name of a project, as #Contracts or #"Two words"'))


def _period(task: QuickTask, value: str, today: date) -> None:
    period = _named_day(value.lower(), today) or _iso_period(value)
    if period is None:
        raise _unknown_mark(
            ">", value, Sentence("a day, as >tomorrow, >friday or >2026-11-23, a month, as >2026-11, or a year")
        )
    task.period = period


def _named_day(word: str, today: date) -> Period | None:
    if word in ("today", "tomorrow"):
        return Period("day", today + timedelta(word == "tomorrow"))
    for number, name in enumerate(WEEKDAYS):
        if word in (name, name[:3]):
            return Period("day", today + timedelta((number - today.weekday() - 1) % 7 + 1))
    return None


def _iso_period(value: str) -> Period | None:
    if not re.fullmatch(r"\d{4}(-\d{2}){0,2}", value, re.ASCII):
        return None
    try:
        start = date.fromisoformat((value + "-01-01")[:10])
    except ValueError:
        return None
    return Period({4: "year", 7: "month", 10: "day"}[len(value)], start)


def _parent(task: QuickTask, value: str, today: date) -> None:
    task.parent = value.upper()
    if not codes.is_code(task.parent):
        raise _unknown_mark("^", value, Sentence("the code of a task or objective, as ^M2026-11-T03"))


def _unknown_mark(sign: str, value: str, possible: Sentence) -> ProductError:
    return ProductError(
        "unknown_mark",
        Sentence(
            "“{sign}{value}” is not {known}. To keep it as text, write \\ before it: \\{sign2}{value2}.",
            sign=sign,
            value=value,
            known=possible,
            sign2=sign,
            value2=value,
        ),
    )


_READERS: dict[str, Callable[[QuickTask, str, date], None]] = {
    "!": _kind,
    "#": _project,
    ">": _period,
    "^": _parent,
}


@transaction.atomic
def add_line(*, actor: Actor, text: str, on: Period) -> Task:
    """Create a task from a line. `on`: the period of the page. Raises the errors of `parse` and `create`."""
    parsed = parse(text, on=on, today=today(actor.user))
    fields = NewTask(
        title=parsed.title,
        level=parsed.level,
        horizon=parsed.period.horizon,
        date=parsed.period.start,
        archetype=parsed.archetype,
        parent=visible_task(actor.user, parsed.parent) if parsed.parent else None,
        project=find_project(actor.user, parsed.project) if parsed.project else None,
        draft=not parsed.items,
    )
    if parsed.items and (parsed.level, parsed.period.horizon) != ("task", "day"):
        raise ProductError("no_checklist", "Only day tasks have a checklist. Leave the items out, or add a day.")
    task = services.create(actor=actor, new=fields)
    if parsed.items:
        services.draft_checklist(actor=actor, task=task, items=parsed.items)
    return task


@transaction.atomic
def add_items(*, actor: Actor, task: Task, text: str) -> list[Task]:
    """Add the items of a text to the end of the checklist. Raises `empty_checklist`."""
    items = parse_items(text)
    if not items:
        raise ProductError("empty_checklist", "Write at least one item.")
    return [services.create(actor=actor, new=_new_item(task, item)) for item in items]


def _new_item(task: Task, item: DraftItem) -> NewTask:
    return NewTask(item.title, level=Task.Level.ITEM, parent=task, breakpoint=item.breakpoint, needs=item.needs)


def find_project(user: User, name: str) -> Project:
    """Return the project with this name, regardless of case, spaces and hyphens.

    Raises `unknown_project` and `several_projects`.
    """
    projects = list(Project.objects.visible_to(user))
    matching = [project for project in projects if _fold_name(project.name) == _fold_name(name)]
    longer = next((each.name for each in projects if each.name.casefold().startswith(f"{name.casefold()} ")), None)
    if not matching and longer is not None:
        sentence = Sentence(
            'There is no project “{name}”. For “{longer}”, write #"{longer}".', name=name, longer=longer
        )
        raise ProductError("unknown_project", sentence)
    if not matching:
        raise ProductError(
            "unknown_project",
            Sentence("There is no project “{name}”. To keep it as text, write \\#.", name=name),
        )
    if len(matching) > 1:
        raise ProductError(
            "several_projects",
            Sentence("Several projects are called “{name}”. Choose the project on the page of the task.", name=name),
        )
    return matching[0]


def _fold_name(name: str) -> str:
    return "".join(each for each in name.casefold() if each not in " -_")
