"""Public links to a conversation as it was when they were made."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from accounts.models import User
from chat.conversations.sharing import MAX_SHARES
from chat.models import Attachment, Conversation, Message, Share, Turn
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
    conversation = past(user, 3)
    Conversation.objects.filter(pk=conversation.pk).update(title="A shared talk")
    return conversation


def make(browser: Client, place: Conversation, **terms: Any) -> Any:
    return browser.post(f"/api/v1/conversations/{place.pk}/shares/", terms, content_type="application/json")


def shared(browser: Client, place: Conversation, **terms: Any) -> str:
    """The path of a new link."""
    response = make(browser, place, **terms)
    assert response.status_code == 201, response.content
    return str(response.json()["url"]).removeprefix("http://testserver")


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


def test_a_conversation_has_a_greatest_number_of_links(browser: Client, place: Conversation) -> None:
    leaf = Message.objects.get(conversation=place, depth=5)
    links = [Share(conversation=place, leaf=leaf, title="A shared talk") for _ in range(MAX_SHARES - 1)]
    Share.objects.bulk_create(links)
    assert make(browser, place).status_code == 201
    assert make(browser, place).json()["code"] == "too_many_shares"
    links[0].delete()
    assert make(browser, place).status_code == 201


def test_a_shared_page_tells_nothing_of_its_owner_and_no_content_of_files(
    browser: Client, user: User, place: Conversation, client: Client
) -> None:
    file = File.objects.create(owner=user, name="contract.pdf", size=1, sha256="0" * 64, status="ready")
    question = Message.objects.get(conversation=place, depth=0)
    Attachment.objects.create(message=question, file=file, name=file.name, ordinal=0)
    document = {"number": 1, "title": "contract.pdf", "file": str(file.pk)}
    Message.objects.filter(conversation=place, depth=1).update(
        parts=[
            {"type": "reasoning", "text": "thought in private"},
            {"type": "tool_call", "id": "1", "name": "search_files", "arguments": "{}", "label": "Searched"},
            {"type": "tool_result", "id": "1", "text": "words of the file", "documents": [document]},
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
    assert make(stranger, place).status_code == 404
    assert stranger.post(f"/c/{place.pk}/share/").status_code == 404
    assert stranger.post(f"/shares/{share.pk}/end/").status_code == 404
    assert stranger.delete(f"/api/v1/shares/{share.pk}/").status_code == 404
    assert Share.objects.filter(pk=share.pk).exists()


def test_an_empty_conversation_is_not_shared(browser: Client, user: User) -> None:
    empty = Conversation.objects.create(owner=user)
    answer = make(browser, empty)
    assert (answer.status_code, answer.json()["code"]) == (400, "nothing_to_share")


@pytest.mark.parametrize("token", ["x", "0" * 43, "..%2F", "%00"])
def test_a_link_that_was_never_made_leads_nowhere(client: Client, token: str) -> None:
    assert client.get(f"/s/{token}/").status_code == 404


REPORT: dict[str, Any] = {
    "limit": 1_000,
    "used": 400,
    "left": 600,
    "window": 2_000,
    "unloaded": 2,
    "sections": {"system": 100, "project_files": 200, "current": 100},
    "summary": None,
    "sources": [
        {"kind": "system", "state": "full", "tokens": 100},
        {"kind": "project_file", "id": "", "title": "merger-plans.pdf", "state": "full", "tokens": 200},
        {"kind": "file", "id": None, "title": "payroll.xlsx", "state": "left_out", "reason": "by_user", "tokens": 0},
        {"kind": "task", "id": "T1", "title": "T1 Fire the captain", "state": "full"},
        {"kind": "message", "id": "draft", "title": "a text", "state": "full", "tokens": 100},
    ],
    "messages": [{"section": "system", "source": None, "role": "system", "tokens": 100, "text": "secret system"}],
}
CALL = {"type": "tool_call", "id": "1", "name": "search_files", "arguments": '{"query": "the merger"}', "label": "S"}
FOUND = {"type": "tool_result", "id": "1", "text": "words of the file", "documents": []}


@pytest.fixture
def reported(place: Conversation) -> Conversation:
    """Its last answer has a report, and a tool was called for it."""
    answer = Message.objects.get(conversation=place, depth=5)
    answer.parts = [CALL, FOUND, *answer.parts]
    answer.save()
    question = Message.objects.get(conversation=place, depth=4)
    older = {**REPORT, "used": 1, "sections": {"system": 1}}
    Turn.objects.create(
        conversation=place, user_message=question, answer=answer, report={"calls": [older, REPORT]}, status="done"
    )
    return place


NUMBERS = ("40 %", "2 older messages left out: no room", "Instructions", "200")
NAMES = ("merger-plans.pdf", "Searched the files for “the merger”")
NEVER = ("secret system", "words of the file", "payroll", "captain", "T1 ")
NONE: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("terms", "shown", "hidden"),
    [
        ({}, NONE, (*NUMBERS[:3], *NAMES, *NEVER)),
        ({"names_sources": True}, NONE, (*NUMBERS[:3], *NAMES, *NEVER)),  # of nothing that is shown
        ({"shows_context": True}, NUMBERS, (*NAMES, *NEVER)),
        ({"shows_context": True, "names_sources": True}, (*NUMBERS, *NAMES), NEVER),
    ],
)
def test_readers_see_of_the_context_what_its_owner_has_ticked_and_no_more(
    browser: Client,
    reported: Conversation,
    client: Client,
    terms: dict[str, bool],
    shown: tuple[str, ...],
    hidden: tuple[str, ...],
) -> None:
    page = client.get(shared(browser, reported, **terms)).content.decode()
    assert [each for each in shown if each not in page] == []
    assert [each for each in hidden if each in page] == []


def test_a_link_with_a_password_opens_with_it_alone_and_stays_open_for_that_browser(
    browser: Client, place: Conversation, client: Client
) -> None:
    address = shared(browser, place, password="correct horse")
    assert "correct" not in Share.objects.get(conversation=place).password
    locked = client.get(address)
    assert "user 0:" not in locked.content.decode() and "A shared talk" not in locked.content.decode()
    assert locked["Cache-Control"] == "private, no-store"
    wrong = client.post(address, {"password": "wrong horse"})
    assert wrong.status_code == 403 and "not the password" in wrong.content.decode()
    assert "user 0:" not in client.get(address).content.decode()
    assert client.post(address, {"password": "correct horse"}).status_code == 302
    cookie = client.cookies["opened"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == (address, True, "Lax")
    assert "user 0:" in client.get(address).content.decode()
    other = shared(browser, place, password="correct horse")
    assert "user 0:" not in client.get(other).content.decode()
    assert "user 0:" not in Client().get(address).content.decode()


def test_a_links_password_may_be_wrong_only_so_often(
    browser: Client, place: Conversation, client: Client, settings: LazySettings
) -> None:
    settings.SIGN_IN_LIMITS = {"name": 3, "address": 0}
    address = shared(browser, place, password="correct horse")
    answers = [client.post(address, {"password": "wrong"}).status_code for _ in range(5)]
    assert answers == [403, 403, 403, 429, 429]
    late = client.post(address, {"password": "correct horse"})
    assert late.status_code == 429 and int(late["Retry-After"]) > 0


def test_a_link_ends_by_itself(browser: Client, place: Conversation, client: Client) -> None:
    address = shared(browser, place, expires=(timezone.now() + timedelta(days=1)).isoformat())
    assert "This link ends" in client.get(address).content.decode()
    Share.objects.update(expires=timezone.now())
    assert client.get(address).status_code == 404
    (row,) = browser.get(f"/api/v1/conversations/{place.pk}/shares/").json()
    assert row["expired"] is True
    assert "ended by itself" in browser.get(f"/c/{place.pk}/share/").content.decode()


@pytest.mark.parametrize(
    ("terms", "code"), [({"password": "short"}, "short_password"), ({"expires": "2020-01-01T00:00:00Z"}, "bad_expiry")]
)
def test_a_link_is_not_made_on_terms_that_cannot_be(
    browser: Client, place: Conversation, terms: dict[str, str], code: str
) -> None:
    answer = make(browser, place, **terms)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not Share.objects.filter(conversation=place).exists()


def test_the_dialog_makes_and_ends_links_and_keeps_what_was_asked(browser: Client, place: Conversation) -> None:
    where, fragment = f"/c/{place.pk}/share/", {"HX-Request": "true"}
    form = {"password": "short", "days": "7", "shows_context": "on"}
    refused = browser.post(where, form, headers=fragment)
    page = refused.content.decode()
    assert refused.status_code == 200 and browser.post(where, form).status_code == 400
    assert 'value="short"' in page and "checked" in page and "at least 8 characters" in page
    dialog = browser.post(where, {**form, "password": "long enough"}, headers=fragment).content.decode()
    share = Share.objects.get(conversation=place)
    assert share.shows_context and not share.names_sources and share.has_password
    assert share.expires is not None and timedelta(days=6) < share.expires - timezone.now() <= timedelta(days=7)
    assert "<html" not in dialog and f"/s/{share.token}/" in dialog and "with a password" in dialog
    ended = browser.post(f"/shares/{share.pk}/end/", headers=fragment).content.decode()
    assert "No link leads here." in ended
