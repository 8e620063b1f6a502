"""Deleting a conversation, and taking that back: it is hidden at once, and gone a day later."""

from uuid import UUID

from django.utils import timezone

from accounts.models import User
from chat.models import RESTORABLE_FOR, Conversation
from chat.models.conversation_state import list_changed
from core.errors import NotFound
from core.lookups import identifier

PURGED_AT_ONCE = 100  # conversations; the sweeper comes again in a minute


def hide(conversation: Conversation) -> None:
    conversation.deleted = timezone.now()
    conversation.save(update_fields=["deleted"])
    list_changed(conversation)


def restore_conversation(*, user: User, pk: object) -> Conversation:
    """Raises `not_found` for what was not deleted, or longer ago than `RESTORABLE_FOR`."""
    rows = Conversation.objects.restorable_by(user).filter(pk=identifier(pk, "conversation"))
    if not rows.update(deleted=None):
        raise NotFound("deleted conversation")
    restored = Conversation.objects.visible_to(user).get(pk=identifier(pk, "conversation"))
    list_changed(restored)
    return restored


def deleted_conversation(user: User, pk: str | None) -> Conversation | None:
    """The one that was deleted and can be restored, if there is such a one."""
    try:
        return Conversation.objects.restorable_by(user).filter(pk=UUID(pk or "")).first()
    except ValueError:
        return None


def purge() -> int:
    """Removes what was deleted too long ago to be restored, with all its messages. Returns how many those were."""
    over = Conversation.objects.filter(deleted__lt=timezone.now() - RESTORABLE_FOR).values("pk")[:PURGED_AT_ONCE]
    ids = [row["pk"] for row in over]
    Conversation.objects.filter(pk__in=ids).delete()
    return len(ids)
