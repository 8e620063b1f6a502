"""Feedback on answers: the form that asks why, and what administrators read of it."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from chat.models import Conversation, Message, Turn
from llm.models import Model, Provider

pytestmark = pytest.mark.django_db
SECRET = "the words of the conversation"
CALL: dict[str, Any] = {
    "cycle": 0, "model": "big-one", "window": 10_000, "reserved_output": 1_000, "buffer": 40, "margin": 0,
    "tools_tokens": 0, "policy": "recent", "layout": "near_end", "profile": "Standard", "summary": None,
    "limit": 8_000, "used": 2_000, "left": 6_000, "exact": True, "dropped": [], "unloaded": 3,
    "sections": {"system": 500, "current": 1_500}, "versions": {}, "messages": [], "refused": "", "notes": [],
    "unread": 0, "notice": "", "model_id": "", "usage": {}, "provider_count": None,
    "sources": [
        {"kind": "file", "id": None, "state": "left_out", "tokens": 0, "reason": "no_room", "title": f"{SECRET}.pdf"},
        {"kind": "file", "id": None, "state": "left_out", "tokens": 0, "reason": "no_room", "title": f"{SECRET}.doc"},
    ],
}  # fmt: skip


@pytest.fixture
def answer() -> Message:
    owner = User.objects.create_user("olga")
    model = Model.objects.create(provider=Provider.objects.create(name="Gateway"), name="big-one")
    place = Conversation.objects.create(owner=owner, title=SECRET)
    parts = [{"type": "text", "text": SECRET}]
    question = Message.objects.create(conversation=place, role="user", parts=parts)
    row = Message.objects.create(
        conversation=place, parent=question, depth=1, role="assistant", parts=parts, model=model
    )
    Turn.objects.create(
        conversation=place, user_message=question, answer=row, model=model, status="done", report={"calls": [CALL]}
    )
    return row


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_a_vote_asks_why_once_and_keeps_what_was_answered(answer: Message) -> None:
    client, address = signed_in(answer.conversation.owner), f"/messages/{answer.pk}/feedback/"
    headers = {"HX-Request": "true"}
    form = client.post(address, {"feedback": "bad"}, headers=headers).content.decode()
    assert "data-asks" in form and "What was wrong with it?" in form and "It did not see what I gave it" in form
    why = {"feedback": "bad", "why": "yes", "reason": ["unseen"], "comment": "Where is the annex?"}
    answered = client.post(address, why, headers=headers).content.decode()
    assert "data-asks" not in answered and "Your reason" in answered and "Where is the annex?" in answered
    assert answered.count("checked") == 1
    answer.refresh_from_db()
    assert (answer.feedback, answer.feedback_reasons) == ("bad", ["unseen"]) and answer.feedback_at is not None
    assert client.post(address, {**why, "reason": ["clear"]}, headers=headers).status_code == 400
    taken_back = client.post(address, {"feedback": ""}, headers=headers).content.decode()
    answer.refresh_from_db()
    assert "why-dialog" not in taken_back and answer.feedback_comment == ""
    times = Message.objects.filter(pk=answer.pk).values_list("feedback_at", flat=True)
    assert list(times) == [None]
    assert signed_in(User.objects.create_user("otto")).post(address, why).status_code == 404


def test_administrators_read_reasons_and_what_the_model_saw_and_no_words_of_the_conversation(
    admin_client: Client, answer: Message
) -> None:
    listed = reverse("admin:chat_judgedanswer_changelist")
    assert "Where is the annex?" not in admin_client.get(listed).content.decode()
    client = signed_in(answer.conversation.owner)
    why = {"feedback": "bad", "why": "yes", "reason": ["unseen", "incomplete"], "comment": "Where is the annex?"}
    client.post(f"/messages/{answer.pk}/feedback/", why)
    page = admin_client.get(listed).content.decode()
    assert "Where is the annex?" in page and "Something is missing, It did not see what I gave it" in page
    assert "Where is the annex?" in admin_client.get(listed, {"reason": "unseen"}).content.decode()
    assert "Where is the annex?" not in admin_client.get(listed, {"reason": "too_long"}).content.decode()
    shown = admin_client.get(reverse("admin:chat_judgedanswer_change", args=[answer.pk])).content.decode()
    assert "2,000 of 8,000 tokens, 25 %" in shown and "3 older messages were not loaded" in shown
    assert "2 × File: left out: there was no room" in shown
    assert SECRET not in page + shown
    assert admin_client.get(reverse("admin:chat_judgedanswer_add")).status_code == 403
