"""Files that are sent without a message."""

import pytest
from django.test import Client

from chat.models import Conversation, Message
from personas.texts import BUILT_IN
from tests.application import Application
from tests.chat.documents import ask_and_wait, upload
from tests.conftest import Person


@pytest.fixture
def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def test_the_model_gets_the_files_and_a_text_that_the_page_shows(
    person: Person, application: Application, browser: Client
) -> None:
    caller = person.caller
    mark = f"sentinel{person.user.pk.hex}"
    file = upload(person, "colours.txt", f"The {mark} is blue.".encode())
    place = caller.conversation()
    planned = caller.post(f"conversations/{place}/plan/", {"text": "", "files": [file["id"]]}, expect=200)
    turn = ask_and_wait(person, place, "", files=[file["id"]])
    (record,) = application.model.finished(mark)
    assert record.body["messages"][-1]["content"] == BUILT_IN["files_alone"]
    assert caller.get(f"turns/{turn['id']}/report/")["used"] == planned["used"]
    assert Conversation.objects.get(pk=place).title.startswith("colours.txt")
    page = browser.get(f"/c/{place}/").content.decode()
    assert "Sent without a message." in page and "colours.txt" in page
    question = turn["user_message"]
    form = browser.get(f"/messages/{question}/edit/").content.decode()
    assert (
        "These files come without" not in form and " required" not in form.partition("<textarea")[2].partition(">")[0]
    )
    edited = caller.post(f"messages/{question}/edit/", {"text": ""})["turns"][0]
    caller.ended(edited["id"])
    assert Message.objects.get(pk=edited["user_message"]).files_alone


def test_without_files_there_is_nothing_to_send(person: Person, browser: Client) -> None:
    place = person.caller.conversation()
    for body in ({"text": ""}, {"text": " \n", "files": []}):
        assert person.caller.post(f"conversations/{place}/turns/", body, expect=400)["code"] == "empty_message"
    refused = browser.post(f"/c/{place}/turns/", {"text": ""})
    assert refused.status_code == 400 and "attach a file" in refused.content.decode()
