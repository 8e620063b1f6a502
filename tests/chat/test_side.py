"""The list of conversations, and acts on one of them."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from chat.conversations.erasing import erase_due
from chat.models import Conversation, Message
from llm.models import Model, Provider
from projects.models import Project
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db
LINK = re.compile(r'href="/c/([0-9a-f-]{36})/"')
AFTER = re.compile(r'hx-get="(/conversations/\?after=[^"]+)"')


@pytest.fixture
def user() -> User:
    return User.objects.create_user("lister")


@pytest.fixture
def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def many(user: User, count: int, **fields: object) -> list[Conversation]:
    """The newest first, a minute apart."""
    rows = [Conversation(owner=user, title=f"Talk {number}", **fields) for number in range(count)]
    conversations = Conversation.objects.bulk_create(rows)
    for number, each in enumerate(conversations):
        each.updated = timezone.now() - timedelta(minutes=number)
    Conversation.objects.bulk_update(conversations, ["updated"], 500)
    return conversations


def listed(client: Client, address: str) -> tuple[list[str], str | None]:
    page = client.get(address).content.decode()
    following = AFTER.search(page)
    return LINK.findall(page), following[1].replace("&amp;", "&") if following else None


def test_pages_follow_each_other_without_gap_or_repetition_while_new_conversations_arrive(
    user: User, browser: Client
) -> None:
    ids = [str(each.pk) for each in many(user, 150)]
    shown, following = listed(browser, "/conversations/")
    new = Conversation.objects.create(owner=user, title="Arrived meanwhile")
    Conversation.objects.filter(pk=ids[10]).update(updated=timezone.now())
    while following:
        more, following = listed(browser, following)
        shown += more
    assert shown == ids
    assert listed(browser, "/conversations/")[0][:2] == [ids[10], str(new.pk)]


def test_a_list_of_ten_thousand_costs_as_few_queries_as_a_short_one(user: User, browser: Client) -> None:
    many(user, 5)
    browser.get("/conversations/")
    with CaptureQueriesContext(connection) as short:
        browser.get("/conversations/")
    many(user, 10_000)
    with CaptureQueriesContext(connection) as long:
        assert len(listed(browser, "/conversations/")[0]) == 60
    assert len(long) == len(short) <= 4


def test_a_refreshed_list_reaches_as_far_down_as_the_one_before(user: User, browser: Client) -> None:
    many(user, 150)
    _, following = listed(browser, "/conversations/")
    assert following
    page = browser.get(following).content.decode()
    through = re.search(r'name="through"\s+value="([^"]+)"', page)
    assert through
    new = Conversation.objects.create(owner=user, title="New")
    shown, _ = listed(browser, f"/conversations/?through=x&through={through[1].replace('+', '%2B')}")
    assert shown[0] == str(new.pk)
    assert len(shown) == 121


def test_what_is_shown_already_is_not_sent_again_unless_another_conversation_is_open(
    user: User, browser: Client
) -> None:
    opened = past(user, 1)
    page = browser.get("/conversations/?current=").content.decode()
    (seen,) = re.findall(r'name="seen"\s+value="([^"]*)"', page)
    assert 'aria-current="page"' not in page
    assert browser.get(f"/conversations/?current=&seen={seen}").status_code == 204
    page = browser.get(f"/conversations/?current={opened.pk}&seen={seen}").content.decode()
    assert 'aria-current="page"' in page
    (seen,) = re.findall(r'name="seen"\s+value="([^"]*)"', page)
    assert browser.get(f"/conversations/?current={opened.pk}&seen={seen}").status_code == 204


def test_a_place_that_is_none_is_refused(browser: Client) -> None:
    assert browser.get("/conversations/?after=nonsense").status_code == 400


def test_conversations_stand_under_their_projects(user: User, browser: Client) -> None:
    garden, house = (Project.objects.create(owner=user, name=name) for name in ("Garden", "House"))
    many(user, 3)
    many(user, 12, project=house)
    many(user, 2, project=garden)
    page = browser.get("/conversations/?side=projects").content.decode()
    assert len(LINK.findall(page)) == 8 + 2
    assert "All of this project" in page
    assert page.index("Garden") != page.index("House") > 0
    # The choice is kept for the session.
    assert "Garden" in browser.get("/conversations/").content.decode()
    assert "Garden" not in browser.get("/conversations/?side=time").content.decode()


def test_a_conversation_is_renamed_moved_and_archived(user: User, browser: Client) -> None:
    house = Project.objects.create(owner=user, name="House")
    place = past(user, 1)
    assert (
        browser.post(f"/c/{place.pk}/rename/", {"title": " Tiêu đề "}, headers={"HX-Request": "true"}).status_code
        == 204
    )
    browser.post(f"/c/{place.pk}/move/", {"project": str(house.pk)})
    browser.post(f"/c/{place.pk}/archive/", {"archived": "yes"})
    place.refresh_from_db()
    assert (place.title, place.project, place.archived) == ("Tiêu đề", house, True)
    assert listed(browser, "/conversations/?side=time")[0] == []
    assert listed(browser, "/conversations/?side=archived")[0] == [str(place.pk)]
    browser.post(f"/c/{place.pk}/move/", {"project": ""})
    browser.post(f"/c/{place.pk}/archive/", {"archived": "no"})
    place.refresh_from_db()
    assert (place.project, place.archived) == (None, False)


def test_nobody_moves_a_conversation_into_a_project_of_others(user: User, browser: Client) -> None:
    theirs = Project.objects.create(owner=User.objects.create_user("other"), name="Theirs")
    place = past(user, 1)
    assert browser.post(f"/c/{place.pk}/move/", {"project": str(theirs.pk)}).status_code == 404
    place.refresh_from_db()
    assert place.project is None


def test_a_deleted_conversation_is_gone_at_once_and_comes_back(user: User, browser: Client) -> None:
    place = past(user, 2)
    message = place.messages.first()
    assert message
    answer = browser.post(f"/c/{place.pk}/delete/", follow=True)
    assert "was deleted" in answer.content.decode()
    assert listed(browser, "/conversations/")[0] == []
    hidden = (f"/c/{place.pk}/", f"/messages/{message.pk}/", f"/api/v1/messages/{message.pk}/")
    assert [browser.get(address).status_code for address in hidden] == [404, 404, 404]
    assert browser.post(f"/c/{place.pk}/restore/").status_code == 302
    assert [browser.get(address).status_code for address in hidden] == [200, 200, 200]
    assert listed(browser, "/conversations/")[0] == [str(place.pk)]


def test_programs_delete_and_restore(user: User, browser: Client) -> None:
    place = past(user, 1)
    address = f"/api/v1/conversations/{place.pk}/"
    assert browser.delete(address).status_code == 204
    assert browser.get(address).status_code == 404
    assert browser.post(f"{address}restore/").json()["id"] == str(place.pk)
    assert browser.get(address).status_code == 200
    assert browser.post(f"{address}restore/").status_code == 404


def test_nobody_else_restores_what_was_deleted(user: User, browser: Client) -> None:
    place = past(user, 1)
    browser.post(f"/c/{place.pk}/delete/")
    stranger = Client()
    stranger.force_login(User.objects.create_user("stranger"))
    assert stranger.post(f"/c/{place.pk}/restore/").status_code == 404
    assert not Conversation.objects.visible_to(user).exists()


def test_a_day_after_the_deletion_everything_is_gone(user: User, browser: Client) -> None:
    old, fresh, undeleted = past(user, 2), past(user, 1), past(user, 1)
    browser.post(f"/c/{old.pk}/delete/")
    browser.post(f"/c/{fresh.pk}/delete/")
    Conversation.objects.filter(pk=old.pk).update(deleted=timezone.now() - timedelta(hours=25))
    assert browser.post(f"/c/{old.pk}/restore/").status_code == 404
    assert erase_due() == 1
    assert set(Conversation.objects.filter(owner=user)) == {fresh, undeleted}
    assert not Message.objects.filter(conversation=old.pk).exists()


def test_a_menu_without_scripts_is_a_page(user: User, browser: Client) -> None:
    place = past(user, 1)
    page = browser.get(f"/c/{place.pk}/organise/").content.decode()
    assert "<html" in page
    assert f'action="/c/{place.pk}/delete/"' in page
    assert "<html" not in browser.get(f"/c/{place.pk}/organise/", headers={"HX-Request": "true"}).content.decode()
    assert browser.get(f"/c/{uuid4()}/organise/").status_code == 404


def test_ten_thousand_messages_open_with_few_queries_and_little_html(user: User, browser: Client) -> None:
    """Scrolled back page by page, nothing is missing and nothing comes twice."""
    provider = Provider.objects.create(name="Talker", base_url="http://127.0.0.1:9/v1")
    model = Model.objects.create(provider=provider, name="talker", default=True)
    place = past(user, 5_000, model=model)
    many(user, 100)
    browser.get("/")
    browser.get(f"/c/{place.pk}/")  # after which its answers are kept as HTML
    with CaptureQueriesContext(connection) as queries:
        page = browser.get(f"/c/{place.pk}/").content.decode()
    # Of the page with its marks, and of the plan in it: marks, profile, provider's cache, whose reasoning goes back.
    assert len(queries) <= 15 + 15
    assert len(page.encode()) <= 175_000
    numbers: list[int] = []
    pages = 0
    while True:
        numbers = [int(number) for number in re.findall(r"user (\d+): ", page)] + numbers
        older = re.search(r'hx-get="(/c/[^"]+\?before=[^"]+)"', page)
        pages += 1
        if not older or pages == 6:
            break
        page = browser.get(older[1], headers={"HX-Request": "true"}).content.decode()
    assert numbers == list(range(numbers[0], 5_000))
    assert pages == 6
    first = Message.objects.filter(conversation=place, depth=20).get()
    page = browser.get(f"/c/{place.pk}/?before={first.pk}", headers={"HX-Request": "true"}).content.decode()
    assert [int(number) for number in re.findall(r"user (\d+): ", page)] == list(range(10))
    assert "?before=" not in page


def test_a_conversation_is_opened_at_its_beginning_or_a_day(user: User, browser: Client) -> None:
    place = past(user, 60)
    first, middle = (Message.objects.get(conversation=place, depth=depth) for depth in (0, 30))
    Message.objects.filter(conversation=place).update(created=timezone.now() - timedelta(days=9))
    Message.objects.filter(conversation=place, depth__gte=30).update(created=timezone.now() - timedelta(days=3))
    address = f"/c/{place.pk}/"
    assert browser.get(address, {"since": ""})["Location"] == f"{address}?at={first.pk}#m-{first.pk}"
    day = timezone.localdate() - timedelta(days=5)
    assert browser.get(address, {"since": day.isoformat()})["Location"] == f"{address}?at={middle.pk}#m-{middle.pk}"
    late = browser.get(address, {"since": (timezone.localdate() + timedelta(days=2)).isoformat()})
    assert late.status_code == 400 and "There are no messages on or after that day" in late.content.decode()
    assert "Write the day as a date" in browser.get(address, {"since": "tomorrow"}).content.decode()
