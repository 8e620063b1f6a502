"""Ask a scripted model that proposes facts, and read what it got."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from chat.memory.models import Fact
from chat.memory.services import FactScope, add_fact
from llm.models import Model
from tests.application import Application
from tests.conftest import Person
from workspace import services as workspace

SAID: dict[str, Any] = {"text": "Noted."}
HEADING = "What is remembered about the person you talk to."


@dataclass(frozen=True)
class Rememberer:
    """A person with a model that calls tools."""

    application: Application
    person: Person
    model: Model

    def place(self, **fields: Any) -> str:
        return str(self.person.caller.post("conversations/", fields, expect=201)["id"])

    def propose(self, place: str, question: str, fact: str, quote: str, **body: Any) -> tuple[str, bool]:
        """Ask, and have the model propose a fact. Return the text of the result, and whether it is an error."""
        call = {"name": "remember", "arguments": {"fact": fact, "quote": quote}}
        ended = self.answer(place, question, {"steps": [{"tool_calls": [call]}, SAID]}, **body)
        [result] = [part for part in ended["parts"] if part["type"] == "tool_result"]
        return result["text"], result["error"]

    def answer(self, place: str, question: str, script: dict[str, Any], **body: Any) -> dict[str, Any]:
        """Ask, have the model play the script, and return the turn. The script is not in the message."""
        self.application.model.set_script(self.model.name, script)
        turn = self.person.caller.ask(question, None, place, models=[str(self.model.pk)], **body)
        ended = self.person.caller.ended(turn["id"])
        assert ended["status"] == "done", ended
        return dict(ended)

    def ask(self, place: str, question: str) -> dict[str, Any]:
        """Ask, and return the report of the turn."""
        ended = self.answer(place, question, SAID)
        return dict(self.person.caller.get(f"turns/{ended['id']}/report/"))

    def section(self, place: str, question: str) -> str:
        """Ask, and return the memory section that the model got; empty without one."""
        mark = uuid4().hex
        report = self.ask(place, f"{question} {mark}")
        texts = [each["text"] for each in report["messages"] if each["section"] == "memory"]
        body = self.application.model.finished(mark)[0].body
        got = [each["content"] for each in body["messages"] if HEADING in str(each["content"])]
        assert got == texts, (got, texts)
        return texts[0] if texts else ""

    def fact(self, text: str, **fields: Any) -> Fact:
        return add_fact(user=self.person.user, text=text, **fields)

    def facts(self, **conditions: Any) -> list[str]:
        return [fact.text for fact in Fact.objects.filter(owner=self.person.user, **conditions).order_by("id")]

    def everything_sent(self, mark: str) -> str:
        """Return all requests with the mark as JSON."""
        bodies = [each.body for each in self.application.model.finished(mark)]
        return json.dumps(bodies, ensure_ascii=False)


def set_to(**fields: Any) -> None:
    """Change settings of the workspace, as an administrator does."""
    workspace.change_settings(user=None, fields=fields)


def reasons(report: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Return state and reason of each fact of a plan or report, by its title."""
    return {each["title"]: (each["state"], each["reason"]) for each in report["sources"] if each["kind"] == "fact"}


__all__ = ["HEADING", "SAID", "FactScope", "Rememberer", "reasons", "set_to"]
