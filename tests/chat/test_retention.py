"""Conversations that are erased by themselves after so many days, and legal holds, under which nothing is erased."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from accounts.services import delete_user
from chat.conversations.erasing import erase_due, erase_old, set_hold
from chat.conversations.services import delete_conversation
from chat.models import Attachment, Conversation
from chat.openai_api.create_turn import delete_old_conversations
from core.audit.models import Entry
from core.errors import ProductError
from files.models import File
from tests.chat.conversations import past
from workspace.administration.erasing import erase_person
from workspace.services import change_settings

pytestmark = pytest.mark.django_db
DAYS = 30


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def admin() -> User:
    return User.objects.create_user("admin", is_staff=True, is_superuser=True)


def aged(conversation: Conversation, days: int, **fields: object) -> Conversation:
    Conversation.objects.filter(pk=conversation.pk).update(updated=timezone.now() - timedelta(days=days), **fields)
    return conversation


def attached(conversation: Conversation, *files: File) -> None:
    message = conversation.messages.earliest("pk")
    for ordinal, file in enumerate(files):
        Attachment.objects.create(message=message, file=file, name=file.name, ordinal=ordinal)


def file_of(owner: User, days: int = DAYS + 5) -> File:
    file = File.objects.create(owner=owner, name="a.txt", size=1, sha256=uuid4().hex * 2, status="failed")
    File.objects.filter(pk=file.pk).update(created=timezone.now() - timedelta(days=days))
    return file


def test_what_nobody_has_written_in_for_so_many_days_is_erased_with_files_used_nowhere_else(olga: User) -> None:
    old, young = aged(past(olga, 2), DAYS + 1), aged(past(olga, 2), DAYS - 1)
    here, both, fresh = file_of(olga), file_of(olga), file_of(olga, days=1)
    attached(old, here, both, fresh)
    attached(young, both)
    assert erase_old() == 0  # as it comes, everything is kept for ever
    change_settings(user=None, fields={"conversation_days": DAYS})
    assert erase_old() == 1
    assert list(Conversation.objects.filter(owner=olga)) == [young]
    assert set(File.objects.filter(owner=olga)) == {both, fresh}
    assert Entry.objects.filter(action="conversation.erased", object_id=str(old.pk)).count() == 1


def test_its_page_says_when(olga: User) -> None:
    browser, place = Client(), past(olga, 1)
    browser.force_login(olga)
    address = reverse("chat:organise", args=[place.pk])
    assert "are erased" not in browser.get(address).content.decode()
    change_settings(user=None, fields={"conversation_days": DAYS})
    assert "Conversations are erased 30 days after their last message." in browser.get(address).content.decode()


def test_nothing_under_a_legal_hold_is_erased(olga: User, admin: User) -> None:
    binh = User.objects.create_user("binh", legal_hold=True)
    change_settings(user=None, fields={"conversation_days": DAYS})
    conversations = [aged(past(olga, 1), DAYS + 1), aged(past(olga, 1), DAYS + 1), aged(past(binh, 1), DAYS + 1)]
    for conversation in conversations[:2]:
        set_hold(user=admin, conversation=conversation, under_hold=True)
    api = aged(past(binh, 1), 400, origin="api")
    temporary = Conversation.objects.create(owner=binh, origin="temporary")
    delete_conversation(user=binh, conversation=temporary)
    Conversation.objects.filter(pk=conversations[0].pk).update(deleted=timezone.now() - timedelta(days=3))
    assert (erase_old(), erase_due()) == (0, 0)
    delete_old_conversations()
    assert Conversation.objects.filter(pk__in=[each.pk for each in (*conversations, api, temporary)]).count() == 5
    assert not Conversation.objects.visible_to(binh).filter(pk=temporary.pk).exists()
    set_hold(user=admin, conversation=conversations[1], under_hold=False)
    assert erase_old() == 1
    assert not Conversation.objects.filter(pk=conversations[1].pk).exists()


def test_who_is_under_a_legal_hold_is_neither_erased_nor_deleted(olga: User, admin: User) -> None:
    place = past(olga, 1)
    set_hold(user=admin, conversation=place, under_hold=True)
    with pytest.raises(ProductError, match="legal hold"):
        erase_person(user=admin, person=olga)
    set_hold(user=admin, conversation=place, under_hold=False)
    User.objects.filter(pk=olga.pk).update(legal_hold=True)
    for act in (erase_person, delete_user):
        with pytest.raises(ProductError, match="legal hold"):
            act(user=admin, person=User.objects.get(pk=olga.pk))
    assert User.objects.filter(pk=olga.pk, is_active=True).exists()
