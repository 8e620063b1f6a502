"""`search_conversations` quotes the person's other conversations, and none that it must not read."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from chat.conversations.export import to_json, to_markdown
from chat.conversations.importing import jobs
from chat.conversations.services import delete_conversation
from chat.memory.models import Profile
from chat.models import Conversation, Import, Message, TeamShare
from chat.tools.conversation import QUOTE
from chat.tools.past_conversations import (
    HITS,
    MAX_SHARES,
    NO_RESULTS,
    PastScope,
    SearchConversations,
    parse_past_query,
)
from llm.types.tools import BadArguments, ToolOutput
from personas.models import Persona
from projects.models import Membership, Project
from tests.chat.memory.remembering import SAID, Rememberer, set_to
from tests.conftest import Person


def new_user() -> User:
    return User.objects.create_user(f"olga-{uuid4().hex[:8]}")


def talk(user: User, *texts: str, title: str = "", **fields: Any) -> Conversation:
    """Return a conversation with these messages: a question, its answer, and so on."""
    conversation = Conversation.objects.create(owner=user, title=title, **fields)
    below(conversation, None, *texts)
    return conversation


def below(conversation: Conversation, parent: Message | None, *texts: str) -> Message:
    """Add messages below a message, show the new branch, and return its leaf."""
    row = parent
    for text in texts:
        depth = row.depth + 1 if row is not None else 0
        row = Message.objects.create(
            conversation=conversation,
            owner=conversation.owner,
            parent=row,
            depth=depth,
            role=Message.Role.ASSISTANT if depth % 2 else Message.Role.USER,
            parts=[{"type": "text", "text": text}],
        )
    assert row is not None
    conversation.leaf = row
    conversation.save(update_fields=["leaf"])
    return row


def run(user: User, query: object, *, project: Project | None = None, place: Conversation | None = None) -> ToolOutput:
    place = place or Conversation.objects.create(owner=user, project=project)
    return asyncio.run(SearchConversations(PastScope(place, project)).run({"query": query}))


def found(user: User, query: str, **where: Any) -> dict[str, str]:
    """Return the quotes by the title of their conversation."""
    output = run(user, query, **where)
    if output.text == NO_RESULTS:
        return {}
    return {each["title"]: each["contents"] for each in json.loads(output.text)["documents"]}


@pytest.fixture
def olga() -> User:
    return new_user()


def test_messages_are_quoted_word_for_word_with_author_date_and_link(olga: User) -> None:
    lisbon = talk(olga, "We booked Hotel Açor in Lisbon.", "Noted: Hotel Açor.", title="Trip")
    talk(olga, "The soup needs salt.", "Yes.", title="Kitchen")
    place = Conversation.objects.create(owner=olga)
    output = run(olga, "which hotel did we book in lisbon", place=place)
    [document] = json.loads(output.text)["documents"]
    question, _ = Message.objects.filter(conversation=lisbon).order_by("depth")
    when = f"{question.created.astimezone(olga.zone):%Y-%m-%d %H:%M}"
    assert document == {
        "document": 1,
        "title": "Trip",
        "metadata": "another conversation of the person",
        "contents": f"{when}, the person:\nWe booked Hotel Açor in Lisbon.\n\n{when}, a model:\nNoted: Hotel Açor.",
    }
    assert output.data["documents"] == [
        {
            "number": 1,
            "title": "Trip",
            "conversation": str(lisbon.pk),
            "message": str(question.pk),
            "date": when[:10],
        }
    ]
    place.refresh_from_db()
    assert place.documents == {f"conversation/{lisbon.pk}": 1}


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("painting the fence", "Garden"),
        ("FENCES", "Garden"),
        ("the", "Article"),
        ("港口在哪里", "Harbour"),
        ("da", "Key"),
        ("box 17", "Seventeen"),
        ('"green gull"', "Gull"),
    ],
)
def test_words_are_found_in_their_forms_and_rare_ones_count_for_more(olga: User, query: str, title: str) -> None:
    talk(olga, "I painted our fence.", title="Garden")
    talk(olga, "What does the word the mean?", title="Article")
    talk(olga, "港口的号码是四七一一。", title="Harbour")
    talk(olga, "It lies under đá.", title="Key")
    for number in range(1, 20):
        talk(olga, f"Paint in box {number}.", title="Seventeen" if number == 17 else f"Box {number}")
    talk(olga, "A gull that is green. A green gull.", title="Gull")
    assert next(iter(found(olga, query))) == title


def test_the_output_is_bounded_and_copies_are_quoted_once(olga: User) -> None:
    for number in range(HITS + 5):
        talk(olga, f"harbour {number} {'x ' * 4 * QUOTE}", title=f"Place {number}")
    output = run(olga, "harbour")
    documents = json.loads(output.text)["documents"]
    assert len(documents) == HITS and len(output.text) < HITS * (QUOTE + 300)
    talk(olga, "A lighthouse.", title="Original")
    talk(olga, "A lighthouse.", title="Copy")
    assert found(olga, "lighthouse").keys() == {"Copy"}


def test_what_nobody_may_find_is_not_found(olga: User) -> None:
    talk(olga, "heron", title="temporary", origin=Conversation.Origin.TEMPORARY)
    talk(olga, "heron", title="program", origin=Conversation.Origin.API)
    talk(olga, "heron", title="kept out", findable=False)
    talk(olga, "heron", title="archived under a hold", archived=True, legal_hold=True)
    hidden = Project.objects.create(owner=olga, name="Secret", findable=False)
    talk(olga, "heron", title="in a project that is kept out", project=hidden)
    talk(new_user(), "heron", title="somebody else's")
    deleted = talk(olga, "heron", title="deleted", legal_hold=True)
    delete_conversation(user=olga, conversation=deleted)
    branched = talk(olga, "root", title="other branch")
    below(branched, Message.objects.get(conversation=branched), "heron", "x")
    below(branched, Message.objects.get(conversation=branched, depth=0), "stork", "x")
    erased = talk(olga, "heron", "y", title="deleted message")
    Message.objects.filter(conversation=erased).update(deleted=timezone.now())
    here = talk(olga, "heron", title="this very one")
    assert found(olga, "heron", place=here) == {}
    assert found(olga, "heron", place=talk(olga, "x", project=hidden), project=hidden).keys() == {"this very one"}
    open_project = Project.objects.create(owner=olga, name="Open")
    talk(olga, "heron one", title="in a project", project=open_project)
    talk(olga, "heron two", title="archived", archived=True)
    talk(olga, "heron three", title="under a hold", legal_hold=True)
    assert found(olga, "heron", place=here).keys() == {"in a project", "archived", "under a hold"}


def test_an_archived_conversation_of_a_person_under_a_hold_is_not_found(olga: User) -> None:
    talk(olga, "heron", title="archived", archived=True)
    talk(olga, "heron and stork", title="listed")
    User.objects.filter(pk=olga.pk).update(legal_hold=True)
    assert found(olga, "heron").keys() == {"listed"}


def shared(conversation: Conversation, project: Project, **fields: Any) -> TeamShare:
    return TeamShare.objects.create(
        conversation=conversation,
        leaf=fields.pop("leaf", conversation.leaf),
        title=conversation.title,
        project=project,
        updated=timezone.now(),
        **fields,
    )


def test_members_find_what_is_shared_with_their_project_as_far_as_it_is_shared(olga: User) -> None:
    binh = new_user()
    project = Project.objects.create(owner=olga, name="Harbour")
    Membership.objects.create(project=project, user=binh, role="reader")
    place = talk(olga, "The crane is red.", "Red.", title="Cranes")
    leaf = place.leaf
    below(place, leaf, "The crane is blue now.", "Blue.")
    talk(olga, "Another crane, not shared.", title="Private")
    row = shared(place, project, leaf=leaf)
    output = run(binh, "crane", project=project)
    [document] = json.loads(output.text)["documents"]
    assert document["title"] == "Cranes" and f"{olga.username}:\nThe crane is red." in document["contents"]
    assert "blue" not in document["contents"].lower()
    assert output.data["documents"][0]["share"] == str(row.pk)
    assert found(binh, "crane") == {}  # in a conversation outside the project
    Conversation.objects.filter(pk=place.pk).update(findable=False)
    assert found(binh, "crane", project=project) == {}
    Conversation.objects.filter(pk=place.pk).update(findable=True)
    Membership.objects.all().delete()
    assert found(binh, "crane", project=project) == {}


def test_only_the_newest_shares_of_a_project_are_searched(olga: User) -> None:
    binh = new_user()
    project = Project.objects.create(owner=olga, name="Harbour")
    Membership.objects.create(project=project, user=binh, role="reader")
    old = shared(talk(olga, "The old crane.", title="Old"), project)
    TeamShare.objects.filter(pk=old.pk).update(updated=timezone.now() - timedelta(days=9))
    for number in range(MAX_SHARES):
        shared(talk(olga, f"Number {number}", title="x"), project)
    assert found(binh, "crane", project=project) == {}


@pytest.mark.parametrize("query", [None, 7, "", "?!", ["heron"]])
def test_a_query_without_words_is_refused(olga: User, query: object) -> None:
    with pytest.raises(BadArguments, match="words to look for"):
        run(olga, query)


def test_the_number_of_queries_does_not_grow_with_the_messages(
    olga: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(60):
        talk(olga, f"heron {number}", "the heron", title=f"{number}")
    tool = SearchConversations(PastScope(Conversation.objects.create(owner=olga), None))
    with django_assert_max_num_queries(8):
        tool._search(parse_past_query("heron"))


CALL = {"tool_calls": [{"name": "search_conversations", "arguments": {"query": "hotel lisbon"}}]}
ANSWER = {"text": "You booked Hotel Açor [1]."}


def offered(searcher: Rememberer, **where: Any) -> bool:
    """Return whether the plan of a new message offers the tool."""
    body = {"text": "Which hotel?", "model": str(searcher.model.pk)}
    changes = {name: where.pop(name) for name in ("memory_in_prompts",) if name in where}
    place = searcher.place(**where)
    if changes:
        assert searcher.person.caller.http.patch(f"conversations/{place}/", json=changes).status_code == 200
    plan = searcher.person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    return "search_conversations" in plan["tools"]


@pytest.fixture
def searcher(rememberer: Rememberer) -> Rememberer:
    """Return a person whose models may search their conversations."""
    Profile.objects.update_or_create(person=rememberer.person.user, defaults={"search_conversations": True})
    return rememberer


def test_an_answer_quotes_and_the_page_and_the_report_name_the_conversation(searcher: Rememberer) -> None:
    user = searcher.person.user
    trip = talk(user, "We booked Hotel Açor in Lisbon.", "Noted.", title="Trip")
    place = searcher.place()
    ended = searcher.answer(place, "Which hotel?", {"steps": [CALL, ANSWER]})
    [result] = [part for part in ended["parts"] if part["type"] == "tool_result"]
    assert "We booked Hotel Açor in Lisbon." in result["text"] and not result["error"]
    client = Client()
    client.force_login(user)
    message = Message.objects.get(conversation=trip, depth=0)
    link = f"/c/{trip.pk}/?at={message.pk}#m-{message.pk}"
    assert link in client.get(f"/c/{place}/").content.decode()
    sources = client.get(f"/c/{place}/sources/").content.decode()
    assert link in sources and "We booked Hotel Açor in Lisbon." in sources
    report = client.get(f"/turns/{ended['id']}/report/").content.decode()
    assert "Searched your conversations for “hotel lisbon” → Trip" in report
    conversation = Conversation.objects.get(pk=place)
    assert f"[1] Trip, conversation of {message.created:%Y}" in to_markdown(conversation)
    delete_conversation(user=user, conversation=trip)
    assert client.get(link).status_code == 404
    assert searcher.answer(place, "Which hotel now?", {"steps": [CALL, SAID]})["parts"][1]["text"] == NO_RESULTS


def test_an_import_keeps_the_quotes_without_their_links(searcher: Rememberer, settings: Any, tmp_path: Path) -> None:
    user = searcher.person.user
    talk(user, "We booked Hotel Açor in Lisbon.", "Noted.", title="Trip", findable=True)
    place = searcher.place()
    searcher.person.caller.http.patch(f"conversations/{place}/", json={"findable": False})
    searcher.answer(place, "Which hotel?", {"steps": [CALL, ANSWER]})
    exported = json.loads(to_json(Conversation.objects.get(pk=place)))
    assert exported["findable"] is False
    other = new_user()
    settings.MEDIA_ROOT = tmp_path
    blob = default_storage.save("imports/x", ContentFile(json.dumps(exported).encode()))
    job = Import.objects.create(owner=other, name="talk.json", blob=blob)
    jobs.run(job.pk)
    stored = Conversation.objects.get(owner=other)
    assert stored.findable is False
    client = Client()
    client.force_login(other)
    page = client.get(f"/c/{stored.pk}/").content.decode()
    assert "Hotel Açor [1]" in page and "/c/None" not in page


def test_it_is_offered_only_where_the_person_allows_it(rememberer: Rememberer) -> None:
    person = rememberer.person
    assert not offered(rememberer)
    changed = person.caller.http.patch("profile/", json={"search_conversations": True, "in_prompts": False})
    assert changed.status_code == 200 and changed.json()["search_conversations"] is True
    assert offered(rememberer)  # leaving out what is remembered is another choice
    assert not offered(rememberer, temporary=True)
    assert not offered(rememberer, memory_in_prompts=False)
    persona = Persona.objects.create(owner=person.user, name="Plain", model=rememberer.model, memory=False)
    assert not offered(rememberer, persona=str(persona.pk))
    set_to(memory=False)
    assert not offered(rememberer)


def test_pages_and_programs_keep_conversations_and_projects_out(person: Person, stranger: Person) -> None:
    client = Client()
    client.force_login(person.user)
    place = person.caller.conversation()
    for label, value in (("Keep out of other conversations", "no"), ("Let other conversations find it", "yes")):
        assert label in client.get(f"/c/{place}/organise/").content.decode()
        client.post(f"/c/{place}/findable/", {"findable": value})
    assert person.caller.get(f"conversations/{place}/")["findable"] is True
    changed = person.caller.http.patch(f"conversations/{place}/", json={"findable": False})
    assert changed.json()["findable"] is False
    assert stranger.caller.http.patch(f"conversations/{place}/", json={"findable": True}).status_code == 404
    client.post("/memory/", {"proposals": "off", "search_conversations": "on"})
    assert 'name="search_conversations"' in client.get("/memory/").content.decode()
    assert Profile.objects.get(person=person.user).search_conversations
    project = Project.objects.create(owner=person.user, name="Harbour")
    Membership.objects.create(project=project, user=stranger.user, role="editor")
    assert "Models may search this project" in client.get(f"/projects/{project.pk}/").content.decode()
    client.post(f"/projects/{project.pk}/settings/", {"findable": "off"})
    assert person.caller.get(f"projects/{project.pk}/")["findable"] is False
    refused = stranger.caller.http.patch(f"projects/{project.pk}/", json={"findable": True})
    assert refused.status_code == 403
