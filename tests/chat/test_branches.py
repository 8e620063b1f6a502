"""The message tree through the application: editing, switching, continuing, deleting, feedback, titles."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chat.models import Message
from personas.texts import TEXTS
from tests.application import Application
from tests.chat.conversations import past
from tests.conftest import Person
from tests.product import Caller, until
from tests.sockets import socket_of


def texts_of(caller: Caller, place: str) -> list[str]:
    """The texts of the branch on show, oldest first, without scripts."""
    rows = caller.get(f"conversations/{place}/messages/")["results"]
    return [row["text"].split("\nscript:")[0] for row in reversed(rows)]


def ask_and_wait(caller: Caller, place: str, text: str, answer: str) -> Any:
    """The ended turn of a question and its answer."""
    return caller.ended(caller.ask(text, {"text": answer}, place)["id"])


def live(caller: Caller, place: str, application: Application, text: str) -> Any:
    turn = caller.ask(text, {"ttft": 600, "text": "never"}, place)
    application.model.arrived(text)
    return turn


def stopped(caller: Caller, place: str, text: str) -> Any:
    turn = caller.ask(text, {"tokens": 5000, "interval": 0.02}, place)
    for event in caller.events(turn["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            caller.post(f"turns/{turn['id']}/stop/")
    return caller.ended(turn["id"])


@pytest.mark.parametrize("number", [0, 1])
def test_an_edited_question_is_a_new_branch_and_the_old_one_is_kept(caller: Caller, number: int) -> None:
    place = caller.conversation()
    turns = [ask_and_wait(caller, place, "One.", "Answer one."), ask_and_wait(caller, place, "Two.", "Answer two.")]
    old = turns[number]["user_message"]
    edited = caller.post(f"messages/{old}/edit/", {"text": "Another."})["turns"][0]
    caller.ended(edited["id"])
    assert texts_of(caller, place)[:-1] == [*(["One.", "Answer one."] if number else []), "Another."]
    assert caller.get(f"messages/{edited['user_message']}/")["parent"] == caller.get(f"messages/{old}/")["parent"]
    siblings = caller.get(f"messages/{old}/siblings/")["results"]
    assert [row["id"] for row in siblings] == [edited["user_message"], old]
    caller.post(f"messages/{old}/choose/", expect=200)
    assert texts_of(caller, place) == ["One.", "Answer one.", "Two.", "Answer two."]


def test_an_edited_question_is_answered_by_the_same_model(
    caller: Caller, application: Application, scripted_model_row: Any
) -> None:
    name = application.model.set_script("edited", {"text": "From the other model."})
    other = scripted_model_row.provider.models.get_or_create(name=name, context_window=8192)[0]
    first = caller.ask("Who?", None, models=[str(other.pk)])
    caller.ended(first["id"])
    edited = caller.post(f"messages/{first['user_message']}/edit/", {"text": "Who are you?"})["turns"][0]
    assert caller.ended(edited["id"])["text"] == "From the other model."


def test_what_the_model_sees_of_an_edited_branch_is_that_branch_alone(caller: Caller, application: Application) -> None:
    place = caller.conversation()
    ask_and_wait(caller, place, "Kept.", "Kept answer.")
    old = ask_and_wait(caller, place, "Replaced words.", "Replaced answer.")
    turn = caller.post(f"messages/{old['user_message']}/edit/", {"text": "Seen words, once."})["turns"][0]
    caller.ended(turn["id"])
    (record,) = application.model.finished("Seen words, once.")
    texts = [message["content"] for message in record.body["messages"] if message["role"] != "system"]
    assert texts[1:] == ["Kept answer.", "Seen words, once."]


def test_files_go_along_with_an_edited_question_unless_others_are_named(caller: Caller) -> None:
    upload = caller.http.post("files/", files={"file": ("a.txt", b"alpha")}).json()["id"]
    until(lambda: caller.get(f"files/{upload}/")["status"] == "ready", "the file is read")
    first = caller.ask("Read it.", None, files=[upload])
    caller.ended(first["id"])

    def sent(body: dict[str, Any]) -> list[str]:
        turn = caller.post(f"messages/{first['user_message']}/edit/", {"text": "Again.", **body})["turns"][0]
        caller.ended(turn["id"])
        return [each["id"] for each in caller.get(f"turns/{turn['id']}/report/")["sources"] if each["kind"] == "file"]

    assert sent({}) == [upload]
    assert sent({"files": []}) == []


def test_choosing_a_branch_goes_down_to_its_newest_end(caller: Caller) -> None:
    place = caller.conversation()
    first = ask_and_wait(caller, place, "Root.", "First.")
    ask_and_wait(caller, place, "Deeper.", "Deepest.")
    again = caller.post(f"messages/{first['message']}/regenerate/")["turns"][0]
    caller.ended(again["id"])
    assert texts_of(caller, place) == ["Root.", "First."]  # anew, by the same script
    shown = caller.post(f"messages/{first['message']}/choose/", expect=200)
    assert shown["id"] == place
    assert texts_of(caller, place) == ["Root.", "First.", "Deeper.", "Deepest."]


def test_the_tree_stays_as_it_is_while_an_answer_is_written(caller: Caller, application: Application) -> None:
    place = caller.conversation()
    first = ask_and_wait(caller, place, "Before.", "Then.")
    turn = live(caller, place, application, f"Hanging {place}.")
    message = turn["message"]
    for path, body in [
        (f"messages/{first['message']}/choose/", {}),
        (f"messages/{first['user_message']}/edit/", {"text": "x"}),
    ]:
        assert caller.post(path, body, expect=409)["code"] == "already_answering"
    for pk in (message, first["user_message"]):
        response = caller.http.delete(f"messages/{pk}/")
        assert (response.status_code, response.json()["code"]) == (409, "already_answering")
    assert caller.post(f"messages/{message}/continue/", expect=400)["code"] == "nothing_to_continue"
    caller.post(f"turns/{turn['id']}/stop/")
    caller.ended(turn["id"])
    caller.post(f"messages/{first['message']}/choose/", expect=200)


def test_one_of_several_answers_is_picked_and_the_next_question_follows_it(
    caller: Caller, application: Application, scripted_model_row: Any
) -> None:
    names = [application.model.set_script(f"pick-{each}", {"text": f"From {each}."}) for each in "ab"]
    models = scripted_model_row.provider.models
    ids = [str(models.get_or_create(name=name, context_window=8192)[0].pk) for name in names]
    place = caller.conversation()
    turns = caller.post(f"conversations/{place}/turns/", {"text": "Both.", "models": ids})["turns"]
    for turn in turns:
        caller.ended(turn["id"])
    assert texts_of(caller, place) == ["Both.", "From a."]
    caller.post(f"messages/{turns[1]['message']}/choose/", expect=200)
    caller.ended(caller.ask("On.", None, place, models=ids[:1])["id"])
    assert texts_of(caller, place) == ["Both.", "From b.", "On.", "From a."]


def test_a_stopped_answer_is_continued_by_a_follow_up(caller: Caller, application: Application) -> None:
    place = caller.conversation()
    cut = stopped(caller, place, f"Long story {place}.")
    turn = caller.post(f"messages/{cut['message']}/continue/")["turns"][0]
    last = application.model.arrived(f"Long story {place}.", 2)[-1].body["messages"]
    caller.post(f"turns/{turn['id']}/stop/")
    caller.ended(turn["id"])
    assert last[-1]["content"].startswith("Continue exactly where your last answer stopped.")
    assert cut["text"] in last[-2]["content"]
    assert texts_of(caller, place)[2] == "Continue exactly where your last answer stopped."


def test_only_a_cut_off_answer_is_continued(caller: Caller) -> None:
    done = ask_and_wait(caller, caller.conversation(), "Whole.", "Whole answer.")
    for pk in (done["message"], done["user_message"]):
        assert caller.post(f"messages/{pk}/continue/", expect=400)["code"] == "nothing_to_continue"


def test_a_shorter_answer_is_asked_for_with_the_text_of_the_workspace(caller: Caller) -> None:
    place = caller.conversation()
    first = ask_and_wait(caller, place, "Tell me.", "A long story.")
    ask_and_wait(caller, place, "And then?", "More of it.")
    turn = caller.ended(caller.post(f"messages/{first['message']}/shorten/")["turns"][0]["id"])
    assert texts_of(caller, place)[:3] == ["Tell me.", "A long story.", TEXTS["shorten"].built_in]
    assert caller.get(f"messages/{turn['user_message']}/")["parent"] == first["message"]
    refused = caller.post(f"messages/{turn['user_message']}/shorten/", expect=400)
    assert refused["code"] == "nothing_to_shorten"


def test_a_deleted_message_takes_what_is_below_and_leaves_the_rest(caller: Caller) -> None:
    place = caller.conversation()
    first = ask_and_wait(caller, place, "One.", "A.")
    second = ask_and_wait(caller, place, "Two.", "B.")
    third = ask_and_wait(caller, place, "Three.", "C.")
    assert caller.http.delete(f"messages/{second['user_message']}/").status_code == 204
    assert texts_of(caller, place) == ["One.", "A."]
    for turn in (second, third):
        assert caller.http.get(f"messages/{turn['message']}/").status_code == 404
        assert caller.http.get(f"turns/{turn['id']}/").status_code == 404
    planned = str(caller.post(f"conversations/{place}/plan/", {"text": "And?"}, expect=200))
    seen = [turn["message"] in planned for turn in (first, second, third)]
    assert seen == [True, False, False]
    assert caller.post(f"messages/{second['user_message']}/restore/", expect=200)["id"] == second["user_message"]
    assert texts_of(caller, place) == ["One.", "A.", "Two.", "B.", "Three.", "C."]


def test_after_a_deletion_the_branch_beside_is_on_show(caller: Caller) -> None:
    place = caller.conversation()
    first = ask_and_wait(caller, place, "One.", "A.")
    again = caller.post(f"messages/{first['user_message']}/edit/", {"text": "Other."})["turns"][0]
    caller.ended(again["id"])
    caller.http.delete(f"messages/{again['user_message']}/")
    assert texts_of(caller, place) == ["One.", "A."]
    caller.http.delete(f"messages/{first['user_message']}/")
    assert texts_of(caller, place) == []
    ask_and_wait(caller, place, "From the beginning.", "Yes.")
    assert texts_of(caller, place) == ["From the beginning.", "Yes."]


def test_deleting_beside_the_branch_on_show_leaves_it_on_show(caller: Caller) -> None:
    place = caller.conversation()
    first = ask_and_wait(caller, place, "One.", "A.")
    caller.ended(caller.post(f"messages/{first['message']}/regenerate/")["turns"][0]["id"])
    ask_and_wait(caller, place, "Two.", "B.")
    caller.http.delete(f"messages/{first['message']}/")
    assert texts_of(caller, place) == ["One.", "A.", "Two.", "B."]


def test_a_very_long_branch_is_shown_switched_and_deleted(person: Person) -> None:
    conversation = past(person.user, 600, words=2)
    root = Message.objects.get(conversation=conversation, parent=None)
    assert person.caller.post(f"messages/{root.pk}/choose/", expect=200)["leaf"] == str(conversation.leaf_id)
    assert person.caller.http.delete(f"messages/{root.pk}/").status_code == 204
    assert not Message.objects.filter(conversation=conversation).exists()
    assert person.caller.get(f"conversations/{conversation.pk}/")["leaf"] is None


def test_a_page_costs_the_same_number_of_queries_whatever_its_branches(person: Person) -> None:
    client = Client()
    client.force_login(person.user)

    def queries(pairs: int, branches: int) -> int:
        conversation = past(person.user, pairs, words=2)
        for question in Message.objects.filter(conversation=conversation, role="user"):
            for _ in range(branches):
                Message.objects.create(
                    conversation=conversation, parent=question, role="assistant", depth=question.depth + 1
                )
        with CaptureQueriesContext(connection) as context:
            assert client.get(f"/c/{conversation.pk}/").status_code == 200
        return len(context)

    queries(1, 1)  # warms caches
    assert queries(2, 1) == queries(12, 4)


def test_feedback_is_given_changed_and_taken_back(caller: Caller) -> None:
    turn = ask_and_wait(caller, caller.conversation(), "One.", "A.")
    for feedback in ("good", "bad", ""):
        row = caller.post(f"messages/{turn['message']}/feedback/", {"feedback": feedback}, expect=200)
        assert row["feedback"] == caller.get(f"messages/{turn['message']}/")["feedback"] == feedback
    caller.post(f"messages/{turn['message']}/feedback/", {"feedback": "superb"}, expect=400)
    refused = caller.post(f"messages/{turn['user_message']}/feedback/", {"feedback": "good"}, expect=400)
    assert refused["code"] == "not_an_answer"


def test_feedback_has_reasons_and_a_comment_that_go_with_another_vote(caller: Caller) -> None:
    turn = ask_and_wait(caller, caller.conversation(), "One.", "A.")
    path = f"messages/{turn['message']}/feedback/"

    def vote(**fields: Any) -> tuple[str, list[str], str]:
        row = caller.post(path, fields, expect=200)
        return row["feedback"], row["feedback_reasons"], row["feedback_comment"]

    why = {"reasons": ["unseen", "incorrect", "unseen"], "comment": " It has not read the annex.\r\n"}
    explained = ("bad", ["incorrect", "unseen"], "It has not read the annex.")
    assert vote(feedback="bad", **why) == explained
    assert vote(feedback="bad") == explained, "what is not named stays"
    assert vote(feedback="bad", reasons=[]) == ("bad", [], explained[2])
    assert vote(feedback="good") == ("good", [], "")
    assert vote(feedback="good", reasons=["clear"]) == ("good", ["clear"], "")
    refused = caller.post(path, {"feedback": "good", "reasons": ["unseen"]}, expect=400)
    assert refused["code"] == "bad_reason" and "correct, complete" in refused["detail"]
    caller.post(path, {"feedback": "good", "comment": "x" * 1_001}, expect=400)
    assert vote(feedback="", comment="gone") == ("", [], "")


def test_only_questions_are_edited_and_not_to_nothing(caller: Caller) -> None:
    turn = ask_and_wait(caller, caller.conversation(), "One.", "A.")
    refused = caller.post(f"messages/{turn['message']}/edit/", {"text": "x"}, expect=400)
    assert refused["code"] == "not_a_question"
    caller.post(f"messages/{turn['user_message']}/edit/", {"text": "  "}, expect=400)


def test_somebody_elses_tree_does_not_exist(caller: Caller, stranger: Person) -> None:
    turn = ask_and_wait(caller, caller.conversation(), "Mine.", "A.")
    path = f"messages/{turn['user_message']}/"
    bodies = {
        "edit": {"text": "x"},
        "choose": None,
        "continue": None,
        "shorten": None,
        "feedback": {"feedback": "good"},
    }
    for action, body in bodies.items():
        assert stranger.caller.http.post(f"{path}{action}/", json=body).status_code == 404
    assert stranger.caller.http.delete(path).status_code == 404
    assert stranger.caller.http.get(f"{path}siblings/").status_code == 404
    caller.get(path)


def title_of(caller: Caller, place: str) -> str:
    return str(caller.get(f"conversations/{place}/")["title"])


def test_the_model_names_the_conversation_after_its_first_answer(caller: Caller, application: Application) -> None:
    place = str(caller.post("conversations/", expect=201)["id"])
    first = caller.ask("Where is it?", {"text": "There.", "title": '**"Whereabouts"**\nmore words'}, place)
    assert title_of(caller, place).startswith("Where is it?")
    caller.ended(first["id"])
    until(lambda: title_of(caller, place) == "Whereabouts", "the title comes")
    second = caller.ask(f"And then? {place}", {"text": "Nowhere.", "title": "Another"}, place)
    caller.ended(second["id"])
    caller.ended(caller.ask("Once more.", None, place)["id"])
    assert title_of(caller, place) == "Whereabouts"
    assert [each for each in application.model.requests("Write a title") if place in str(each.body)] == []


def test_pages_that_show_the_conversation_are_told_its_title(person: Person, application: Application) -> None:
    place = str(person.caller.post("conversations/", expect=201)["id"])
    with socket_of(application, person) as socket:
        socket.send("watch", conversation=place, id=1)
        socket.until("ACK")
        person.caller.ask("Name it.", {"text": "Yes.", "title": "A name"}, place)
        frame = socket.until("TITLE")[-1]
    assert (frame["conversation"], frame["title"]) == (place, "A name")


def test_a_title_that_a_person_gave_is_kept(caller: Caller) -> None:
    place = str(caller.post("conversations/", {"title": "Mine"}, expect=201)["id"])
    caller.ended(caller.ask("One.", {"text": "A.", "title": "The model's"}, place)["id"])
    caller.ended(caller.ask("Two.", {"text": "B."}, place)["id"])
    assert title_of(caller, place) == "Mine"
