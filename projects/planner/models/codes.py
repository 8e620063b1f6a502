"""Codes of objectives, tasks and checklist items, such as `D2026-11-21-T02.C03` (docs/develop/context.md, “Tasks”).

A code has a series and a number from 1 to 99. It never changes and is never reused, so users and models refer to tasks
by their codes. Series are `Y2026-O` and `M2026-11-O` for objectives, `M2026-11-T` and `D2026-11-21-T` for tasks. The
series of a task's items is the task's code with `.C`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Literal

from core.sentences import Sentence

Level = Literal["objective", "task", "item"]
Horizon = Literal["year", "month", "day"]

HORIZONS: dict[str, tuple[str, ...]] = {"objective": ("year", "month"), "task": ("month", "day"), "item": ("day",)}
MAX_NUMBER = 99  # two digits
MAX_LENGTH = 19  # characters

_LETTERS = {"objective": "O", "task": "T"}
_SPANS = {"year": ("Y", 4), "month": ("M", 7), "day": ("D", 10)}  # the letter, and the characters of an ISO date
_SHAPE = r"Y\d{4}-O\d{2}|M\d{4}-\d{2}-[OT]\d{2}|D\d{4}-\d{2}-\d{2}-T\d{2}(?:\.C\d{2})?"
_CODE = re.compile(_SHAPE, re.ASCII)
# Letters of other scripts may be next to a mention, since Chinese has no spaces. E-mail addresses and longer words are
# not mentions.
_MENTION = re.compile(rf"(?<![0-9A-Za-z_.])@({_SHAPE})(?![0-9A-Za-z_])", re.ASCII | re.IGNORECASE)


class BadCode(ValueError):
    """Raised for a text that is not a code, and for a code with a date that does not exist."""


@dataclass(frozen=True, slots=True)
class Code:
    """A parsed code. `start`: the first day of the year or month, or the day. `item`: the number in the checklist."""

    level: Level
    horizon: Horizon
    start: date
    number: int
    item: int | None = None

    def __post_init__(self) -> None:
        fits = self.horizon in HORIZONS[self.level] and self.start == first_day(self.horizon, self.start)
        numbers = (self.number,) if self.item is None else (self.number, self.item)
        if not fits or (self.level == "item") != (self.item is not None) or not all(map(_is_number, numbers)):
            raise BadCode(
                Sentence(
                    "There is no code for {level} {numbers} of the {horizon} that begins on {start}.",
                    level=self.level,
                    numbers=str(numbers),
                    horizon=self.horizon,
                    start=str(self.start),
                )
            )

    def __str__(self) -> str:
        code = format_code(
            series("task" if self.level == "item" else self.level, self.horizon, self.start), self.number
        )
        return code if self.item is None else format_code(item_series(code), self.item)

    @property
    def task(self) -> "Code":
        """Return the code of the task of an item; for other codes, the code itself."""
        return self if self.item is None else Code("task", self.horizon, self.start, self.number)


def parse(text: str) -> Code:
    """Parse a code. Raises `BadCode`, also for a month or day that does not exist, and for the number 00."""
    if not _CODE.fullmatch(text):
        raise BadCode(
            Sentence("“{text}” is not a code such as Y2026-O01, M2026-11-T03 or D2026-11-21-T02.C03.", text=text)
        )
    code, _, item = text.partition(".C")
    span = code[1:-4]
    letter = code[-3]
    number = code[-2:]
    horizon: Horizon = "year" if code[0] == "Y" else "month" if code[0] == "M" else "day"
    level: Level = "item" if item else "objective" if letter == "O" else "task"
    try:
        start = date.fromisoformat((span + "-01-01")[:10])
    except ValueError as error:
        raise BadCode(Sentence("“{text}” has a day that does not exist.", text=text)) from error
    return Code(level, horizon, start, int(number), int(item) if item else None)


def first_day(horizon: str, day: date) -> date:
    """Return the first day of the year or month that contains `day`; for a day, the day itself."""
    if horizon == "year":
        return day.replace(month=1, day=1)
    return day.replace(day=1) if horizon == "month" else day


def series(level: str, horizon: str, day: date) -> str:
    """Return the series of objectives or tasks of the period that contains `day`. Raises KeyError for items."""
    letter, length = _SPANS[horizon]
    return f"{letter}{day.isoformat()[:length]}-{_LETTERS[level]}"


def item_series(task: str) -> str:
    return f"{task}.C"


def format_code(series: str, number: int) -> str:
    """Return the code with this number, 1 to 99."""
    return f"{series}{number:02d}"


def find_mentions(text: str) -> list[str]:
    """Return the valid codes that a text mentions with @, in capitals, in order and without duplicates.

    A mention ends with its code: `@D2026-11-21-T02.` at the end of a sentence mentions the task.
    """
    return list(dict.fromkeys(code for _, _, code in find_mention_spans(text)))


def find_mention_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, code in capitals) of each mention, from its @ on."""
    for match in _MENTION.finditer(text):
        code = match[1].upper()
        if is_code(code):
            yield match.start(), match.end(), code


def is_code(text: str) -> bool:
    try:
        parse(text)
    except BadCode:
        return False
    return True


def _is_number(number: int) -> bool:
    return 1 <= number <= MAX_NUMBER
