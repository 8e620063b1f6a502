"""The model's hand on its user's tasks. What it may do is `projects.planner.rules`; a refusal is a sentence for it.

In a run there are only those that the step needs, and they know what they are about; only the user clears a breakpoint.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from accounts.models import User
from chat.context.rendering import ToolGuidance
from core.background import on_database
from core.errors import ProductError
from core.sentences import Sentence
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, Tool, ToolOutput
from projects.planner import services
from projects.planner.models import Run, RunStep, codes
from projects.planner.models.task import MAX_NEEDS, MAX_TITLE, Task
from projects.planner.queries import today, visible_task
from projects.planner.rules import MAX_NOTES, Actor, DraftItem, NewTask


def known(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raises `BadArguments` for a name that the schema does not have, and for one that is missing."""
    names = list(schema["properties"])
    for name in arguments:
        if name not in names:
            raise BadArguments(f"There is no argument “{str(name)[:40]}”. The arguments are {', '.join(names)}.")
    for name in schema.get("required", ()):
        if arguments.get(name) is None:
            raise BadArguments(f"“{name}” is missing.")


def text(arguments: Mapping[str, Any], name: str, most: int, *, required: bool = False) -> str:
    """Empty when it is not given. `most` in characters."""
    value = arguments.get(name)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise BadArguments(f"“{name}” must be a text.")
    if required and not value.strip():
        raise BadArguments(f"“{name}” must not be empty.")
    if len(value) > most:
        raise BadArguments(f"“{name}” has {len(value):,} characters; the most is {most:,}.")
    return value


def choice(arguments: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str:
    """The first of `allowed` when it is not given."""
    value = arguments.get(name)
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise BadArguments(f"“{name}” must be one of {', '.join(allowed)}.")
    return str(value)


def flag(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadArguments(f"“{name}” must be true or false.")
    return value


def day(arguments: Mapping[str, Any], name: str) -> date | None:
    value = text(arguments, name, 40)
    try:
        return date.fromisoformat(value) if value else None
    except ValueError as error:
        raise BadArguments(f"“{name}” must be a day such as 2026-11-21.") from error


def objects(
    arguments: Mapping[str, Any], name: str, schema: Mapping[str, Any], most: int
) -> Iterator[Mapping[str, Any]]:
    value = arguments.get(name)
    if not isinstance(value, list) or not value or len(value) > most:
        raise BadArguments(f"“{name}” must be a list of 1 to {most}.")
    for each in value:
        if not isinstance(each, dict):
            raise BadArguments(f"Each of “{name}” must be an object.")
        known(each, schema)
        yield each


MOST = 100  # tasks of one listing
STATUSES = ("done", "dropped", "open")
DRAFTED: dict[str, str] = {
    Task.Draft.DUE: " Its checklist is drafted after your answer, unless you draft it now; the user starts its run.",
    Task.Draft.REFUSED: " Too many checklists wait to be drafted, so none is for this one. Draft it, or the user does.",
}

PROPOSED = " It is proposed: the user accepts or declines it on the page of their tasks, and nothing is begun before."


@dataclass(frozen=True, slots=True)
class Hand:
    """Who acts, in which conversation, and in which step of a run if it is one."""

    user: User
    model: str
    conversation: UUID | None
    step: RunStep | None = None

    @property
    def actor(self) -> Actor:
        return Actor(self.user, self.model, self.conversation)

    def task(self, code: str) -> Task:
        """Raises `BadArguments` for what is no code, `NotFound` for a code that nothing has."""
        wanted = code.strip().removeprefix("@").upper()
        if not codes.is_code(wanted):
            raise BadArguments(f"“{code[:40]}” is no code of a task, such as D2026-11-21-T02 or D2026-11-21-T02.C03.")
        return visible_task(self.user, wanted)


def object_schema(*required: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object that has these properties alone."""
    demanded = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **demanded, "additionalProperties": False}


def text_schema(description: str = "", among: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of a text."""
    values, described = {"enum": list(among)} if among else {}, {"description": description} if description else {}
    return {"type": "string", **values, **described}


class TaskTool(ABC):
    timeout = 15.0
    definition: ToolDefinition
    doing: Sentence  # for people

    def __init__(self, hand: Hand) -> None:
        self.hand = hand

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return self.doing

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        return await on_database(self._run, arguments)

    def _run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        known(arguments, self.definition.parameters)
        try:
            return ToolOutput(self.do(arguments))
        except ProductError as error:
            raise BadArguments(error.detail) from error

    @abstractmethod
    def do(self, arguments: Mapping[str, Any]) -> str:
        """The tool's work on checked arguments; what the model is told. Raises `ProductError`, `BadArguments`."""


class ListTasks(TaskTool):
    doing = Sentence("Looking at the tasks")
    definition = ToolDefinition(
        "list_tasks",
        "List the tasks of a day with their checklists, or one task with what is below it.",
        object_schema(
            date=text_schema("Such as 2026-11-21. Default: today."),
            code=text_schema("Such as M2026-11-T03."),
        ),
    )

    def do(self, arguments: Mapping[str, Any]) -> str:
        code, on = text(arguments, "code", codes.MAX_LENGTH + 1), day(arguments, "date")
        if code and on:
            raise BadArguments("Give “date” or “code”, not both.")
        rows = Task.objects.visible_to(self.hand.user)
        if code:
            row = self.hand.task(code)
            found = [row, *rows.filter(parent=row)[:MOST]]
        else:
            on = on or today(self.hand.user)
            found = list(rows.filter(horizon=Task.Horizon.DAY, date=on).order_by("code")[: MOST + 1])
        shown = [_described(row) for row in found[:MOST]]
        more = "\nThere are more; ask for one by its code." if len(found) > MOST else ""
        return (json.dumps({"tasks": shown}, ensure_ascii=False) if shown else "There are none.") + more


def _described(row: Task) -> dict[str, Any]:
    said = {"code": row.code, "title": row.title, "status": row.status, "archetype": row.archetype}
    said |= {"proposed_by_model": row.model if row.proposed else ""}
    said |= {"notes": row.notes, "breakpoint": (row.needs or "the user's word") if row.blocking else ""}
    return {name: value for name, value in said.items() if value}


class CreateTask(TaskTool):
    doing = Sentence("Creating a task")
    definition = ToolDefinition(
        "create_task",
        "Create a task or objective. Returns its code.",
        object_schema(
            "title",
            title=text_schema(),
            level=text_schema(among=("task", "objective")),
            horizon=text_schema(among=("day", "month", "year")),
            date=text_schema("A day of that time, such as 2026-11-21."),
            archetype=text_schema(
                "Who does it: the user, you, or both.",
                ("user", "model", "hybrid"),
            ),
            notes=text_schema(),
            parent=text_schema("Its objective, such as M2026-11-O01."),
        ),
    )

    def do(self, arguments: Mapping[str, Any]) -> str:
        parent = text(arguments, "parent", codes.MAX_LENGTH + 1)
        level = choice(arguments, "level", ("task", "objective"))
        new = NewTask(
            title=text(arguments, "title", MAX_TITLE, required=True),
            level=level,
            horizon=choice(arguments, "horizon", ("day", "month", "year")),
            date=day(arguments, "date"),
            archetype=choice(arguments, "archetype", ("user", "model", "hybrid")) if level == "task" else "",
            notes=text(arguments, "notes", MAX_NOTES),
            parent=self.hand.task(parent) if parent else None,
        )
        row = services.create(actor=self.hand.actor, new=new)
        waits = row.proposed and row.horizon == Task.Horizon.DAY
        return f"Created {row.code}." + (PROPOSED if waits else DRAFTED.get(row.draft, ""))


class DraftChecklist(TaskTool):
    doing = Sentence("Drafting a checklist")
    definition = ToolDefinition(
        "draft_checklist",
        "Replace the open items of a day task's checklist.",
        object_schema(
            "items",
            task=text_schema("Such as D2026-11-21-T02."),
            items={
                "type": "array",
                "description": "In working order.",
                "items": object_schema(
                    "title",
                    title=text_schema(),
                    breakpoint={"type": "boolean", "description": "Stop before it and ask."},
                    needs=text_schema("What to ask for, such as: the colour"),
                ),
            },
        ),
    )

    def do(self, arguments: Mapping[str, Any]) -> str:
        items = [self._item(each) for each in self._given(arguments)]
        code, step = text(arguments, "task", codes.MAX_LENGTH + 1), self.hand.step
        if step is None and not code:
            raise BadArguments("Say in “task” the code of the task whose checklist it is.")
        task = visible_task(self.hand.user, step.run.task_id) if step else self.hand.task(code)
        if code and self.hand.task(code) != task:
            raise BadArguments(f"Now it is about {task.code} only.")
        if task.archetype == Task.Archetype.MODEL and any(item.breakpoint for item in items):
            raise BadArguments(f"{task.code} is done without the user, so it has no breakpoints. Leave them out.")
        first = step is not None  # what is there by then, the user has written while this was being drafted
        drafted = services.draft_checklist(actor=self.hand.actor, task=task, items=items, only_first=first)
        return f"Drafted {len(drafted)} items, {drafted[0].code} to {drafted[-1].code}."

    def _given(self, arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        shape = self.definition.parameters["properties"]["items"]["items"]
        return objects(arguments, "items", shape, codes.MAX_NUMBER)

    @staticmethod
    def _item(given: Mapping[str, Any]) -> DraftItem:
        needs, stops = text(given, "needs", MAX_NEEDS), flag(given, "breakpoint")
        return DraftItem(text(given, "title", MAX_TITLE, required=True), stops, needs)


class MarkItem(TaskTool):
    doing = Sentence("Marking an item")
    definition = ToolDefinition(
        "mark_item",
        "Mark an item or a task: done (default), dropped or open.",
        object_schema(
            item=text_schema("Such as D2026-11-21-T02.C01."),
            status=text_schema(among=STATUSES),
        ),
    )

    def do(self, arguments: Mapping[str, Any]) -> str:
        code, status = text(arguments, "item", codes.MAX_LENGTH + 1), choice(arguments, "status", STATUSES)
        row = self._current(code, self.hand.step) if self.hand.step else self._named(code)
        row = services.set_status(actor=self.hand.actor, task=row, status=status)
        return f"{row.code} is {row.status} now."

    def _named(self, code: str) -> Task:
        if not code:
            raise BadArguments("Say in “item” the code of what is to be marked.")
        return self.hand.task(code)

    def _current(self, code: str, step: RunStep) -> Task:
        if code.strip().upper() not in ("", step.code, f"@{step.code}", step.code.partition(".")[2]):
            raise BadArguments(f"Now it is about {step.code} only. The other items come in their turn.")
        _require_live(step)
        return visible_task(self.hand.user, step.code)


class AskUser(TaskTool):
    doing = Sentence("Asking you")
    definition = ToolDefinition(
        "ask_user",
        "Ask the user. Work stops until the answer.",
        object_schema("question", question=text_schema("Such as “Which colour?”")),
    )

    def do(self, arguments: Mapping[str, Any]) -> str:
        question, step = text(arguments, "question", 4_000, required=True), self.hand.step
        if step is None:
            return "Write this question as your answer now, and nothing else. The user replies in their next message."
        _require_live(step)
        RunStep.objects.filter(pk=step.pk, status=RunStep.Status.RUNNING).update(question=question)
        return "The run waits for the user's answer. End your answer now, in one sentence."


def _require_live(step: RunStep) -> None:
    if not Run.objects.live().filter(pk=step.run_id).exists():
        raise BadArguments("This run has been stopped. End your answer now.")


EVERYWHERE = (ListTasks, CreateTask, DraftChecklist, MarkItem, AskUser)
WHILE_DRAFTING, AT_AN_ITEM = (DraftChecklist, AskUser), (MarkItem, AskUser)


def task_tools(hand: Hand, *, named: bool) -> Iterator[tuple[ToolGuidance, Tool]]:
    """Those of the step in a run, else all of them for a persona that names them, or where the workspace offers them
    without one."""
    if hand.step is not None:
        kinds: tuple[type[TaskTool], ...] = AT_AN_ITEM if hand.step.code else WHILE_DRAFTING
    else:
        kinds = EVERYWHERE if named else ()
    for kind in kinds:
        yield ToolGuidance(kind.definition.name), kind(hand)
