"""A past conversation goes along with a message: whole, as its summary, or as the passages that match."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from chat.conversations.attaching import AttachedConversation, Draft, attach, own_source, shared_source
from chat.models import Attachment, Conversation, Message, Summary, TeamShare
from chat.models.conversation_state import ChatScope
from chat.models.tree import ids_down_to
from core.audit.models import Entry
from core.errors import NotFound, ProductError
from files.models import File
from files.services import open_blob
from llm.models import Model, Provider
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.documents import ask_and_wait, sent
from tests.conftest import Person
from tests.product import until


@pytest.fixture
def olga(db: None, settings: Any, tmp_path: Path) -> User:
    settings.MEDIA_ROOT = tmp_path
    return User.objects.create_user(f"olga-{uuid4().hex[:8]}")


@pytest.fixture
def model(db: None) -> Model:
    provider = Provider.objects.create(name="Local", kind=Provider.Kind.OPENAI, base_url="http://127.0.0.1:9")
    return Model.objects.create(provider=provider, name="small-model", context_window=8_000)


def trip(user: User, pairs: int, words: int = 20) -> Conversation:
    conversation = past(user, pairs, words=words)
    conversation.title = "Trip / 2026"
    conversation.save()
    return conversation


def attached(user: User, source: Conversation, model: Model, text: str = "", **where: Any) -> AttachedConversation:
    draft = Draft(ChatScope(where.get("place")), model, text, where.get("files", ()))
    return attach(user=user, source=own_source(user, source.pk), draft=draft)


def text_of(file: File) -> str:
    with open_blob(file=file) as blob:
        return blob.read().decode()


def summarised(conversation: Conversation, last: int, *, aside: tuple[int, ...] = ()) -> None:
    rows = list(Message.objects.filter(conversation=conversation).order_by("depth"))
    Summary.objects.create(
        conversation=conversation,
        first=rows[0],
        last=rows[last],
        messages=last + 1 - len(aside),
        span_start=rows[0].created,
        span_end=rows[last].created,
        sections=[{"name": "Now", "text": "They planned a trip."}],
        left_aside=[str(rows[depth].pk) for depth in aside],
        tokens_in=1_000,
        tokens_out=20,
        as_of=rows[last].created,
        timezone="UTC",
        prompt_version=1,
    )


def test_a_conversation_that_fits_goes_along_whole(olga: User, model: Model) -> None:
    conversation = trip(olga, 3)
    Attachment.objects.create(message=Message.objects.get(conversation=conversation, depth=0), name="a.pdf", ordinal=0)
    result = attached(olga, conversation, model)
    assert (result.form, result.messages, result.total) == ("whole", 6, 6)
    assert result.file.name == "Trip - 2026 (conversation).md" and result.file.owner == olga
    text = text_of(result.file)
    assert text.startswith("# Trip / 2026\n") and "All 6 messages, word for word." in text
    for message in Message.objects.filter(conversation=conversation):
        assert message.text in text
    assert f", {olga.username}\nuser 0:" in text and ", a model\nassistant 2:" in text
    assert "(Its files are not included: a.pdf)" in text
    assert attached(olga, conversation, model).file == result.file  # the same text is stored once


def test_only_the_branch_on_show_goes_along(olga: User, model: Model) -> None:
    conversation = trip(olga, 2)
    conversation.leaf = Message.objects.get(conversation=conversation, depth=1)
    conversation.save()
    result = attached(olga, conversation, model)
    assert result.total == 2 and "user 1:" not in text_of(result.file)


def test_of_a_longer_one_the_summary_and_the_messages_that_it_does_not_cover(olga: User, model: Model) -> None:
    conversation = trip(olga, 100, words=60)
    summarised(conversation, 195, aside=(4, 5))
    result = attached(olga, conversation, model)
    assert (result.form, result.messages, result.total) == ("summary", 6, 200)
    assert result.file.name == "Trip - 2026 (summary of a conversation).md"
    text = text_of(result.file)
    assert "A summary of 194 messages, and the other 6 word for word." in text
    assert "[Now: They planned a trip.]" in text
    assert "user 2:" in text and "assistant 99:" in text and "user 50:" not in text


def test_of_a_longer_one_without_a_summary_the_passages_that_match(olga: User, model: Model) -> None:
    conversation = trip(olga, 100, words=60)
    rows = list(Message.objects.filter(conversation=conversation).order_by("depth"))
    for depth in (150, 20):
        Message.objects.filter(pk=rows[depth].pk).update(parts=[{"type": "text", "text": f"Hotel number {depth}."}])
    result = attached(olga, conversation, model, "Which hotels did we book?")
    assert (result.form, result.messages, result.total) == ("passages", 2, 200)
    assert result.file.name == "Trip - 2026 (2 passages of a conversation).md"
    text = text_of(result.file)
    assert "2 of 200 messages that match “Which hotels did we book?”. The others are left out." in text
    assert text.index("Hotel number 20.") < text.index("Hotel number 150.")


@pytest.mark.parametrize("question", ["", "?", "zebra"])
def test_of_a_longer_one_that_nothing_matches_the_person_learns_what_to_do(
    olga: User, model: Model, question: str
) -> None:
    with pytest.raises(ProductError, match="Write first what you want to know") as refused:
        attached(olga, trip(olga, 100, words=60), model, question)
    assert refused.value.code == "conversation_too_long" and not File.objects.exists()


def test_what_nobody_may_attach(olga: User, model: Model) -> None:
    mine = trip(olga, 2)
    binh = User.objects.create_user(f"binh-{uuid4().hex[:8]}")
    with pytest.raises(ProductError) as refused:
        attached(olga, mine, model, place=mine)
    assert refused.value.code == "own_conversation"
    for fields in ({"origin": Conversation.Origin.TEMPORARY}, {"deleted": timezone.now()}, {"leaf": None}):
        hidden = trip(olga, 1)
        Conversation.objects.filter(pk=hidden.pk).update(**fields)
        with pytest.raises(NotFound):
            own_source(olga, hidden.pk)
    with pytest.raises(NotFound):
        own_source(binh, mine.pk)


def test_a_shared_conversation_goes_along_as_far_as_it_is_shared_if_it_may_be_copied(olga: User, model: Model) -> None:
    binh = User.objects.create_user(f"binh-{uuid4().hex[:8]}")
    theirs = trip(olga, 3)
    summarised(theirs, 1)
    assert theirs.leaf_id
    leaf = ids_down_to(theirs.leaf_id, 0)[-2]
    share = TeamShare.objects.create(
        conversation=theirs, leaf_id=leaf, title="Trip", user=binh, username=binh.username, updated=timezone.now()
    )
    with pytest.raises(ProductError) as refused:
        shared_source(binh, share.pk)
    assert refused.value.code == "copy_not_allowed"
    TeamShare.objects.filter(pk=share.pk).update(may_copy=True)
    draft = Draft(ChatScope(), model)
    result = attach(user=binh, source=shared_source(binh, share.pk), draft=draft)
    assert result.total == 2 and result.file.owner == binh
    assert f", {olga.username}\nuser 0:" in text_of(result.file) and "user 1:" not in text_of(result.file)
    entry = Entry.objects.filter(action="team_share.copied").latest("pk")
    assert entry.changes == {"file": str(result.file.pk)}
    with pytest.raises(NotFound):
        shared_source(olga, share.pk)
    share.delete()
    with pytest.raises(NotFound):
        shared_source(binh, share.pk)


def test_readers_get_no_summary_of_the_owner(olga: User, model: Model) -> None:
    binh = User.objects.create_user(f"binh-{uuid4().hex[:8]}")
    theirs = trip(olga, 100, words=60)
    summarised(theirs, 195)
    assert theirs.leaf
    share = TeamShare.objects.create(
        conversation=theirs, leaf=theirs.leaf, user=binh, username="b", updated=timezone.now(), may_copy=True
    )
    result = attach(user=binh, source=shared_source(binh, share.pk), draft=Draft(ChatScope(), model, "word7"))
    assert result.form == "passages" and "They planned" not in text_of(result.file)


def test_the_options_behind_an_at_sign_name_conversations_and_the_page_gets_a_chip(
    application: Application, person: Person, stranger: Person, scripted_model_row: Model
) -> None:
    mine = trip(person.user, 2)
    trip(stranger.user, 2)
    client = Client()
    client.force_login(person.user)
    options = client.get("/mentions/?q=trip").content.decode()
    assert options.count("data-attach") == 1 and f'data-attach="/c/{mine.pk}/attach/"' in options
    assert "data-attach" not in client.get("/mentions/?q=").content.decode()
    chip = client.post(f"/c/{mine.pk}/attach/", {"text": "And?", "conversation": person.caller.conversation()})
    assert chip.status_code == 201 and "Trip - 2026 (conversation).md" in chip.content.decode()
    assert "data-remove-chip" in chip.content.decode()
    refused = client.post(f"/c/{mine.pk}/attach/", {"conversation": str(mine.pk)}, headers={"HX-Request": "true"})
    assert refused.status_code == 400 and "Attach another one." in refused.content.decode()
    other = Client()
    other.force_login(stranger.user)
    assert other.post(f"/c/{mine.pk}/attach/", {}).status_code == 404


def test_a_program_attaches_one_and_plan_report_and_model_have_it(
    application: Application, person: Person, stranger: Person, scripted_model_row: Model
) -> None:
    mine = trip(person.user, 2)
    place = person.caller.conversation()
    response = person.caller.post(f"conversations/{mine.pk}/as-file/", {"conversation": place}, expect=201)
    assert (response["form"], response["messages"], response["total"]) == ("whole", 4, 4)
    until(lambda: person.caller.get(f"files/{response['file']}/")["status"] == "ready", "the file is read")
    body = {"text": "What did we plan?", "files": [response["file"]]}
    plan = person.caller.post(f"conversations/{place}/plan/", body, expect=200)
    [row] = [each for each in plan["sources"] if each["kind"] == "file"]
    assert (row["title"], row["state"]) == (response["name"], "full") and row["tokens"] > 50
    mark = uuid4().hex
    turn = ask_and_wait(person, place, f"What did we plan? {mark}", files=[response["file"]])
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert [each["title"] for each in report["sources"] if each["kind"] == "file"] == [response["name"]]
    assert any("user 0: word0" in message["content"] for message in sent(application, mark))
    for address, status in ((f"conversations/{mine.pk}/as-file/", 404), (f"shared-with-me/{uuid4()}/as-file/", 404)):
        assert stranger.caller.http.post(address, json={}).status_code == status
    assert person.caller.http.post(f"conversations/{mine.pk}/as-file/", json={"more": 1}).status_code == 400
