"""Conversations erased for good: their rows, what Redis keeps of their answers, and files that came for them alone.

A temporary conversation is erased when its owner closes it, or when its day is over. What it took and cost stays in the
ledger, which holds no text.
"""

from collections.abc import Iterable
from functools import partial

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from audit.services import record
from chat.models import RESTORABLE_FOR, TEMPORARY_FOR, Attachment, Conversation, Tag, Turn
from chat.realtime.event_stream import forget
from core.errors import ProductError
from files.models import File
from files.services import delete as delete_file

AT_ONCE = 100  # conversations; the sweeper comes again in a minute


def require_lasting(conversation: Conversation) -> None:
    """Raises `temporary_conversation` (409) for what is erased soon: it is not listed, shared or kept in a place."""
    if conversation.temporary:
        sentence = "A temporary conversation cannot be listed, moved or shared. Start a usual one for what is to stay."
        raise ProductError("temporary_conversation", sentence, status=409)


def erase_due() -> int:
    """Erases what was deleted too long ago to be restored, and temporary conversations that were closed or are a day
    old, once nothing is being answered there. Returns how many those were."""
    now = timezone.now()
    closed = Q(deleted__isnull=False) | Q(created__lt=now - TEMPORARY_FOR)
    over = Q(deleted__lt=now - RESTORABLE_FOR) | (Q(origin=Conversation.Origin.TEMPORARY) & closed)
    busy = Turn.objects.live().values("conversation")
    found = list(Conversation.objects.filter(over).exclude(pk__in=busy).select_related("owner")[:AT_ONCE])
    for conversation in found:
        erase(conversation)
    return len(found)


@transaction.atomic
def erase(conversation: Conversation) -> None:
    """For good. The caller has stopped what was being answered there."""
    if conversation.temporary:
        for file in _files_of(conversation):
            delete_file(user=conversation.owner, file=file)
    turns = list(Turn.objects.filter(conversation=conversation).values_list("pk", flat=True))
    transaction.on_commit(partial(forget, turns))
    record(user=None, action="conversation.erased", row=conversation)
    tagged = conversation.tags.exists()
    conversation.delete()
    if tagged:
        Tag.objects.filter(owner=conversation.owner_id, conversations=None).delete()


def _files_of(conversation: Conversation) -> Iterable[File]:
    """Those that their owner uploaded since it began, and has used in no other conversation and no project."""
    elsewhere = Attachment.objects.exclude(message__conversation=conversation).filter(file__isnull=False)
    rows = File.objects.filter(
        owner=conversation.owner_id,
        created__gte=conversation.created,
        attachments__message__conversation=conversation,
        project_entries=None,
    )
    return rows.exclude(pk__in=elsewhere.values("file")).distinct()
