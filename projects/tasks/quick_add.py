r"""A task written in one line, such as `Buy cacao !model #"Chocolate shop" >tomorrow ^M2026-11-T03; which kind; pay`.

Marks are words of the first line: `!user`, `!model`, `!hybrid` say whose it is, `!objective` makes it an objective;
`#Project`; `>` a day, month or year, as `>tomorrow`, `>friday`, `>2026-11-23`, `>2026-11`, `>2026`; `^` the code of
what it belongs under. The checklist follows `;` or stands in further lines, with or without `-`. In it, `!stop` makes
a breakpoint, and what follows says what it needs. A backslash keeps a mark as text: `\#1a`. Plain values in and out;
no Django, no clock.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import NamedTuple

from llm.errors import ProductError
from projects.tasks import codes

ARCHETYPES = ("user", "model", "hybrid")
OBJECTIVE, STOP = "objective", "stop"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_WORD = re.compile(r'#["“][^"“”]*["”]|\S+')
# A sign alone, before another sign, or # before a number alone is text: "5 > 3", "!!", "issue #12".
_MARK = re.compile(r'(?!#\d+$)([!#>^])(["“]?[^\W_].*|["“].*)', re.DOTALL)
_NEXT_ITEM = re.compile(r"(?<!\\);(?=\s|$)")
_BULLET = re.compile(r"^\s*[-*•](?=\s|$)")
_STOP = re.compile(rf"(?:^|(?<=\s))!{STOP}(?=\s|$)", re.IGNORECASE)
_ESCAPED = re.compile(r"(?:(?<!\S)\\(?=[!#>^]))|\\(?=;)")


class Period(NamedTuple):
    """A year, month or day by its first day."""

    horizon: str
    start: date


class QuickItem(NamedTuple):
    title: str
    breakpoint: bool = False
    needs: str = ""


@dataclass(slots=True)
class QuickTask:
    """What was written; `project` is a name as typed, `parent` a code, and `archetype` empty where nothing was said."""

    title: str
    period: Period
    level: str = "task"
    archetype: str = ""
    project: str = ""
    parent: str = ""
    items: list[QuickItem] = field(default_factory=list)


def parse(text: str, *, on: Period, today: date) -> QuickTask:
    """`on` is where it goes when no day is written. Raises `ProductError` for a mark that means nothing."""
    first, *lines = [line for line in text.splitlines() if line.strip()] or [""]
    head, *rest = _NEXT_ITEM.split(_BULLET.sub("", first, count=1))
    task, words, seen = QuickTask("", on), [], set()
    for word in _WORD.findall(head):
        mark = _MARK.fullmatch(word)
        if mark is None:
            words.append(word)
            continue
        sign, value = mark.groups()
        kind = OBJECTIVE if (sign, value.lower()) == ("!", OBJECTIVE) else sign
        if kind in seen:
            raise ProductError("mark_twice", f"“{word}” says again what was said before. Keep one of them.")
        seen.add(kind)
        _READERS[sign](task, value, today)
    task.title = _plain(" ".join(words))
    task.items = parse_items("\n".join([*rest, *lines]))
    if task.period.horizon == "year":
        task.level = OBJECTIVE  # nothing else is of a year
    return task


def parse_items(text: str) -> list[QuickItem]:
    """A checklist: one item a line, or several with `;` between them; empty ones are passed over."""
    pieces = (_BULLET.sub("", line, count=1) for line in text.splitlines())
    return [_item(each) for piece in pieces for each in _NEXT_ITEM.split(piece) if each.strip()]


def _item(text: str) -> QuickItem:
    stop = _STOP.search(text)
    if stop is None:
        return QuickItem(_plain(text))
    return QuickItem(_plain(text[: stop.start()]), True, _plain(text[stop.end() :]))


def _plain(text: str) -> str:
    return " ".join(_ESCAPED.sub("", text).split())


def _kind(task: QuickTask, value: str, today: date) -> None:
    word = value.lower()
    if word == OBJECTIVE:
        task.level = OBJECTIVE
    elif word in ARCHETYPES:
        task.archetype = word
    else:
        raise _unknown("!", value, "!user, !model, !hybrid or !objective, and !stop in the checklist")


def _project(task: QuickTask, value: str, today: date) -> None:
    task.project = value.strip('"“”').strip()
    if not task.project:
        raise _unknown("#", value, 'the name of a project, as #Contracts or #"Two words"')


def _period(task: QuickTask, value: str, today: date) -> None:
    period = _named_day(value.lower(), today) or _written(value)
    if period is None:
        raise _unknown(">", value, "a day, as >tomorrow, >friday or >2026-11-23, a month, as >2026-11, or a year")
    task.period = period


def _named_day(word: str, today: date) -> Period | None:
    if word in ("today", "tomorrow"):
        return Period("day", today + timedelta(word == "tomorrow"))
    for number, name in enumerate(WEEKDAYS):
        if word in (name, name[:3]):
            return Period("day", today + timedelta((number - today.weekday() - 1) % 7 + 1))
    return None


def _written(value: str) -> Period | None:
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
        raise _unknown("^", value, "the code of a task or objective, as ^M2026-11-T03")


def _unknown(sign: str, value: str, known: str) -> ProductError:
    return ProductError(
        "unknown_mark", f"“{sign}{value}” is not {known}. To keep it as text, write \\ before it: \\{sign}{value}."
    )


_READERS: dict[str, Callable[[QuickTask, str, date], None]] = {
    "!": _kind,
    "#": _project,
    ">": _period,
    "^": _parent,
}
