"""Links under which anybody reads a conversation as it was."""

import re

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Attachment, Conversation, Message, Share
from files.models import File
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create_user("sharer-of-things", email="sharer@example.org")


@pytest.fixture
def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def place(user: User) -> Conversation:
    made = past(user, 3)
    Conversation.objects.filter(pk=made.pk).update(title="A shared talk")
    return made


def shared(browser: Client, place: Conversation) -> str:
    """The path of a new link."""
    made = browser.post(f"/api/v1/conversations/{place.pk}/shares/")
    assert made.status_code == 201
    return str(made.json()["url"]).removeprefix("http://testserver")


def test_anybody_reads_what_was_shared_and_nothing_that_came_later(
    browser: Client, place: Conversation, client: Client
) -> None:
    address = shared(browser, place)
    leaf = Message.objects.get(conversation=place, depth=5)
    Message.objects.create(
        conversation=place, parent=leaf, depth=6, role="user", parts=[{"type": "text", "text": "written later"}]
    )
    browser.post(f"/c/{place.pk}/rename/", {"title": "A new name"})
    answer = client.get(address)
    page = answer.content.decode()
    assert answer.status_code == 200
    assert [int(number) for number in re.findall(r"user (\d+): ", page)] == [0, 1, 2]
    assert "A shared talk" in page
    assert "written later" not in page
    assert "A new name" not in page
    assert answer["X-Robots-Tag"].startswith("noindex")
    assert answer["Referrer-Policy"] == "no-referrer"
    assert "<script" not in page


def test_a_shared_page_tells_nothing_of_its_owner_and_no_content_of_files(
    browser: Client, user: User, place: Conversation, client: Client
) -> None:
    file = File.objects.create(owner=user, name="contract.pdf", size=1, sha256="0" * 64, status="ready")
    question = Message.objects.get(conversation=place, depth=0)
    Attachment.objects.create(message=question, file=file, name=file.name, ordinal=0)
    found = {"number": 1, "title": "contract.pdf", "file": str(file.pk)}
    Message.objects.filter(conversation=place, depth=1).update(
        parts=[
            {"type": "reasoning", "text": "thought in private"},
            {"type": "tool_call", "id": "1", "name": "search_files", "arguments": "{}", "label": "Searched"},
            {"type": "tool_result", "id": "1", "text": "words of the file", "documents": [found]},
            {"type": "text", "text": "It says so [1]."},
        ]
    )
    page = client.get(shared(browser, place)).content.decode()
    assert "contract.pdf" in page
    assert "It says so" in page
    secrets = [user.username, "sharer@", "words of the file", "thought in private", "/files/"]
    secrets += [str(row.pk) for row in (user, place, file, question)]
    assert [secret for secret in secrets if secret in page] == []


def test_an_ended_link_leads_nowhere(browser: Client, place: Conversation, client: Client) -> None:
    address = shared(browser, place)
    share = Share.objects.get(conversation=place)
    page = browser.get("/shares/").content.decode()
    assert address in page
    assert browser.post(f"/shares/{share.pk}/end/", {"from": "list"}).status_code == 302
    assert client.get(address).status_code == 404
    assert address not in browser.get("/shares/").content.decode()


def test_programs_list_and_end_links(browser: Client, place: Conversation, client: Client) -> None:
    address = shared(browser, place)
    (row,) = browser.get(f"/api/v1/conversations/{place.pk}/shares/").json()
    assert browser.get("/api/v1/shares/").json()["results"] == [row]
    assert browser.delete(f"/api/v1/shares/{row['id']}/").status_code == 204
    assert client.get(address).status_code == 404


def test_a_link_sleeps_while_its_conversation_is_deleted_or_its_owner_is_locked_out(
    browser: Client, user: User, place: Conversation, client: Client
) -> None:
    address = shared(browser, place)
    browser.post(f"/c/{place.pk}/delete/")
    assert client.get(address).status_code == 404
    browser.post(f"/c/{place.pk}/restore/")
    assert client.get(address).status_code == 200
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert client.get(address).status_code == 404


def test_a_deleted_message_takes_the_links_to_it_along(browser: Client, place: Conversation, client: Client) -> None:
    address = shared(browser, place)
    middle = Message.objects.get(conversation=place, depth=2)
    assert browser.delete(f"/api/v1/messages/{middle.pk}/").status_code == 204
    assert client.get(address).status_code == 404


def test_a_long_conversation_is_read_page_by_page(browser: Client, user: User, client: Client) -> None:
    address = shared(browser, past(user, 120))
    numbers, path = [], address
    while path:
        page = client.get(path).content.decode()
        numbers += [int(number) for number in re.findall(r"user (\d+): ", page)]
        more = re.search(r'href="(\?after=\d+)"', page)
        path = address + more[1] if more else ""
    assert numbers == list(range(120))


def test_nobody_shares_or_ends_what_is_not_theirs(browser: Client, place: Conversation) -> None:
    shared(browser, place)
    stranger = Client()
    stranger.force_login(User.objects.create_user("stranger"))
    share = Share.objects.get(conversation=place)
    assert stranger.post(f"/api/v1/conversations/{place.pk}/shares/").status_code == 404
    assert stranger.post(f"/c/{place.pk}/share/").status_code == 404
    assert stranger.post(f"/shares/{share.pk}/end/").status_code == 404
    assert stranger.delete(f"/api/v1/shares/{share.pk}/").status_code == 404
    assert Share.objects.filter(pk=share.pk).exists()


def test_an_empty_conversation_is_not_shared(browser: Client, user: User) -> None:
    empty = Conversation.objects.create(owner=user)
    answer = browser.post(f"/api/v1/conversations/{empty.pk}/shares/")
    assert (answer.status_code, answer.json()["code"]) == (400, "nothing_to_share")


@pytest.mark.parametrize("token", ["x", "0" * 43, "..%2F", "%00"])
def test_a_link_that_was_never_made_leads_nowhere(client: Client, token: str) -> None:
    assert client.get(f"/s/{token}/").status_code == 404
