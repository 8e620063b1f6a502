"""No page that shows messages is much larger than one message may be, however long all of them are."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from chat.conversations import sharing
from chat.models import Conversation, Message, Share
from chat.rendering.page_size import MAX_ASIDE, MAX_HTML, count_fitting
from chat.web.messages import branch_page
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db

LARGE = "&" * 390_000  # nearly 2 MB of HTML
MAX_COUNT = MAX_HTML + 500_000  # with what stands around the messages
PAIRS = 6


@pytest.fixture
def user() -> User:
    return User.objects.create_user("writes-much", email="much@example.org")


@pytest.fixture
def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def place(user: User) -> Conversation:
    """Return a conversation whose answers have the greatest size."""
    conversation = past(user, PAIRS)
    answers = Message.objects.filter(conversation=conversation, role=Message.Role.ASSISTANT)
    answers.update(parts=[{"type": "text", "text": LARGE}])
    return conversation


def page(client: Client, path: str, **options: Any) -> str:
    answer = client.get(path, **options)
    assert answer.status_code == 200, path
    html = answer.content
    assert len(html) <= MAX_COUNT, path
    return html.decode()


def test_only_what_fits_is_counted_and_at_least_one() -> None:
    assert count_fitting([], 10) == 0
    assert count_fitting([11, 1], 10) == 1
    assert count_fitting([5, 5, 1], 10) == 2
    assert count_fitting([1, 2, 3], 10) == 3


def test_a_shared_page_stops_where_it_is_full_and_goes_on_from_there(
    browser: Client, client: Client, place: Conversation
) -> None:
    share = browser.post(f"/api/v1/conversations/{place.pk}/shares/", {}, content_type="application/json").json()
    address = share["url"].removeprefix("http://testserver")
    messages, pages, after = 0, 0, ""
    while True:
        html = page(client, address + after)
        messages, pages = messages + html.count("<article"), pages + 1
        more = re.search(r'href="(\?after=\d+)"', html)
        if more is None:
            break
        after = more[1]
    assert messages == 2 * PAIRS and pages > PAIRS // 2


def test_a_conversation_is_read_upwards_to_its_first_message(browser: Client, place: Conversation) -> None:
    seen: list[str] = []
    html = page(browser, f"/c/{place.pk}/")
    while True:
        seen += re.findall(r'id="m-([0-9a-f-]+)"', html)
        more = re.search(r'href="(\?before=[0-9a-f-]+)"', html)
        if more is None:
            break
        html = page(browser, f"/c/{place.pk}/{more[1]}", headers={"HX-Request": "true"})
    assert len(seen) == len(set(seen)) == 2 * PAIRS


def test_messages_are_counted_from_the_newest_upwards(place: Conversation) -> None:
    """Two large messages have more characters than a page renders, however many small ones stand above them."""
    small = Message.objects.filter(conversation=place, depth__lt=2 * PAIRS - 4)
    small.update(parts=[{"type": "text", "text": "Not much."}])
    Message.objects.filter(conversation=place, depth__gte=2 * PAIRS - 4).update(parts=[{"type": "text", "text": LARGE}])
    assert place.leaf is not None
    views, older, _excerpt = branch_page(place, place.leaf)
    assert [view.row.depth for view in views] == [2 * PAIRS - 2] and older == views[0].row.pk


def test_a_conversation_that_is_opened_at_a_message_shows_it(browser: Client, place: Conversation) -> None:
    for message in Message.objects.filter(conversation=place):
        assert f'id="m-{message.pk}"' in page(browser, f"/c/{place.pk}/?at={message.pk}")


def test_other_pages_that_show_messages_are_bounded_too(browser: Client, place: Conversation) -> None:
    Message.objects.filter(conversation=place, depth=0).update(
        parts=[{"type": "text", "text": "harbour " + "& " * 200_000}]
    )
    answer = Message.objects.get(conversation=place, depth=1)
    day = timezone.localdate(timezone=place.owner.zone).isoformat()
    paths = ("/search/?q=harbour", f"/daily/{day}/", f"/messages/{answer.pk}/", f"/messages/{answer.pk}/menu/")
    for path in (*paths, f"/messages/{answer.pk}/sources/", f"/c/{place.pk}/sources/", f"/c/{place.pk}/organise/"):
        page(browser, path)


def test_reasoning_and_results_of_an_answer_are_cut_off_where_they_are_too_long(
    browser: Client, place: Conversation
) -> None:
    parts = [
        {"type": "reasoning", "text": "r" * (MAX_ASIDE - 10)},
        {"type": "tool_call", "id": "1", "name": "find", "arguments": "{}"},
        {"type": "tool_result", "id": "1", "text": "t" * 5_000_000, "error": False},
        {"type": "text", "text": "The end."},
    ]
    Message.objects.filter(conversation=place, depth=2 * PAIRS - 1).update(parts=parts)
    html = page(browser, f"/c/{place.pk}/")
    assert f">{'t' * 10}…</pre>" in html and "The end." in html


def test_a_persons_links_have_limits_together(
    browser: Client, place: Conversation, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> Any:
        return browser.post(f"/api/v1/conversations/{place.pk}/shares/", {}, content_type="application/json")

    assert make().status_code == 201
    share = Share.objects.get(conversation=place)
    assert PAIRS * len(LARGE) < share.characters < PAIRS * len(LARGE) + 10_000
    Share.objects.update(characters=sharing.MAX_SHARED_CHARACTERS - share.characters + 1)
    refused = make()
    assert (refused.status_code, refused.json()["code"]) == (409, "too_much_shared")
    assert "End the link of a long conversation" in refused.json()["detail"]
    Share.objects.update(characters=0)
    monkeypatch.setattr(sharing, "MAX_SHARES_OF_PERSON", 1)
    assert make().json()["code"] == "too_many_shares"
    stranger = past(User.objects.create_user("shares-little"), 1)
    client = Client()
    client.force_login(stranger.owner)
    answer = client.post(f"/api/v1/conversations/{stranger.pk}/shares/", {}, content_type="application/json")
    assert answer.status_code == 201
