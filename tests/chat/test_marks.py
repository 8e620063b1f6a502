"""Marks: turns and files that a person always sends or leaves out, on one branch."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from chat.conversations.titles import claim_title
from chat.models import Conversation, Mark, Message, Summary, SummaryJob, Turn
from chat.models.summary import marks_on
from chat.prompts.wording import plan_line
from chat.tools.files import FileScope
from llm.models import Model, Provider
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.documents import upload
from tests.conftest import Person
from tests.product import Caller, until


def ask_and_wait(caller: Caller, place: str, text: str) -> Any:
    return caller.ended(caller.ask(text, {"text": f"To {text}"}, place)["id"])


def turns_of(caller: Caller, number: int = 3) -> tuple[str, list[Any]]:
    """A conversation of short turns, which are ended."""
    place = caller.conversation()
    return place, [ask_and_wait(caller, place, f"Question {index}.") for index in range(number)]


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
    side_by_side = caller.post(f"conversations/{place}/turns/", both)["turns"]
    for turn in side_by_side:
        caller.ended(turn["id"])
    mark(caller, turns[0]["message"], "pinned")
    caller.post(f"messages/{side_by_side[1]['message']}/choose/", expect=200)
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
    turn = ask_and_wait(person.caller, str(conversation.pk), "Secret words.")
    until(lambda: Conversation.objects.get(pk=conversation.pk).titled, "it has been asked for")
    Conversation.objects.filter(pk=conversation.pk).update(titled=False)
    mark(person.caller, turn["message"], "excluded")
    assert claim_title(conversation.pk) is None
    mark(person.caller, turn["message"], None)
    assert claim_title(conversation.pk) == UUID(turn["id"])
    assert json.dumps(marked(person.caller, str(conversation.pk))) == "{}"


def model_of(application: Application, window: int, text: str = "An answer.") -> Model:
    """Create a model with this window that always answers with the text."""
    name = application.model.set_script(f"small-{uuid4().hex}", {"text": text})
    provider = Provider.objects.get(name="Scripted")
    return Model.objects.create(provider=provider, name=name, context_window=window)


def prompt_of(application: Application, text: str) -> str:
    """Return the messages of the request with this question, as text."""
    return json.dumps(application.model.arrived(text)[-1].body["messages"])


def source_of(report: Any, pk: str) -> tuple[str, str | None]:
    return next((each["state"], each["reason"]) for each in report["sources"] if each["id"] == pk)


def test_a_turn_that_is_left_out_is_not_sent_and_comes_back(caller: Caller, application: Application) -> None:
    place, turns = turns_of(caller)
    mark(caller, turns[1]["message"], "excluded")
    turn = ask_and_wait(caller, place, text := f"Now {uuid4().hex}.")
    assert Turn.objects.get(pk=turn["id"]).context_left_out == 0  # which counts what nobody wanted out
    seen = prompt_of(application, text)
    assert "Question 0." in seen and "Question 2." in seen and "Question 1." not in seen
    plan = caller.post(f"conversations/{place}/plan/", {"text": "Draft."}, expect=200)
    assert source_of(plan, turns[1]["user_message"]) == ("left_out", "by_user")
    assert source_of(plan, turns[1]["message"]) == ("left_out", "by_user")
    mark(caller, turns[1]["message"], None)
    plan = caller.post(f"conversations/{place}/plan/", {"text": "Draft."}, expect=200)
    assert source_of(plan, turns[1]["user_message"]) == ("full", None)


def test_a_pinned_turn_is_sent_from_above_what_is_read(person: Person, application: Application) -> None:
    """Far above the end of the branch, between much that is left out for want of room or by its person."""
    conversation = past(person.user, 60, words=80)
    place, model = str(conversation.pk), model_of(application, 6_000)
    questions = list(conversation.messages.filter(role="user").order_by("depth"))
    mark(person.caller, str(questions[3].pk), "pinned")
    for each in questions[20:50]:
        mark(person.caller, str(each.pk), "excluded")
    text = f"Now {uuid4().hex}."
    person.caller.ended(person.caller.ask(text, None, place, models=[str(model.pk)])["id"])
    seen = prompt_of(application, text)
    assert "user 3:" in seen and "assistant 3:" in seen and "user 59:" in seen and "user 2:" not in seen
    assert "user 19:" in seen and "user 20:" not in seen  # what is left out does not stop the walk
    turn = person.caller.get(f"conversations/{place}/messages/")["results"][0]
    report = person.caller.get(f"turns/{_turn_of(turn['id'])}/report/")
    assert source_of(report, str(questions[3].pk)) == ("full", None)
    assert source_of(report, str(questions[25].pk)) == ("left_out", "by_user")
    assert report["used"] <= report["limit"]
    loaded = sum(each["kind"] == "message" and each["reason"] != "by_user" for each in report["sources"])
    assert report["unloaded"] + loaded + 60 == 121


def test_the_plan_names_a_pinned_turn_that_does_not_fit(person: Person, application: Application) -> None:
    conversation = past(person.user, 2, words=900)
    question = str(conversation.messages.filter(role="user").order_by("depth")[0].pk)
    mark(person.caller, question, "pinned")
    draft = {"text": "Now?", "model": str(model_of(application, 2_500).pk)}
    plan = person.caller.post(f"conversations/{conversation.pk}/plan/", draft, expect=200)
    assert source_of(plan, question) == ("left_out", "no_room")
    assert next(each["id"] for each in plan["sources"] if each.get("mark") == "pinned") == question
    assert "“user 0:" in plan_line(plan).words and "is always to be sent, but there is no room" in plan_line(plan).words


def _turn_of(answer: str) -> str:
    return str(Turn.objects.get(answer_id=UUID(answer)).pk)


def test_a_file_that_is_left_out_is_not_sent_not_listed_and_not_found(person: Person, application: Application) -> None:
    caller, place = person.caller, person.caller.conversation()
    ids = {}
    for name, content in {"kept.txt": b"alpha alpha", "gone.txt": b"omega omega"}.items():
        ids[name] = upload(person, name, content)["id"]
        until(lambda pk=ids[name]: caller.get(f"files/{pk}/")["status"] == "ready", "the file is read")
    turn = caller.ask("Read them.", {"text": "Read."}, place, files=list(ids.values()))
    caller.ended(turn["id"])
    mark(caller, turn["user_message"], "excluded", file=ids["gone.txt"])
    ask_and_wait(caller, place, text := f"Again {uuid4().hex}.")
    seen = prompt_of(application, text)
    assert "alpha" in seen and "omega" not in seen and "gone.txt" not in seen
    plan = caller.post(f"conversations/{place}/plan/", {"text": "Draft."}, expect=200)
    assert source_of(plan, ids["gone.txt"]) == ("left_out", "by_user")
    scope = FileScope(Conversation.objects.get(pk=place), None, "")
    assert [file.name for file in scope.files()] == ["kept.txt"]
    mark(caller, turn["user_message"], "excluded")
    assert not scope.files().exists()


def test_no_summary_tells_of_what_is_left_out_and_pinned_turns_survive_it(
    person: Person, application: Application
) -> None:
    conversation = past(person.user, 30, words=400)  # the newest alone fill what a summary would be given
    questions = list(conversation.messages.filter(role="user").order_by("depth"))
    for number, kind in ((2, "pinned"), (4, "excluded")):
        mark(person.caller, str(questions[number].pk), kind)
    model = model_of(application, 32_000, "## Now\nEverything that was said.")
    Message.objects.filter(conversation=conversation, role="assistant").update(model=model)
    place = str(conversation.pk)
    person.caller.post(f"conversations/{place}/summarise/", expect=202)
    done = SummaryJob.objects.filter(conversation=conversation, status=SummaryJob.Status.DONE)
    until(done.exists, "it is summarised")
    summary = Summary.objects.filter(conversation=conversation).latest("id")
    requests = "".join(json.dumps(each.body) for each in application.model.requests(model.name))
    assert "user 3:" in requests and "user 2:" not in requests and "user 4:" not in requests
    aside = [str(pk) for each in (questions[2], questions[4]) for pk in (each.pk, each.children.get().pk)]
    assert sorted(summary.left_aside) == sorted(aside)

    def seen() -> str:
        text = f"Now {uuid4().hex}."
        person.caller.ended(person.caller.ask(text, None, place, models=[str(model.pk)])["id"])
        return prompt_of(application, text)

    first = seen()
    assert (
        "user 2:" in first
        and "user 4:" not in first
        and "user 3:" not in first
        and "Summary of this conversation" in first
    )
    mark(person.caller, str(questions[4].pk), None)
    mark(person.caller, str(questions[2].pk), None)
    again = seen()  # what the summary left aside is not hidden
    assert "user 2:" in again and "user 4:" in again and "Summary of this conversation" in again
    mark(person.caller, str(questions[3].pk), "excluded")
    last = seen()  # that summary tells of it, so it does not hold
    assert "Summary of this conversation" not in last and "user 3:" not in last


def offered(caller: Caller, place: object, model: Model, **draft: Any) -> dict[str, Any]:
    """By kind, the offers of a draft's plan."""
    body = {"text": "Now?", "model": str(model.pk), **draft}
    plan = caller.post(f"conversations/{place}/plan/", body, expect=200)
    return {offer["kind"]: offer for offer in plan["offers"]}


def test_what_would_make_a_draft_fit_is_offered_with_what_it_frees(person: Person, application: Application) -> None:
    small, larger = model_of(application, 4_096), model_of(application, 60_000)
    large = upload(person, "large.txt", ("a clause of the contract. " * 1_500).encode())
    file, place = (
        upload(person, "note.txt", ("the fee is due in May. " * 200).encode()),
        past(person.user, 12, words=150),
    )
    question = place.messages.filter(role="user").latest("depth")
    question.attachments.create(file_id=file["id"], name="note.txt", ordinal=0)
    refused = offered(person.caller, place.pk, small, files=[large["id"]])
    assert refused["remove_file"]["id"] == large["id"] and refused["remove_file"]["fits"]
    fitting = Model.objects.get(pk=refused["model"]["id"])
    assert small.window < fitting.window <= larger.window and refused["model"]["frees"] > 0
    missing = offered(person.caller, place.pk, small)
    leave_out = missing["leave_out"]
    assert (leave_out["id"], leave_out["title"], leave_out["message"]) == (file["id"], "note.txt", str(question.pk))
    assert leave_out["frees"] > 1_000 and missing["summarise"]["frees"] > 1_000
    assert offered(person.caller, place.pk, larger) == {}
    mark(person.caller, str(question.pk), "excluded", file=file["id"])
    assert "leave_out" not in offered(person.caller, place.pk, small)
    job = person.caller.post(f"conversations/{place.pk}/summarise/", {"model": missing["summarise"]["id"]}, expect=202)
    assert SummaryJob.objects.get(pk=job["id"]).model == small
    person.caller.post(f"conversations/{place.pk}/summarise/", {"model": str(uuid4())}, expect=404)


def test_exports_say_what_is_marked(caller: Caller) -> None:
    place, turns = turns_of(caller)
    mark(caller, turns[0]["user_message"], "pinned")
    mark(caller, turns[1]["user_message"], "excluded")
    messages = caller.get(f"conversations/{place}/export/")["messages"]
    assert [message["mark"] for message in messages] == ["pinned", "pinned", "excluded", "excluded", None, None]
    text = caller.http.get(f"conversations/{place}/export/?kind=md").text
    assert text.count("*(Always sent)*") == text.count("*(Left out)*") == 2
