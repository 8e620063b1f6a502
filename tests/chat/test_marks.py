"""Marks: turns and files that a person always sends or leaves out, on one branch."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from chat.conversations.titles import claim
from chat.models import Conversation, Mark
from chat.models.summary import marks_on
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.documents import upload
from tests.conftest import Person
from tests.product import Caller, until


def asked(caller: Caller, place: str, text: str) -> Any:
    return caller.ended(caller.ask(text, {"text": f"To {text}"}, place)["id"])


def turns_of(caller: Caller, number: int = 3) -> tuple[str, list[Any]]:
    """A conversation of short turns, which are ended."""
    place = caller.conversation()
    return place, [asked(caller, place, f"Question {index}.") for index in range(number)]


def mark(caller: Caller, message: str, kind: str | None, *, file: str | None = None, expect: int = 200) -> Any:
    path = f"messages/{message}/files/{file}/" if file else f"messages/{message}/"
    response = caller.http.patch(path, json={"mark": kind})
    assert response.status_code == expect, response.text
    return response.json()


def marked(caller: Caller, place: str) -> dict[str, str]:
    """The marks of the branch on show, by the message's text."""
    rows = caller.get(f"conversations/{place}/messages/")["results"]
    return {row["text"].split("\n")[0]: row["mark"] for row in rows if row["mark"]}


@pytest.mark.parametrize("kind", ["pinned", "excluded"])
@pytest.mark.parametrize("target", ["user_message", "message"])
def test_a_mark_is_of_the_whole_turn_and_is_taken_back_by_null(caller: Caller, kind: str, target: str) -> None:
    place, turns = turns_of(caller)
    answer = mark(caller, turns[1][target], kind)
    assert (answer["id"], answer["mark"]) == (turns[1][target], kind)
    assert marked(caller, place) == {"Question 1.": kind, turns[1]["text"]: kind}
    assert mark(caller, turns[1][target], None)["mark"] is None
    assert marked(caller, place) == {}


def test_a_mark_is_the_branchs(caller: Caller) -> None:
    place, turns = turns_of(caller)
    mark(caller, turns[0]["message"], "pinned")
    edited = caller.post(f"messages/{turns[2]['user_message']}/edit/", {"text": "Otherwise."})["turns"][0]
    caller.ended(edited["id"])
    assert list(marked(caller, place).values()) == ["pinned", "pinned"]  # a fork begins with a copy
    mark(caller, turns[1]["message"], "excluded")
    mark(caller, turns[0]["message"], None)
    assert "Question 1." in marked(caller, place) and "Question 0." not in marked(caller, place)
    caller.post(f"messages/{turns[2]['message']}/choose/", expect=200)
    assert "Question 0." in marked(caller, place) and "Question 1." not in marked(caller, place)


def test_an_answer_written_anew_begins_with_the_marks_of_the_old_one(caller: Caller) -> None:
    place, turns = turns_of(caller)
    mark(caller, turns[0]["message"], "excluded")
    again = caller.post(f"messages/{turns[2]['message']}/regenerate/")["turns"][0]
    caller.ended(again["id"])
    assert "Question 0." in marked(caller, place)
    mark(caller, turns[0]["message"], None)
    caller.post(f"messages/{turns[2]['message']}/choose/", expect=200)
    assert "Question 0." in marked(caller, place)


def test_what_was_marked_below_a_fork_and_stands_below_it_is_not_carried(caller: Caller) -> None:
    place, turns = turns_of(caller)
    mark(caller, turns[1]["message"], "pinned")
    caller.ended(caller.post(f"messages/{turns[1]['user_message']}/edit/", {"text": "New."})["turns"][0]["id"])
    assert marked(caller, place) == {}
    assert Mark.objects.filter(conversation_id=place).count() == 1


def test_answers_side_by_side_are_one_place_until_one_is_chosen(
    caller: Caller, application: Application, scripted_model_row: Any
) -> None:
    name = application.model.set_script(f"other-{uuid4().hex}", {"text": "From the other."})
    other = scripted_model_row.provider.models.create(name=name, context_window=8192)
    place, turns = turns_of(caller, 1)
    both = {"text": "Both.", "models": [str(scripted_model_row.pk), str(other.pk)]}
    beside = caller.post(f"conversations/{place}/turns/", both)["turns"]
    for turn in beside:
        caller.ended(turn["id"])
    mark(caller, turns[0]["message"], "pinned")
    caller.post(f"messages/{beside[1]['message']}/choose/", expect=200)
    assert "Question 0." in marked(caller, place)


def test_a_mark_stays_when_what_came_after_it_is_deleted(caller: Caller) -> None:
    place, turns = turns_of(caller)
    mark(caller, turns[0]["message"], "pinned")
    assert caller.http.delete(f"messages/{turns[2]['user_message']}/").status_code == 204
    assert list(marked(caller, place).values()) == ["pinned", "pinned"]


def test_bad_marks_and_what_is_not_ones_own_are_refused(caller: Caller, stranger: Person) -> None:
    place, turns = turns_of(caller, 2)
    message = turns[0]["message"]
    assert mark(caller, message, "loved", expect=400)["code"]
    assert caller.http.patch(f"messages/{message}/", json={}).status_code == 400
    assert mark(caller, str(uuid4()), "pinned", expect=404)["code"] == "not_found"
    assert mark(stranger.caller, message, "pinned", expect=404)["code"] == "not_found"
    edited = caller.post(f"messages/{turns[1]['user_message']}/edit/", {"text": "Otherwise."})["turns"][0]
    caller.ended(edited["id"])
    assert mark(caller, turns[1]["message"], "pinned", expect=409)["code"] == "other_branch"
    assert mark(caller, message, "pinned", file=str(uuid4()), expect=404)["code"] == "not_found"
    assert marked(caller, place) == {}


def test_a_turn_can_be_marked_while_an_answer_is_being_written(caller: Caller, application: Application) -> None:
    place, turns = turns_of(caller, 2)
    text = f"Hanging {uuid4().hex}."
    turn = caller.ask(text, {"ttft": 600, "text": "never"}, place)
    application.model.arrived(text)
    mark(caller, turns[0]["message"], "excluded")
    caller.post(f"turns/{turn['id']}/stop/")
    caller.ended(turn["id"])
    assert "Question 0." in marked(caller, place)


def test_a_file_is_left_out_by_itself_and_pinned_with_its_turn(person: Person) -> None:
    caller, place = person.caller, person.caller.conversation()
    file = upload(person, "notes.txt", b"alpha")["id"]
    until(lambda: caller.get(f"files/{file}/")["status"] == "ready", "the file is read")
    turn = caller.ask("Read it.", None, place, files=[file])
    caller.ended(turn["id"])
    question = turn["user_message"]

    def state() -> tuple[str | None, str | None]:
        row = caller.get(f"messages/{question}/")
        assert [each["name"] for each in row["files"]] == ["notes.txt"]
        return row["mark"], row["files"][0]["mark"]

    assert mark(caller, question, "excluded", file=file)["files"][0]["mark"] == "excluded"
    assert state() == (None, "excluded")
    mark(caller, question, "pinned", file=file)
    assert state() == ("pinned", "pinned")
    mark(caller, question, "excluded", file=file)
    assert state() == ("pinned", "excluded")
    mark(caller, turn["message"], None, file=file)
    assert state() == ("pinned", "pinned")
    mark(caller, question, None, file=file)
    assert state() == (None, None)


def test_the_marks_of_a_branch_are_one_query_and_none_where_nothing_is_marked(
    person: Person, django_assert_num_queries: Any
) -> None:
    conversation = past(person.user, 5)
    with django_assert_num_queries(1):
        assert marks_on(conversation.pk, conversation.leaf_id).messages == ()
    questions = list(conversation.messages.filter(role="user").values_list("pk", flat=True))
    leaf = conversation.messages.latest("depth")
    for question in questions[:3]:
        Mark.objects.create(conversation=conversation, message_id=question, since=leaf, mark="pinned")
    with django_assert_num_queries(1):
        marks = marks_on(conversation.pk, conversation.leaf_id)
    assert [each.question for each in marks.messages] == [pk for pk in questions[:3] for _ in range(2)]
    assert [each.depth for each in marks.messages] == list(range(6))


def test_a_turn_that_is_left_out_gives_no_title(person: Person, application: Application) -> None:
    conversation = Conversation.objects.get(pk=person.caller.conversation())
    turn = asked(person.caller, str(conversation.pk), "Secret words.")
    until(lambda: Conversation.objects.get(pk=conversation.pk).titled, "it has been asked for")
    Conversation.objects.filter(pk=conversation.pk).update(titled=False)
    mark(person.caller, turn["message"], "excluded")
    assert claim(conversation.pk) is None
    mark(person.caller, turn["message"], None)
    assert claim(conversation.pk) == UUID(turn["id"])
    assert json.dumps(marked(person.caller, str(conversation.pk))) == "{}"
