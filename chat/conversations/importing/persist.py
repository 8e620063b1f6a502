"""A foreign conversation becomes rows, once per owner."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone
from uuid_utils.compat import uuid7

from accounts.models import User
from chat.conversations.importing.formats import Foreign, Said
from chat.models import Attachment, Conversation, Message
from chat.models.conversation import title_from

STEP = timedelta(milliseconds=1)
AT_ONCE = 500  # rows
FIRST = datetime(1990, 1, 1, tzinfo=UTC)
MAX_TITLE = 200


def known(owner: User, source: str) -> Conversation | None:
    return Conversation.objects.filter(owner=owner, imported_from=source).first()


@transaction.atomic
def store(owner: User, foreign: Foreign) -> Conversation:
    """Times are those of the export, and ids are made of them, so lists and branches keep their order."""
    now = timezone.now()
    created = _past(foreign.created, now)
    title = " ".join(foreign.title.split())[:MAX_TITLE] or title_from(foreign.messages[0].text)
    conversation = Conversation.objects.create(
        owner=owner, title=title, titled=True, archived=foreign.archived, imported_from=foreign.source
    )
    times = _times(foreign.messages, created, now)
    made = _messages(conversation, foreign.messages, times)
    Message.objects.bulk_create(made.values(), AT_ONCE)
    for key, message in made.items():
        message.created = times[key]  # the insert sets it to its own moment
    Message.objects.bulk_update(made.values(), ["created"], AT_ONCE)
    _attach(made, foreign.messages)
    leaf = made.get(foreign.leaf or "") or max(made.values(), key=lambda each: each.pk)
    updated = _past(foreign.updated or max(times.values()), now)
    Conversation.objects.filter(pk=conversation.pk).update(leaf=leaf, created=created, updated=updated)
    return conversation


def _times(said: list[Said], created: datetime, now: datetime) -> dict[str, datetime]:
    """Each after the message above it, whatever the export says."""
    times: dict[str, datetime] = {}
    for each in said:
        earliest = times[each.parent] + STEP if each.parent else created
        times[each.id] = max(earliest, _past(each.created or earliest, now))
    return times


def _messages(conversation: Conversation, said: list[Said], times: dict[str, datetime]) -> dict[str, Message]:
    made: dict[str, Message] = {}
    for each in said:
        parent = made[each.parent] if each.parent else None
        made[each.id] = Message(
            id=_id(times[each.id]),
            conversation=conversation,
            parent=parent,
            depth=parent.depth + 1 if parent else 0,
            role=Message.Role.USER if each.question else Message.Role.ASSISTANT,
            parts=[{"type": "text", "text": each.text}] if each.text else [],
        )
    return made


def _id(moment: datetime) -> UUID:
    return uuid7(nanoseconds=int(moment.timestamp() * 1_000_000_000))


def _past(moment: datetime | None, now: datetime) -> datetime:
    return min(max(moment, FIRST), now) if moment else now


def _attach(made: dict[str, Message], said: list[Said]) -> None:
    Attachment.objects.bulk_create(
        (
            Attachment(message=made[each.id], file=None, name=name, ordinal=number)
            for each in said
            for number, name in enumerate(each.files)
        ),
        AT_ONCE,
    )
