"""Assign the numbers with which answers cite the documents of a conversation (docs/develop/context.md, “Order”)."""

from collections.abc import Sequence

from django.db import transaction

from chat.context.rendering import CitationNumbers
from chat.models import Conversation


def assign_numbers(conversation: Conversation, ids: Sequence[str]) -> dict[str, int]:
    """Number the new documents among `ids`, store the numbers, and return the numbers of all documents.

    Locks the row of the conversation, so that concurrent calls never give one number to two documents.
    """
    if all(pk in conversation.documents for pk in ids):
        return dict(conversation.documents)  # numbers never change, so these are current
    with transaction.atomic():
        row = Conversation.objects.select_for_update().only("documents").get(pk=conversation.pk)
        numbers = CitationNumbers(row.documents)
        for pk in ids:
            numbers.assign(pk)
        if numbers.assigned != row.documents:
            Conversation.objects.filter(pk=row.pk).update(documents=numbers.assigned)
    conversation.documents = numbers.assigned
    return numbers.assigned
