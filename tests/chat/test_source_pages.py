"""Pages behind citations: the panel of sources, the card of one, and the text to copy."""

import re
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Conversation
from files.models import File
from llm.models import Model
from tests.application import Application
from tests.chat.citing import ANSWER, CLAUSE, SEARCH, ask
from tests.conftest import Person


@pytest.fixture
def client(person: Person) -> Client:
    browser = Client()
    browser.force_login(person.user)
    return browser


def newest(place: str) -> str:
    return str(Conversation.objects.get(pk=place).leaf_id)


def words(client: Client, path: str) -> str:
    response = client.get(path, headers={"HX-Request": "true"})
    assert response.status_code == 200, path
    return " ".join(re.sub(r"<[^>]*>", " ", response.content.decode()).split())


def test_a_source_shows_its_passage_and_where_it_is_cited(
    person: Person, client: Client, place: str, caller_of_tools: Model
) -> None:
    ask(person, place, caller_of_tools, "Which?", SEARCH, ANSWER)
    answer = newest(place)
    shown = words(client, f"/messages/{answer}/sources/")
    assert "contract.txt" in shown and CLAUSE in shown
    assert "Cited once" in shown and "The fee is limited by clause 7 [1]." in shown
    card = words(client, f"/messages/{answer}/sources/1/")
    assert card == f"contract.txt {CLAUSE}"
    assert client.get(f"/messages/{answer}/sources/2/").status_code == 404


def test_the_sources_of_a_conversation_are_those_of_all_its_answers(
    person: Person, client: Client, place: str, caller_of_tools: Model
) -> None:
    ask(person, place, caller_of_tools, "Which?", SEARCH, ANSWER)
    ask(person, place, caller_of_tools, "Again?", {"text": "As I said, clause 7 [1], and again [1]."})
    assert "Cited 3 times" in words(client, f"/c/{place}/sources/")
    assert "Cited 2 times" in words(client, f"/messages/{newest(place)}/sources/")


def test_what_was_found_and_not_cited_is_said(
    person: Person, client: Client, place: str, caller_of_tools: Model
) -> None:
    ask(person, place, caller_of_tools, "Which?", SEARCH, {"text": "I do not know."})
    assert "Found, but not cited" in words(client, f"/messages/{newest(place)}/sources/")


def test_a_deleted_file_is_shown_as_the_model_was_given_it(
    person: Person, client: Client, place: str, caller_of_tools: Model
) -> None:
    ask(person, place, caller_of_tools, "Which?", SEARCH, ANSWER)
    File.objects.filter(owner=person.user).delete()
    assert CLAUSE in words(client, f"/messages/{newest(place)}/sources/1/")


def test_a_page_of_the_web_names_its_host(
    application: Application, person: Person, client: Client, search: None, caller_of_tools: Model
) -> None:
    place = person.caller.conversation()
    call = {"tool_calls": [{"name": "web_search", "arguments": {"queries": ["tides today"]}}]}
    ask(person, place, caller_of_tools, f"Tides? {uuid4().hex}", call, {"text": "High water is at noon [1]."})
    assert words(client, f"/messages/{newest(place)}/sources/1/") == "Tides example.org High water is at noon."


def test_a_message_is_copied_as_it_was_written(person: Person, client: Client) -> None:
    place, text = person.caller.conversation(), "A **bold** word, `code` and [1].\n\n- one\n- two"
    turn = person.caller.ask("Go", {"text": text}, place)
    person.caller.ended(turn["id"])
    response = client.get(f"/messages/{newest(place)}/text/")
    assert response.content.decode() == text
    assert response["Content-Type"] == "text/markdown; charset=utf-8"


def test_a_sentence_that_its_passage_does_not_carry_is_marked_and_shown_beside_it(
    person: Person, client: Client, place: str, caller_of_tools: Model
) -> None:
    text = "By clause 7 the fee is limited to 900 euros a year [1]. By clause 7 it is limited to 500 euros a year [1]."
    turn = ask(person, place, caller_of_tools, "Which?", SEARCH, {"text": text})
    answer = newest(place)
    check = turn["parts"][-1]["check"]
    assert (check["checked"], [(each["citation"], each["numbers"]) for each in check["doubts"]]) == (2, [(0, [1])])
    assert check["doubts"][0]["reasons"] == [{"reason": "number", "words": "900"}]
    page = client.get(f"/c/{place}/").content.decode()
    assert page.count('class="doubt"') == 1 and "1 sentence unconfirmed" in page
    path = f"/messages/{answer}/citations/{len(turn['parts']) - 1}/0/"
    assert f'href="{path}"' in page
    shown = words(client, path)
    assert "does not have the number “900”" in shown and check["doubts"][0]["sentence"] in shown and CLAUSE in shown
    assert client.get(path).status_code == 200 and client.get(path.replace("/0/", "/1/")).status_code == 404
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert "1 of 2 sentences do not agree with the passages that they cite." in str(report)
    stranger = Client()
    stranger.force_login(User.objects.create_user(f"stranger-{uuid4().hex[:8]}"))
    assert stranger.get(path).status_code == 404


def test_what_a_whole_file_says_is_compared_with_all_of_it(
    person: Person, client: Client, place: str, caller_of_tools: Model
) -> None:
    ask(person, place, caller_of_tools, "Which?", SEARCH, ANSWER)
    turn = ask(person, place, caller_of_tools, "And?", {"text": "The limit of the fee is 500 euros a year [1]."})
    assert turn["parts"][-1]["check"] == {"checked": 1, "doubts": []}
