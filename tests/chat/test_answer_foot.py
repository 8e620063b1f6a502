"""The line under an answer: one word of warning, whole cents, and whether the answer is complete."""

import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Message, Turn
from core.sentences import Sentence
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db


def article(client: Client, *, status: str = "done", **fields: Any) -> str:
    """Return the newest answer of a conversation on its page. `fields`: those of its turn."""
    user = User.objects.create_user(f"person{User.objects.count()}")
    conversation = past(user, 1, status=status)
    answer = Message.objects.get(conversation=conversation, role="assistant")
    question = Message.objects.get(conversation=conversation, role="user")
    Turn.objects.create(
        conversation=conversation,
        owner=user,
        user_message=question,
        answer=answer,
        status=status,
        context_limit=1_000,
        context_used=90,
        **fields,
    )
    client.force_login(user)
    page = client.get(f"/messages/{answer.pk}/").content.decode()
    return re.sub(r"\s+", " ", page)


@pytest.mark.parametrize(("cost", "shown"), [("0.000085", "&lt; $0.01"), ("0.041", "$0.04")])
def test_it_says_percent_of_what_and_no_sum_below_a_cent(client: Client, cost: str, shown: str) -> None:
    assert f"What it saw: 9 % of the room · {shown}" in article(client, cost=Decimal(cost))


@pytest.mark.parametrize(("status", "boxes"), [("done", 1), ("failed", 1)])
def test_what_the_model_did_not_read_is_one_red_box(client: Client, status: str, boxes: int) -> None:
    notice = Sentence.verbatim("The server read less than it was sent.")
    page = article(client, status=status, context_unread=500, context_notice=notice)
    assert len(re.findall(r'class="[^"]*\bproblem\b', page)) == boxes
    assert page.count("The server read less") == 1 and "did not get the beginning" not in page


@pytest.mark.parametrize(
    ("reason", "early"), [("stop", False), ("length", True), ("refusal", True), ("pause", True), ("other", True)]
)
def test_an_answer_that_ended_early_is_not_called_complete(client: Client, reason: str, early: bool) -> None:
    page = article(client, finish_reason=reason)
    assert ("data-early" in page) == early and 'data-status="done"' in page
