"""Erase conversations for good: their rows, their answers in Redis, and files that were uploaded only for them.

A temporary conversation is erased when its owner closes it, or after a day. Other conversations are erased a day after
their deletion, or when their retention period ends. The owner's groups or the workspace set that period, in days after
the last message. Deleted messages are erased after a day. A legal hold on a conversation or its owner prevents this.
Tokens and costs stay in the ledger, which holds no text.
"""

from datetime import timedelta
from functools import partial

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.holds import without_holds
from accounts.models import PeopleGroup, User
from chat.conversations.receivers import notify_all_receivers
from chat.models import RESTORABLE_FOR, TEMPORARY_FOR, Attachment, Conversation, Message, Tag, Turn
from chat.readings import services as readings
from chat.realtime.turn_stream import delete_streams
from core.audit.services import record
from core.errors import ProductError
from core.permissions import require_store
from core.sentences import Sentence
from files.models import File
from files.services import delete as delete_file
from workspace.models.settings import workspace_at

BATCH_CONVERSATIONS = 100  # conversations in one run; the sweeper runs again in a minute


def require_lasting(conversation: Conversation) -> None:
    """Check that a conversation is not temporary. Temporary conversations are never listed or shared.

    Raises `temporary_conversation` (409).
    """
    if conversation.temporary:
        sentence = Sentence(
            "A temporary conversation cannot be listed, moved or shared. Start a regular conversation instead."
        )
        raise ProductError("temporary_conversation", sentence, status=409)


def erase_due() -> int:
    """Erase conversations that can no longer be restored, and temporary ones that were closed or are a day old.

    A conversation with a live answer is erased after the answer ends. Returns the number of erased conversations.
    """
    now = timezone.now()
    closed = Q(deleted__isnull=False) | Q(created__lt=now - TEMPORARY_FOR)
    expired = Q(deleted__lt=now - RESTORABLE_FOR) | (Q(origin=Conversation.Origin.TEMPORARY) & closed)
    busy = Turn.objects.live().values("conversation")
    rows = list(_without_hold().filter(expired).exclude(pk__in=busy)[:BATCH_CONVERSATIONS])
    for conversation in rows:
        erase(conversation)
    return len(rows)


def erase_messages() -> int:
    """Erase deleted messages that can no longer be restored. Returns their number."""
    expired = Message.with_deleted.filter(deleted__lt=timezone.now() - RESTORABLE_FOR, conversation__in=_without_hold())
    conversation_ids = expired.order_by("conversation").values_list("conversation", flat=True).distinct()
    return sum(
        _erase_messages(expired.filter(conversation=conversation_id))
        for conversation_id in list(conversation_ids[:BATCH_CONVERSATIONS])
    )


@transaction.atomic
def _erase_messages(rows: QuerySet[Message]) -> int:
    """Erase messages of one conversation in one statement. Django would otherwise recurse down the tree, and a long
    branch is too deep for that."""
    message_ids = list(rows.values_list("pk", flat=True))
    turns = list(Turn.objects.filter(answer__in=message_ids).values_list("pk", flat=True))
    transaction.on_commit(partial(delete_streams, turns))
    Message.with_deleted.filter(pk__in=message_ids).delete()
    return len(message_ids)


def erase_old() -> int:
    """Erase conversations and readings whose retention period has ended.

    The period of an owner is the shortest one of their groups, or else that of the workspace. Returns the number of
    erased conversations.
    """
    groups_with_period = PeopleGroup.objects.exclude(conversation_days=None)
    erased = sum(
        _erase_old_conversations(group.members.all(), group.conversation_days or 0) for group in groups_with_period
    )
    others = User.objects.exclude(people_groups__in=groups_with_period)
    return erased + _erase_old_conversations(others, workspace_at().conversation_days)


def _erase_old_conversations(people: QuerySet[User], days: int) -> int:
    """Erase old conversations and readings of these people. 0 `days` means that none are erased."""
    if not days:
        return 0
    cutoff = timezone.now() - timedelta(days=days)
    erased = 0
    old = _without_hold().filter(
        origin=Conversation.Origin.WORKSPACE, state=Conversation.State.IDLE, updated__lt=cutoff
    )
    while rows := list(old.filter(owner__in=people).order_by("updated")[:BATCH_CONVERSATIONS]):
        for conversation in rows:
            erase(conversation, files=Q(created__lt=cutoff))
        erased += len(rows)
    readings.erase_old(people, cutoff)
    return erased


def set_hold(*, user: AbstractUser, conversation: Conversation, under_hold: bool) -> None:
    """Put a conversation under a legal hold, or end the hold. Raises the errors of `require_store`."""
    require_store(user, conversation)
    with transaction.atomic():
        Conversation.objects.filter(pk=conversation.pk).update(legal_hold=under_hold)
        record(user=user, action="conversation.held" if under_hold else "conversation.released", row=conversation)


def _without_hold() -> QuerySet[Conversation]:
    """Return the conversations without a legal hold."""
    return without_holds(Conversation.objects.select_related("owner"))


@transaction.atomic
def erase(conversation: Conversation, *, files: Q | None = None) -> None:
    """Erase a conversation for good, with its files that match the condition `files` and are used nowhere else.

    Without `files` no file is deleted. For a temporary conversation the condition is always that the file was uploaded
    since the conversation began. The caller must have stopped its answers.
    """
    if conversation.temporary:
        files = Q(created__gte=conversation.created)
    for file in _files_used_only_here(conversation).filter(files) if files is not None else ():
        delete_file(user=conversation.owner, file=file)
    turns = list(Turn.objects.filter(conversation=conversation).values_list("pk", flat=True))
    transaction.on_commit(partial(delete_streams, turns))
    record(user=None, action="conversation.erased", row=conversation)
    tagged = conversation.tags.exists()
    notify_all_receivers(conversation)
    conversation.delete()
    if tagged:
        Tag.objects.filter(owner=conversation.owner_id, conversations=None).delete()


def _files_used_only_here(conversation: Conversation) -> QuerySet[File]:
    """Return the owner's files in this conversation that are in no other conversation and in no project.

    A file that was uploaded again counts as used outside, except in a temporary conversation.
    """
    other_uses = Attachment.objects.exclude(message__conversation=conversation).filter(file__isnull=False)
    rows = File.objects.filter(
        owner=conversation.owner_id,
        attachments__message__conversation=conversation,
        project_entries=None,
    )
    if not conversation.temporary:
        rows = rows.filter(uploaded_again=None)
    return rows.exclude(pk__in=other_uses.values("file")).distinct()
