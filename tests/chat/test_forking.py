"""Copies of conversations: everything that the next prompt needs, in a conversation of its own."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from chat.conversations import forking
from chat.conversations.forking import fork_conversation, next_title
from chat.conversations.marks import mark_turn
from chat.models import Attachment, Conversation, Message, Summary, ToolResult, Turn
from chat.models.summary import in_force, marks_on
from chat.models.tree import branch_rows
from core.errors import ProductError
from files.models import File
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.documents import ask_and_wait, upload
from tests.conftest import Person


@pytest.fixture
def browser(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def rows_of(conversation: Conversation) -> list[Message]:
    return list(branch_rows(conversation.leaf_id).order_by("depth"))


def branch_of(conversation: Conversation) -> list[Message]:
    return rows_of(Conversation.objects.get(pk=conversation.pk))


def message_at(conversation: Conversation, depth: int) -> Message:
    return Message.objects.select_related("conversation").get(conversation=conversation, depth=depth)


def test_the_copy_has_the_branch_down_to_the_message_and_goes_on_alone(
    person: Person, application: Application, browser: Client
) -> None:
    caller = person.caller
    place = caller.conversation()
    file = upload(person, "note.txt", b"The sentinel is blue.")
    first = ask_and_wait(person, place, 'First.\nscript: {"text": "One."}', files=[file["id"]])
    ask_and_wait(person, place, 'Second.\nscript: {"text": "Two."}')
    copy = caller.post(f"messages/{first['message']}/fork/", expect=201)
    assert copy["id"] != place and copy["title"].endswith(" (2)")
    rows = caller.get(f"conversations/{copy['id']}/messages/")["results"]
    assert [row["text"].split("\n")[0] for row in rows[::-1]] == ["First.", "One."]
    assert [each["id"] for each in rows[1]["files"]] == [file["id"]]
    turn = Turn.objects.get(conversation=copy["id"])
    assert caller.get(f"turns/{turn.pk}/report/")["used"] == caller.get(f"turns/{first['id']}/report/")["used"]
    ask_and_wait(person, copy["id"], 'Only in the copy.\nscript: {"text": "Three."}')
    (record,) = application.model.finished("Only in the copy.")
    sent = " ".join(str(each["content"]) for each in record.body["messages"])
    assert "sentinel is blue" in sent and "One." in sent and "Second." not in sent
    assert len(caller.get(f"conversations/{place}/messages/")["results"]) == 4
    page = browser.get(f"/c/{copy['id']}/").content.decode()
    assert f'href="/c/{place}/?at={first["message"]}#m-{first["message"]}"' in page
    caller._checked(caller.http.delete(f"conversations/{place}/"), 204)
    assert "Copied from" not in browser.get(f"/c/{copy['id']}/").content.decode()


@pytest.mark.usefixtures("workspace")
@pytest.mark.django_db
def test_times_versions_summary_marks_and_stored_results_come_along(person: Person) -> None:
    user = person.user
    source = past(user, 4)
    then = timezone.now() - timedelta(days=40)
    Message.objects.filter(conversation=source).update(created=then)
    answer = message_at(source, 5)
    stored = ToolResult.objects.create(
        owner=user, conversation=source, message=answer, tool="look", text="Whole.", size=6, characters=6
    )
    result: dict[str, Any] = {"type": "tool_result", "id": "a", "text": f"cut: {stored.pk}", "error": False}
    result["stored"] = {"tokens": 3, "characters": 6, "kept": 6, "id": str(stored.pk), "head": 4, "marker": 2}
    answer.parts = [*answer.parts, result]
    answer.tokens = {"o200k": {"each": [7]}}
    answer.save()
    summary = Summary.objects.create(
        conversation=source,
        leaf=message_at(source, 7),
        first=message_at(source, 0),
        last=message_at(source, 1),
        messages=2,
        span_start=then,
        span_end=then,
        sections=[{"name": "Past", "text": "Two messages."}],
        shortened=[str(message_at(source, 0).pk)],
        tokens_in=10,
        tokens_out=4,
        as_of=then,
        timezone="UTC",
        prompt_version=1,
    )
    mark_turn(user=user, message=message_at(source, 2), mark="pinned")
    mark_turn(user=user, message=message_at(source, 4), mark="excluded")

    copy = fork_conversation(user=user, message=message_at(source, 5))
    rows = branch_of(copy)
    assert [row.depth for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row.text for row in rows] == [row.text for row in branch_of(source)[:6]]
    assert {row.created for row in rows} == {then}
    assert [row.pk for row in rows] == sorted(row.pk for row in rows)
    assert not {row.pk for row in rows} & set(Message.objects.filter(conversation=source).values_list("pk", flat=True))
    copied = in_force(copy.pk, copy.leaf_id)
    assert copied is not None and copied.pk != summary.pk
    assert (copied.first_id, copied.last_id, copied.shortened) == (rows[0].pk, rows[1].pk, [str(rows[0].pk)])
    marks = marks_on(copy.pk, copy.leaf_id).by_message
    assert marks == {rows[2].pk: "pinned", rows[3].pk: "pinned", rows[4].pk: "excluded", rows[5].pk: "excluded"}
    copied_result = ToolResult.objects.get(conversation=copy)
    assert (copied_result.text, copied_result.message_id) == ("Whole.", rows[5].pk)
    part = rows[5].parts[-1]
    assert (part["stored"]["id"], part["text"]) == (
        str(copied_result.pk),
        f"cut: {copied_result.pk}",
    ) and copied_result.pk != stored.pk
    assert rows[5].tokens == {}, "its text has another id in it, so it is counted again"


@pytest.mark.usefixtures("workspace")
@pytest.mark.django_db
def test_deleted_files_stay_named_and_bounds_hold(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    source = past(person.user, 2)
    question = message_at(source, 0)
    Attachment.objects.create(message=question, file=None, name="gone.pdf", ordinal=0)
    copy = fork_conversation(user=person.user, message=message_at(source, 0))
    assert [each.name for each in rows_of(copy)[0].attachments.all()] == ["gone.pdf"]
    assert not File.objects.filter(owner=person.user).exists()
    monkeypatch.setattr(forking, "MAX_MESSAGES", 3)
    assert fork_conversation(user=person.user, message=message_at(source, 2)).leaf_id is not None
    with pytest.raises(ProductError) as caught:
        fork_conversation(user=person.user, message=message_at(source, 3))
    assert caught.value.code == "fork_too_long"


def test_what_is_not_ones_own_temporary_or_unfinished_is_not_copied(
    person: Person, stranger: Person, application: Application
) -> None:
    caller = person.caller
    turn = caller.ended(caller.ask("Mine.", {"text": "A."})["id"])
    assert stranger.caller.http.post(f"messages/{turn['message']}/fork/").status_code == 404
    place = caller.post("conversations/", {"temporary": True}, expect=201)["id"]
    short = ask_and_wait(person, place, 'Gone soon.\nscript: {"text": "A."}')
    assert caller.post(f"messages/{short['message']}/fork/", expect=409)["code"] == "temporary_conversation"
    live = caller.ask(f"Hanging {place}.", {"ttft": 600, "text": "never"})
    application.model.arrived(f"Hanging {place}.")
    assert caller.post(f"messages/{live['message']}/fork/", expect=409)["code"] == "already_answering"
    caller.post(f"turns/{live['id']}/stop/")
    assert not Conversation.objects.filter(owner=person.user, forked_from=UUID(live["message"])).exists()


@pytest.mark.parametrize(
    ("title", "following"),
    [("Storage", "Storage (2)"), ("Storage (2)", "Storage (3)"), ("", ""), ("x" * 200, "x" * 196 + " (2)")],
)
def test_the_copy_is_numbered(title: str, following: str) -> None:
    assert next_title(title) == following
