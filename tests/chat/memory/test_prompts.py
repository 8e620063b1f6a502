"""Memory in prompts: which facts, why, how many tokens, and that the section stays the same."""

import json
from uuid import uuid4

from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from chat.context.memory import memory_budget
from chat.context.rendering import memory_text
from chat.memory.choosing import choose_section, find_matches, read_memory
from chat.memory.models import ConversationFact, Fact, Profile
from chat.memory.services import FactScope, add_fact, leave_out
from chat.memory.terms import search_keys, stems
from chat.models import Conversation
from chat.models.conversation_state import ChatScope
from llm.tokens import CATCH_ALL, tokenizer
from personas.models import BudgetProfile, Persona
from personas.texts import BUILT_IN
from projects.models import Project
from tests.chat.memory.remembering import HEADING, Rememberer, reasons, set_to
from tests.chat.memory.test_api_and_pages import word
from tests.chat.openai_clients import posted
from tests.conftest import Person
from workspace.models import Workspace


def test_profile_pinned_and_matching_facts_are_sent_each_with_its_reason(rememberer: Rememberer) -> None:
    profile = Profile.objects.get(person=rememberer.person.user)
    profile.about, profile.answering = "I garden.", "In one sentence."
    profile.save()
    rememberer.fact("Allergic to nuts", pinned=True)
    rememberer.fact("Has a greenhouse with tomatoes")
    rememberer.fact("Works as a nurse")
    place = rememberer.place()
    plan = rememberer.person.caller.post(
        f"conversations/{place}/plan/", {"text": "When do I sow tomatoes?"}, expect=200
    )
    report = rememberer.ask(place, "When do I sow tomatoes?")
    expected = {
        "Allergic to nuts": ("full", "pinned_fact"),
        "Has a greenhouse with tomatoes": ("full", "matches"),
    }
    assert reasons(plan) == reasons(report) == expected
    assert plan["sections"]["memory"] == report["sections"]["memory"]
    [row] = [each for each in report["sources"] if each["kind"] == "profile"]
    assert (row["state"], row["reason"]) == ("full", "always") and row["tokens"]
    [text] = [each["text"] for each in report["messages"] if each["section"] == "memory"]
    assert text.splitlines()[0].startswith(HEADING)
    assert text.splitlines()[1:] == [
        "The person about themselves: I garden.",
        "How they want to be answered: In one sentence.",
        "- Allergic to nuts",
        "- Has a greenhouse with tomatoes",
    ]


def test_the_same_facts_stay_byte_for_byte_and_new_ones_stand_below(rememberer: Rememberer) -> None:
    for text in ("Has a greenhouse with tomatoes", "Works as a nurse", "Plays the violin"):
        rememberer.fact(text)
    place = rememberer.place()
    first = rememberer.section(place, "When do I sow tomatoes?")
    assert rememberer.section(place, "And what about the weather?") == first
    second = rememberer.section(place, "How do I tune a violin?")
    assert second == f"{first}\n- Plays the violin"
    report = rememberer.ask(place, "Thanks!")
    assert reasons(report)["Plays the violin"] == ("full", "matched_before")


def test_a_fact_is_left_out_of_one_conversation_and_corrected_on_the_spot(rememberer: Rememberer) -> None:
    fact = rememberer.fact("Has a greenhouse with tomatoes")
    place, other = rememberer.place(), rememberer.place()
    assert "greenhouse" in rememberer.section(place, "When do I sow tomatoes?")
    body = {"conversation": place, "left_out": True}
    rememberer.person.caller.post(f"memories/{fact.pk}/leave-out/", body, expect=204)
    report = rememberer.ask(place, "And when do I water tomatoes?")
    assert reasons(report) == {"Has a greenhouse with tomatoes": ("left_out", "by_user")}
    assert "greenhouse" in rememberer.section(other, "When do I sow tomatoes?")
    rememberer.person.caller.http.patch(f"memories/{fact.pk}/", json={"text": "Has a field with tomatoes"})
    assert rememberer.section(other, "Hello").endswith("- Has a field with tomatoes")


def test_facts_of_a_project_and_a_persona_apply_there_alone(rememberer: Rememberer) -> None:
    user = rememberer.person.user
    project = Project.objects.create(owner=user, name="Garden")
    persona = Persona.objects.create(owner=user, name="Cook", model=rememberer.model)
    add_fact(user=user, text="Tomatoes stand in the north", scope=FactScope(project=project))
    add_fact(user=user, text="Tomatoes taste best as soup", scope=FactScope(persona=persona))
    question = "What about tomatoes?"
    assert rememberer.section(rememberer.place(), question) == ""
    assert "north" in rememberer.section(rememberer.place(project=str(project.pk)), question)
    assert "soup" in rememberer.section(rememberer.place(persona=str(persona.pk)), question)


def test_a_persona_without_memory_gets_none_and_the_report_says_so(rememberer: Rememberer) -> None:
    rememberer.fact("Likes tomatoes", pinned=True)
    persona = Persona.objects.create(owner=rememberer.person.user, name="Cook", model=rememberer.model, memory=False)
    report = rememberer.ask(rememberer.place(persona=str(persona.pk)), "What about tomatoes?")
    [row] = [each for each in report["sources"] if each["kind"] == "memory"]
    assert (row["state"], row["reason"]) == ("left_out", "memory_off_persona") and "memory" not in report["sections"]


def test_the_workspaces_text_goes_along_where_a_person_has_none(rememberer: Rememberer, stranger: Person) -> None:
    set_to(memory_answering="Use plain words.")
    assert "Use plain words." in rememberer.section(rememberer.place(), "Hello")
    Profile.objects.filter(person=rememberer.person.user).update(answering="In verse.")
    section = rememberer.section(rememberer.place(), "Hello")
    assert "In verse." in section and "Use plain words." not in section


def test_requests_of_programs_and_temporary_conversations_have_no_memory(rememberer: Rememberer) -> None:
    rememberer.fact("Likes tomatoes", pinned=True)
    mark = uuid4().hex
    body = {"model": rememberer.model.name, "messages": [{"role": "user", "content": f"Tomatoes? {mark}"}]}
    assert posted(rememberer.person, "chat/completions", body).status_code == 200
    assert "Likes tomatoes" not in rememberer.everything_sent(mark)
    assert rememberer.section(rememberer.place(temporary=True), "What about tomatoes?") == ""


def test_nobodys_facts_reach_another_person(rememberer: Rememberer, stranger: Person) -> None:
    rememberer.fact("Likes tomatoes", pinned=True)
    mark = uuid4().hex
    turn = stranger.caller.ask(f"What about tomatoes? {mark}", None, models=[str(rememberer.model.pk)])
    stranger.caller.ended(turn["id"])
    assert "Likes tomatoes" not in rememberer.everything_sent(mark)


def many(user: object, number: int) -> None:
    """Store facts without the checks, of which one in fifty has the word of the question."""
    texts = [f"Fact {n} about {word(n)} and {'tomatoes' if n % 50 == 0 else 'roses'}" for n in range(number)]
    Fact.objects.bulk_create(
        Fact(owner=user, text=text, terms=search_keys(user.pk, stems(text)), status="kept", proposed_by="person")  # type: ignore[attr-defined,misc]
        for text in texts
    )


def test_five_thousand_facts_cost_as_many_queries_as_five_and_stay_within_the_budget(person: Person) -> None:
    user = person.user
    Profile.objects.create(person=user)
    conversation = Conversation.objects.create(owner=user)
    scope = ChatScope(conversation)
    profile = BudgetProfile()
    counts = []
    for number in (5, 4_995):
        many(user, number)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            memory = read_memory(user, scope, "When do I sow tomatoes?", Workspace())
            choice = choose_section(
                memory, summary="", profile=profile, input_limit=8_000, tokenizer=tokenizer(CATCH_ALL),
                texts=BUILT_IN, wrap="{text}",
            )  # fmt: skip
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 4
    assert choice is not None and choice.added and choice.without_room
    text = memory_text(choice.memory, choice.memory.facts)
    budget = memory_budget(8_000, profile.memory_share, profile.memory_most)
    assert tokenizer(CATCH_ALL).count(text) + profile.message_overhead <= budget


def test_the_search_of_facts_reads_no_table_whole(person: Person) -> None:
    many(person.user, 5_000)
    facts = Fact.objects.visible_to(person.user).applying()
    keys = search_keys(person.user.pk, stems(word(17)))
    with transaction.atomic(), connection.cursor() as cursor:
        # Nearly all facts of this table are one person's. So the planner may read it whole although an index serves.
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = facts.filter(terms__overlap=keys).explain()
    assert "Index Scan" in plan and "Seq Scan" not in plan  # of the owner or of the terms, as the planner likes
    assert [fact.text for fact in find_matches(person.user, facts, f"What is {word(17)}?")] == [
        f"Fact 17 about {word(17)} and roses"
    ]


def test_rarer_words_count_more(person: Person) -> None:
    many(person.user, 100)
    facts = Fact.objects.visible_to(person.user).applying()
    best = find_matches(person.user, facts, f"Do roses and {word(7)} go together?")[0]
    assert best.text.startswith("Fact 7 ")


def test_a_fact_that_is_forgotten_is_gone_from_the_conversations_that_had_it(rememberer: Rememberer) -> None:
    fact = rememberer.fact("Has a greenhouse with tomatoes")
    place = rememberer.place()
    rememberer.section(place, "When do I sow tomatoes?")
    assert ConversationFact.objects.filter(fact=fact).count() == 1
    rememberer.person.caller.http.delete(f"memories/{fact.pk}/")
    assert not ConversationFact.objects.filter(fact=fact).exists()
    turn = rememberer.person.caller.get(f"conversations/{place}/messages/")["results"]
    assert "greenhouse" not in json.dumps(turn)


def test_leaving_a_fact_out_and_bringing_it_back(person: Person) -> None:
    conversation = Conversation.objects.create(owner=person.user)
    fact = add_fact(user=person.user, text="Likes tomatoes")
    for left_out, number in ((True, 1), (True, 1), (False, 0)):
        leave_out(user=person.user, conversation=conversation, fact=fact, left_out=left_out)
        assert ConversationFact.objects.filter(conversation=conversation).count() == number
