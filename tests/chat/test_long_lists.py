"""Lists for programs with ten thousand rows behind them: pages, in order, at a number of queries that does not grow."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from chat.models import Conversation, Message
from tests.accounts.programs import Program

pytestmark = pytest.mark.django_db

MANY = 10_000


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def program(olga: User) -> Program:
    return Program(olga, "chat")


def page_and_queries(program: Program, url: str) -> tuple[Any, int]:
    """The answer and how many queries it took."""
    with CaptureQueriesContext(connection) as queries:
        answer = program.ask("GET", url)
    assert answer.status_code == 200, answer.content
    return answer.json(), len(queries)


def conversations(olga: User, count: int) -> None:
    Conversation.objects.bulk_create(
        [Conversation(owner=olga, title=f"Talk {number}") for number in range(count)], batch_size=2_000
    )


def messages(olga: User, count: int) -> Conversation:
    place = Conversation.objects.create(owner=olga)
    rows: list[Message] = []
    for depth in range(count):
        parts = [{"type": "text", "text": f"Message {depth}"}]
        role = "user" if depth % 2 == 0 else "assistant"
        parent = rows[-1] if rows else None
        rows.append(Message(conversation=place, parent=parent, depth=depth, role=role, parts=parts))
    Message.objects.bulk_create(rows, batch_size=2_000)
    place.leaf = rows[-1]
    place.save()
    return place


def walked(program: Program, url: str, pages: int) -> list[Any]:
    rows: list[Any] = []
    next_: str | None = url
    for _ in range(pages):
        assert next_
        page, _ = page_and_queries(program, next_)
        rows += page["results"]
        next_ = page["next"]
    return rows


def test_listing_ten_thousand_conversations_takes_as_many_queries_as_listing_one(program: Program, olga: User) -> None:
    page_and_queries(program, "/api/v1/conversations/")  # once before: a first call writes when the token was used
    conversations(olga, 1)
    _, few = page_and_queries(program, "/api/v1/conversations/?page_size=200")
    conversations(olga, MANY)
    page, many = page_and_queries(program, "/api/v1/conversations/?page_size=200")
    assert (len(page["results"]), many) == (200, few)
    rows = walked(program, "/api/v1/conversations/?page_size=200", 5)
    assert len({row["id"] for row in rows}) == 1_000
    assert [row["updated"] for row in rows] == sorted((row["updated"] for row in rows), reverse=True)


def test_a_branch_of_ten_thousand_messages_is_read_in_pages_at_a_fixed_number_of_queries(
    program: Program, olga: User
) -> None:
    short, long = messages(olga, 50), messages(olga, MANY)
    page_and_queries(program, f"/api/v1/conversations/{short.pk}/messages/")
    _, few = page_and_queries(program, f"/api/v1/conversations/{short.pk}/messages/?page_size=50")
    page, many = page_and_queries(program, f"/api/v1/conversations/{long.pk}/messages/?page_size=50")
    assert many == few
    assert page["results"][0]["text"] == f"Message {MANY - 1}"
    rows = walked(program, f"/api/v1/conversations/{long.pk}/messages/?page_size=200", 10)
    assert [row["text"] for row in rows] == [f"Message {MANY - 1 - number}" for number in range(2_000)]


@pytest.mark.parametrize(
    "url",
    [
        "files/", "projects/", "personas/", "tasks/", "runs/", "models/", "reminders/", "tokens/", "shares/",
        "imports/", "summaries/", "webhooks/", "webhooks/deliveries/", "budget-profiles/", "system-prompts/",
        "prompt-texts/",
    ],
)  # fmt: skip
def test_every_list_has_the_same_form(olga: User, url: str) -> None:
    olga.is_staff = olga.is_superuser = True
    olga.save()
    every = Program(olga, "chat", "files", "projects", "tasks", "admin")
    page, _ = page_and_queries(every, f"/api/v1/{url}")
    assert set(page) == {"next", "previous", "results"}
