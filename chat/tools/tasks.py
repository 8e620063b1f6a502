"""Tools with which a model works on its user's tasks.

`projects.planner.rules` has the rules for a model. A refusal is a sentence for the model. A step of a run offers only
the tools for that step, which know its task or item. Only the user clears a breakpoint.
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
from core.json_types import JsonObject
from core.sentences import Sentence
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, Tool, ToolOutput
from projects.planner import services
from projects.planner.models import Run, RunStep, codes
from projects.planner.models.task import MAX_NEEDS, MAX_TITLE, Task
from projects.planner.queries import today, visible_task
from projects.planner.rules import MAX_NOTES, Actor, DraftItem, NewTask


def check_names(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise `BadArguments` for a name that is not in the schema, and for a required name that is missing."""
    names = list(schema["properties"])
    for name in arguments:
        if name not in names:
            raise BadArguments(f"There is no argument “{str(name)[:40]}”. The arguments are {', '.join(names)}.")
    for name in schema.get("required", ()):
        if arguments.get(name) is None:
            raise BadArguments(f"“{name}” is missing.")


def text(arguments: Mapping[str, Any], name: str, most: int, *, required: bool = False) -> str:
    """Return a text argument, empty by default. `most`: its maximum length in characters. Raises `BadArguments`."""
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
    """Return an argument that is one of `allowed`, by default the first. Raises `BadArguments`."""
    value = arguments.get(name)
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise BadArguments(f"“{name}” must be one of {', '.join(allowed)}.")
    return str(value)


def flag(arguments: Mapping[str, Any], name: str) -> bool:
    """Return a boolean argument, by default false. Raises `BadArguments`."""
    value = arguments.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise BadArguments(f"“{name}” must be true or false.")
    return value


def day(arguments: Mapping[str, Any], name: str) -> date | None:
    """Return a date argument, None by default. Raises `BadArguments`."""
    value = text(arguments, name, 40)
    try:
        return date.fromisoformat(value) if value else None
    except ValueError as error:
        raise BadArguments(f"“{name}” must be a day such as 2026-11-21.") from error


def objects(
    arguments: Mapping[str, Any], name: str, schema: Mapping[str, Any], most: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of an argument that is a list of 1 to `most`. Raises `BadArguments`."""
    value = arguments.get(name)
    if not isinstance(value, list) or not value or len(value) > most:
        raise BadArguments(f"“{name}” must be a list of 1 to {most}.")
    for each in value:
        if not isinstance(each, dict):
            raise BadArguments(f"Each of “{name}” must be an object.")
        check_names(each, schema)
        yield each


MAX_LISTED_TASKS = 100  # tasks per listing
STATUSES = ("done", "dropped", "open")
DRAFTED: dict[str, str] = {
    Task.Draft.DUE: " Its checklist is drafted after your answer, unless you draft it now; the user starts its run.",
    Task.Draft.REFUSED: " Too many checklists wait to be drafted, so none is for this one. Draft it, or the user does.",
}

PROPOSED = " It is proposed: the user accepts or declines it on the page of their tasks, and nothing is begun before."


@dataclass(frozen=True, slots=True)
class TaskToolContext:
    """The acting user and model, their conversation, and within a run its current step."""

    user: User
    model: str
    conversation: UUID | None
    step: RunStep | None = None

    @property
    def actor(self) -> Actor:
        return Actor(self.user, self.model, self.conversation)

    def task(self, code: str) -> Task:
        """Return the task with this code. Raises `BadArguments` for a malformed code, and `NotFound`."""
        normal = code.strip().removeprefix("@").upper()
        if not codes.is_code(normal):
            raise BadArguments(f"“{code[:40]}” is no code of a task, such as D2026-11-21-T02 or D2026-11-21-T02.C03.")
        return visible_task(self.user, normal)


def object_schema(*required: str, **properties: JsonObject) -> JsonObject:
    """Return the JSON Schema of an object that has only these properties."""
    demanded = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **demanded, "additionalProperties": False}


def text_schema(description: str = "", among: Sequence[str] = ()) -> JsonObject:
    """Return the JSON Schema of a text. If `among` is not empty, it lists the allowed texts."""
    values = {"enum": list(among)} if among else {}
    described = {"description": description} if description else {}
    return {"type": "string", **values, **described}


class TaskTool(ABC):
    """A tool for tasks. `doing`: a sentence that people see while it runs."""

    timeout = 15.0
    definition: ToolDefinition
    doing: Sentence

    def __init__(self, context: TaskToolContext) -> None:
        self.context = context

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return self.doing

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        return await on_database(self._run, arguments)

    def _run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        check_names(arguments, self.definition.parameters)
        try:
            return ToolOutput(self.do(arguments))
        except ProductError as error:
            raise BadArguments(error.detail) from error

    @abstractmethod
    def do(self, arguments: Mapping[str, Any]) -> str:
        """Act on checked arguments and return a text for the model. Raises `ProductError` and `BadArguments`."""


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
        code = text(arguments, "code", codes.MAX_LENGTH + 1)
        listed_day = day(arguments, "date")
        if code and listed_day:
            raise BadArguments("Give “date” or “code”, not both.")
        rows = Task.objects.visible_to(self.context.user)
        if code:
            row = self.context.task(code)
            tasks = [row, *rows.filter(parent=row)[:MAX_LISTED_TASKS]]
        else:
            listed_day = listed_day or today(self.context.user)
            tasks = list(
                rows.filter(horizon=Task.Horizon.DAY, date=listed_day).order_by("code")[: MAX_LISTED_TASKS + 1]
            )
        descriptions = [_described(row) for row in tasks[:MAX_LISTED_TASKS]]
        more = "\nThere are more; ask for one by its code." if len(tasks) > MAX_LISTED_TASKS else ""
        return (json.dumps({"tasks": descriptions}, ensure_ascii=False) if descriptions else "There are none.") + more


def _described(row: Task) -> dict[str, str]:
    """Return the non-empty fields of a task for the model."""
    members = {
        "code": row.code,
        "title": row.title,
        "status": row.status,
        "archetype": row.archetype,
        "proposed_by_model": row.model if row.proposed else "",
        "notes": row.notes,
        "breakpoint": (row.needs or "the user's word") if row.blocking else "",
    }
    return {name: value for name, value in members.items() if value}


class CreateTask(TaskTool):
    doing = Sentence("Creating a task")
    definition = ToolDefinition(
        "create_task",
        "Create a task or objective. Returns its code.",
        object_schema(
            "title",
            title=text_schema("Such as: Pay the rent"),
            level=text_schema(among=("task", "objective")),
            horizon=text_schema(among=("day", "month", "year")),
            date=text_schema("A day of that time, such as 2026-11-21."),
            archetype=text_schema(
                "Who does it: the user, you, or both.",
                ("user", "model", "hybrid"),
            ),
            notes=text_schema("Such as: by bank transfer"),
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
            parent=self.context.task(parent) if parent else None,
        )
        row = services.create(actor=self.context.actor, new=new)
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
                    title=text_schema("Such as: Find the bill"),
                    breakpoint={"type": "boolean", "description": "Stop before it and ask."},
                    needs=text_schema("What to ask for, such as: the colour"),
                ),
            },
        ),
    )

    def do(self, arguments: Mapping[str, Any]) -> str:
        items = [self._item(each) for each in self._items(arguments)]
        code = text(arguments, "task", codes.MAX_LENGTH + 1)
        step = self.context.step
        if step is None and not code:
            raise BadArguments("Say in “task” the code of the task whose checklist it is.")
        task = visible_task(self.context.user, step.run.task_id) if step else self.context.task(code)
        if code and self.context.task(code) != task:
            raise BadArguments(f"Now it is about {task.code} only.")
        if task.archetype == Task.Archetype.MODEL and any(item.breakpoint for item in items):
            raise BadArguments(f"{task.code} is done without the user, so it has no breakpoints. Leave them out.")
        first = step is not None  # in a run, the user has written any items that exist by now
        drafted = services.draft_checklist(actor=self.context.actor, task=task, items=items, only_first=first)
        return f"Drafted {len(drafted)} items, {drafted[0].code} to {drafted[-1].code}."

    def _items(self, arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        shape = self.definition.parameters["properties"]["items"]["items"]
        return objects(arguments, "items", shape, codes.MAX_NUMBER)

    @staticmethod
    def _item(item: Mapping[str, Any]) -> DraftItem:
        needs = text(item, "needs", MAX_NEEDS)
        stops = flag(item, "breakpoint")
        return DraftItem(text(item, "title", MAX_TITLE, required=True), stops, needs)


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
        code = text(arguments, "item", codes.MAX_LENGTH + 1)
        status = choice(arguments, "status", STATUSES)
        row = self._current(code, self.context.step) if self.context.step else self._named(code)
        row = services.set_status(actor=self.context.actor, task=row, status=status)
        return f"{row.code} is {row.status} now."

    def _named(self, code: str) -> Task:
        if not code:
            raise BadArguments("Say in “item” the code of what is to be marked.")
        return self.context.task(code)

    def _current(self, code: str, step: RunStep) -> Task:
        if code.strip().upper() not in ("", step.code, f"@{step.code}", step.code.partition(".")[2]):
            raise BadArguments(f"Now it is about {step.code} only. The other items come in their turn.")
        _require_live(step)
        return visible_task(self.context.user, step.code)


class AskUser(TaskTool):
    doing = Sentence("Asking you")
    definition = ToolDefinition(
        "ask_user",
        "Ask the user. Work stops until the answer.",
        object_schema("question", question=text_schema("Such as “Which colour?”")),
    )

    def do(self, arguments: Mapping[str, Any]) -> str:
        question = text(arguments, "question", 4_000, required=True)
        step = self.context.step
        if step is None:
            return "Write this question as your answer now, and nothing else. The user replies in their next message."
        _require_live(step)
        RunStep.objects.filter(pk=step.pk, status=RunStep.Status.RUNNING).update(question=question)
        return "The run waits for the user's answer. End your answer now, in one sentence."


def _require_live(step: RunStep) -> None:
    if not Run.objects.live().filter(pk=step.run_id).exists():
        raise BadArguments("This run has been stopped. End your answer now.")


EVERYWHERE = (ListTasks, CreateTask, DraftChecklist, MarkItem, AskUser)
WHILE_DRAFTING = (DraftChecklist, AskUser)
AT_AN_ITEM = (MarkItem, AskUser)


def task_tools(context: TaskToolContext, *, named: bool) -> Iterator[tuple[ToolGuidance, Tool]]:
    """Yield the tools for the step of a run. Outside of a run, yield all tools if they are `named`.

    `named`: the persona names them or, without a persona, the workspace offers them.
    """
    if context.step is not None:
        kinds: tuple[type[TaskTool], ...] = AT_AN_ITEM if context.step.code else WHILE_DRAFTING
    else:
        kinds = EVERYWHERE if named else ()
    for kind in kinds:
        yield ToolGuidance(kind.definition.name), kind(context)
