"""Answers that did not end by themselves: the page says why, with one button."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from chat.conversations.sharing import create_share
from chat.models import Conversation, Turn
from llm.models import Model, Provider
from tests.application import Application
from tests.conftest import Person


@pytest.fixture
def claude(application: Application) -> Model:
    provider = Provider.objects.create(name=uuid4().hex, kind="anthropic", base_url=application.model.url)
    return Model.objects.create(provider=provider, name="claude-4", context_window=32_000)


def answered(person: Person, script: dict[str, Any], model: Model | None = None) -> dict[str, Any]:
    chosen: dict[str, Any] = {"models": [str(model.pk)]} if model else {}
    turn = person.caller.ask("Tell me a story.", {**script, "note": uuid4().hex}, **chosen)
    ended: dict[str, Any] = person.caller.ended(turn["id"])
    return ended


def page(person: Person, turn: dict[str, Any]) -> str:
    client = Client()
    client.force_login(person.user)
    return client.get(f"/c/{turn['conversation']}/").content.decode()


def offered(html: str, turn: dict[str, Any]) -> set[str]:
    places = {"Continue": "continue", "Try again": "regenerate"}
    return {name for name, place in places.items() if f'hx-post="/messages/{turn["message"]}/{place}/"' in html}


@pytest.mark.parametrize(
    ("finish", "sentence", "button"),
    [
        ("length", "The answer has reached its greatest length and stops here.", {"Continue"}),
        ("context_window", "The model&#x27;s window is full, so the answer stops here.", {"Continue"}),
        ("pause", "The model paused before the end of its answer.", {"Continue"}),
        ("refusal", "The model declined to answer this. Ask in other words, or another model.", {"Try again"}),
        ("stop", "", set()),
    ],
)
def test_the_page_says_what_was_the_matter(
    finish: str, sentence: str, button: set[str], person: Person, claude: Model
) -> None:
    turn = answered(person, {"text": "Once upon a time", "finish": finish}, claude)
    assert (turn["status"], turn["finish_reason"]) == ("done", finish)
    assert person.caller.get(f"messages/{turn['message']}/")["finish_reason"] == finish
    html = page(person, turn)
    assert sentence in html.replace("model's", "model&#x27;s")
    assert offered(html, turn) == button


def test_what_a_filter_ended_may_be_tried_again(person: Person) -> None:
    turn = answered(person, {"text": "Once upon", "finish": "content_filter"})
    html = page(person, turn)
    assert "content filter ended the answer here" in html
    assert offered(html, turn) == {"Try again"}


def test_a_long_answer_goes_on_in_the_same_branch_by_page_and_program(person: Person) -> None:
    script = {"steps": [{"text": "Once upon a time", "finish": "length"}, {"text": " there was a king."}]}
    turn = answered(person, script)
    [more] = person.caller.post(f"messages/{turn['message']}/continue/", {}, expect=202)["turns"]
    assert person.caller.ended(more["id"])["text"] == " there was a king."
    assert person.caller.get(f"messages/{more['user_message']}/")["parent"] == turn["message"]
    again = answered(person, script)
    client = Client()
    client.force_login(person.user)
    assert client.post(f"/messages/{again['message']}/continue/").status_code == 302  # without scripts
    gone_on = Turn.objects.filter(conversation=again["conversation"]).latest("created")
    assert person.caller.ended(str(gone_on.pk))["text"] == " there was a king."


def test_a_whole_answer_cannot_be_continued(person: Person) -> None:
    turn = answered(person, {"text": "The end."})
    refused = person.caller.post(f"messages/{turn['message']}/continue/", {}, expect=400)
    assert refused["code"] == "nothing_to_continue"


@pytest.mark.parametrize(
    ("finish", "code", "words"),
    [
        ("refusal", "model_declined", "The model declined"),
        ("content_filter", "content_filtered", "content filter"),
        ("length", "empty_answer", "used its whole output limit for reasoning"),
        ("stop", "empty_answer", "finished without writing anything"),
    ],
)
def test_an_answer_of_which_nothing_came_fails_with_its_reason(
    finish: str, code: str, words: str, person: Person, claude: Model
) -> None:
    model = None if finish == "content_filter" else claude
    turn = answered(person, {"text": "", "reasoning": "Hm.", "finish": finish}, model)
    assert (turn["status"], turn["error"]["code"], turn["finish_reason"]) == ("failed", code, "")
    assert words in turn["error"]["detail"]
    assert offered(page(person, turn), turn) == {"Try again"}


@pytest.mark.parametrize(
    ("script", "shared", "exported"),
    [
        ({"text": "No.", "finish": "refusal"}, "The model declined to answer this.", "The model declined to answer"),
        ({"text": "", "reasoning": "Hm.", "finish": "refusal"}, "The model declined to answer this.", "Failed"),
        ({"text": "Once upon", "finish": "length"}, "This answer was cut off.", "Not finished"),
        ({"text": "The end."}, "", ""),
    ],
)
def test_whoever_reads_a_shared_page_or_an_export_is_told(
    script: dict[str, Any], shared: str, exported: str, person: Person, claude: Model
) -> None:
    turn = answered(person, script, claude)
    link = create_share(user=person.user, conversation=Conversation.objects.get(pk=turn["conversation"]))
    html = Client().get(reverse("chat:shared", args=[link.token])).content.decode()
    assert html.count('<p class="ended">') == bool(shared) and shared in html
    markdown = person.caller.http.get(f"conversations/{turn['conversation']}/export/", params={"kind": "md"}).text
    assert markdown.count("*(") == bool(exported) and exported in markdown


def test_exports_are_told(person: Person, claude: Model) -> None:
    turn = answered(person, {"text": "Once upon a time", "finish": "context_window"}, claude)
    place = f"conversations/{turn['conversation']}/export/"
    assert person.caller.get(place)["messages"][-1]["finish_reason"] == "context_window"
    assert "*(Not finished)*" in person.caller.http.get(place, params={"kind": "md"}).text


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("context_window", "length"),
        ("pause", "length"),
        ("refusal", "content_filter"),
    ],
)
def test_programs_of_openais_protocol_are_told_in_its_words(
    finish: str, reason: str, application: Application, person: Person, claude: Model
) -> None:
    question = "Go.\nscript: " + json.dumps({"text": "Once", "finish": finish})
    body = {"model": str(claude.pk), "messages": [{"role": "user", "content": question}]}
    with application.http("/v1/", headers={"Authorization": f"Bearer {person.token}"}) as http:
        whole = http.post("chat/completions", json=body).json()
        lines = http.post("chat/completions", json={**body, "stream": True}).text.splitlines()
    assert whole["choices"][0]["finish_reason"] == reason
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, reason]
