"""Rows of chat that an address names, with what a page shows of them; each raises `NotFound` for somebody else's."""

from django.db.models import Exists, OuterRef

from accounts.models import User
from chat.models.conversation import Conversation, Message, NextMessage, Turn
from chat.models.tree import with_rows
from core.lookups import get_or_404


def visible_conversation(user: User, pk: object) -> Conversation:
    """With `waits`: whether a next message does."""
    related = ("persona__budget_profile", "project__persona__budget_profile", "owner", "leaf")
    rows = Conversation.objects.visible_to(user).select_related(*related).defer("leaf__parts", "leaf__tokens")
    # Asked along, since it is seldom so, and a page has few queries to spend.
    waits = Exists(NextMessage.objects.filter(conversation=OuterRef("pk")))
    return get_or_404(rows.annotate(waits=waits), pk, "conversation")


def visible_message(user: User, pk: object) -> Message:
    related = ("conversation__persona", "conversation__project__persona", "parent")
    return get_or_404(with_rows(Message.objects.visible_to(user)).select_related(*related), pk, "message")


def visible_turn(user: User, pk: object) -> Turn:
    return get_or_404(Turn.objects.visible_to(user).select_related("conversation", "answer"), pk, "turn")
