"""Conversations erased for good: their rows, what Redis keeps of their answers, and files that came for them alone;
messages a day after they were deleted.

A temporary conversation is erased when its owner closes it, or when its day is over; the others a day after they were
deleted, or as many days after their last message as a group of their owner or the workspace keeps them. What is under
a legal hold, or its owner is, stays. What conversations took and cost stays in the ledger, which holds no text.
"""

from datetime import timedelta
from functools import partial

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.holds import free
from accounts.models import PeopleGroup, User
from chat.models import RESTORABLE_FOR, TEMPORARY_FOR, Attachment, Conversation, Message, Tag, Turn
from chat.readings import services as readings
from chat.realtime.turn_stream import forget
from core.audit.services import record
from core.errors import ProductError
from core.permissions import require_store
from core.sentences import Sentence
from files.models import File
from files.services import delete as delete_file
from workspace.models.settings import workspace_at

AT_ONCE = 100  # conversations; the sweeper comes again in a minute


def require_lasting(conversation: Conversation) -> None:
    """Raises `temporary_conversation` (409) for what is erased soon: it is not listed, shared or kept in a place."""
    if conversation.temporary:
        sentence = Sentence(
            "A temporary conversation cannot be listed, moved or shared. Start a usual one for what is to stay."
        )
        raise ProductError("temporary_conversation", sentence, status=409)


def erase_due() -> int:
    """Erases what was deleted too long ago to be restored, and temporary conversations that were closed or are a day
    old, once nothing is being answered there. Returns how many those were."""
    now = timezone.now()
    closed = Q(deleted__isnull=False) | Q(created__lt=now - TEMPORARY_FOR)
    over = Q(deleted__lt=now - RESTORABLE_FOR) | (Q(origin=Conversation.Origin.TEMPORARY) & closed)
    busy = Turn.objects.live().values("conversation")
    found = list(_free().filter(over).exclude(pk__in=busy)[:AT_ONCE])
    for conversation in found:
        erase(conversation)
    return len(found)


def erase_messages() -> int:
    """Erases messages that were deleted too long ago to be restored. Returns how many those were."""
    over = Message.with_deleted.filter(deleted__lt=timezone.now() - RESTORABLE_FOR, conversation__in=_free())
    places = over.order_by("conversation").values_list("conversation", flat=True).distinct()
    return sum(_erase_messages(over.filter(conversation=place)) for place in list(places[:AT_ONCE]))


@transaction.atomic
def _erase_messages(rows: QuerySet[Message]) -> int:
    """Of one conversation. All at once: Django would otherwise go down the tree call by call, and a long branch is too
    deep for that."""
    doomed = list(rows.values_list("pk", flat=True))
    turns = list(Turn.objects.filter(answer__in=doomed).values_list("pk", flat=True))
    transaction.on_commit(partial(forget, turns))
    Message.with_deleted.filter(pk__in=doomed).delete()
    return len(doomed)


def erase_old() -> int:
    """Erases what nobody has written in for so many days, and readings that are as old: as one of their owner's groups
    says, of several the fewest, or else the workspace. Returns how many conversations those were."""
    saying = PeopleGroup.objects.exclude(conversation_days=None)
    number = sum(_erase_old_of(group.members.all(), group.conversation_days or 0) for group in saying)
    others = User.objects.exclude(people_groups__in=saying)
    return number + _erase_old_of(others, workspace_at().conversation_days)


def _erase_old_of(people: QuerySet[User], days: int) -> int:
    """0 days keep everything."""
    if not days:
        return 0
    before, number = timezone.now() - timedelta(days=days), 0
    old = _free().filter(origin=Conversation.Origin.WORKSPACE, state=Conversation.State.IDLE, updated__lt=before)
    while found := list(old.filter(owner__in=people).order_by("updated")[:AT_ONCE]):
        for conversation in found:
            erase(conversation, files=Q(created__lt=before))
        number += len(found)
    readings.erase_old(people, before)
    return number


def hold(*, user: AbstractUser, conversation: Conversation, held: bool) -> None:
    """Puts a conversation under a legal hold, or takes it from there. Raises as `require_store`."""
    require_store(user, conversation)
    with transaction.atomic():
        Conversation.objects.filter(pk=conversation.pk).update(legal_hold=held)
        record(user=user, action="conversation.held" if held else "conversation.released", row=conversation)


def _free() -> QuerySet[Conversation]:
    """What is under no legal hold."""
    return free(Conversation.objects.select_related("owner"))


@transaction.atomic
def erase(conversation: Conversation, *, files: Q | None = None) -> None:
    """For good, with those of its owner's `files` that are used nowhere else. Of a temporary one they are those that
    were uploaded since it began. The caller has stopped what was being answered there."""
    if conversation.temporary:
        files = Q(created__gte=conversation.created)
    for file in _used_here_alone(conversation).filter(files) if files is not None else ():
        delete_file(user=conversation.owner, file=file)
    turns = list(Turn.objects.filter(conversation=conversation).values_list("pk", flat=True))
    transaction.on_commit(partial(forget, turns))
    record(user=None, action="conversation.erased", row=conversation)
    tagged = conversation.tags.exists()
    conversation.delete()
    if tagged:
        Tag.objects.filter(owner=conversation.owner_id, conversations=None).delete()


def _used_here_alone(conversation: Conversation) -> QuerySet[File]:
    """Files of its owner that stand in no other conversation and in no project."""
    elsewhere = Attachment.objects.exclude(message__conversation=conversation).filter(file__isnull=False)
    rows = File.objects.filter(
        owner=conversation.owner_id,
        attachments__message__conversation=conversation,
        project_entries=None,
    )
    return rows.exclude(pk__in=elsewhere.values("file")).distinct()
