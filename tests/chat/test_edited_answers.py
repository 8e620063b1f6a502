"""Answers that a person has rewritten: a version beside the model's, which later prompts have, and which says so."""

from uuid import uuid4

import pytest
from django.test import Client

from chat.models import Conversation, Message
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.documents import ask_and_wait
from tests.conftest import Person
from tests.product import Caller


@pytest.fixture
def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def test_the_version_is_beside_the_models_and_the_next_prompt_has_it(
    person: Person, application: Application, browser: Client
) -> None:
    place, mark = person.caller.conversation(), uuid4().hex
    turn = ask_and_wait(person, place, 'How many?\nscript: {"text": "Nine."}')
    edited = person.caller.post(f"messages/{turn['message']}/edit-answer/", {"text": "Twelve."}, expect=200)
    assert (edited["text"], edited["status"], edited["parent"]) == ("Twelve.", "done", turn["user_message"])
    assert edited["parts"] == [{"type": "text", "text": "Twelve.", "edited": True}]
    siblings = person.caller.get(f"messages/{turn['message']}/siblings/")["results"]
    assert [row["text"] for row in siblings] == ["Twelve.", "Nine."]
    ask_and_wait(person, place, f'And twice {mark}?\nscript: {{"text": "Twenty-four."}}')
    (record,) = application.model.finished(mark)
    answers = [each["content"] for each in record.body["messages"] if each["role"] == "assistant"]
    assert answers == ["Twelve."]
    page = browser.get(f"/c/{place}/").content.decode()
    assert page.count("edited by you") == 1 and "2/2" in page
    exported = person.caller.http.get(f"conversations/{place}/export/?kind=md").text
    assert exported.count("*(Edited by a person)*") == 1
    link = str(person.caller.post(f"conversations/{place}/shares/", expect=201)["url"])
    assert "edited by a person" in Client().get(link.removeprefix("http://testserver")).content.decode()


def test_the_page_has_the_form_and_the_version_keeps_calls_and_sources(person: Person, browser: Client) -> None:
    calls = [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_call", "id": "a", "name": "search_files", "arguments": "{}"},
        {"type": "tool_result", "id": "a", "text": "Box of nine.", "error": False, "documents": []},
        {"type": "text", "text": "A box has nine."},
    ]
    conversation = past(person.user, 1, parts=calls)
    answer = Message.objects.get(pk=str(conversation.leaf_id))
    form = browser.get(f"/messages/{answer.pk}/edit/").content.decode()
    assert "The answer, in your words" in form and "Let me look.\n\nA box has nine." in form
    assert browser.post(f"/messages/{answer.pk}/edit/", {"text": "A box\r\nhas twelve."}).status_code == 302
    version = Message.objects.get(pk=str(Conversation.objects.get(pk=conversation.pk).leaf_id))
    assert version.parts == [calls[1], calls[2], {"type": "text", "text": "A box\nhas twelve.", "edited": True}]
    refused = browser.post(f"/messages/{answer.pk}/edit/", {"text": "  "})
    assert refused.status_code == 400 and "The message is empty" in refused.content.decode()


def test_what_cannot_be_rewritten_or_judged_is_refused(caller: Caller, stranger: Person) -> None:
    turn = caller.ended(caller.ask("One.", {"text": "A."})["id"])
    path = f"messages/{turn['message']}/edit-answer/"
    refused = caller.post(f"messages/{turn['user_message']}/edit-answer/", {"text": "x"}, expect=400)
    assert refused["code"] == "not_an_answer"
    assert stranger.caller.http.post(path, json={"text": "x"}).status_code == 404
    edited = caller.post(path, {"text": "Mine."}, expect=200)
    judged = caller.post(f"messages/{edited['id']}/feedback/", {"feedback": "good"}, expect=400)
    assert judged["code"] == "edited_answer"
