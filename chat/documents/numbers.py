"""The numbers under which the documents of a conversation are cited (docs/develop/context.md, “Order”)."""

from collections.abc import Sequence

from django.db import transaction

from chat.context.rendering import CitationNumbers
from chat.models import Conversation


def give_numbers(conversation: Conversation, ids: Sequence[str]) -> dict[str, int]:
    """The conversation's numbers, these documents' among them; new ones are given and stored, whoever else does so."""
    if all(pk in conversation.documents for pk in ids):
        return dict(conversation.documents)  # numbers never change, so those we know need no look at the row
    with transaction.atomic():
        row = Conversation.objects.select_for_update().only("documents").get(pk=conversation.pk)
        numbers = CitationNumbers(row.documents)
        for pk in ids:
            numbers.assign(pk)
        if numbers.assigned != row.documents:
            Conversation.objects.filter(pk=row.pk).update(documents=numbers.assigned)
    conversation.documents = numbers.assigned
    return numbers.assigned
