"""An answer is rendered once for all readers, and again only when its sources change.

Tests replace stored HTML by a word: a page that shows the word has not rendered the answer.
"""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.utils import translation

from accounts.models import User
from chat.models import Conversation, Message, RenderedAnswer, Turn
from chat.models.tree import with_rows
from chat.rendering.cache import render_answers
from chat.web.messages import answers_page, build_views
from files.models import File
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db

CITING = "The fee is limited [1], as [7] says."
KEPT = "kept-as-it-was"


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("reads-twice", email="twice@example.org")


@pytest.fixture
def browser(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


@pytest.fixture(autouse=True)
def in_english() -> Iterator[None]:
    """A request leaves its language behind."""
    with translation.override("en"):
        yield


@pytest.fixture
def contract(owner: User) -> File:
    return named_file(owner, "contract.pdf")


@pytest.fixture
def place(owner: User, contract: File) -> Conversation:
    """Return a conversation of two answers. The second has citations."""
    conversation = past(owner, 2)
    numbered(conversation, contract)
    written(conversation, CITING)
    return conversation


def named_file(owner: User, name: str) -> File:
    return File.objects.create(owner=owner, name=name, size=1, sha256="0" * 64, status=File.Status.READY)


def numbered(place: Conversation, contract: File, **others: int) -> None:
    Conversation.objects.filter(pk=place.pk).update(documents={str(contract.pk): 1, **others})


def written(place: Conversation, text: str) -> None:
    Message.objects.filter(conversation=place, depth=3).update(parts=[{"type": "text", "text": text}])


def page(browser: Client, place: Conversation) -> str:
    return browser.get(f"/c/{place.pk}/").content.decode()


def rendered_rows(browser: Client, place: Conversation) -> int:
    """How many answers the page shows that were not rendered for it; all are kept from then on."""
    RenderedAnswer.objects.update(blocks=[[KEPT]])
    return page(browser, place).count(KEPT)


def shared(browser: Client, place: Conversation) -> str:
    share = browser.post(f"/api/v1/conversations/{place.pk}/shares/").json()
    return str(share["url"]).removeprefix("http://testserver")


def test_an_answer_is_rendered_at_its_first_sight_and_never_again(browser: Client, place: Conversation) -> None:
    first = page(browser, place)
    assert (first.count('class="block"'), first.count('class="citation"')) == (2, 1)
    again = page(browser, place)
    assert (again.count('class="block"'), again.count('class="citation"')) == (2, 1)
    assert rendered_rows(browser, place) == 2


def test_a_stranger_sees_no_link_that_is_the_owners_and_the_owner_keeps_theirs(
    browser: Client, client: Client, place: Conversation, contract: File
) -> None:
    address = shared(browser, place)
    for _ in range(2):
        assert 'class="citation"' in page(browser, place)
        foreign = client.get(address).content.decode()
        assert "The fee is limited [1]" in foreign
        assert str(contract.pk) not in foreign
        assert contract.name not in foreign
    assert RenderedAnswer.objects.count() == 3  # of the answer that cites, one for each
    assert rendered_rows(browser, place) == 2
    assert client.get(address).content.decode().count(KEPT) == 2


@pytest.mark.parametrize("stranger_first", [True, False])
def test_what_is_the_same_for_all_is_rendered_once_for_all(
    browser: Client, client: Client, place: Conversation, stranger_first: bool
) -> None:
    written(place, "Nothing is cited here.")
    address = shared(browser, place)
    readers = [(client, address), (browser, f"/c/{place.pk}/")]
    first, second = readers if stranger_first else readers[::-1]
    assert first[0].get(first[1]).status_code == 200
    RenderedAnswer.objects.update(blocks=[[KEPT]])
    assert second[0].get(second[1]).content.decode().count(KEPT) == 2


def test_an_answer_is_rendered_anew_when_a_source_of_it_changes_and_only_then(
    browser: Client, owner: User, place: Conversation, contract: File
) -> None:
    page(browser, place)
    other = named_file(owner, "other.pdf")
    numbered(place, contract, **{str(other.pk): 2})
    assert rendered_rows(browser, place) == 2  # nobody cites the new file
    numbered(place, contract, **{str(other.pk): 7})
    assert page(browser, place).count('class="citation"') == 2
    contract.delete()
    assert page(browser, place).count('class="citation"') == 1
    other.delete()
    assert 'class="citation"' not in page(browser, place)
    assert rendered_rows(browser, place) == 2


def test_text_language_and_renderer_count(browser: Client, owner: User, place: Conversation) -> None:
    written(place, "```\ncode\n```")
    page(browser, place)
    User.objects.filter(pk=owner.pk).update(language="vi")
    assert "Chép</button>" in page(browser, place)
    assert rendered_rows(browser, place) == 2
    written(place, "edited")
    assert rendered_rows(browser, place) == 1
    assert "edited" in page(browser, place)
    RenderedAnswer.objects.filter(language="vi").update(digest="of another renderer")
    assert rendered_rows(browser, place) == 0
    assert rendered_rows(browser, place) == 2
    assert RenderedAnswer.objects.count() == 4  # two answers in two languages: what no longer holds is replaced


def test_what_is_being_written_is_not_kept_and_what_is_deleted_goes(place: Conversation) -> None:
    done, pending = Message.objects.filter(conversation=place, role="assistant")
    pending.status = Message.Status.PENDING
    assert render_answers([(done, {}), (pending, {})])[pending.pk] == [[f"<p>{CITING}</p>"]]
    assert [row.message_id for row in RenderedAnswer.objects.all()] == [done.pk]
    place.delete()
    assert not RenderedAnswer.objects.exists()


def test_an_answer_that_is_deleted_while_it_is_shown_is_shown(place: Conversation) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as at the end of a request's statement
    deleted = Message(conversation=place, role="assistant", parts=[{"type": "text", "text": CITING}])
    assert render_answers([(deleted, {})])[deleted.pk] == [[f"<p>{CITING}</p>"]]
    assert not RenderedAnswer.objects.exists()


def test_an_answer_that_a_page_shows_twice_is_kept_once(place: Conversation) -> None:
    answer = Message.objects.get(conversation=place, depth=1)
    assert list(render_answers([(answer, {}), (answer, {})])) == [answer.pk]
    assert RenderedAnswer.objects.filter(message=answer).count() == 1


def test_an_answer_that_grows_while_its_page_is_made_is_shown_beside_the_others(owner: User) -> None:
    conversation = past(owner, 1)
    first = Message.objects.get(conversation=conversation, depth=1)
    second = Message.objects.create(
        conversation=conversation, parent_id=first.parent_id, depth=1, role="assistant", status="pending"
    )
    question = Message.objects.get(conversation=conversation, depth=0)
    for slot, answer in enumerate((first, second)):
        Turn.objects.create(conversation=conversation, user_message=question, answer=answer, slot=slot, status="done")
    read = list(with_rows(Message.objects.filter(pk=second.pk)))
    Message.objects.filter(pk=second.pk).update(parts=[{"type": "text", "text": "Grown."}])
    [view] = build_views(read, conversation, side_by_side_last=True)
    assert [part["blocks"] for part in view.parts] == [["<p>Grown.</p>"]]
    assert [each.parts[0]["text"] for each in view.alternatives][1] == "Grown."


def test_an_answer_that_is_complete_before_its_page_is_made_leads_to_what_it_cites(owner: User, contract: File) -> None:
    conversation = past(owner, 1)  # as a request has it that sends the message: nothing has a number yet
    question, answer = Message.objects.filter(conversation=conversation).order_by("depth")
    turn = Turn(conversation=conversation, user_message=question, answer=answer)
    numbered(conversation, contract)
    Message.objects.filter(pk=answer.pk).update(parts=[{"type": "text", "text": CITING}])
    _, view = answers_page([turn], question=True)
    [[block]] = [part["blocks"] for part in view.parts]
    assert f'href="/files/{contract.pk}/"' in block
    assert view.cited == 1
