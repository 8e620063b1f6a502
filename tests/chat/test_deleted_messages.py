"""Messages that are deleted: hidden everywhere at once, brought back for a day, then gone."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from chat.conversations.erasing import erase, erase_messages
from chat.lab.planning import stored_turns
from chat.models import Attachment, Conversation, Message, Turn
from chat.models.tree import newest_leaf
from chat.tools.files import FileScope
from files.models import File
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create_user("remover")


@pytest.fixture
def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def branch(user: User) -> list[Message]:
    """Return the messages of a conversation of three questions and answers."""
    return list(past(user, 3).messages.order_by("depth"))


def shown(conversation: Conversation) -> int:
    """Messages above the leaf, itself included."""
    conversation.refresh_from_db()
    return conversation.leaf.depth + 1 if conversation.leaf else 0


def delete(browser: Client, message: Message) -> str:
    return browser.post(f"/messages/{message.pk}/delete/", follow=True).content.decode()


def restore(browser: Client, message: Message) -> int:
    return browser.post(f"/messages/{message.pk}/restore/").status_code


def test_what_is_deleted_is_hidden_everywhere_at_once_and_comes_back(browser: Client, branch: list[Message]) -> None:
    place, deleted = branch[0].conversation, branch[2:]
    turn = Turn.objects.create(
        conversation=place,
        user_message=branch[4],
        answer=branch[5],
        status="done",
        idempotency_key="k",
        report={"calls": []},
    )
    file = File.objects.create(owner=place.owner, name="terms.txt", size=1, sha256="0" * 64, status="ready")
    Attachment.objects.create(message=deleted[0], file=file, name=file.name, ordinal=0)
    assert list(FileScope(place, None, "").files()) == [file]
    api = f"/api/v1/conversations/{place.pk}/"
    link = browser.post(f"{api}shares/").json()["url"]
    hidden = [f"/messages/{deleted[1].pk}/", f"/api/v1/messages/{deleted[3].pk}/", f"/api/v1/turns/{turn.pk}/", link]
    shows = [f"/c/{place.pk}/", f"/c/{place.pk}/export.json", "/export/", "/daily/", f"{api}messages/", f"{api}export/"]
    day = f"{timezone.localdate():%Y-%m-%d}"
    shows += [f"/api/v1/daily/{day}/{kind}" for kind in ("chat/", "summary/", "Daily_chat.json", "Daily_summary.json")]
    shows.append("/api/v1/search/?q=word3")

    def content_of(address: str) -> str:
        answer = browser.get(address)
        return b"".join(answer).decode() if answer.streaming else answer.content.decode()

    before = [content_of(address) for address in hidden]
    assert all(before)
    assert all(browser.get(address).status_code == 200 for address in hidden)
    page = delete(browser, deleted[0])
    place.refresh_from_db()
    assert not FileScope(place, None, "").files().exists()
    assert "Deleted: 2 messages and their answers." in page
    assert f'action="/messages/{deleted[0].pk}/restore/"' in page
    assert [browser.get(address).status_code for address in hidden] == [404] * 4
    for address in shows:
        assert not any(str(each.pk) in content_of(address) or "user 2:" in content_of(address) for each in deleted), (
            address
        )
    assert not stored_turns().exists()
    assert not Turn.objects.filter(idempotency_key="k").exists()
    assert (shown(place), newest_leaf(branch[0].pk)) == (2, branch[1].pk)
    assert restore(browser, deleted[1]) == 404  # it went with the one above it
    assert restore(browser, deleted[0]) == 302
    assert [browser.get(address).status_code for address in hidden] == [200] * 4
    assert (shown(place), stored_turns().count()) == (6, 1)
    assert restore(browser, deleted[0]) == 404


def test_what_was_deleted_before_stays_so_when_what_is_above_it_comes_back(
    browser: Client, branch: list[Message]
) -> None:
    place = branch[0].conversation
    delete(browser, branch[4])
    delete(browser, branch[2])
    assert (shown(place), restore(browser, branch[4])) == (2, 404)
    assert browser.post(f"/api/v1/messages/{branch[2].pk}/restore/").json()["id"] == str(branch[2].pk)
    assert shown(place) == 4
    assert (restore(browser, branch[4]), shown(place)) == (302, 6)


def test_nobody_else_brings_it_back_and_a_day_later_nobody_does(user: User, branch: list[Message]) -> None:
    owner, stranger = Client(), Client()
    owner.force_login(user)
    stranger.force_login(User.objects.create_user("stranger"))
    delete(owner, branch[4])
    assert restore(stranger, branch[4]) == 404
    Message.with_deleted.filter(pk__in=[branch[4].pk, branch[5].pk]).update(
        deleted=timezone.now() - timedelta(hours=25)
    )
    assert restore(owner, branch[4]) == 404
    User.objects.filter(pk=user.pk).update(legal_hold=True)
    assert erase_messages() == 0
    User.objects.filter(pk=user.pk).update(legal_hold=False)
    delete(owner, branch[2])
    assert erase_messages() == 2
    assert list(Message.with_deleted.filter(conversation=branch[0].conversation_id)) == branch[:4]
    erase(branch[0].conversation)
    assert not Message.with_deleted.filter(owner=user).exists()
