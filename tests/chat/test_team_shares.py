"""Conversations that are shared with people, groups and projects of the workspace."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from accounts.groups.services import save_group
from accounts.models import PeopleGroup, Right, User
from chat.conversations import copying
from chat.conversations.erasing import erase
from chat.conversations.services import create_conversation, delete_conversation, restore_conversation
from chat.conversations.team_shares import MAX_SHARES
from chat.models import Attachment, Conversation, Message, TeamShare, Turn
from chat.models.tree import branch_rows
from files.models import File
from projects.models import Membership, Project
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.test_rights import everyone
from tests.chat.test_sharing import NEVER, REPORT
from tests.chat.test_side_live import hearing
from tests.conftest import Person

database = pytest.mark.django_db


def person(name: str) -> User:
    return User.objects.create_user(f"{name}-{uuid4().hex[:8]}")


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def olga() -> User:
    return person("olga")


@pytest.fixture
def binh() -> User:
    return person("binh")


@pytest.fixture
def place(olga: User) -> Conversation:
    conversation = past(olga, 3)
    Conversation.objects.filter(pk=conversation.pk).update(title="A shared talk", titled=True)
    return conversation


def post(user: User, place: Conversation, **body: Any) -> Any:
    address = f"/api/v1/conversations/{place.pk}/team-shares/"
    return browser_of(user).post(address, body, content_type="application/json")


def share(user: User, place: Conversation, **body: Any) -> str:
    """Return the id of a new share."""
    response = post(user, place, **body)
    assert response.status_code == 201, response.content
    return str(response.json()["id"])


def received(user: User) -> list[str]:
    return [row["id"] for row in browser_of(user).get("/api/v1/shared-with-me/").json()["results"]]


def messages(user: User, pk: str) -> Any:
    return browser_of(user).get(f"/api/v1/shared-with-me/{pk}/messages/")


def say(place: Conversation, text: str) -> Message:
    """Add a question below the newest message, and show it."""
    leaf = Message.objects.filter(conversation=place).latest("depth")
    row = Message.objects.create(
        conversation=place,
        parent=leaf,
        depth=leaf.depth + 1,
        role="user",
        parts=[{"type": "text", "text": text}],
    )
    Conversation.objects.filter(pk=place.pk).update(leaf=row)
    return row


@database
def test_a_person_reads_what_was_shared_and_nothing_that_came_later(
    olga: User, binh: User, place: Conversation
) -> None:
    pk = share(olga, place, username=binh.username)
    say(place, "written later")
    browser_of(olga).post(f"/c/{place.pk}/rename/", {"title": "A new name"})
    assert received(binh) == [pk]
    (row,) = browser_of(binh).get("/api/v1/shared-with-me/").json()["results"]
    assert (row["title"], row["owner"]) == ("A shared talk", olga.username)
    texts = [each["text"].split(":")[0] for each in messages(binh, pk).json()["results"]]
    assert texts == ["user 0", "assistant 0", "user 1", "assistant 1", "user 2", "assistant 2"]
    page = browser_of(binh).get(f"/shared-with-me/{pk}/").text
    assert "user 2: " in page and "A shared talk" in page
    assert "written later" not in page and "A new name" not in page
    assert "Go on in a copy" not in page
    assert "A shared talk" in browser_of(binh).get("/shared-with-me/").text


@database
def test_sharing_again_shows_what_is_new_under_new_terms(olga: User, binh: User, place: Conversation) -> None:
    pk = share(olga, place, username=binh.username)
    say(place, "written later")
    assert share(olga, place, username=binh.username, may_copy=True) == pk
    assert messages(binh, pk).json()["results"][-1]["text"] == "written later"
    assert TeamShare.objects.get(pk=pk).may_copy


@database
def test_nobody_else_reads_it(olga: User, binh: User, place: Conversation) -> None:
    pk = share(olga, place, username=binh.username, may_copy=True)
    for user in (person("stranger"), olga):  # the owner has the conversation itself
        browser = browser_of(user)
        assert received(user) == []
        assert browser.get(f"/shared-with-me/{pk}/").status_code == 404
        assert browser.post(f"/shared-with-me/{pk}/copy/").status_code == 404
        assert messages(user, pk).status_code == 404
        assert browser.post(f"/api/v1/shared-with-me/{pk}/copy/").status_code == 404
    assert browser_of(binh).get(f"/c/{place.pk}/").status_code == 404
    assert browser_of(binh).get(f"/api/v1/team-shares/{pk}/").status_code == 404


@database
def test_the_members_of_a_group_read_it_while_they_are_in_it(olga: User, binh: User, place: Conversation) -> None:
    group = PeopleGroup.objects.create(name=uuid4().hex)
    assert post(olga, place, group=str(group.pk)).status_code == 404, "a group that she is not in"
    group.members.add(olga, binh)
    pk = share(olga, place, group=str(group.pk))
    assert received(binh) == [pk]
    group.members.remove(binh)
    assert received(binh) == []
    assert messages(binh, pk).status_code == 404


@database
def test_everyone_is_no_group_to_share_with(olga: User, place: Conversation) -> None:
    group = PeopleGroup.objects.get(everyone=True)
    assert post(olga, place, group=str(group.pk)).status_code == 404


@database
def test_the_people_of_a_project_read_it_and_its_editors_share_with_it(
    olga: User, binh: User, place: Conversation
) -> None:
    project = Project.objects.create(owner=binh, name="Contracts")
    membership = Membership.objects.create(project=project, user=olga)
    assert post(olga, place, project=str(project.pk)).status_code == 404, "readers do not share with it"
    Membership.objects.filter(pk=membership.pk).update(role="editor")
    pk = share(olga, place, project=str(project.pk), may_copy=True)
    reader = person("reader")
    assert received(reader) == []
    Membership.objects.create(project=project, user=reader)
    assert received(reader) == [pk] == received(binh)
    assert f"/shared-with-me/{pk}/" in browser_of(reader).get(f"/projects/{project.pk}/").text
    copied = browser_of(reader).post(f"/api/v1/shared-with-me/{pk}/copy/").json()
    assert copied["project"] == str(project.pk)
    assert browser_of(reader).delete(f"/api/v1/shared-with-me/{pk}/").status_code == 404
    assert browser_of(binh).delete(f"/api/v1/shared-with-me/{pk}/").status_code == 204, "the project is his"
    assert received(reader) == []


@database
def test_a_user_name_that_nobody_has_is_answered_like_any_other(olga: User, binh: User, place: Conversation) -> None:
    of_person, of_nobody = (post(olga, place, username=name) for name in (binh.username, "nobody-has-this-name"))
    assert of_person.status_code == of_nobody.status_code == 201
    assert of_person.json().keys() == of_nobody.json().keys()
    assert post(olga, place, username=olga.username).json()["code"] == "own_name"
    assert post(olga, place, username=" ").json()["code"] in ("one_recipient", "invalid")
    assert post(olga, place).status_code == 400
    assert post(olga, place, username="x", group=str(uuid4())).status_code == 400


@database
def test_it_is_withdrawn_by_its_owner_and_removed_by_its_reader(olga: User, binh: User, place: Conversation) -> None:
    pk = share(olga, place, username=binh.username)
    assert browser_of(olga).post(f"/team-shares/{pk}/end/").status_code == 302
    assert received(binh) == []
    assert messages(binh, pk).status_code == 404
    pk = share(olga, place, username=binh.username)
    assert browser_of(binh).post(f"/team-shares/{pk}/end/")["Location"] == "/shared-with-me/"
    assert not TeamShare.objects.filter(pk=pk).exists()


@database
def test_it_ends_with_the_conversation_the_message_and_the_person(olga: User, binh: User, place: Conversation) -> None:
    pk = share(olga, place, username=binh.username)
    delete_conversation(user=olga, conversation=place)
    assert received(binh) == []
    restore_conversation(user=olga, pk=place.pk)
    assert received(binh) == [pk]
    User.objects.filter(pk=olga.pk).update(is_active=False)
    assert received(binh) == []
    User.objects.filter(pk=olga.pk).update(is_active=True)
    place.refresh_from_db()
    erase(place)
    assert not TeamShare.objects.filter(pk=pk).exists()


@database
def test_it_rests_while_no_group_lets_its_owner_share(olga: User, binh: User, place: Conversation) -> None:
    pk = share(olga, place, username=binh.username)
    everyone(may=[right for right in Right.values if right != Right.SHARE_INSIDE])
    assert received(binh) == []
    save_group(user=None, group=None, fields={"name": uuid4().hex, "members": [olga], "may": [Right.SHARE_INSIDE]})
    assert received(binh) == [pk]


@database
def test_a_reader_sees_no_file_no_result_of_a_tool_and_no_reasoning(
    olga: User, binh: User, place: Conversation
) -> None:
    file = File.objects.create(owner=olga, name="contract.pdf", size=1, sha256="0" * 64, status="ready")
    question = Message.objects.get(conversation=place, depth=0)
    Attachment.objects.create(message=question, file=file, name=file.name, ordinal=0)
    document = {"number": 1, "title": "contract.pdf", "file": str(file.pk)}
    parts = [
        {"type": "reasoning", "text": "thought in private"},
        {"type": "tool_call", "id": "1", "name": "search_files", "arguments": "{}", "label": "Searched"},
        {"type": "tool_result", "id": "1", "text": "words of the file", "documents": [document]},
        {"type": "text", "text": "It says so [1]."},
    ]
    Message.objects.filter(conversation=place, depth=1).update(parts=parts)
    form = browser_of(olga).get(f"/c/{place.pk}/team-shares/").text
    assert "1 file is not shared" in form and "contract.pdf" in form
    pk = share(olga, place, username=binh.username, may_copy=True)
    secrets = ["words of the file", "thought in private", str(file.pk), str(question.pk)]
    copied = browser_of(binh).post(f"/api/v1/shared-with-me/{pk}/copy/").json()["id"]
    export = browser_of(binh).get(f"/api/v1/conversations/{copied}/export/").text
    for text in (
        browser_of(binh).get(f"/shared-with-me/{pk}/").text,
        messages(binh, pk).text,
        browser_of(binh).get(f"/c/{copied}/").text,
        export,
    ):
        assert "contract.pdf" in text and "It says so" in text
        assert [secret for secret in secrets if secret in text] == []
    assert browser_of(binh).get(f"/files/{file.pk}/").status_code == 404


@database
@pytest.mark.parametrize(
    ("terms", "numbers", "names"),
    [
        ({}, False, False),
        ({"names_sources": True}, False, False),
        ({"shows_context": True}, True, False),
        ({"shows_context": True, "names_sources": True}, True, True),
    ],
)
def test_readers_see_what_the_model_saw_as_far_as_the_owner_allows(
    olga: User, binh: User, place: Conversation, terms: dict[str, bool], numbers: bool, names: bool
) -> None:
    answer = Message.objects.get(conversation=place, depth=5)
    Turn.objects.create(
        conversation=place,
        user_message=Message.objects.get(conversation=place, depth=4),
        answer=answer,
        status="done",
        report={"calls": [REPORT]},
    )
    page = browser_of(binh).get(f"/shared-with-me/{share(olga, place, username=binh.username, **terms)}/").text
    assert ("What the model saw" in page, "merger-plans.pdf" in page) == (numbers, names)
    assert [secret for secret in NEVER if secret in page] == []


@database
def test_a_copy_is_the_readers_own_and_stays(olga: User, binh: User, place: Conversation) -> None:
    Message.objects.filter(conversation=place, depth=1).update(parts=[{"type": "text", "text": "As it says [1][3]."}])
    pk = share(olga, place, username=binh.username, may_copy=True)
    address = browser_of(binh).post(f"/shared-with-me/{pk}/copy/")["Location"]
    copied = Conversation.objects.get(owner=binh)
    assert address == f"/c/{copied.pk}/"
    originals = branch_rows(Message.objects.get(conversation=place, depth=5).pk).order_by("depth")
    copies = list(branch_rows(copied.leaf_id).order_by("depth"))
    assert [row.text for row in copies] == [row.text for row in originals]
    assert {row.owner_id for row in copies} == {binh.pk}
    assert [row.pk for row in copies] == sorted(row.pk for row in copies)
    assert copied.documents == {"copied/1": 1, "copied/3": 3}, "no new document gets a number that the texts cite"
    browser_of(olga).post(f"/team-shares/{pk}/end/")
    assert browser_of(binh).get(address).status_code == 200
    assert "As it says" in browser_of(binh).get(address).text
    assert browser_of(binh).get(f"/c/{copied.pk}/sources/").status_code == 200


@database
def test_what_may_not_be_copied_is_not_copied(
    olga: User, binh: User, place: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = share(olga, place, username=binh.username)
    refused = browser_of(binh).post(f"/api/v1/shared-with-me/{pk}/copy/")
    assert (refused.status_code, refused.json()["code"]) == (403, "copy_not_allowed")
    share(olga, place, username=binh.username, may_copy=True)
    monkeypatch.setattr(copying, "MAX_MESSAGES", 5)
    refused = browser_of(binh).post(f"/api/v1/shared-with-me/{pk}/copy/")
    assert (refused.status_code, refused.json()["code"]) == (400, "too_long_to_copy")
    assert not Conversation.objects.filter(owner=binh).exists()


@database
def test_a_copy_in_several_batches_is_whole(
    olga: User, binh: User, place: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "BATCH_MESSAGES", 2)
    pk = share(olga, place, username=binh.username, may_copy=True)
    copied = browser_of(binh).post(f"/api/v1/shared-with-me/{pk}/copy/").json()
    rows = branch_rows(Conversation.objects.get(pk=copied["id"]).leaf_id).order_by("depth")
    assert [row.depth for row in rows] == [0, 1, 2, 3, 4, 5]


@database
def test_temporary_and_empty_conversations_are_not_shared_and_there_is_a_greatest_number(
    olga: User, place: Conversation
) -> None:
    temporary = create_conversation(user=olga, temporary=True)
    assert post(olga, temporary, username="x").json()["code"] == "temporary_conversation"
    assert post(olga, create_conversation(user=olga), username="x").json()["code"] == "nothing_to_share"
    for number in range(MAX_SHARES):
        share(olga, place, username=f"nobody-{number}")
    assert post(olga, place, username="one-more").json()["code"] == "too_many_shares"
    share(olga, place, username="nobody-1")


@database
def test_the_page_shares_and_says_why_not(olga: User, binh: User, place: Conversation) -> None:
    browser = browser_of(olga)
    address = f"/c/{place.pk}/team-shares/"
    refused = browser.post(address, {"username": ""})
    assert refused.status_code == 400 and "Enter one person" in refused.text
    assert browser.post(address, {"username": binh.username, "may_copy": "on"}).status_code == 302
    page = browser.get(address).text
    assert binh.username in page and "Stop sharing" in page
    assert "Go on in a copy" in browser_of(binh).get(f"/shared-with-me/{received(binh)[0]}/").text


def test_the_receiver_is_told_of_it_and_of_its_end(application: Application, person: Person, stranger: Person) -> None:
    place = past(person.user, 1)
    with hearing(application, stranger) as receiver, hearing(application, person) as sender:
        body = {"username": stranger.username}
        pk = person.caller.post(f"conversations/{place.pk}/team-shares/", body, expect=201)["id"]
        assert receiver.receive() == {"type": "SHARED"}
        person.caller.http.delete(f"conversations/{place.pk}/").raise_for_status()
        assert receiver.receive() == {"type": "SHARED"}
        person.caller.post(f"conversations/{place.pk}/restore/", expect=200)
        assert receiver.receive() == {"type": "SHARED"}
        person.caller.http.delete(f"team-shares/{pk}/").raise_for_status()
        assert receiver.receive() == {"type": "SHARED"}
        assert "SHARED" not in sender.settled()
