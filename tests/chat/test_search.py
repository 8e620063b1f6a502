"""Search in all messages of a person, and a conversation opened at a hit."""

import re
from importlib import import_module
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import User
from chat.conversations.importing.journal import ImportJournal
from chat.conversations.importing.reading import ImportedConversation, ImportedMessage
from chat.conversations.importing.storing import ForeignRows
from chat.conversations.search import cut_excerpt, search
from chat.models import Conversation, Import, Message
from chat.models.words import parse_query, tsquery
from core.marks import without_marks
from projects.models import Project
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db
TEXTS = {
    "contract": "Điều khoản thanh toán của HỢP ĐỒNG thuê nhà.",
    "code": "Call `Conversation.objects.visible_to(user)` in chat/models.py, not filter_by_owner.",
    "kanji": "これは東京都の天気です。",
    "plain": "Storage is cheap; backups are cheaper than regret.",
    "long": "filler " * 400 + "the needle sits far down " + "filler " * 400,
}


@pytest.fixture
def user() -> User:
    return User.objects.create_user("seeker")


@pytest.fixture
def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def saying(user: User, text: str, title: str = "Talk") -> Message:
    conversation = Conversation.objects.create(owner=user, title=title)
    message = Message.objects.create(conversation=conversation, role="user", parts=[{"type": "text", "text": text}])
    Conversation.objects.filter(pk=conversation.pk).update(leaf=message)
    return message


@pytest.mark.parametrize(
    ("query", "expected_title"),
    [
        ("hợp đồng", "contract"),
        ("hop dong", "contract"),
        ("HOP ĐO", "contract"),
        ("visible_to(user", "code"),
        ("models.py", "code"),
        ("filter_by", "code"),
        ("owner", "code"),
        ("京都", "kanji"),
        ('"cheap backups"', "plain"),
        ("backup regr", "plain"),
        ("needle", "long"),
    ],
)
def test_words_are_found_in_every_language_and_in_code(user: User, query: str, expected_title: str) -> None:
    rows = {name: saying(user, text) for name, text in TEXTS.items()}
    (hit,) = search(user=user, query=query).hits
    assert hit.message == rows[expected_title]
    assert any(matched for _, matched in hit.pieces)


@pytest.mark.parametrize(
    "query", ["", "   ", "?!", '"', "cheap needle", '"backups cheap"', "heap", "o'brien & | ! <->"]
)
def test_what_is_not_there_is_not_found(user: User, query: str) -> None:
    for text in TEXTS.values():
        saying(user, text)
    assert search(user=user, query=query).hits == []


@given(st.text(max_size=60))
def test_no_query_is_an_error_of_the_database(query: str) -> None:
    phrases = parse_query(query)
    assert all(term.word.isalnum() for phrase in phrases for term in phrase)
    assert (tsquery(phrases) == "") == (not phrases)
    pieces = cut_excerpt(f"before {query} after", phrases)
    assert "".join(piece for piece, _ in pieces).startswith(("before", "…"))


def test_reasoning_and_what_tools_returned_are_not_searched(user: User) -> None:
    message = saying(user, "Spoken")
    Message.objects.filter(pk=message.pk).update(
        parts=[
            {"type": "reasoning", "text": "pondered"},
            {"type": "tool_result", "id": "1", "text": "returned"},
            {"type": "text", "text": "answered"},
        ]
    )
    assert [len(search(user=user, query=word).hits) for word in ("pondered", "returned", "answered")] == [0, 0, 1]


def test_nobody_finds_what_others_wrote_or_what_was_deleted(user: User) -> None:
    saying(User.objects.create_user("other"), "secret words", title="secret title")
    deleted = saying(user, "secret words", title="secret title")
    assert len(search(user=user, query="secret").hits) == len(search(user=user, query="secret").titles) == 1
    client = Client()
    client.force_login(user)
    client.delete(f"/api/v1/conversations/{deleted.conversation_id}/")
    results = search(user=user, query="secret")
    assert (results.hits, results.titles) == ([], [])


def test_pages_of_hits_follow_each_other_newest_first(user: User, browser: Client) -> None:
    rows = [str(saying(user, f"common word {number}").pk) for number in range(45)]
    got: list[str] = []
    address: str | None = "/api/v1/search/?q=common"
    while address:
        page: Any = browser.get(address).json()
        got += [hit["message"] for hit in page["results"]]
        saying(user, "common, and new")
        address = page["next"]
    assert got == rows[::-1]


def test_programs_are_told_where_the_words_are(user: User, browser: Client) -> None:
    saying(user, TEXTS["contract"], title="Nhà")
    (hit,) = browser.get("/api/v1/search/?q=hop+dong").json()["results"]
    assert [hit["text"][start:end] for start, end in hit["highlights"]] == ["HỢP", "ĐỒNG"]
    assert hit["title"] == "Nhà"


def test_lists_of_conversations_are_searched_by_title_and_words(user: User, browser: Client) -> None:
    titled, spoken = saying(user, "nothing", title="Ngân sách"), saying(user, "the budget: ngân sách")
    saying(user, "neither")
    results = browser.get("/api/v1/conversations/?search=ngan").json()["results"]
    assert {row["id"] for row in results} == {str(titled.conversation_id), str(spoken.conversation_id)}
    assert browser.get("/api/v1/conversations/?search=%3F").status_code == 400


def test_what_was_written_is_shown_as_text(user: User, browser: Client) -> None:
    saying(user, "before <script>alert('needle')</script> & more", title="<b>needle</b>")
    page = browser.get("/search/?q=needle").content.decode()
    assert "<script>alert" not in page
    assert "<b>needle" not in page.replace("<b><mark>", "<b>")
    assert "<mark>needle</mark>" in page


def test_a_message_too_long_for_the_index_can_still_be_stored(user: User) -> None:
    """A tsvector has room for 1 MiB; more words than that in a message are no error."""
    message = saying(user, " ".join(f"東{number:x}-wörd{number:x}/{number}" for number in range(90_000))[:999_000])
    assert search(user=user, query="wörd7").hits[0].message == message


def shown(page: str) -> list[int]:
    return [int(number) for number in re.findall(r"user (\d+): ", page)]


def test_a_search_says_how_much_of_a_message_it_reads(user: User, browser: Client) -> None:
    saying(user, "word " * 25_000 + "zanzibarword")
    body = browser.get("/api/v1/search/?q=zanzibarword").json()
    assert (body["results"], body["characters_read"]) == ([], 100_000)
    assert (
        "The first 100,000 characters of each message are searched."
        in browser.get("/search/?q=zanzibarword").content.decode()
    )


def test_a_conversation_opens_with_its_newest_messages_and_goes_on_upwards(user: User, browser: Client) -> None:
    place = past(user, 20)
    first, whole = (browser.get(f"/c/{place.pk}/{query}").content.decode() for query in ("", "?whole"))
    assert (shown(first), shown(whole)) == ([16, 17, 18, 19], list(range(8, 20)))
    above = re.findall(r"\?before=([0-9a-f-]+)", first)[0]
    assert shown(browser.get(f"/c/{place.pk}/?before={above}").content.decode()) == list(range(4, 16))


def test_a_hit_opens_the_conversation_at_its_message(user: User, browser: Client) -> None:
    place = past(user, 100)
    message = Message.objects.get(conversation=place, depth=60)
    page = browser.get(f"/c/{place.pk}/?at={message.pk}").content.decode()
    assert f'id="m-{message.pk}"' in page
    assert 30 in shown(page)
    assert 99 not in shown(page)
    assert "earlier messages of this conversation" in page
    assert "?before=" in page
    newest = Message.objects.get(conversation=place, depth=198)
    page = browser.get(f"/c/{place.pk}/?at={newest.pk}").content.decode()
    assert 99 in shown(page)
    assert "earlier messages of this conversation" not in page


def test_a_hit_on_another_branch_shows_that_branch_and_leaves_the_conversation_where_it_was(
    user: User, browser: Client
) -> None:
    place = past(user, 3)
    parent = Message.objects.get(conversation=place, depth=1)
    fork = Message.objects.create(
        conversation=place, parent=parent, depth=2, role="user", parts=[{"type": "text", "text": "the other way"}]
    )
    page = browser.get(f"/c/{place.pk}/?at={fork.pk}").content.decode()
    assert "the other way" in page
    assert shown(page) == [0]
    assert "another version" in page
    leaf = place.leaf_id
    place.refresh_from_db()
    assert place.leaf_id == leaf
    browser.post(f"/messages/{fork.pk}/choose/")
    place.refresh_from_db()
    assert place.leaf_id == fork.pk


def test_a_message_of_another_conversation_is_not_opened(user: User, browser: Client) -> None:
    one, other = past(user, 1), past(user, 1)
    assert browser.get(f"/c/{one.pk}/?at={other.leaf_id}").status_code == 404
    assert browser.get(f"/c/{one.pk}/?at=nonsense").status_code == 404


def test_the_palette_says_how_many_there_are_of_what_it_shows_five(user: User, browser: Client) -> None:
    Conversation.objects.bulk_create(Conversation(owner=user, title=f"Warehouse {number}") for number in range(8))
    for number in range(7):
        saying(user, f"The warehouse holds {number} boxes.")
    Project.objects.create(owner=user, name="Warehouse in the north")
    results = browser.get("/palette/?q=wareh").content.decode()
    assert "5 of 8 · show all" in results and "5 of 7 · show all" in results
    assert "Warehouse in the north" in results and "Settings" not in results
    everything = browser.get("/palette/").content.decode()
    assert "Recent conversations" in everything and "Settings" in everything


def test_the_palette_shows_nothing_of_others(user: User, browser: Client) -> None:
    other = User.objects.create_user("other")
    saying(other, "Their secret warehouse.", title="Their warehouse")
    Project.objects.create(owner=other, name="Their warehouse")
    results = browser.get("/palette/?q=warehouse").content.decode()
    assert "Their" not in results and "Nothing has all words of" in results


def test_the_page_of_a_search_says_how_many_titles_there_are_and_shows_more(user: User, browser: Client) -> None:
    Conversation.objects.bulk_create(Conversation(owner=user, title=f"Warehouse {number}") for number in range(8))
    page = browser.get("/search/?q=warehouse").content.decode()
    assert "5 of 8 titles" in page and 'href="?q=warehouse&amp;titles=105"' in page
    assert page.count("<mark>Warehouse</mark>") == 5
    assert browser.get("/search/?q=warehouse&titles=105").content.decode().count("<mark>Warehouse</mark>") == 8


def test_an_excerpt_has_the_words_of_an_answer_and_not_its_marks() -> None:
    written = "## Earlier\nIt is **clause 7** [1].\n\n| clause | rules |\n|---|:--:|\n| 5 | one `day` |\n\n"
    written += "```python\nx = 2**3 | 4\n```"
    assert (
        " ".join(without_marks(written).split())
        == "Earlier It is clause 7 [1]. clause · rules 5 · one day x = 2**3 · 4"
    )
    assert without_marks("__init__ a * b ** c, a-b, 3 > 2") == "__init__ a * b ** c, a-b, 3 > 2"
    assert without_marks("An *LSM tree* is _fast_, see [its page](https://a.example/b).") == (
        "An LSM tree is fast, see its page."
    )


def read_by(user: User, query: str, index: str = "message_owned_words") -> int:
    """How many rows the index gives to a search, each time that the plan asks it."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        statement = "SELECT pg_stat_get_xact_tuples_returned(%s::regclass)"
        cursor.execute(statement, [index])
        (before,) = cursor.fetchone()
        search(user=user, query=query)
        cursor.execute(statement, [index])
        return int(cursor.fetchone()[0] - before)


@pytest.mark.parametrize(("query", "own"), [("everywhere", 2), ("every", 2), ("ev th", 1), ('"everywhere third"', 1)])
def test_what_others_wrote_is_not_read_by_a_search(user: User, query: str, own: int) -> None:
    text = [{"type": "text", "text": "everywhere third"}]
    for name in ("other", "another"):
        past(User.objects.create_user(name), 10, parts=text)
    saying(user, "everywhere third")
    saying(user, "everywhere")
    with connection.cursor() as cursor:  # else the plan follows what other tests have left in the statistics
        cursor.execute("ANALYZE chat_conversation, chat_message")
    # The planner asks the index once, or once for each of the two conversations of this person.
    assert read_by(user, query) in (own, 2 * own)
    assert len(search(user=user, query=query).hits) == own


@pytest.mark.parametrize(("query", "own"), [("everywhere", 2), ("ev th", 1), ('"everywhere third"', 1), ("third", 1)])
def test_what_others_called_theirs_is_not_read_by_a_search(user: User, query: str, own: int) -> None:
    other = User.objects.create_user("other")
    theirs = [Conversation(owner=other, title="Everywhere third") for _ in range(20)]
    mine = [Conversation(owner=user, title=title) for title in ("Everywhere, third", "Everywhere", *["Elsewhere"] * 50)]
    Conversation.objects.bulk_create([*theirs, *mine])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE chat_conversation")
    assert read_by(user, query, "conversation_owned_titles") == own
    assert read_by(user, query, "conversation_title_words") == 0
    assert len(search(user=user, query=query).titles) == own


def test_a_message_belongs_to_whom_its_conversation_does(user: User) -> None:
    """This holds too for a message of code that does not set the owner, and for one from before the column."""
    expected = [ImportedMessage("1", None, True, "brought along", None)]
    rows = ForeignRows(user, ImportJournal(Import.objects.create(owner=user, name="export")))
    conversation, _ = rows.store(ImportedConversation("elsewhere:1", "", None, None, False, expected, None))
    saying(user, "written")
    assert set(Message.objects.values_list("owner", flat=True)) == {user.pk}
    other = User.objects.create_user("other")
    saying(other, "theirs")
    Message.objects.update(owner=None)
    assert not search(user=user, query="brought").hits
    migration = import_module("chat.migrations.0041_index_of_owned_messages")
    migration.fill(None, connection.schema_editor())
    assert [hit.message.conversation for hit in search(user=user, query="brought").hits] == [conversation]
    assert set(Message.objects.filter(conversation__owner=other).values_list("owner", flat=True)) == {other.pk}
