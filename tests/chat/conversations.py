"""Conversations with a past, made of rows, and workers that died."""

import signal
from datetime import timedelta

from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, Message, SummaryJob, Turn
from chat.readings.models import Reading
from personas.models import Persona
from tests.product import Product


def past(user: User, pairs: int, *, words: int = 20, persona: Persona | None = None, **answer: object) -> Conversation:
    """A conversation of `pairs` questions and answers of about `words` words each; `answer`: fields of each answer."""
    conversation = Conversation.objects.create(owner=user, persona=persona)
    rows: list[Message] = []
    for number in range(pairs):
        for role in (Message.Role.USER, Message.Role.ASSISTANT):
            parent = rows[-1] if rows else None
            text = f"{role} {number}: " + " ".join(f"word{index}" for index in range(words))
            extra = answer if role == Message.Role.ASSISTANT else {}
            rows.append(
                Message(
                    conversation=conversation,
                    owner=user,
                    parent=parent,
                    role=role,
                    depth=len(rows),
                    **{"parts": [{"type": "text", "text": text}], **extra},
                )
            )
    Message.objects.bulk_create(rows)
    conversation.leaf = rows[-1] if rows else None
    conversation.save()
    return conversation


def kill_worker(product: Product) -> None:
    """As if it were killed longer ago than a heartbeat is good for; `test_recovery` waits that time for real."""
    product.end("worker", signal.SIGKILL)
    long_ago = timezone.now() - timedelta(seconds=31)
    Turn.objects.filter(status=Turn.Status.RUNNING).update(heartbeat=long_ago)
    SummaryJob.objects.filter(status=SummaryJob.Status.RUNNING).update(heartbeat=long_ago)
    Reading.objects.filter(status=Reading.Status.RUNNING).update(heartbeat=long_ago)
