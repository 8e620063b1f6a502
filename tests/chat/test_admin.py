from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, Message, Turn
from llm.models import Model, Provider
from personas.models import Persona

pytestmark = pytest.mark.django_db
PRIVATE = "a private matter"


@pytest.fixture
def turn() -> Turn:
    owner = User.objects.create_user("olga")
    persona = Persona.objects.create(owner=owner, name=PRIVATE)
    model = Model.objects.create(provider=Provider.objects.create(name="P"), name="gpt-x")
    conversation = Conversation.objects.create(owner=owner, title=PRIVATE, persona=persona)
    parts = [{"type": "text", "text": PRIVATE}]
    question = Message.objects.create(conversation=conversation, role="user", parts=parts)
    answer = Message.objects.create(
        conversation=conversation,
        parent=question,
        depth=1,
        role="assistant",
        parts=parts,
        error_code="rate_limited",
        error_detail=PRIVATE,
    )
    started = timezone.now()
    return Turn.objects.create(
        conversation=conversation,
        user_message=question,
        answer=answer,
        model=model,
        status=Turn.Status.FAILED,
        usage={"input": 1_234, "output": 56, "calls": 3},
        report={"sources": [{"title": PRIVATE}]},
        started=started,
        finished=started + timedelta(seconds=7.5),
    )


def test_operators_see_how_a_turn_went_and_nothing_that_was_written(admin_client: Client, turn: Turn) -> None:
    pages = [
        admin_client.get(url).content.decode()
        for url in (
            reverse("admin:chat_turn_changelist"),
            reverse("admin:chat_turn_change", args=[turn.pk]),
            reverse("admin:chat_turn_history", args=[turn.pk]),
            reverse("admin:chat_conversation_changelist"),
            reverse("admin:chat_conversation_change", args=[turn.conversation_id]),
            reverse("admin:chat_conversation_history", args=[turn.conversation_id]),
        )
    ]
    assert all(PRIVATE not in page for page in pages)
    for shown in ("olga", "gpt-x", "rate_limited", "1,234 / 56", "7.5 s"):
        assert shown in pages[0]
        assert shown in pages[1]
    assert "olga" in pages[3]


def test_neither_list_counts_its_rows(admin_client: Client, turn: Turn) -> None:
    for name in ("turn", "conversation"):
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(reverse(f"admin:chat_{name}_changelist"))
        assert not [query["sql"] for query in queries if "COUNT(" in query["sql"] and f"chat_{name}" in query["sql"]]


def test_a_conversation_is_found_by_id_and_owner_and_not_by_its_words(admin_client: Client, turn: Turn) -> None:
    url = reverse("admin:chat_conversation_changelist")
    for words, listed in ((str(turn.conversation_id), True), ("olga", True), (PRIVATE, False), ("private", False)):
        page = admin_client.get(url, {"q": words}).content.decode()
        assert (f"/{turn.conversation_id}/change/" in page) is listed


@pytest.mark.parametrize("name", ["turn", "conversation"])
def test_nothing_can_be_added_changed_or_removed(admin_client: Client, turn: Turn, name: str) -> None:
    row = turn if name == "turn" else turn.conversation
    assert admin_client.get(reverse(f"admin:chat_{name}_add")).status_code == 403
    for page in ("change", "delete"):
        url = reverse(f"admin:chat_{name}_{page}", args=[row.pk])
        assert admin_client.post(url, {"post": "yes", "title": "x", "status": "done"}).status_code == 403
    turn.refresh_from_db()
    assert turn.status == Turn.Status.FAILED


@pytest.mark.django_db
def test_long_lists_are_searched_by_whole_values(admin_client: Client) -> None:
    """The search compares whole ids and whole names."""
    owner = User.objects.create_user("Olga")
    place = Conversation.objects.create(owner=owner)
    question = Message.objects.create(conversation=place, role="user")
    answer = Message.objects.create(conversation=place, parent=question, depth=1, role="assistant")
    turn = Turn.objects.create(conversation=place, user_message=question, answer=answer, status="done")
    address = reverse("admin:chat_turn_changelist")
    for term, listed in ((turn.pk, True), (place.pk, True), ("olga", True), ("olg", False), (question.pk, False)):
        assert (str(turn.pk) in str(admin_client.get(address, {"q": str(term)}).content)) is listed, term
