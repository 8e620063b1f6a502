"""Temporary conversations: in no list, search or export; after they are closed no byte of them is left anywhere."""

import io
import re
import zipfile
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.core.files.storage import default_storage
from django.test import Client
from django.utils import timezone

from accounts.models import User
from chat.conversations.erasing import erase_due
from chat.ledger.models import ModelCall
from chat.models import Conversation, Turn
from core.audit.models import Entry
from files.models import File
from tests.application import Application
from tests.chat.documents import ask_and_wait, upload
from tests.conftest import Person
from tests.leftovers import redis_keys_with, tables_with
from tests.product import until


@pytest.fixture
def browser(person: Person) -> Client:
    client = Client()
    client.force_login(User.objects.get(pk=person.user.pk))
    return client


@pytest.fixture
def place(person: Person) -> str:
    return str(person.caller.post("conversations/", {"temporary": True}, expect=201)["id"])


def test_after_it_is_closed_nothing_of_it_is_left_but_what_it_cost(application: Application, person: Person) -> None:
    marker, own, name = (f"{word}{uuid4().hex}" for word in ("said", "filed", "named"))
    before = upload(person, "before.txt", b"It was there before.")
    place = person.caller.post("conversations/", {"temporary": True}, expect=201)["id"]
    file = upload(person, f"{name}.txt", f"The secret is {own}.".encode())
    script = f'\nscript: {{"text": "{marker} is what you said."}}'
    turn = ask_and_wait(person, place, f"Remember {marker}{script}", files=[file["id"], before["id"]])
    blob = str(File.objects.get(pk=file["id"]).blob.name)
    assert default_storage.exists(blob)
    assert any(turn["id"] in key for key in redis_keys_with(settings.STREAMS_URL, marker))
    assert "chat_message" in tables_with(marker) and "files_file" in tables_with(name)
    person.caller._checked(person.caller.http.delete(f"conversations/{place}/"), 204)
    assert [tables_with(each) for each in (marker, own, name)] == [[], [], []]
    assert not default_storage.exists(blob)
    assert [each.pk for each in File.objects.filter(owner=person.user)] == [File.objects.get(pk=before["id"]).pk]
    assert ModelCall.objects.filter(person=person.user, purpose="answer").count() == 1
    acts = Entry.objects.filter(object_id=place).values_list("action", flat=True)
    assert set(acts) == {"conversation.deleted", "conversation.erased"}
    assert person.caller.http.post(f"conversations/{place}/restore/").status_code == 404


def test_what_is_uploaded_again_beside_it_is_a_file_of_its_own(person: Person, place: str) -> None:
    content = f"It says {uuid4().hex}.".encode()
    file = upload(person, "note.txt", content)
    ask_and_wait(person, place, "What does it say?", files=[file["id"]])
    other = upload(person, "note.txt", content)
    assert other["id"] != file["id"]
    person.caller._checked(person.caller.http.delete(f"conversations/{place}/"), 204)
    assert [str(each.pk) for each in File.objects.filter(owner=person.user)] == [other["id"]]


def test_no_list_search_day_or_export_shows_it_and_no_model_is_asked_for_its_title(
    application: Application, person: Person, place: str, browser: Client
) -> None:
    word = f"marmalade{uuid4().hex[:8]}"
    ask_and_wait(person, place, f'What of {word}?\nscript: {{"text": "It is orange."}}')
    caller, today = person.caller, timezone.localdate(timezone=person.user.zone)
    assert caller.get("conversations/")["results"] == []
    assert caller.get(f"search/?q={word}")["results"] == []
    for path in ("/", f"/search/?q={word[:12]}", f"/today/{today}/", f"/palette/?q={word[:12]}", "/conversations/"):
        assert word not in browser.get(path, follow=True).content.decode(), path
    archive = zipfile.ZipFile(io.BytesIO(caller.http.get("export/").content))
    assert not [name for name in archive.namelist() if place in name or word in archive.read(name).decode()]
    assert "Temporary conversation" in browser.get(f"/c/{place}/").content.decode()
    shown = caller.get(f"conversations/{place}/")
    assert (shown["temporary"], shown["origin"], shown["title"]) == (True, "temporary", "")
    assert not ModelCall.objects.filter(conversation_id=UUID(place), purpose="title").exists()
    assert word in caller.http.get(f"conversations/{place}/export/?kind=md").text


@pytest.mark.parametrize("fields", [{"title": "Kept"}, {"pinned": True}, {"tags": ["kept"]}, {"archived": True}])
def test_it_cannot_be_put_anywhere(person: Person, place: str, fields: dict[str, object]) -> None:
    refused = person.caller.http.patch(f"conversations/{place}/", json=fields)
    assert (refused.status_code, refused.json()["code"]) == (409, "temporary_conversation")
    assert person.caller.http.post(f"conversations/{place}/shares/").json()["code"] == "temporary_conversation"


def test_whether_it_is_temporary_is_said_once(person: Person, place: str) -> None:
    usual = person.caller.conversation()
    for pk, asks in ((place, False), (usual, True)):
        refused = person.caller.http.patch(f"conversations/{pk}/", json={"temporary": asks})
        assert (refused.status_code, refused.json()["errors"][0]["attr"]) == (400, "temporary")


def test_one_that_answers_is_erased_once_the_answer_has_ended(
    application: Application, person: Person, place: str
) -> None:
    turn = person.caller.ask("Go on for long", {"text": "word " * 2_000, "interval": 0.02}, place)
    until(lambda: Turn.objects.filter(pk=turn["id"], status="running"), "it is answered")
    assert person.caller.http.delete(f"conversations/{place}/").status_code == 204
    assert person.caller.http.get(f"conversations/{place}/").status_code == 404
    until(lambda: not Turn.objects.live().filter(pk=turn["id"]), "the answer has ended")
    erase_due()
    assert not Conversation.objects.filter(pk=place).exists()


def test_one_that_was_left_open_is_erased_after_a_day(person: Person, place: str) -> None:
    young = person.caller.post("conversations/", {"temporary": True}, expect=201)["id"]
    Conversation.objects.filter(pk=place).update(created=timezone.now() - timedelta(hours=25))
    erase_due()
    assert list(Conversation.objects.filter(owner=person.user).values_list("pk", flat=True)) == [
        Conversation.objects.get(pk=young).pk
    ]


def test_the_page_of_a_new_conversation_begins_one_and_closes_it(
    application: Application, person: Person, browser: Client
) -> None:
    assert 'href="?temporary=yes"' in browser.get("/").content.decode()
    page = browser.get("/?temporary=yes").content.decode()
    assert re.search(r'name="temporary"\s+value="yes"', page) and "at the latest a day" in page
    refused = browser.post("/", {"text": "", "temporary": "yes"})
    assert refused.status_code == 400 and 'name="temporary"' in refused.content.decode()
    sent = browser.post("/", {"text": "Hello", "temporary": "yes"})
    conversation = Conversation.objects.get(owner=person.user)
    assert sent["Location"] == f"/c/{conversation.pk}/" and conversation.temporary
    shown = browser.get(f"/c/{conversation.pk}/").content.decode()
    assert "Close and erase" in shown and 'name="temporary"' not in shown
    menu = browser.get(f"/c/{conversation.pk}/organise/").content.decode()
    assert "Summarise now" in menu and not {"Rename", "Pin to the top", "Share by link…", "Archive"} & set(
        re.findall(r">\s*([^<>]+?)\s*<", menu)
    )
    until(lambda: not Turn.objects.live().filter(conversation=conversation), "it is answered")
    assert browser.post(f"/c/{conversation.pk}/delete/")["Location"] == "/"
    assert not Conversation.objects.filter(pk=conversation.pk).exists()
