"""The effort of reasoning: its sources, the sent value, and its place in the plan and the report."""

import re
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from chat.conversations import titles
from chat.models import Conversation, Turn
from chat.models.conversation_state import ChatScope
from chat.prompts.turn_context import TurnContext, base_context
from core import background
from core.sentences import NO_SENTENCE
from llm.known_models import efforts_of
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona
from tests.application import Application
from tests.conftest import Person


def create_model(application: Application, **fields: Any) -> Model:
    url = f"{application.model.url}/vllm/v1"
    provider = Provider.objects.create(name=f"Reasoning {uuid4().hex[:8]}", kind=Provider.Kind.OPENAI, base_url=url)
    values = {"name": "a-model", "context_window": 32_000, "efforts": ["low", "medium", "high"], **fields}
    return Model.objects.create(provider=provider, **values)


@pytest.fixture
def model(application: Application) -> Model:
    return create_model(application)


def sent(application: Application) -> Any:
    return application.model.requests()[-1].body.get("reasoning_effort")


def reported(person: Person, turn: str) -> Any:
    return person.caller.get(f"turns/{turn}/report/")


def test_the_persons_choice_is_sent_stored_and_remembered(
    application: Application, person: Person, model: Model
) -> None:
    place = person.caller.conversation()
    chosen: dict[str, Any] = {"models": [str(model.pk)]}
    for choice, expected in (({"effort": "high"}, "high"), ({}, "high"), ({"effort": ""}, ""), ({}, "")):
        turn = person.caller.ask("Well?", {"text": "Yes."}, place, **chosen, **choice)
        assert person.caller.ended(turn["id"])["status"] == "done"
        assert turn["effort"] == person.caller.get(f"conversations/{place}/")["effort"] == expected
        assert sent(application) == (expected or None)
        report = reported(person, turn["id"])
        assert (report["effort"], report["notes"]) == (expected, [])
    patched = person.caller.http.patch(f"conversations/{place}/", json={"effort": "low"})
    assert patched.json()["effort"] == "low", patched.text
    again = person.caller.post(f"messages/{turn['message']}/regenerate/", {"effort": "medium"}, expect=202)["turns"][0]
    assert person.caller.ended(again["id"])["status"] == "done"
    assert sent(application) == "medium"


def test_a_model_that_reasons_and_says_no_more_can_be_switched_off_and_on(
    application: Application, person: Person
) -> None:
    model = create_model(application, name="qwen3-8b", efforts=[], reasoning=True)
    shown = person.caller.get(f"models/{model.pk}/")
    assert shown["abilities"]["efforts"] == ["none", "medium"]
    for effort, switch in (("none", False), ("medium", True)):
        turn = person.caller.ask("Well?", {"reasoning": "Hm.", "text": "Yes."}, models=[str(model.pk)], effort=effort)
        kinds = [part["type"] for part in person.caller.ended(turn["id"])["parts"]]
        assert kinds == (["reasoning", "text"] if switch else ["text"])
        body = application.model.requests()[-1].body
        assert body["chat_template_kwargs"] == {"enable_thinking": switch}
        assert body.get("reasoning_effort") == (effort if switch else None)
    refused = {"text": "Well?", "models": [str(model.pk)], "effort": "high"}
    problem = person.caller.post(f"conversations/{person.caller.conversation()}/turns/", refused, expect=400)
    assert problem["code"] == "effort_not_offered" and "none, medium" in problem["detail"]


@pytest.mark.parametrize(
    ("efforts", "reasoning", "least"),
    [(["high", "low"], True, "low"), (["none", "max"], False, "none"), ([], True, "none"), ([], False, None)],
)
def test_a_title_is_asked_for_with_the_least_effort(
    application: Application, person: Person, efforts: list[str], reasoning: bool, least: str | None
) -> None:
    model = create_model(application, efforts=efforts, reasoning=reasoning)
    turn = person.caller.ask("Go.", {"tokens": 1_500, "title": uuid4().hex}, models=[str(model.pk)])
    person.caller.ended(turn["id"])
    background.submit(titles.write_title(UUID(turn["id"]))).result()
    assert application.model.requests("Write a title")[-1].body.get("reasoning_effort") == least


def test_the_persona_comes_before_the_profile_and_that_before_the_model(
    application: Application, person: Person, model: Model
) -> None:
    Model.objects.filter(pk=model.pk).update(effort="low")
    model.refresh_from_db()
    profile = BudgetProfile.objects.create(name=uuid4().hex, effort="medium")
    persona = Persona(name="P", effort="high", budget_profile=profile, owner=person.user)

    def effort(**fields: Any) -> str:
        for name, value in fields.items():
            setattr(persona, name, value)
        return base_context(user=person.user, model=model, scope=ChatScope(persona=persona)).effort.sent

    assert effort() == "high"
    assert effort(effort="") == "medium"
    BudgetProfile.objects.filter(pk=profile.pk).update(effort="")
    assert effort() == "low"


def context(person: Person, model: Model, effort: str) -> TurnContext:
    place = Conversation(owner=person.user, effort=effort)
    return base_context(user=person.user, model=model, scope=ChatScope(place))


def test_what_a_model_does_not_take_is_refused_or_said(person: Person, application: Application, model: Model) -> None:
    place = person.caller.conversation()
    body = {"text": "Well?", "models": [str(model.pk)]}
    turns = f"conversations/{place}/turns/"
    assert person.caller.post(turns, {**body, "effort": "max"}, expect=400)["code"] == "effort_not_offered"
    assert person.caller.post(turns, {**body, "effort": "much"}, expect=400)["code"] == "bad_effort"
    plain = create_model(application, efforts=[])
    refused = person.caller.post(turns, {**body, "models": [str(plain.pk)], "effort": "low"}, expect=400)
    assert "has no setting for the effort of reasoning" in refused["detail"]
    assert context(person, model, "max").effort.sent == ""
    assert (
        "does not take the effort of reasoning “max”; none was sent"
        in context(person, model, "max").effort.note.english
    )
    model.effort = "low"
    assert context(person, model, "max").effort.note.english.endswith("“low” was sent.")
    assert context(person, plain, "max").effort.note.english
    assert context(person, plain, "").effort == ("", NO_SENTENCE)


def test_room_is_kept_for_what_is_reasoned(person: Person, application: Application, model: Model) -> None:
    high, usual = context(person, model, "high"), context(person, model, "")
    assert (high.reasoning_tokens, usual.reasoning_tokens) == (8_000, 4_096)  # a quarter of the window at most
    assert high.room.reserved_output == usual.profile.reserved_output + 8_000
    plain = create_model(application, efforts=[])
    assert context(person, plain, "").reasoning_tokens == 0
    place = person.caller.conversation()
    plan = person.caller.post(
        f"conversations/{place}/plan/", {"text": "Hi", "model": str(model.pk), "effort": "low"}, expect=200
    )
    assert (plan["effort"], plan["reserved_reasoning"]) == ("low", 1_024)


def test_an_answer_with_little_room_is_not_all_reasoning(person: Person, model: Model) -> None:
    model.max_output = 3_000
    small = context(person, model, "high")
    assert small.effort.sent == "low"
    assert "at most 3,000 tokens" in small.effort.note.english
    assert small.room.reserved_output <= 3_000
    assert small.reasoning_tokens <= 1_500
    model.max_output = 100
    assert context(person, model, "high").effort.sent == "low"


def test_a_program_in_openais_protocol_has_its_own_and_else_that_of_the_rows(
    person: Person, application: Application
) -> None:
    model = create_model(application, name=f"reasoner-{uuid4().hex[:8]}", effort="medium")
    headers = {"Authorization": f"Bearer {person.token}"}
    for parameters, expected in (({"reasoning_effort": "low"}, "low"), ({}, "medium")):
        body = {"model": model.name, "messages": [{"role": "user", "content": "Hi"}], **parameters}
        response = application.http(headers=headers).post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        assert sent(application) == expected


def test_the_page_offers_what_its_models_take_and_sends_what_was_chosen(
    person: Person, application: Application, model: Model
) -> None:
    client = Client()
    client.force_login(person.user)
    page = client.get("/?models=all").content.decode()  # other tests may have made more than a page offers at first
    assert '<select name="effort">' in page
    assert 'data-efforts="low medium high"' in page
    plan = client.post("/plan/?panel", {"text": "Hi", "model": str(model.pk), "effort": "high"}).content.decode()
    assert "Kept free for reasoning" in plan
    response = client.post("/", {"text": "Hi", "model": str(model.pk), "effort": "high"})
    assert response.status_code == 302, response.content
    place = Conversation.objects.get(pk=response["location"].split("/")[2])
    turn = Turn.objects.get(conversation=place)
    assert (place.effort, turn.effort) == ("high", "high")
    assert person.caller.ended(str(turn.pk))["status"] == "done"
    assert sent(application) == "high"
    assert re.search(r'<option value="high"\s+selected>', client.get(f"/c/{place.pk}/").content.decode())
    assert "Effort of reasoning" in client.get(f"/turns/{turn.pk}/report/").content.decode()


def test_a_message_that_waits_is_sent_with_the_effort_it_was_written_with(
    person: Person, application: Application, model: Model
) -> None:
    place = person.caller.conversation()
    turn = person.caller.ask("Long.", {"tokens": 4_000, "interval": 0.01}, place, models=[str(model.pk)])
    waiting = {"text": "And?", "models": [str(model.pk)], "effort": "low"}
    response = person.caller.http.put(f"conversations/{place}/next/", json=waiting)
    assert response.status_code == 200, response.text
    person.caller.post(f"turns/{turn['id']}/stop/")
    assert person.caller.ended(turn["id"])["effort"] == ""
    assert Conversation.objects.get(pk=place).effort == "low"


def test_an_admin_sets_what_a_model_takes_and_new_models_get_what_is_known() -> None:
    assert efforts_of("gpt-5.6-terra") == ["none", "low", "medium", "high", "xhigh", "max"]
    assert efforts_of("openai/gpt-5") == ["minimal", "low", "medium", "high"]
    assert efforts_of("claude-opus-5-5-20261001") == ["low", "medium", "high", "xhigh", "max"]
    assert efforts_of("models/gemini-3-pro") == ["low", "medium", "high"]
    assert efforts_of("deepseek-v4-flash") == ["none", "high", "max"]
    assert efforts_of("openai/gpt-oss-20b") == ["low", "medium", "high"]
    assert efforts_of("llama3.2:3b") == efforts_of("gpt-4.1") == []
    with pytest.raises(ValidationError):
        Model(name="m", efforts=["low"], effort="high").clean()
