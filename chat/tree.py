"""The message tree: a branch is the path from a leaf to its root."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Prefetch, QuerySet
from django.db.models.expressions import RawSQL

from chat.models import Attachment, Message

# Walks up from a message by its parents. One query whatever the length; the limit keeps a page's cost constant.
_ANCESTORS = """
WITH RECURSIVE branch AS (
    SELECT id, parent_id, depth FROM chat_message WHERE id = %s
    UNION ALL
    SELECT m.id, m.parent_id, m.depth FROM chat_message m JOIN branch b ON m.id = b.parent_id WHERE m.depth > %s
)
SELECT id FROM branch
"""


def branch(leaf_id: UUID, *, newest: int, leaf_depth: int) -> list[Message]:
    """The `newest` messages of the branch that ends at `leaf_id`, oldest first."""
    lowest = max(-1, leaf_depth - newest)
    rows = Message.objects.raw(_ANCESTORS, [leaf_id, lowest])
    return list(with_rows(Message.objects.filter(pk__in=[row.pk for row in rows])).order_by("depth"))


def branch_rows(leaf_id: UUID | None) -> "QuerySet[Message]":
    """All messages of the branch, as a query set that can be paged."""
    ids = RawSQL(_ANCESTORS, [leaf_id, -1])  # noqa: S611 - a constant statement with bound parameters
    return with_rows(Message.objects.filter(pk__in=ids))


def with_rows(messages: "QuerySet[Message]") -> "QuerySet[Message]":
    """The rows that every reader of a message needs, in the same query."""
    rows = messages.select_related("turn", "model__provider").defer("turn__report")
    return rows.prefetch_related(Prefetch("attachments", Attachment.objects.select_related("file")))


def siblings(messages: Sequence[Message]) -> dict[UUID, list[UUID]]:
    """For each message, the ids of all children of its parent, oldest first: the branches it is one of."""
    parents = {message.parent_id for message in messages if message.parent_id}
    by_parent: dict[UUID | None, list[UUID]] = {}
    for pk, parent in Message.objects.filter(parent__in=parents).order_by("id").values_list("pk", "parent_id"):
        by_parent.setdefault(parent, []).append(pk)
    return {message.pk: by_parent.get(message.parent_id, [message.pk]) for message in messages}
