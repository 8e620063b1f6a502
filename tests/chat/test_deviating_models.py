"""Models and servers that deviate from their protocol: the stored answer, and the next turns of the conversation."""

import json
import re
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from chat.conversations.export import export
from chat.models import Conversation, Message, Turn
from chat.models.parts import MessagePart
from chat.realtime.events import EventPayload, EventType, fold
from llm import model_facts
from llm.models import Model, Provider
from llm.services import learn_fact, upsert_model
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.test_reasoning_state import place_of
from tests.conftest import Person
from tests.product import until
from tests.scripted_model import ScriptedModel

KINDS = ("openai", "responses", "anthropic", "ollama")
SUMMARY = "Nothing is due."


def model_of(application: Application, kind: str, **fields: Any) -> Model:
    url = application.model.url + ("/v1" if kind in ("openai", "responses") else "")
    provider = Provider.objects.create(name=f"{kind} {uuid4().hex[:8]}", kind=kind, base_url=url)
    name = f"scripted-{uuid4().hex[:8]}"
    return Model.objects.create(provider=provider, name=name, context_window=32_000, tools=True, **fields)


def answered(person: Person, place: str, model: Model, script: dict[str, Any], text: str = "Hello") -> dict[str, Any]:
    turn = person.caller.ask(text, {**script, "note": uuid4().hex}, place, models=[str(model.pk)])
    ended: dict[str, Any] = person.caller.ended(turn["id"])
    return ended


def goes_on(person: Person, application: Application, place: str, model: Model) -> str:
    """Whether a second message works; returns the request that it made, as JSON."""
    mark = uuid4().hex
    turn = answered(person, place, model, {"text": "I am still here."}, f"And now? {mark}")
    assert (turn["status"], turn["text"]) == ("done", "I am still here."), turn["error"]
    return json.dumps(application.model.finished(mark)[-1].body)


def assistant_in(request: str) -> str:
    """Return the assistant's messages in a request of any protocol, as JSON."""
    body = json.loads(request)
    messages = body.get("messages") or body["input"]
    return json.dumps([message for message in messages if message.get("role") == "assistant"])


def admin_of(person: Person) -> Client:
    User.objects.filter(pk=person.user.pk).update(is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(person.user)
    return client


def kinds_of(turn: dict[str, Any]) -> list[tuple[str, str]]:
    return [(part["type"], part["text"].strip()) for part in turn["parts"] if part["type"] in ("text", "reasoning")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opening", ["<think>\n", ""])
def test_reasoning_in_the_text_is_nowhere_the_answer(
    kind: str, opening: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), person.caller.conversation()
    reasoning = f"{opening}SECRET\n</think>\n\n"
    script = {"text": f"{reasoning}The answer is 42.", "title": f"{reasoning}The answer to all"}
    turn = answered(person, place, model, script)
    assert kinds_of(turn) == [("reasoning", "SECRET"), ("text", "The answer is 42.")]
    assert "SECRET" not in turn["text"]
    until(lambda: Conversation.objects.get(pk=place).title == "The answer to all", "the title is written")
    model.refresh_from_db()
    assert model.untagged_reasoning is (not opening)
    text = assistant_in(goes_on(person, application, place, model))
    assert "The answer is 42." in text and "SECRET" not in text
    exported = export(Conversation.objects.get(pk=place), "md")
    assert exported.count("SECRET") == 2  # in the script of the question alone


def test_whoever_follows_a_turn_is_told_that_text_was_reasoning(application: Application, person: Person) -> None:
    model, place = model_of(application, "openai"), person.caller.conversation()
    script = {"text": "Let me see.\n</think>\n\nThe answer is 42.", "note": uuid4().hex}
    turn = person.caller.ask("Hello", script, place, models=[str(model.pk)])
    parts: list[MessagePart] = []
    for event in person.caller.events(turn["id"]):
        fold(parts, EventType(event["type"]), cast("EventPayload", event))
    assert [(part["type"], part["text"]) for part in parts] == [
        ("reasoning", "Let me see.\n"),
        ("text", "The answer is 42."),
    ]
    assert Message.objects.get(pk=turn["message"]).parts == parts


def completion(person: Person, model: Model, script: dict[str, Any], *, stream: bool) -> httpx.Response:
    body = {
        "model": model.name,
        "stream": stream,
        "messages": [{"role": "user", "content": f"Hello\nscript: {json.dumps({**script, 'note': uuid4().hex})}"}],
    }
    headers = {"Authorization": f"Bearer {person.token}"}
    return person.caller.server.http("/v1/", headers=headers).post("chat/completions", json=body, timeout=60)


@pytest.mark.parametrize("opening", ["<think>\n", ""])
def test_programs_get_the_answer_without_its_reasoning(opening: str, application: Application, person: Person) -> None:
    model = model_of(application, "openai")
    script = {"text": f"{opening}SECRET\n</think>\n\nThe answer is 42."}
    message = completion(person, model, script, stream=False).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"].strip()) == ("The answer is 42.", "SECRET")
    # A model that has shown once how it reasons is streamed as it should be from then on.
    lines = completion(person, model, script, stream=True).text.splitlines()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    deltas = [choice["delta"] for each in chunks for choice in each["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "The answer is 42."
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "SECRET"


def test_a_title_of_nothing_but_reasoning_is_none(application: Application, person: Person) -> None:
    model, place = model_of(application, "openai"), person.caller.conversation()
    answered(person, place, model, {"text": "Yes.", "title": "<think>Which title"}, "Which colour is the sky?")
    application.model.finished("Write a title")
    goes_on(person, application, place, model)
    assert "think" not in Conversation.objects.get(pk=place).title


def test_answers_that_were_stored_before_go_back_without_their_reasoning(
    application: Application, person: Person
) -> None:
    model, place = model_of(application, "openai"), person.caller.conversation()
    turn = answered(person, place, model, {"text": "Yes."})
    parts = [{"type": "text", "text": "<think>SECRET</think>\n\nYes."}]
    Message.objects.filter(pk=turn["message"]).update(parts=parts)
    text = assistant_in(goes_on(person, application, place, model))
    assert "Yes." in text and "SECRET" not in text
    assert "SECRET" not in export(Conversation.objects.get(pk=place), "md")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "call",
    [
        {"name": "functions.list_tasks", "arguments": {}},
        {"name": "list_tasks<|channel|>commentary", "arguments": {}},
        {"name": "", "arguments": {}},
        {"name": "no.such.tool", "arguments": {}},
    ],
)
def test_a_name_that_no_server_takes_does_not_end_the_conversation(
    kind: str, call: dict[str, Any], application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), place_of(person)
    turn = answered(person, place, model, {"steps": [{"text": "", "tool_calls": [call]}, {"text": SUMMARY}]})
    assert (turn["status"], turn["text"]) == ("done", SUMMARY), turn["error"]
    [result] = [part for part in turn["parts"] if part["type"] == "tool_result"]
    assert result["error"] is ("list_tasks" not in call["name"])
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
@pytest.mark.parametrize("arguments", ['{"date": "2026-1', ""])
def test_a_call_that_was_cut_is_not_run_and_the_model_is_told(
    kind: str, arguments: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), place_of(person)
    cut = {"text": "", "tool_calls": [{"name": "list_tasks", "arguments": arguments}], "finish": "length"}
    turn = answered(person, place, model, {"steps": [cut, {"text": SUMMARY}]})
    assert (turn["status"], turn["text"]) == ("done", SUMMARY), turn["error"]
    [result] = [part for part in turn["parts"] if part["type"] == "tool_result"]
    assert "reached the output limit inside this call" in result["text"]
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", ['{"date": "\\ud800"}', '{"date": "\\u0000"}', '{"date": NaN}'])
def test_arguments_that_cannot_be_sent_or_stored_do_not_end_the_conversation(
    kind: str, arguments: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), place_of(person)
    call = {"name": "list_tasks", "arguments": arguments}
    turn = answered(person, place, model, {"steps": [{"text": "", "tool_calls": [call]}, {"text": SUMMARY}]})
    assert (turn["status"], turn["text"]) == ("done", SUMMARY), turn["error"]
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", ["openai", "responses"])
@pytest.mark.parametrize("arguments", ["null", '"today"', "[]", '{"date": '])
def test_arguments_that_are_no_object_do_not_end_the_conversation(
    kind: str, arguments: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), place_of(person)
    call = {"name": "list_tasks", "arguments": arguments}
    turn = answered(person, place, model, {"steps": [{"text": "", "tool_calls": [call]}, {"text": SUMMARY}]})
    assert (turn["status"], turn["text"]) == ("done", SUMMARY), turn["error"]
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_calls_that_share_an_id_stand_under_their_own(
    kind: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), place_of(person)
    calls = [{"id": "call_x", "name": "list_tasks", "arguments": {"date": f"2026-11-{day}"}} for day in (20, 21)]
    turn = answered(person, place, model, {"steps": [{"text": "", "tool_calls": calls}, {"text": SUMMARY}]})
    assert (turn["status"], turn["text"]) == ("done", SUMMARY), turn["error"]
    call_ids = [part["id"] for part in turn["parts"] if part["type"] == "tool_call"]
    assert [part["id"] for part in turn["parts"] if part["type"] == "tool_result"] == call_ids
    assert len(set(call_ids)) == 2
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_were_stored_in_a_form_that_no_server_takes_are_mended(
    kind: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), place_of(person)
    turn = answered(person, place, model, {"text": "Yes."})
    parts = [
        {"type": "tool_call", "id": "c", "name": "functions.x", "arguments": '{"date": "2026-1'},
        {"type": "tool_result", "id": "c", "text": "No.", "error": True, "documents": []},
        {"type": "text", "text": "Yes."},
    ]
    Message.objects.filter(pk=turn["message"]).update(parts=parts, tokens={})
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_only_calls_in_its_last_step_is_asked_without_tools(
    kind: str, application: Application, person: Person
) -> None:
    model, place, mark = model_of(application, kind), place_of(person), uuid4().hex
    call = {"reasoning": "Hm.", "text": "", "tool_calls": [{"name": "list_tasks", "arguments": {}}]}
    turn = answered(person, place, model, {"steps": [call] * 6 + [{"text": SUMMARY}]}, mark)
    assert (turn["status"], turn["text"]) == ("done", SUMMARY), turn["error"]
    requests = application.model.finished(mark)
    assert len(requests) == 7
    names = json.dumps(requests[-1].body.get("tools", []))
    assert "Lists" not in names and "description" not in names  # at most stand-ins for earlier calls
    results = [part for part in turn["parts"] if part["type"] == "tool_result"]
    assert [result["error"] for result in results] == [False] * 5 + [True]
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_refuses_to_stream_is_known_from_then_on(
    kind: str, application: Application, person: Person
) -> None:
    admin_client = admin_of(person)
    model, place = model_of(application, kind), person.caller.conversation()
    turn = answered(person, place, model, {"text": "Here I am.", "streaming": "refused"})
    assert (turn["status"], turn["text"]) == ("done", "Here I am."), turn["error"]
    model.refresh_from_db()
    assert model.whole_answers and "whole_answers" in model.learnt_on
    assert '"stream": false' in goes_on(person, application, place, model)
    page = admin_client.get(reverse("admin:llm_model_change", args=[model.pk])).content.decode()
    assert "It refused to stream on" in page
    admin_client.post(reverse("admin:llm_model_forget_learnt", args=[model.pk]), {"_form_submitted": "on"})
    model.refresh_from_db()
    assert not model.whole_answers and model.learnt_on == {}
    assert '"stream": true' in goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_answers_whole_is_a_model(kind: str, application: Application, person: Person) -> None:
    model, place = model_of(application, kind), place_of(person)
    call = {"text": "", "tool_calls": [{"name": "list_tasks", "arguments": {}}], "streaming": "ignored"}
    turn = answered(person, place, model, {"steps": [call, {"text": SUMMARY, "streaming": "ignored"}]})
    assert (turn["status"], turn["text"]) == ("done", SUMMARY), turn["error"]
    goes_on(person, application, place, model)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reason_that_is_not_known_is_said_and_may_be_tried_again(
    kind: str, application: Application, person: Person
) -> None:
    model, place = model_of(application, kind), person.caller.conversation()
    turn = answered(person, place, model, {"text": "The reasons are: first,", "finish": "MALFORMED"})
    assert (turn["status"], turn["finish_reason"], turn["finish_detail"]) == ("done", "other", "MALFORMED")
    client = Client()
    client.force_login(person.user)
    html = client.get(f"/c/{place}/").content.decode()
    assert "for a reason of its own: “MALFORMED”" in html
    assert f'hx-post="/messages/{turn["message"]}/regenerate/"' in html
    goes_on(person, application, place, model)


def test_calls_that_were_announced_and_did_not_come_are_said(application: Application, person: Person) -> None:
    model = model_of(application, "openai")
    turn = answered(person, place_of(person), model, {"text": "Let me look that up.", "finish": "tool_calls"})
    assert (turn["finish_reason"], turn["finish_detail"]) == ("other", "tool_calls")
    choice = completion(person, model, {"text": "Let me look", "finish": "other"}, stream=False).json()["choices"][0]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_must_reason_gets_its_titles(kind: str, application: Application, person: Person) -> None:
    efforts = ["none", "low", "high"] if kind == "anthropic" else ["none", "medium"]
    model, place = model_of(application, kind, efforts=efforts), person.caller.conversation()
    answered(person, place, model, {"text": "Yes.", "title": {"text": "A title", "must_reason": True}})
    until(lambda: Conversation.objects.get(pk=place).title == "A title", "the title is written")
    model.refresh_from_db()
    assert (model.own_effort, model.least_effort) == (efforts[1], efforts[1])
    learn_fact(model, "own_effort", "unsaid")
    assert model.own_efforts == [None]


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
def test_a_model_that_writes_its_calls_as_text_is_found_by_its_trial(
    kind: str, application: Application, person: Person
) -> None:
    model = model_of(application, kind)
    name = application.model.set_script(
        f"writer-{uuid4().hex}", {"text": '<tool_call>{"name": "ready", "arguments": {}}</tool_call>'}
    )
    Model.objects.filter(pk=model.pk).update(name=name, tools=False)
    model_facts.update_models(model.provider, try_tools=True)
    model.refresh_from_db()
    assert (model.tools, model.written_calls, model.found["written_calls"]) == (True, True, True)
    Model.objects.filter(pk=model.pk).update(name=f"scripted-{uuid4().hex[:8]}")
    model.refresh_from_db()
    text = 'Let me look.\n<tool_call>{"name": "list_tasks", "arguments": {}}</tool_call>'
    place = place_of(person)
    turn = answered(person, place, model, {"steps": [{"text": text}, {"text": SUMMARY}]})
    assert (turn["status"], turn["text"].split()) == ("done", ["Let", "me", "look.", *SUMMARY.split()]), turn["error"]
    assert [part["name"] for part in turn["parts"] if part["type"] == "tool_call"] == ["list_tasks"]
    goes_on(person, application, place, model)


def test_an_admin_decides_whether_calls_in_the_text_are_run(
    application: Application, admin_user: User, scripted_model_row: Model
) -> None:
    written = {"text": '{"name": "ready", "parameters": {}}'}
    with ScriptedModel() as server:
        name = server.set_script("writer", written)
        provider = Provider.objects.create(name=uuid4().hex, base_url=server.openai_url)
        model = upsert_model(provider=provider, name=name, settings={"tools": True, "written_calls": False})
        model_facts.update_models(provider, try_tools=True)
        model.refresh_from_db()
        assert not model.written_calls
        by_hand = upsert_model(provider=provider, name="writer", settings={"tools": True})
        model_facts.update_models(provider, try_tools=True)
    by_hand.refresh_from_db()
    assert by_hand.written_calls


def test_the_words_of_an_unknown_end_survive_an_empty_answer(application: Application, person: Person) -> None:
    model, place = model_of(application, "openai"), person.caller.conversation()
    turn = answered(person, place, model, {"text": "", "reasoning": "Hm.", "finish": "MALFORMED"})
    assert (turn["status"], turn["error"]["code"]) == ("failed", "empty_answer")
    assert "“MALFORMED”" in turn["error"]["detail"]
    assert Turn.objects.get(pk=turn["id"]).finish_reason == ""


@pytest.mark.django_db
def test_an_export_tells_reasoning_of_old_answers_from_the_answer() -> None:
    parts = [{"type": "text", "text": "<think>SECRET</think>\n\nThe answer."}]
    conversation = past(User.objects.create_user("exporter"), 1, parts=parts)
    answer = json.loads(export(conversation, "json"))["messages"][1]
    assert answer["parts"] == [{"type": "reasoning", "text": "SECRET"}, {"type": "text", "text": "The answer."}]


@pytest.mark.django_db
def test_reasoning_in_the_text_of_an_old_answer_is_apart_for_its_owner_and_hidden_from_readers_of_a_link() -> None:
    parts = [{"type": "text", "text": "<think>SECRET **thought**</think>\n\nThe answer."}]
    owner = User.objects.create_user("old-timer")
    conversation = past(owner, 1, parts=parts)
    answer = conversation.messages.get(role="assistant")
    browser = Client()
    browser.force_login(owner)
    page = browser.get(f"/c/{conversation.pk}/").text
    reasoning = re.findall(r'<details class="part aside thinking".*?</details>', page, re.DOTALL)
    assert (sum("SECRET" in each for each in reasoning), page.count("SECRET")) == (1, 1)
    own = browser.get(f"/api/v1/messages/{answer.pk}/").json()
    assert (own["text"], [part["type"] for part in own["parts"]]) == ("The answer.", ["reasoning", "text"])
    link = browser.post(f"/api/v1/conversations/{conversation.pk}/shares/", {}, content_type="application/json").json()
    reader = User.objects.create_user("reader-of-old-timer")
    terms = {"username": reader.username, "may_copy": True}
    browser.post(f"/api/v1/conversations/{conversation.pk}/team-shares/", terms, content_type="application/json")
    theirs = Client()
    theirs.force_login(reader)
    received = theirs.get("/api/v1/shared-with-me/").json()["results"][0]["id"]
    copy = theirs.post(f"/api/v1/shared-with-me/{received}/copy/").json()["id"]
    for shown in (
        Client().get(link["url"].removeprefix("http://testserver")),
        theirs.get(f"/shared-with-me/{received}/"),
        theirs.get(f"/api/v1/shared-with-me/{received}/messages/"),
        theirs.get(f"/c/{copy}/"),
        browser.get(f"/messages/{answer.pk}/text/"),
    ):
        assert "The answer." in shown.text and "SECRET" not in shown.text
