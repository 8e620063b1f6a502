"""Files that were attached earlier and are no longer in the prompt: their notice, and the model's ways to read them."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from chat.models import Conversation, Message, Summary, Turn
from llm.models import Model, Provider
from tests.application import Application
from tests.chat.citing import ANSWER, CLAUSE, SEARCH, ask
from tests.chat.documents import PREFIX, ask_and_wait, picture, sent, upload
from tests.chat.growing import conversation, small, summary_requests, until_summarised
from tests.conftest import Person
from tests.product import until

FILLER = "Clause {} is about nothing in particular."


def model_of(scripted_model_row: Model, window: int = 3_500, **abilities: Any) -> Model:
    return Model.objects.create(
        provider=scripted_model_row.provider,
        name=f"scripted-{uuid4().hex[:8]}",
        context_window=window,
        tokenizer="o200k_base",
        **abilities,
    )


def searchable(person: Person, name: str, content: bytes) -> dict[str, Any]:
    file = upload(person, name, content)
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], f"{name} has been indexed")
    return file


@pytest.fixture
def contract(application: Application, person: Person) -> dict[str, Any]:
    """Of about 650 tokens."""
    clauses = " ".join(FILLER.format(number) for number in range(70))
    return searchable(person, "contract.txt", f"{clauses} {CLAUSE}".encode())


def conversation_with(person: Person, model: Model, *files: dict[str, Any]) -> str:
    """A conversation with a turn for each file."""
    place = person.caller.conversation()
    Conversation.objects.filter(pk=place).update(automatic_summaries=False)
    for file in files:
        ask_and_wait(person, place, f"Here is {file['name']}.", files=[file["id"]], models=[str(model.pk)])
    return place


def fill_window(person: Person, place: str, model: Model) -> None:
    """With a turn that leaves no room for older ones."""
    words = planned(person, place, model, "x")["left"] - 2
    ask_and_wait(person, place, "word " * words, models=[str(model.pk)])


def listing(plan: dict[str, Any]) -> str:
    texts = [each["text"] for each in plan["messages"] if each["section"] == "file_listing"]
    return texts[0] if texts else ""


def planned(person: Person, place: str, model: Model, text: str = "What is the fee?") -> dict[str, Any]:
    body = {"text": text, "model": str(model.pk)}
    plan: dict[str, Any] = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    assert plan["fits"], plan["error"]
    assert plan["used"] <= plan["limit"]
    return plan


def test_a_file_that_is_only_named_is_listed_and_found_by_the_models_search(
    application: Application, person: Person, scripted_model_row: Model, contract: dict[str, Any]
) -> None:
    model = model_of(scripted_model_row, tools=True)
    place = conversation_with(person, model, contract)
    assert listing(planned(person, place, model)) == ""
    fill_window(person, place, model)
    text = listing(planned(person, place, model))
    assert text.startswith(
        "These files of the conversation are not shown here. Search them, or read them by their number:\n"
    )
    assert "- 1: contract.txt (" in text and contract["id"] not in text
    [source] = [each for each in planned(person, place, model)["sources"] if each["kind"] == "file"]
    assert (source["title"], source["state"]) == ("contract.txt", "stubbed")
    named = [each["text"] for each in planned(person, place, model)["messages"] if each["section"] == "file"]
    assert named == ["The contents of these files are not shown here: contract.txt."]
    turn = ask(person, place, model, f"What is the fee? {uuid4().hex}", SEARCH, ANSWER)
    [result] = [part for part in turn["parts"] if part["type"] == "tool_result"]
    assert "500 euros a year" in result["text"]


def test_a_file_whose_turn_was_summarised_is_listed(
    application: Application, person: Person, scripted_model_row: Model, contract: dict[str, Any]
) -> None:
    model = model_of(scripted_model_row, 16_000, tools=True)
    place = conversation_with(person, model, contract)
    question, answer = Message.objects.filter(conversation=UUID(place)).order_by("depth")
    Summary.objects.create(
        conversation_id=UUID(place), first=question, last=answer, messages=2, span_start=timezone.now(),
        span_end=timezone.now(), sections=[{"name": "Now", "text": "A contract was attached."}], tokens_in=700,
        tokens_out=10, as_of=timezone.now(), timezone="UTC", prompt_version=1,
    )  # fmt: skip
    ask_and_wait(person, place, "Anything else?", models=[str(model.pk)])
    plan = planned(person, place, model)
    assert plan["summary"] and "contract.txt" in listing(plan)


def test_a_file_of_another_branch_is_not_listed(
    application: Application, person: Person, scripted_model_row: Model, contract: dict[str, Any]
) -> None:
    model = model_of(scripted_model_row, tools=True)
    place = conversation_with(person, model, contract)
    question = Message.objects.get(conversation=UUID(place), role="user")
    edited = person.caller.post(f"messages/{question.pk}/edit/", {"text": "Without it.", "files": []}, expect=202)
    person.caller.ended(edited["turns"][0]["id"])
    fill_window(person, place, model)
    assert listing(planned(person, place, model)) == ""


def test_a_model_without_tools_gets_the_passages_that_its_question_finds(
    application: Application, person: Person, scripted_model_row: Model, contract: dict[str, Any]
) -> None:
    model = model_of(scripted_model_row, 5_000)
    place = conversation_with(person, model, contract)
    fill_window(person, place, model)
    mark = uuid4().hex
    text = f"How much is the fee of clause 7? {mark}"
    plan = planned(person, place, model, text)
    turn = ask_and_wait(person, place, text, models=[str(model.pk)])
    [message] = [
        each for each in sent(application, mark) if "of the conversation are not shown whole" in each["content"]
    ]
    names, _, passages = message["content"].partition(f"\n\n{PREFIX}\n")
    assert "- 1: contract.txt" in names and "by search" not in names
    [document] = json.loads(passages)["documents"]
    assert document["document"] == 1 and CLAUSE in document["contents"]
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert report["used"] == plan["used"] <= report["limit"]


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("Thanks!", False),
        ("Cảm ơn bạn 👍", False),
        ("谢谢", False),
        ("Which fee?", True),
        ("Summarise contract.TXT", True),
        ("终止合同的期限是多久？", True),
        ("How can we cancel this?", True),  # no word of it stands there
    ],
)
def test_a_message_that_says_little_gets_only_passages_that_have_to_do_with_it(
    application: Application, person: Person, scripted_model_row: Model, text: str, passages: bool
) -> None:
    clause = (
        "Either party may terminate the licence with three months notice. It is limited to 500 euros of fee a year."
    )
    filler = "Repairs are paid by the landlord. " * 60
    model = model_of(scripted_model_row, 5_000)
    place = conversation_with(person, model, searchable(person, "contract.txt", f"{clause} {filler}".encode()))
    fill_window(person, place, model)
    plan = planned(person, place, model, text)
    turn = ask_and_wait(person, place, text, models=[str(model.pk)])
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert ("500 euros" in listing(plan), "are not shown here:" in listing(plan)) == (passages, not passages)
    assert report["used"] == plan["used"] and plan["notes"] == report["notes"]
    assert [note.partition(",")[0] for note in report["notes"]] == (
        [] if passages else ["The message is too short to search the files with"]
    )


def test_the_newest_files_stand_first_and_the_list_takes_a_tenth_of_the_room(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = model_of(scripted_model_row, tools=True)
    files = [searchable(person, f"note-{number}.txt", f"Note {number}.".encode()) for number in range(16)]
    place = conversation_with(person, model, *files)
    fill_window(person, place, model)
    alone = planned(person, place, model, "x")["sections"]["system"]
    plan = planned(person, place, model, "word " * (1_920 - alone))
    lines = listing(plan).splitlines()[1:]
    assert "note-15.txt" in lines[0] and "note-14.txt" in lines[1]
    assert lines[-1] == f"- and {16 - (len(lines) - 1)} more files"
    assert plan["sections"]["file_listing"] <= plan["limit"] // 10


def test_the_list_never_takes_the_room_of_the_question(
    application: Application, person: Person, scripted_model_row: Model, contract: dict[str, Any]
) -> None:
    model = model_of(scripted_model_row, tools=True)
    place = conversation_with(person, model, contract)
    fill_window(person, place, model)
    plan = planned(person, place, model)
    assert "contract.txt" in listing(plan)
    alone = sum(plan["sections"][name] for name in ("system", "current"))
    for spare in (0, 1, 20, 40, 200):
        plan = planned(person, place, model, "word " * (plan["limit"] - alone - spare))
        assert bool(listing(plan)) == (spare == 200)


def test_a_picture_out_of_sight_is_named_as_what_only_attaching_shows_again(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = model_of(scripted_model_row, tools=True, vision=True)
    place = conversation_with(person, model, upload(person, "teal.png", picture()))
    fill_window(person, place, model)
    assert "- teal.png (an image" in listing(planned(person, place, model))


def test_what_is_listed_stays_as_it_is_through_a_turn_whose_reasoning_is_bound_to_it(
    application: Application, person: Person, contract: dict[str, Any]
) -> None:
    provider = Provider.objects.create(name=uuid4().hex, kind="anthropic", base_url=application.model.url)
    model = Model.objects.create(
        provider=provider, name="claude-opus-5-5", context_window=9_000, tools=True, max_output=1_024
    )
    place = conversation_with(person, model, contract)
    fill_window(person, place, model)
    application.model.forget()
    turn = ask(person, place, model, f"What is the fee? {uuid4().hex}", *[SEARCH] * 3, ANSWER)
    assert [record.status for record in application.model.requests() if record.status == 400] == []
    calls = Turn.objects.get(pk=turn["id"]).report["calls"]
    listed = [[each["text"] for each in call["messages"] if each["section"] == "file_listing"] for call in calls]
    assert len(calls) == 4 and all(each == listed[0] for each in listed)


def test_the_summariser_is_told_what_each_file_was(
    application: Application, person: Person, contract: dict[str, Any]
) -> None:
    place, mark = conversation(person, small(person)), uuid4().hex
    ask_and_wait(person, str(place), f"Here it is. {mark}", files=[contract["id"]])
    until_summarised(person, place)
    request = next(text for text in map(json.dumps, summary_requests(application, mark)))
    begins = "(attached the file contract.txt of 645 tokens, which begins: \\u201cClause 0 is about nothing"
    assert begins in request
    assert "Clause 60 is about" not in request
