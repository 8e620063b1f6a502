"""The prompt that the model receives, and its report, through the running application."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from chat.models import Conversation, Message
from chat.models.conversation_state import ChatScope
from chat.prompts import builder, turn_context
from chat.prompts.turn_context import base_context
from llm.models import Model
from llm.tokens import count
from personas.models import BudgetProfile, Persona, Reminder
from tests.application import Application
from tests.chat.conversations import past
from tests.conftest import Person
from tests.product import until


def sent(application: Application, mark: str, call: int = -1) -> list[dict[str, Any]]:
    """Return the messages of the recorded request whose body contains `mark`."""
    messages: list[dict[str, Any]] = application.model.finished(mark)[call].body["messages"]
    return messages


def small_model(scripted: Model, window: int, **fields: Any) -> Model:
    return Model.objects.create(
        provider=scripted.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=window, **fields
    )


def persona_of(user: User, **fields: Any) -> Persona:
    return Persona.objects.create(owner=user, name="Tester", **fields)


def test_the_persona_stands_above_the_newest_question_and_the_reminder_last(
    application: Application, person: Person
) -> None:
    persona = persona_of(person.user, instructions="Answer as a pirate.")
    persona.reminders.add(Reminder.objects.create(text="Be brief, always.", scope=Reminder.Scope.PERSONA))
    conversation = past(person.user, 1, persona=persona)
    person.caller.ended(person.caller.ask("Where to, captain?", None, str(conversation.pk))["id"])
    messages = sent(application, "Where to, captain?")
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "user", "user"]
    assert messages[3]["content"] == f"# Persona “{persona.name}”\nAnswer as a pirate."
    assert messages[4]["content"] == "Where to, captain?"
    assert messages[5]["content"].endswith(":\nBe brief, always.")
    assert re.search(r"\nToday is \w+day, \d{4}-\d\d-\d\d\.$", messages[0]["content"])


def test_a_persona_that_replaces_the_system_prompt_takes_its_place(application: Application, person: Person) -> None:
    persona = persona_of(person.user, instructions="You are a lighthouse.", replaces_system_prompt=True)
    conversation = past(person.user, 1, persona=persona)
    person.caller.ended(person.caller.ask("Who are you, light?", None, str(conversation.pk))["id"])
    messages = sent(application, "Who are you, light?")
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"].startswith("You are a lighthouse.")
    assert "You are being tested." not in str(messages)


def test_what_does_not_fit_is_left_out_noted_and_reported(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row, 2_000, tokenizer="o200k_base")
    conversation = past(person.user, 40)
    ask = {"text": "And then, finally?", "models": [str(model.pk)]}
    turn = person.caller.post(f"conversations/{conversation.pk}/turns/", ask)["turns"][0]
    person.caller.ended(turn["id"])
    messages = sent(application, "And then, finally?")
    assert messages[1]["content"] == "[Earlier messages were left out to fit the context.]"
    assert messages[-1]["content"] == "And then, finally?"
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert report["limit"] == 2_000 - 1_024 - 40
    assert report["used"] == sum(count(message["content"]) + 4 for message in messages) <= report["limit"]
    sent_sources = [source for source in report["sources"] if source["kind"] == "message" and source["state"] == "full"]
    left_out = report["unloaded"] + len(report["dropped"])
    assert left_out and len(sent_sources) + left_out == 81
    assert {source["reason"] for source in report["sources"] if source["state"] == "left_out"} <= {
        "no_room",
        "behind_gap",
    }


def test_the_report_holds_exactly_what_the_provider_received(application: Application, person: Person) -> None:
    conversation = past(person.user, 3)
    turn = person.caller.ask("Exactly what?", None, str(conversation.pk))
    person.caller.ended(turn["id"])
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert [(message["role"], message["text"]) for message in report["messages"]] == [
        (message["role"], message["content"]) for message in sent(application, "Exactly what?")
    ]
    assert sum(report["sections"].values()) == report["used"]
    assert report["versions"]["system_prompt"] and report["exact"] is False
    assert [source["title"] for source in report["sources"]][-1] == "Exactly what?"


def test_the_plan_before_sending_is_what_is_then_sent(person: Person) -> None:
    conversation = past(person.user, 5)
    path = f"conversations/{conversation.pk}"
    planned = person.caller.post(f"{path}/plan/", {"text": "Plan this."}, expect=200)
    turn = person.caller.ask("Plan this.", None, str(conversation.pk))
    person.caller.ended(turn["id"])
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert planned["fits"] is True and planned["error"] is None
    for name in ("limit", "used", "sections", "unloaded"):
        assert planned[name] == report[name]
    assert [message["text"] for message in planned["messages"]] == [message["text"] for message in report["messages"]]


def test_a_draft_that_is_too_long_says_so_before_and_keeps_the_message_after(
    person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row, 1_500)
    conversation = past(person.user, 1)
    text = "too many words " * 300
    path = f"conversations/{conversation.pk}"
    planned = person.caller.post(f"{path}/plan/", {"text": text, "model": str(model.pk)}, expect=200)
    assert planned["fits"] is False and planned["error"]["code"] == "context_too_long"
    assert planned["error"]["sections"]["current"] > planned["limit"]
    turn = person.caller.post(f"{path}/turns/", {"text": text, "models": [str(model.pk)]})["turns"][0]
    failed = person.caller.ended(turn["id"])
    assert failed["status"] == "failed" and failed["error"]["code"] == "context_too_long"
    assert person.caller.get(f"messages/{failed['user_message']}/")["text"] == text


def test_a_question_that_was_too_long_to_be_sent_does_not_hide_what_came_before_it(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row, 1_500)
    path, before, mark = f"conversations/{past(person.user, 2).pk}", uuid4().hex, uuid4().hex

    def ask(text: str) -> dict[str, Any]:
        turn = person.caller.post(f"{path}/turns/", {"text": text, "models": [str(model.pk)]})["turns"][0]
        ended: dict[str, Any] = person.caller.ended(turn["id"])
        return ended

    assert ask(f"Said before {before}")["status"] == "done"
    failed = ask("too many words " * 3_000)
    assert failed["error"]["code"] == "context_too_long"
    turn = ask(f"In short {mark}")
    messages = sent(application, mark)
    assert any(before in message["content"] for message in messages)
    assert not any("too many words" in message["content"] for message in messages)
    sources = person.caller.get(f"turns/{turn['id']}/report/")["sources"]
    [left_out] = [source for source in sources if source["id"] == failed["user_message"]]
    assert (left_out["state"], left_out["reason"]) == ("left_out", "no_room")
    assert left_out["title"].startswith("too many words")


def test_a_provider_with_a_smaller_limit_is_asked_once_more_and_the_limit_learnt(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    name = application.model.set_script(f"narrow-{uuid4().hex[:6]}", {"text": "It fits now.", "context_limit": 3_000})
    model = Model.objects.create(provider=scripted_model_row.provider, name=name, context_window=16_000)
    conversation = past(person.user, 60, words=60)
    body = {"text": "Narrower than we think?", "models": [str(model.pk)]}
    turn = person.caller.post(f"conversations/{conversation.pk}/turns/", body)["turns"][0]
    ended = person.caller.ended(turn["id"])
    assert (ended["status"], ended["text"]) == ("done", "It fits now.")
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert [bool(call["refused"]) for call in report["calls"]] == [False, True]
    assert "3,000" in report["refused"] and report["window"] == 3_000
    model.refresh_from_db()
    assert model.learnt_window == 3_000
    paths = [each.path for each in application.model.requests("Narrower than we think?")]
    assert paths.count("/v1/chat/completions") == 2


def test_a_provider_that_refuses_again_is_an_error_and_not_a_loop(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    name = application.model.set_script(f"stubborn-{uuid4().hex[:6]}", {"context_limit": 1})
    model = Model.objects.create(provider=scripted_model_row.provider, name=name, context_window=16_000)
    body = {"text": "Stubborn provider?", "models": [str(model.pk)]}
    turn = person.caller.post(f"conversations/{person.caller.conversation()}/turns/", body)["turns"][0]
    assert person.caller.ended(turn["id"])["error"]["code"] == "context_too_long"
    assert len(application.model.requests("Stubborn provider?")) <= 2


@pytest.mark.parametrize(("status", "mark"), [("stopped", "stopped before its end"), ("failed", "broke off")])
def test_an_answer_that_did_not_end_well_is_replayed_with_a_mark_and_without_its_error(
    application: Application, person: Person, status: str, mark: str
) -> None:
    error: Any = {"error_code": "stream_cut", "error_detail": "Never show this to the model."}
    conversation = past(person.user, 1, status=status, **error)
    question = f"After {status}?"
    person.caller.ended(person.caller.ask(question, None, str(conversation.pk))["id"])
    replayed = sent(application, question)[2]["content"]
    assert replayed.startswith("assistant 0:") and mark in replayed
    assert "Never show this" not in str(sent(application, question))


def test_the_ratio_of_reported_to_counted_tokens_is_learnt(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    name = application.model.set_script(
        f"heavy-{uuid4().hex[:6]}", {"text": "ok", "usage": {"input": 3_000, "output": 1}}
    )
    model = Model.objects.create(provider=scripted_model_row.provider, name=name, context_window=32_000)
    conversation = past(person.user, 40, words=20)
    body = {"text": "Count with me.", "models": [str(model.pk)]}
    turn = person.caller.post(f"conversations/{conversation.pk}/turns/", body)["turns"][0]
    person.caller.ended(turn["id"])
    used = person.caller.get(f"turns/{turn['id']}/report/")["used"]
    learnt = Model.objects.filter(pk=model.pk, ratio_samples=1)  # once the answer has ended
    until(learnt.exists, "it is learnt")
    model.refresh_from_db()
    assert model.token_ratio == pytest.approx(min(2.0, max(0.5, 3_000 / used)), rel=0.001)


def test_a_learnt_ratio_replaces_the_general_margin(db: None) -> None:
    model = Model(name="m", context_window=10_000, token_ratio=1.25, ratio_samples=5)
    setting = turn_context.TurnContext(User(), model, None, BudgetProfile(name="p"), None, (), asked_at=None)  # type: ignore[arg-type]  # no date is needed here
    assert float(setting.margin) == pytest.approx(1 - 1 / 1.25 + 0.01)
    model.ratio_samples = 4
    assert float(setting.margin) == 0.05
    model.tokenizer = "o200k_base"
    assert float(setting.margin) == 0.0


def test_the_number_of_queries_does_not_depend_on_the_length(person: Person, scripted_model_row: Model) -> None:
    model = small_model(scripted_model_row, 6_000)

    def queries(conversation: Conversation) -> int:
        setting = base_context(user=person.user, model=model, scope=ChatScope())
        leaf = Message.objects.get(pk=str(conversation.leaf_id))
        builder.plan(setting, leaf, [builder.draft_message("x")])  # counts are stored the first time
        with CaptureQueriesContext(
            connection,
        ) as captured:
            prompt = builder.plan(setting, leaf, [builder.draft_message("x")]).prompt
        assert prompt.report.unloaded > 0
        return len(captured)

    assert queries(past(person.user, 150, words=40)) == queries(past(person.user, 1_500, words=40)) == 3


def test_counts_are_made_once_and_stored(person: Person, scripted_model_row: Model) -> None:
    conversation = past(person.user, 3)
    setting = base_context(user=person.user, model=scripted_model_row, scope=ChatScope())
    leaf = Message.objects.get(pk=str(conversation.leaf_id))
    builder.plan(setting, leaf, [builder.draft_message("x")])
    for message in Message.objects.filter(conversation=conversation):
        assert message.tokens["o200k_base"]["each"] == [count(message.text)]


def test_somebody_elses_report_and_plan_do_not_exist(person: Person, stranger: Person) -> None:
    turn = person.caller.ask("My own report.")
    person.caller.ended(turn["id"])
    assert stranger.caller.http.get(f"turns/{turn['id']}/report/").status_code == 404
    path = f"conversations/{turn['conversation']}/plan/"
    assert stranger.caller.http.post(path, json={"text": "x"}).status_code == 404


def test_the_document_budget_is_the_documented_one(person: Person, scripted_model_row: Model) -> None:
    model = small_model(scripted_model_row, 8_000)
    path = f"max-selected-document-tokens/?model={model.pk}"
    budget = person.caller.get(path)
    setting = base_context(user=person.user, model=model, scope=ChatScope())
    available = 8_000 - 1_024 - sum(builder.prompt_tokens(setting)) - 512 - 40
    assert budget == {
        "available": available,
        "offered": available // 2,
        "selectable_up_to": available // 2 - 75,
    }
