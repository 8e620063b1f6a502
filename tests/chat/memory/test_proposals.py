"""A model proposes facts: only words that the person has written are a source, and the person decides."""

import json
from uuid import UUID, uuid4

import pytest
from django.test import Client

from chat.conversations.copying import copy_shared
from chat.conversations.team_shares import Recipient, TeamTerms, share_conversation
from chat.ledger.models import ModelCall
from chat.memory.models import Fact, FactSource, Profile
from chat.memory.services import ProposalRefused, propose
from chat.models import Conversation, Message, TeamShare
from tests.chat.documents import upload
from tests.chat.memory.remembering import HEADING, SAID, Rememberer, set_to
from tests.conftest import Person


def page(person: Person, url: str) -> str:
    client = Client()
    client.force_login(person.user)
    return client.get(url).content.decode()


def act(person: Person, fact: Fact, **form: str) -> None:
    client = Client()
    client.force_login(person.user)
    response = client.post(f"/memory/facts/{fact.pk}/", form, headers={"HX-Request": "true"})
    assert response.status_code == 204 and "markchange" in response["HX-Trigger"], response.content


def test_a_fact_is_proposed_below_the_answer_and_kept_by_its_person(rememberer: Rememberer) -> None:
    place = rememberer.place()
    output, error = rememberer.propose(
        place, "I am allergic to nuts. What cake?", "Allergic to nuts", "allergic to nuts"
    )
    assert not error and output.startswith("Proposed.")
    fact = Fact.objects.get(owner=rememberer.person.user)
    assert (fact.status, fact.proposed_by, fact.confirmed_by) == ("proposed", "tool", None)
    shown = page(rememberer.person, f"/c/{place}/")
    assert "Remember?" in shown and "Allergic to nuts" in shown
    assert rememberer.section(place, "Which nuts are in this cake?") == ""  # it is not kept yet
    act(rememberer.person, fact, act="keep", text="Allergic to all nuts")
    fact.refresh_from_db()
    assert (fact.status, fact.text, fact.confirmed_by) == ("kept", "Allergic to all nuts", rememberer.person.user)
    assert "Remember?" not in page(rememberer.person, f"/c/{place}/")
    assert "- Allergic to all nuts" in rememberer.section(rememberer.place(), "Which nuts are in this cake?")


def test_a_fact_opens_its_source(rememberer: Rememberer) -> None:
    place = rememberer.place()
    rememberer.propose(place, "I live in Hue.", "Lives in Hue", "I live in Hue")
    source = FactSource.objects.get(fact__owner=rememberer.person.user)
    question = Message.objects.get(conversation_id=place, role="user")
    assert source.message == question and source.quote == "I live in Hue"
    assert f"/c/{place}/?at={question.pk}#m-{question.pk}" in page(rememberer.person, "/memory/")


@pytest.mark.parametrize(
    ("question", "fact", "quote"),
    [
        ("What does the file say?", "Lives in Paris", "I live in Paris"),
        ("> I live in Paris\nIs this right?", "Lives in Paris", "I live in Paris"),
        ("Translate:\n```\nI live in Paris\n```", "Lives in Paris", "I live in Paris"),
        ("She wrote “I live in Paris with my cat”.", "Lives in Paris", "I live in Paris"),
        ("She wrote “I live in Paris, and he “knows” it”.", "Lives in Paris", "I live in Paris"),
        ("She wrote „I live in Paris with my cat”.", "Lives in Paris", "I live in Paris"),
        ("She wrote “I live in Paris with my cat", "Lives in Paris", "I live in Paris"),
        ("Summarise this file.", "Banks at evil.example", "Summarise this file"),
        ("I live in Hue.", "Lives in Paris", "I live in Hue"),
        ("I live in Hue.", "Lives in Hue", "I live in Hu"),
    ],
)
def test_other_words_than_the_persons_own_are_dropped(
    rememberer: Rememberer, question: str, fact: str, quote: str
) -> None:
    output, error = rememberer.propose(rememberer.place(), question, fact, quote)
    assert error and ("not in a message" in output or "says more" in output)
    assert rememberer.facts() == []


def test_turns_of_an_imported_conversation_are_no_sources(rememberer: Rememberer) -> None:
    place = rememberer.place()
    rememberer.answer(place, "I live in Hue.", SAID)
    Conversation.objects.filter(pk=place).update(imported_from="glasshouse:1")
    ModelCall.objects.filter(conversation=UUID(place)).delete()  # an export brings turns, but no calls
    output, error = rememberer.propose(place, "And the weather there?", "Lives in Hue", "I live in Hue")
    assert error and "not in a message" in output
    output, error = rememberer.propose(place, "I am allergic to nuts.", "Allergic to nuts", "allergic to nuts")
    assert not error, output


def test_words_of_an_answer_of_a_file_and_of_a_result_are_dropped(rememberer: Rememberer) -> None:
    person = rememberer.person
    words = "The user lives in Paris with two cats"
    place = rememberer.place()
    rememberer.answer(place, "Tell me something.", {"text": words})
    assert rememberer.propose(place, "Is that so?", words, words)[1]
    assert rememberer.propose(place, f"You said: {words}.", words, words)[1]  # a pasted answer
    file = upload(person, "about.txt", words.encode())["id"]
    other = rememberer.place()
    assert rememberer.propose(other, "What is in it?", words, words, files=[file])[1]
    assert rememberer.propose(other, f"It says: {words}.", words, words)[1]  # a pasted file
    assert rememberer.facts() == []


def test_messages_that_nobody_here_has_written_are_no_source(rememberer: Rememberer, stranger: Person) -> None:
    question = "I live in Hue with my family."
    place = rememberer.place()
    rememberer.ask(place, question)
    conversation = Conversation.objects.get(pk=place)
    recipient = Recipient(username=stranger.user.username)
    terms = TeamTerms(may_copy=True)
    share_conversation(user=rememberer.person.user, conversation=conversation, recipient=recipient, terms=terms)
    share = TeamShare.objects.get(conversation=conversation)
    copied = copy_shared(user=stranger.user, share=share)
    Profile.objects.create(person=stranger.user, proposals="ask")
    with pytest.raises(ProposalRefused) as refusal:
        propose(conversation=copied, text="Lives in Hue", quote="I live in Hue", proposed_by=Fact.ProposedBy.TOOL)
    assert refusal.value.code == "not_their_words"
    assert propose(
        conversation=conversation, text="Lives in Hue", quote="I live in Hue", proposed_by=Fact.ProposedBy.TOOL
    )


def test_a_fact_that_is_there_gets_the_other_source(rememberer: Rememberer) -> None:
    for question in ("I live in Hue.", "As I said, I live in Hue now."):
        rememberer.propose(rememberer.place(), question, "Lives in Hue", "I live in Hue")
    fact = Fact.objects.get(owner=rememberer.person.user)
    assert fact.sources.count() == 2


def test_a_newer_fact_outdates_an_older_one_and_both_are_shown(rememberer: Rememberer) -> None:
    older = rememberer.fact("Lives in Hanoi")
    place = rememberer.place()
    rememberer.propose(place, "I live in Hue now.", "Lives in Hue", "I live in Hue")
    assert "This outdates: “Lives in Hanoi”" in page(rememberer.person, f"/c/{place}/")
    newer = Fact.objects.get(owner=rememberer.person.user, status="proposed")
    act(rememberer.person, newer, act="keep")
    older.refresh_from_db()
    assert (older.status, older.outdated_by) == ("outdated", newer)
    listed = page(rememberer.person, "/memory/")
    assert "Lives in Hanoi" in listed and "Outdated by: “Lives in Hue”" in listed
    act(rememberer.person, older, act="restore")
    assert set(rememberer.facts(status="kept")) == {"Lives in Hanoi", "Lives in Hue"}


def test_both_may_be_true(rememberer: Rememberer) -> None:
    rememberer.fact("Lives in Hanoi")
    rememberer.propose(rememberer.place(), "I live in Hue too.", "Lives in Hue", "I live in Hue")
    act(
        rememberer.person,
        Fact.objects.get(status="proposed", owner=rememberer.person.user),
        act="keep",
        keep_older="on",
    )
    assert rememberer.facts(status="kept") == ["Lives in Hanoi", "Lives in Hue"]


def test_facts_are_kept_without_asking_only_where_workspace_and_person_allow_it(rememberer: Rememberer) -> None:
    Profile.objects.filter(person=rememberer.person.user).update(proposals="keep")
    output, _ = rememberer.propose(rememberer.place(), "I live in Hue.", "Lives in Hue", "I live in Hue")
    assert output.startswith("Proposed.")
    set_to(memory_unasked=True)
    output, _ = rememberer.propose(rememberer.place(), "I love green tea.", "Loves green tea", "I love green tea")
    assert output == "Remembered."
    fact = Fact.objects.get(owner=rememberer.person.user, status="kept")
    assert fact.confirmed is not None and fact.confirmed_by is None


@pytest.mark.parametrize("off", ["profile", "conversation", "temporary", "workspace"])
def test_where_memory_is_off_the_tool_is_not_offered(rememberer: Rememberer, off: str) -> None:
    rememberer.fact("Lives in Hue")
    place = rememberer.place(temporary=off == "temporary")
    if off == "profile":
        Profile.objects.filter(person=rememberer.person.user).update(proposals="off")
    elif off == "conversation":
        Conversation.objects.filter(pk=place).update(memory_in_prompts=False)
    elif off == "workspace":
        set_to(memory=False)
    mark = uuid4().hex
    rememberer.answer(place, f"I live in Hue {mark}", SAID)
    body = rememberer.application.model.finished(mark)[0].body
    assert "remember" not in json.dumps(body.get("tools", []))
    assert (HEADING in json.dumps(body)) == (off == "profile")


def test_forgetting_takes_the_text_out_of_everything(rememberer: Rememberer) -> None:
    place, secret = rememberer.place(), f"zebra{uuid4().hex[:8]}"
    rememberer.propose(place, f"My code word is {secret} today.", f"Code word is {secret}", f"code word is {secret}")
    fact = Fact.objects.get(owner=rememberer.person.user)
    act(rememberer.person, fact, act="keep")
    other = rememberer.place()
    report = rememberer.ask(other, "What is my code word?")
    assert secret in json.dumps(report)
    act(rememberer.person, fact, act="forget")
    fact.refresh_from_db()
    assert (fact.status, fact.text, fact.terms, fact.sources.count()) == ("forgotten", "", [], 0)
    assert rememberer.section(other, "And what is my code word?") == ""
    assert secret not in page(rememberer.person, "/memory/")
    assert secret not in json.dumps(rememberer.person.caller.get("memories/?status=forgotten"))
    answers = Message.objects.filter(conversation_id=place, role="assistant")
    assert secret not in json.dumps([answer.parts for answer in answers])  # the call of the tool
    exported = page(rememberer.person, f"/c/{other}/export.json")
    assert secret not in exported and str(fact.pk) in exported
