"""The message tree: a branch is the path from a leaf to its root."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Prefetch, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Left

from chat.models import Attachment, Message, Turn

BEGINNING = 300  # characters of a file from which a summary can describe it

# Walks up from a message through its ancestors in one query. The depth limit keeps the cost of a page constant.
_ANCESTORS = """
WITH RECURSIVE branch AS (
    SELECT id, parent_id, depth FROM chat_message WHERE id = %s
    UNION ALL
    SELECT m.id, m.parent_id, m.depth FROM chat_message m JOIN branch b ON m.id = b.parent_id WHERE m.depth > %s
)
SELECT id FROM branch
"""

# Walks down from a message through descendants in the same state: not deleted, or deleted at the same time.
_BELOW = """
WITH RECURSIVE below AS (
    SELECT id, parent_id, role, deleted FROM chat_message WHERE id = %s
    UNION ALL
    SELECT m.id, m.parent_id, m.role, m.deleted FROM chat_message m
    JOIN below b ON m.parent_id = b.id AND m.deleted IS NOT DISTINCT FROM b.deleted
)
SELECT id, parent_id, role FROM below
"""

# Walks up from several leaves at once. A message that several branches share is read once.
_ON_BRANCHES = """
WITH RECURSIVE branch AS (
    SELECT id, parent_id FROM chat_message WHERE id = ANY(%s) AND deleted IS NULL
    UNION
    SELECT m.id, m.parent_id FROM chat_message m JOIN branch b ON m.id = b.parent_id
)
SELECT id FROM branch WHERE id = ANY(%s)
"""

_ATTACHED = Prefetch("attachments", Attachment.objects.select_related("file"))


def branch(leaf_id: UUID, *, newest: int, leaf_depth: int) -> list[Message]:
    """Return the `newest` messages of the branch that ends at `leaf_id`, oldest first, without their conversation."""
    lowest = max(-1, leaf_depth - newest)
    ids = RawSQL(_ANCESTORS, [leaf_id, lowest])  # noqa: S611 - a constant statement with bound parameters
    rows = Message.objects.filter(pk__in=ids).select_related("turn__model", "model__provider").defer("turn__report")
    return list(rows.prefetch_related(_ATTACHED).order_by("depth"))


def ids_down_to(leaf_id: UUID, depth: int) -> list[UUID]:
    """Return the ids from a leaf upwards to the message of its branch at `depth`, which comes last."""
    with connection.cursor() as cursor:
        cursor.execute(_ANCESTORS, [leaf_id, depth - 1])
        return [row[0] for row in cursor.fetchall()]


def on_branches(leaves: Sequence[UUID], messages: Sequence[UUID]) -> set[UUID]:
    """Return those of the messages that are on a branch that ends at one of the leaves."""
    with connection.cursor() as cursor:
        cursor.execute(_ON_BRANCHES, [list(leaves), list(messages)])
        return {row[0] for row in cursor.fetchall()}


def branch_rows(leaf_id: UUID | None) -> "QuerySet[Message]":
    """Return all messages of the branch, as a query set that can be paged."""
    ids = RawSQL(_ANCESTORS, [leaf_id, -1])  # noqa: S611 - a constant statement with bound parameters
    return with_rows(Message.objects.filter(pk__in=ids))


def rows_between(above: UUID | None, end: UUID) -> list[Message]:
    """Return the messages of a branch from below `above` (None: from the root) down to `end`, oldest first.

    Each attachment has its file. Its `beginning` is the start of the file's text, None without a text.
    """
    if above == end:
        return []
    depth = Message.objects.filter(pk=above).values_list("depth", flat=True).first() if above else None
    # The walk takes a message's parent while the message is deeper than the bound. So `above` is not included.
    rows = Message.objects.raw(_ANCESTORS, [end, -1 if depth is None else depth])
    attachments = Attachment.objects.select_related("file").annotate(beginning=Left("file__content__text", BEGINNING))
    messages = Message.objects.filter(pk__in=[row.pk for row in rows])
    return list(messages.prefetch_related(Prefetch("attachments", attachments)).order_by("depth"))


def sibling_rows(message: Message) -> "QuerySet[Message]":
    """Return the message and its siblings, as a query set that can be paged."""
    siblings_and_self = Message.objects.filter(conversation=message.conversation_id, parent=message.parent_id)
    return with_rows(siblings_and_self)


def with_rows(messages: "QuerySet[Message]") -> "QuerySet[Message]":
    """Select and prefetch the rows that every page or program with messages needs."""
    rows = messages.select_related("conversation", "turn__model", "model__provider").defer("turn__report")
    return rows.prefetch_related(_ATTACHED)


class BelowMessage(NamedTuple):
    """A message of a subtree."""

    id: UUID
    parent: UUID | None
    role: str


def below(message_id: UUID) -> list[BelowMessage]:
    """Return the message and its descendants in all branches. For a deleted message, only those deleted with it."""
    with connection.cursor() as cursor:
        cursor.execute(_BELOW, [message_id])
        return [BelowMessage(*row) for row in cursor.fetchall()]


def newest_leaf(message_id: UUID) -> UUID | None:
    """Return the leaf of the newest branch through the message. None if the message does not exist."""
    rows = below(message_id)
    inner = {row.parent for row in rows}
    return max((row.id for row in rows if row.id not in inner), default=None)


def siblings(messages: Sequence[Message]) -> dict[UUID, list[UUID]]:
    """Return the ids of each message and its siblings, oldest first. All messages are of one conversation.

    First messages have no parent. The first messages of a conversation are siblings.
    """
    places = Q(parent__in={message.parent_id for message in messages if message.parent_id})
    roots = {message.conversation_id for message in messages if not message.parent_id}
    if roots:
        places |= Q(parent=None, conversation__in=roots)
    by_parent: dict[UUID | None, list[UUID]] = {}
    for pk, parent in Message.objects.filter(places).order_by("id").values_list("pk", "parent_id"):
        by_parent.setdefault(parent, []).append(pk)
    return {message.pk: by_parent.get(message.parent_id, [message.pk]) for message in messages}


def ids_side_by_side(answer: Message) -> list[UUID]:
    """Return the ids of the answers written side by side with this answer, including itself, in the order of slots."""
    group: list[UUID] = []
    turns = Turn.objects.filter(user_message=answer.parent_id).order_by("id")
    for pk, slot in turns.values_list("answer", "slot"):
        if slot == 0:  # the answers to a later request begin here
            if answer.pk in group:
                break
            group = []
        group.append(pk)
    return group if answer.pk in group else [answer.pk]
