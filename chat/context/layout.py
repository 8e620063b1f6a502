"""The order of the sections (docs/context.md, “Order”).

`history` is older turns with the files above their messages, `current` the newest turn with its files. The project's
files and their listing stay together; the reminder is last in every layout.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Slot = Literal[
    "system", "tasks", "summary", "history", "persona", "project_files", "file_listing", "current", "reminder"
]

LAYOUTS: dict[str, tuple[Slot, ...]] = {
    # The seeds' order: what matters most is close to the newest question.
    "near_end": (
        "system",
        "tasks",
        "summary",
        "history",
        "persona",
        "project_files",
        "file_listing",
        "current",
        "reminder",
    ),
    # A large, unchanging prefix, which providers bill at a tenth.
    "files_first": (
        "system",
        "project_files",
        "file_listing",
        "tasks",
        "summary",
        "history",
        "persona",
        "current",
        "reminder",
    ),
    "all_first": (
        "system",
        "persona",
        "project_files",
        "file_listing",
        "tasks",
        "summary",
        "history",
        "current",
        "reminder",
    ),
}


DateAwareness = Literal["day", "minute", "off"]

CITATIONS = (
    "# Citations\n"
    "Each document has a number. Cite what you take from a document with its number in square brackets right after the "
    "statement, like [1] or [2][5]. Cite only documents that were given; never list sources at the end."
)
CITATION_REMINDER = "Cite the documents you use by their numbers in square brackets, like [1]."


@dataclass(frozen=True, slots=True)
class ToolGuidance:
    """When to use a tool, in words for the model. A search tool's results can be cited."""

    name: str
    text: str
    is_search: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """What S and R depend on in one model call.

    `asked_at` is the time of the newest user message in the user's timezone. `tools` are all tools of the turn in a
    fixed order, `available` the names of those that may be called in this cycle; `searched`: a search tool has run in
    this turn. `append_only`: what was sent in an earlier cycle of the turn does not change in a later one.
    """

    layout: str
    asked_at: datetime
    date_awareness: DateAwareness = "day"
    tools: Sequence[ToolGuidance] = ()
    available: frozenset[str] = frozenset()
    searched: bool = False
    append_only: bool = False

    @property
    def moves(self) -> bool:
        """Whether S changes from call to call."""
        return self.layout == "near_end" and not self.append_only


def system_text(base: str, moment: Moment) -> str:
    """S: the editable text, guidance for tools, the section on citations, and the date as the last line."""
    tools = [tool for tool in moment.tools if not moment.moves or tool.name in moment.available]
    cites = moment.searched if moment.moves else any(tool.is_search for tool in tools)
    guidance = "\n".join(("# Tools", *(f"{tool.name}: {tool.text}" for tool in tools))) if tools else ""
    return _joined((base, guidance, CITATIONS if cites else "", _date_line(moment)))


def reminder_text(reminders: Iterable[str], moment: Moment) -> str | None:
    """R: the built-in reminders and the user's, in one message; None when there is nothing to remind of."""
    exact_time = moment.date_awareness == "minute" and not moment.moves
    time = f"It is {moment.asked_at:%A, %Y-%m-%d %H:%M}." if exact_time else ""
    return _joined((CITATION_REMINDER if moment.searched else "", *reminders, time)) or None


def _date_line(moment: Moment) -> str:
    if moment.date_awareness == "off":
        return ""
    minutes = moment.moves and moment.date_awareness == "minute"
    return (
        f"Today is {moment.asked_at:%A, %Y-%m-%d}." if not minutes else f"It is {moment.asked_at:%A, %Y-%m-%d %H:%M}."
    )


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)
