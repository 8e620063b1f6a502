"""Turns with tools at providers that want their reasoning back, as strict as the real ones."""

import json
import signal
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from chat.ledger.models import ModelCall
from chat.models import Message, StepReasoning, Turn
from llm.models import Model, Provider
from tests.application import Application
from tests.chat.openai_clients import WEATHER, user_messages
from tests.conftest import Person, Workspace
from tests.product import Product, until

# The name of a model: the kind of its provider and the vendor whose rules the server has.
VENDORS = {
    "gpt-5.6-terra": ("openai", "gpt"),
    "gpt-5.6-sol": ("responses", ""),
    "claude-opus-5-5": ("anthropic", ""),
    "gemini-3-pro": ("openai", "gemini"),
    "deepseek-v4": ("openai", "deepseek"),
    "qwen4:8b": ("ollama", ""),
    "qwen4-32b": ("openai", "vllm"),
    "gpt-oss-20b": ("openai", "llamacpp"),
}
# All pairs of models take minutes: `make test` begins with one of them, `make test-all` with each.
FIRST_OF_PAIR = [
    "claude-opus-5-5",
    *(pytest.param(name, marks=pytest.mark.slow) for name in VENDORS if name != "claude-opus-5-5"),
]
# What a request holds for each step whose reasoning goes back.
KEPT = {
    "gpt-5.6-terra": '"encrypted_content": ',
    "gpt-5.6-sol": '"encrypted_content": ',
    "claude-opus-5-5": '"signature": ',
    "gemini-3-pro": '"thought_signature": "signed-by-gemini',
    "deepseek-v4": '"reasoning_content": "Step',
    "qwen4:8b": '"thinking": "Step',
    "qwen4-32b": '"reasoning": "Step',
    "gpt-oss-20b": '"reasoning_content": "Step',
}
LOOP: dict[str, Any] = {
    "steps": [
        {"reasoning": f"Step {n}.", "text": "", "tool_calls": [{"name": "list_tasks", "arguments": {}}]}
        for n in range(3)
    ]
    + [{"reasoning": "Enough.", "text": "There is nothing to do."}]
}


def model_of(application: Application | Workspace, name: str) -> Model:
    kind, vendor = VENDORS[name]
    path = (application.model.url, vendor, "v1" if kind in ("openai", "responses") else "")
    url = "/".join(part for part in path if part)
    provider = Provider.objects.create(name=f"{name} {uuid4().hex[:8]}", kind=kind, base_url=url)
    return Model.objects.create(provider=provider, name=name, context_window=32_000, tools=True)


@pytest.fixture
def place(person: Person) -> str:
    return place_of(person)


def place_of(person: Person) -> str:
    """Return a conversation with tools. A reminder with the time ends each of its prompts."""
    secretary = {
        "name": f"Secretary {uuid4().hex[:8]}",
        "instructions": "Be brief.",
        "tools": ["tasks"],
        "date_awareness": "minute",
    }
    persona = person.caller.post("personas/", secretary, expect=201)
    return str(person.caller.post("conversations/", {"persona": persona["id"]}, expect=201)["id"])


def answered(person: Person, place: str, model: Model, **more: Any) -> dict[str, Any]:
    script = {**LOOP, "note": uuid4().hex}
    turn = person.caller.ask("What is there to do?", script, place, models=[str(model.pk)], **more)
    ended: dict[str, Any] = person.caller.ended(turn["id"])
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
    steps = StepReasoning.objects.filter(turn=turn)
    assert [each.number for each in steps.order_by("number")] == [1, 2, 3]
    refused = [record for record in application.model.requests() if record.status == 400]
    assert len(refused) == (1 if name == "gpt-5.6-terra" else 0)  # by this the protocol is found out
    notes = [note for call in turn.report["calls"] for note in call["notes"]]
    assert notes == []


@pytest.mark.parametrize("name", FIRST_OF_PAIR)
def test_models_take_turns_in_one_conversation(name: str, application: Application, person: Person, place: str) -> None:
    first = model_of(application, name)
    for other in VENDORS:
        answered(person, place, model_of(application, other))
        answered(person, place, first)
    answers = Message.objects.filter(conversation_id=place, role=Message.Role.ASSISTANT)
    assert [answer.status for answer in answers] == ["done"] * 2 * len(VENDORS)


def notes_of(person: Person, turn: str) -> list[str]:
    report = person.caller.get(f"turns/{turn}/report/")
    return [note for note in report["notes"] if "before tool calls" in note]


@pytest.mark.parametrize("name", VENDORS)
def test_what_another_model_reasoned_is_said_not_to_be_sent(
    name: str, application: Application, person: Person, place: str
) -> None:
    """There and back; answered anew by either."""
    application.model.forget()
    model = model_of(application, name)
    other = model_of(application, "claude-opus-5-5" if name != "claude-opus-5-5" else "qwen4:8b")
    first = answered(person, place, model)
    assert notes_of(person, first["id"]) == []
    second = answered(person, place, other)
    [note] = notes_of(person, second["id"])
    assert note == f"{other.name} does not get the reasoning of {name} before tool calls: no other model can read it."
    back = answered(person, place, model)
    [note] = notes_of(person, back["id"])
    assert f"the reasoning of {other.name}" in note
    for chosen, reasoning in ((model, f"the reasoning of {other.name}"), (other, f"the reasoning of {name}")):
        body = {"models": [str(chosen.pk)]}
        again = person.caller.post(f"messages/{back['message']}/regenerate/", body)["turns"][0]
        assert person.caller.ended(again["id"])["status"] == "done"
        assert [reasoning in note for note in notes_of(person, again["id"])] == [True]
    refused = [each for each in application.model.requests() if each.status == 400]
    assert len(refused) <= (name == "gpt-5.6-terra")


def test_the_panel_says_it_before_and_after_sending(application: Application, person: Person, place: str) -> None:
    model, other = model_of(application, "deepseek-v4"), model_of(application, "qwen4:8b")
    answered(person, place, model)
    client = Client()
    client.force_login(person.user)
    plan = client.post(f"/c/{place}/plan/?panel", {"text": "And?", "model": str(other.pk)}).content.decode()
    assert "qwen4:8b does not get the reasoning of deepseek-v4 before tool calls" in plan


@pytest.mark.parametrize("name", VENDORS)
def test_a_program_that_runs_the_tools_itself_does_not_cost_the_model_what_it_thought(
    name: str, application: Application, person: Person
) -> None:
    """Each step is a request of its own, with a reminder of the time. Later the program asks another question."""
    model = model_of(application, name)
    secretary = {
        "name": f"Secretary {uuid4().hex[:8]}",
        "instructions": "Be brief.",
        "date_awareness": "minute",
        "reminder": "One line.",
    }
    persona = person.caller.post("personas/", {**secretary, "model": str(model.pk)}, expect=201)
    offered = person.caller.server.http("/v1/", headers={"Authorization": f"Bearer {person.token}"})
    calls = [{"name": "get_weather", "arguments": {"town": "Conwy", "at": str(n)}} for n in range(2)]
    read: dict[str, Any] = {"usage": {"input": 900, "output": 90}}
    steps = [{"reasoning": f"Step {n}.", "text": "I look.", "tool_calls": calls, **read} for n in range(3)]
    messages = user_messages("Weather?", *steps, {"reasoning": "Enough.", "text": "Rain.", **read})
    application.model.forget()
    for number in range(5):
        body = {"model": persona["id"], "messages": messages, "tools": [WEATHER]}
        answer = offered.post("chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        message = answer.json()["choices"][0]["message"]
        messages.append({"role": "assistant", **{key: message.get(key) for key in ("content", "tool_calls")}})
        called = [call["id"] for call in message.get("tool_calls", ())]
        messages += [{"role": "tool", "tool_call_id": call, "content": "Rain."} for call in called]
        if number == 3:
            assert message["content"] == "Rain."
            messages += user_messages("And tomorrow?", {"text": "Sun.", **read})
    assert messages[-1]["content"] == "Sun."
    turns = Turn.objects.filter(conversation__owner=person.user).order_by("created")
    notes = [note for turn in turns for call in turn.report["calls"] for note in call["notes"]]
    assert notes == [] and StepReasoning.objects.filter(turn__in=turns).count() == 3
    refused = [record for record in application.model.requests() if record.status == 400]
    assert len(refused) <= (name == "gpt-5.6-terra")
    answered = [json.dumps(record.body) for record in application.model.requests() if record.status == 200]
    forever = 3 if name in ("deepseek-v4", "gpt-oss-20b") else 0  # the field of the second is that of the first
    assert [body.count(KEPT[name]) for body in answered] == [0, 1, 2, 3, forever]


@pytest.mark.product
def stop_what_goes_on(person: Person, place: str) -> None:
    """An interrupted answer goes on by itself, and its model hangs again."""

    def is_idle() -> bool:
        for turn in Turn.objects.filter(conversation_id=place, status__in=Turn.LIVE):
            person.caller.http.post(f"turns/{turn.pk}/stop/")
        return bool(person.caller.get(f"conversations/{place}/")["state"] == "idle")

    until(is_idle, "nothing is written any more")


def test_conversations_go_on_after_a_worker_was_killed_between_two_calls(
    product: Product, workspace: Workspace, person: Person
) -> None:
    hanging = {"steps": [LOOP["steps"][0], {"silent_after": 0}]}
    started: dict[str, tuple[Model, str, Any]] = {}
    notes = {name: uuid4().hex for name in VENDORS}
    for name in VENDORS:
        model, where = model_of(workspace, name), place_of(person)
        script = {**hanging, "note": notes[name]}
        started[name] = model, where, person.caller.ask("And?", script, where, models=[str(model.pk)])
    turns = [turn_["id"] for _, _, turn_ in started.values()]

    def asked_again() -> bool:
        """Return whether the second calls have been sent. The reasoning of the first was stored before."""
        stored = StepReasoning.objects.filter(turn__in=turns).count() == len(turns)
        return stored and all(len(turn.report.get("calls", [])) > 1 for turn in Turn.objects.filter(pk__in=turns))

    until(asked_again, "every turn has kept its reasoning and asks again")
    product.end("worker", signal.SIGKILL)
    reached = {name: [each for each in workspace.model.requests(notes[name]) if each.status != 400] for name in VENDORS}
    product.start_worker()
    workspace.model.forget()
    for name, (model, where, turn) in started.items():
        assert person.caller.ended(turn["id"], seconds=90)["status"] == "interrupted"
        written = ModelCall.objects.filter(turn=turn["id"]).order_by("number")
        assert [each.number for each in written] == [1, 2] and len(reached[name]) <= 2, name
        assert written[1].counted and all(each.input for each in written), name
        stop_what_goes_on(person, where)
        answered(person, where, model)
        refused = [each for each in workspace.model.requests() if each.status == 400]
        # The new worker has to find out the protocol of this one again.
        assert len(refused) <= ("gpt-5.6-terra" in list(VENDORS)[: list(VENDORS).index(name) + 1]), name
