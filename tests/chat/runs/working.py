"""Tasks whose runs the scripted model plays. The script for an item is in the item's title."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone

from chat.background.tasks import sweep_turns
from llm.models import Model
from projects.planner.models import Run
from tests.conftest import Person
from tests.product import WAIT, Caller, Server, until

MARK: dict[str, Any] = {"tool_calls": [{"name": "mark_item"}]}
SAID: dict[str, Any] = {"text": "ok"}
DONE: list[dict[str, Any]] = [MARK, SAID]


def tool_model(row: Model) -> Model:
    return Model.objects.create(
        provider=row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=64_000, tools=True
    )  # fmt: skip


def script(*steps: dict[str, Any]) -> str:
    return "script: " + json.dumps({"steps": list(steps)}, separators=(",", ":"))


def drafting(*items: str, **stops: str) -> str:
    """The notes of a task with which the model drafts these titles. `at1="…"` makes the second a breakpoint."""
    drafted: list[dict[str, Any]] = [{"title": title} for title in items]
    for place, needs in stops.items():
        drafted[int(place.removeprefix("at"))] |= {"breakpoint": True, "needs": needs}
    call = {"name": "draft_checklist", "arguments": {"items": drafted}}
    return script({"tool_calls": [call]}, {"text": "Planned."})


@dataclass
class Work:
    """A task of a person. Its title has a unique mark."""

    person: Person
    server: Server
    model: Model
    task: dict[str, Any]
    mark: str

    @property
    def caller(self) -> Caller:
        return self.person.caller

    def begin(self, expect: int = 202, **body: Any) -> Any:
        fields = {"model": str(self.model.pk), "start": False, **body}
        return self.caller.post(f"tasks/{self.task['id']}/runs/", fields, expect=expect)

    def until(self, run: str, *statuses: str, seconds: float = WAIT) -> Any:
        def look() -> Any:
            row = self.caller.get(f"runs/{run}/")
            return row if row["status"] in statuses else None

        try:
            return until(look, f"the run is {' or '.join(statuses)}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.caller.get(f'runs/{run}/')}") from error

    def items(self) -> list[dict[str, Any]]:
        rows = self.caller.get(f"tasks/?parent={self.task['id']}")["results"]
        return sorted(rows, key=lambda row: row["position"])

    def sent_items(self) -> list[str]:
        """Return for each request to the model the last part of its item's code, or "draft"."""
        first = [record.body["messages"] for record in self.server.model.requests(self.mark)]
        questions = [messages[-1]["content"] for messages in first if messages[-1]["role"] == "user"]
        code = self.task["code"]  # the person's other tasks of the day stand in the same prompts
        return [_asked(question, code) for question in questions if f"@{code}" in question]


def _asked(question: str, code: str) -> str:
    after = question.rpartition(f"@{code}")[2]
    return after[:4] if after.startswith(".C") else "draft"


def work(person: Person, server: Server, model: Model, archetype: str = "model", notes: str = "", **more: Any) -> Work:
    """Create a task. The server drafts its checklist only with `draft=True`."""
    mark = uuid4().hex
    body = {"title": f"Work {mark}", "level": "task", "archetype": archetype, "notes": notes, "draft": False, **more}
    return Work(person, server, model, person.caller.post("tasks/", body, expect=201), mark)


def with_items(scenario: Work, titles: Sequence[str]) -> Work:
    body = {"items": [{"title": title} for title in titles]}
    scenario.caller.post(f"tasks/{scenario.task['id']}/draft/", body, expect=201)
    return scenario


def swept(run: str) -> None:
    """Make the heartbeat of a run old, and run the sweeper."""
    Run.objects.filter(pk=run).update(heartbeat=timezone.now() - timedelta(minutes=1))
    sweep_turns()
