"""Turns with tools at providers that want their reasoning back, as strict as the real ones."""

from typing import Any
from uuid import uuid4

import pytest

from chat.models import Message, StepReasoning, Turn
from llm.models import Model, Provider
from tests.application import Application
from tests.conftest import Person

# The name of a model: the kind of its provider and the vendor whose rules the server has.
VENDORS = {
    "gpt-5.6-terra": ("openai", "gpt"),
    "gpt-5.6-sol": ("responses", ""),
    "claude-opus-5-5": ("anthropic", ""),
    "gemini-3-pro": ("openai", "gemini"),
    "deepseek-v4": ("openai", "deepseek"),
    "qwen4:8b": ("ollama", ""),
}
LOOP = {
    "steps": [
        {"reasoning": f"Step {n}.", "text": "", "tool_calls": [{"name": "list_tasks", "arguments": {}}]}
        for n in range(3)
    ]
    + [{"reasoning": "Enough.", "text": "There is nothing to do."}]
}


def model_of(application: Application, name: str) -> Model:
    kind, vendor = VENDORS[name]
    path = (application.model.url, vendor, "v1" if kind in ("openai", "responses") else "")
    url = "/".join(part for part in path if part)
    provider = Provider.objects.create(name=f"{name} {uuid4().hex[:8]}", kind=kind, base_url=url)
    return Model.objects.create(provider=provider, name=name, context_window=32_000, tools=True)


@pytest.fixture
def place(person: Person) -> str:
    """A conversation with tools, whose models are reminded of the time at the end of every call."""
    secretary = {"name": "Secretary", "instructions": "Be brief.", "tools": ["tasks"], "date_awareness": "minute"}
    persona = person.caller.post("personas/", secretary, expect=201)
    return str(person.caller.post("conversations/", {"persona": persona["id"]}, expect=201)["id"])


def answered(person: Person, place: str, model: Model, **more: Any) -> dict[str, Any]:
    script = {**LOOP, "note": uuid4().hex}
    asked = person.caller.ask("What is there to do?", script, place, models=[str(model.pk)], **more)
    ended: dict[str, Any] = person.caller.ended(asked["id"])
    assert ended["status"] == "done", ended
    return ended


@pytest.mark.parametrize("name", VENDORS)
def test_a_loop_of_tools_the_next_turn_and_once_more(
    name: str, application: Application, person: Person, place: str
) -> None:
    model = model_of(application, name)
    application.model.forget()
    for _ in range(2):
        ended = answered(person, place, model)
        assert [part["text"] for part in ended["parts"] if part["type"] == "text"] == ["There is nothing to do."]
    turn = Turn.objects.filter(conversation_id=place).latest("created")
    kept = StepReasoning.objects.filter(turn=turn)
    assert [each.number for each in kept.order_by("number")] == [1, 2, 3]
    refused = [record for record in application.model.requests() if record.status == 400]
    assert len(refused) == (1 if name == "gpt-5.6-terra" else 0)  # by this the protocol is found out
    notes = [note for call in turn.report["calls"] for note in call["notes"]]
    assert notes == []


@pytest.mark.parametrize("name", VENDORS)
def test_models_take_turns_in_one_conversation(name: str, application: Application, person: Person, place: str) -> None:
    first = model_of(application, name)
    for other in VENDORS:
        answered(person, place, model_of(application, other))
        answered(person, place, first)
    answers = Message.objects.filter(conversation_id=place, role=Message.Role.ASSISTANT)
    assert [answer.status for answer in answers] == ["done"] * 2 * len(VENDORS)
