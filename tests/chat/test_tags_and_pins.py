"""Tags and pins of conversations, and acts on several conversations at once."""

import io
import re
import zipfile
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from chat.conversations.erasing import erase_due
from chat.models import RESTORABLE_FOR, Conversation, Message, Tag
from projects.models import Project
from tests.chat.conversations import past
from tests.conftest import Person

HTMX = {"HX-Request": "true"}
LINK = re.compile(r'href="/c/([0-9a-f-]{36})/"')


@pytest.fixture
def browser(person: Person) -> Client:
    client = Client()
    client.force_login(User.objects.get(pk=person.user.pk))
    return client


def create_conversations(person: Person, *titles: str) -> list[str]:
    """The last is the newest."""
    return [str(Conversation.objects.create(owner=person.user, title=title).pk) for title in titles]


def tags_of(pk: str) -> list[str]:
    return [tag.name for tag in Conversation.objects.get(pk=pk).tags.all()]


def test_tags_are_words_of_ones_own_and_gone_when_nothing_has_them(person: Person, stranger: Person) -> None:
    one, other = create_conversations(person, "One", "Other")
    http = person.caller.http
    body = http.patch(f"conversations/{one}/", json={"tags": [" #Garden  plans ", "garden plans", "2027"]}).json()
    assert body["tags"] == ["2027", "garden plans"]
    http.patch(f"conversations/{other}/", json={"tags": ["GARDEN PLANS"]})
    assert Tag.objects.filter(owner=person.user).count() == 2
    ids = [each["id"] for each in person.caller.get("conversations/?tag=Garden Plans")["results"]]
    assert ids == [other, one]
    assert stranger.caller.get("conversations/?tag=garden plans")["results"] == []
    http.patch(f"conversations/{one}/", json={"tags": []})
    assert [tag.name for tag in Tag.objects.filter(owner=person.user)] == ["garden plans"]
    Conversation.objects.filter(pk=other).update(deleted=timezone.now() - RESTORABLE_FOR)
    erase_due()
    assert not Tag.objects.filter(owner=person.user).exists()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tags": [""]}, "invalid"),
        ({"tags": ["a, b"]}, "bad_tag"),
        ({"tags": ["#"]}, "bad_tag"),
        ({"tags": ["x" * 41]}, "invalid"),
        ({"tags": [str(number) for number in range(21)]}, "invalid"),
        ({"tags": ["one too many"]}, "too_many_tags"),
        ({"pinned": True}, "too_many_pinned"),
    ],
)
def test_what_cannot_be_tagged_or_pinned_is_refused(person: Person, fields: dict[str, object], code: str) -> None:
    (place,) = create_conversations(person, "Place")
    row = Conversation.objects.create(owner=person.user)
    row.tags.set(Tag.objects.bulk_create(Tag(owner=person.user, name=f"t{number}") for number in range(Tag.MAX_COUNT)))
    Conversation.objects.bulk_create(Conversation(owner=person.user, pinned=timezone.now()) for _ in range(30))
    refused = person.caller.http.patch(f"conversations/{place}/", json=fields)
    assert (refused.status_code, refused.json()["code"]) == (400, code)
    assert tags_of(place) == [] and Conversation.objects.get(pk=place).pinned is None


def test_as_many_as_the_limit_are_pinned(person: Person) -> None:
    (place,) = create_conversations(person, "Place")
    Conversation.objects.bulk_create(Conversation(owner=person.user, pinned=timezone.now()) for _ in range(29))
    assert person.caller.http.patch(f"conversations/{place}/", json={"pinned": True}).status_code == 200
    assert Conversation.objects.filter(owner=person.user, pinned=None).count() == 0


def test_pinned_conversations_stand_above_the_list_and_are_not_in_it_twice(person: Person, browser: Client) -> None:
    one, two, three = create_conversations(person, "One", "Two", "Three")
    assert browser.post(f"/c/{one}/pin/", {"pinned": "yes"}, headers=HTMX).status_code == 204
    page = browser.get("/conversations/").content.decode()
    assert LINK.findall(page) == [one, three, two] and page.index("Pinned") < page.index("Today")
    assert person.caller.get(f"conversations/{one}/")["pinned"] is True
    browser.post(f"/c/{one}/archive/", {"archived": "yes"})
    assert LINK.findall(browser.get("/conversations/").content.decode()) == [three, two]
    assert LINK.findall(browser.get("/conversations/?side=archived").content.decode()) == [one]
    browser.post(f"/c/{one}/pin/", {"pinned": "no"})
    assert person.caller.get(f"conversations/{one}/")["pinned"] is False


def test_the_list_is_of_one_tag_until_it_is_pressed_again(person: Person, browser: Client) -> None:
    one, two = create_conversations(person, "One", "Two")
    browser.post(f"/c/{one}/tags/", {"tags": "Garden, "}, headers=HTMX)
    tag = Tag.objects.get(owner=person.user)
    assert LINK.findall(browser.get(f"/conversations/?tag={tag.pk}").content.decode()) == [one]
    refreshed = browser.get("/conversations/").content.decode()
    assert LINK.findall(refreshed) == [one] and 'aria-current="true"' in refreshed
    assert LINK.findall(browser.get("/conversations/?tag=").content.decode()) == [two, one]
    assert LINK.findall(browser.get("/conversations/?tag=nonsense").content.decode()) == [two, one]
    assert b"Garden" in browser.get(f"/c/{one}/organise/").content


def test_search_finds_in_conversations_of_a_tag(person: Person, browser: Client) -> None:
    tagged, plain = past(person.user, 1), past(person.user, 1)
    for each in (tagged, plain):
        Message.objects.filter(conversation=each).update(parts=[{"type": "text", "text": "The heron stands."}])
        Conversation.objects.filter(pk=each.pk).update(title="Heron")
    person.caller.http.patch(f"conversations/{tagged.pk}/", json={"tags": ["Birds"]})
    everything = person.caller.get("search/?q=heron")["results"]
    hits = person.caller.get("search/?q=heron&tag=birds")["results"]
    assert {each["conversation"] for each in hits} == {str(tagged.pk)} and len(hits) < len(everything)
    page = browser.get("/search/?q=heron&tag=Birds").content.decode()
    assert str(tagged.pk) in page and str(plain.pk) not in page.partition('<main class="main">')[2]


def test_several_are_changed_at_once_or_none(person: Person, stranger: Person) -> None:
    one, two = create_conversations(person, "One", "Two")
    (foreign,) = create_conversations(stranger, "Foreign")
    project = Project.objects.create(owner=person.user, name="House")
    hidden = Project.objects.create(owner=stranger.user, name="Hidden")
    caller = person.caller
    caller.post("conversations/chosen/", {"conversations": [one, two], "project": str(project.pk)}, expect=204)
    caller.post("conversations/chosen/", {"conversations": [one, two], "tag": ["a", "b"], "pinned": True}, expect=204)
    caller.post("conversations/chosen/", {"conversations": [one], "untag": ["A"]}, expect=204)
    rows = Conversation.objects.filter(pk__in=[one, two])
    assert {(row.project_id, bool(row.pinned)) for row in rows} == {(project.pk, True)}
    assert (tags_of(one), tags_of(two)) == (["b"], ["a", "b"])
    for body, code in [
        ({"conversations": [one, foreign], "archived": True}, "not_found"),
        ({"conversations": [one, str(uuid4())], "delete": True}, "not_found"),
        ({"conversations": [], "archived": True}, "none_chosen"),
        ({"conversations": [one]}, "one_action"),
        ({"conversations": [one], "archived": True, "delete": True}, "one_action"),
        ({"conversations": [one], "project": str(hidden.pk)}, "invalid"),
        ({"conversations": [one], "tag": [","]}, "bad_tag"),
        ({"conversations": [one] * 501, "archived": True}, "invalid"),
        ({"conversations": [one], "tag": [str(number) for number in range(21)]}, "too_many_tags"),
        ({"conversations": [one], "untag": ["x"] * 101}, "invalid"),
        ({"conversations": [one], "tag": ["x" * 201]}, "invalid"),
    ]:
        assert caller.http.post("conversations/chosen/", json=body).json()["code"] == code
    assert not Conversation.objects.filter(pk__in=[one, two, foreign], archived=True).exists()
    caller.post("conversations/chosen/", {"conversations": [one, two], "delete": True}, expect=204)
    assert caller.get("conversations/")["results"] == []
    stranger.caller.post("conversations/chosen/", {"conversations": [one], "restore": True}, expect=204)
    assert caller.get("conversations/")["results"] == []
    caller.post("conversations/chosen/", {"conversations": [one, two], "restore": True}, expect=204)
    assert len(caller.get("conversations/")["results"]) == 2


def test_without_scripts_several_are_chosen_and_deleted_after_a_question(person: Person, browser: Client) -> None:
    one, two, three = create_conversations(person, "One", "Two", "Three")
    chosen = {"conversation": [one, two]}
    assert f'value="{one}"' in browser.get("/?choose").content.decode()
    assert "With 2 conversations" in browser.post("/conversations/chosen/", chosen).content.decode()
    assert browser.post("/conversations/chosen/", {**chosen, "do": "tag", "tags": "x, y"}).status_code == 302
    assert tags_of(two) == ["x", "y"]
    nothing = browser.post("/conversations/chosen/", {**chosen, "do": "tag", "tags": " "})
    assert nothing.status_code == 400 and "A tag has one or a few words" in nothing.content.decode()
    assert browser.post("/conversations/chosen/", {**chosen, "do": "explode"}).status_code == 400
    question = browser.post("/conversations/chosen/", {**chosen, "do": "ask_delete"}).content.decode()
    assert "Delete 2 conversations" in question and Conversation.objects.get(pk=one).deleted is None
    page = browser.post("/conversations/chosen/", {**chosen, "do": "delete"}, follow=True).content.decode()
    assert "2 conversations were deleted" in page and LINK.findall(page) == [three]
    assert browser.post("/conversations/restore/", chosen).status_code == 302
    assert len(LINK.findall(browser.get("/conversations/").content.decode())) == 3


def test_several_are_exported_as_one_zip(person: Person, stranger: Person, browser: Client) -> None:
    one, two, _three = create_conversations(person, "One", "Two", "Three")
    (foreign,) = create_conversations(stranger, "Foreign")
    response = browser.post("/conversations/chosen/export/", {"conversation": [one, two]})
    by_program = person.caller.http.get(f"export/?conversation={one}&conversation={two}")
    for sent in (b"".join(response), by_program.content):
        names = zipfile.ZipFile(io.BytesIO(sent)).namelist()
        assert len(names) == 4 and not any("Three" in name or "usage" in name for name in names)
    assert browser.post("/conversations/chosen/export/", {"conversation": [one, foreign]}).status_code == 404
