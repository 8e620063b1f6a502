"""Set the tags of an imported conversation, and its place above the list.

The service that does it is in the package above, which registers it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from django.db import transaction

from accounts.models import User
from chat.models import Conversation
from core.errors import ProductError
from core.sentences import Sentence


class StoredConversation(NamedTuple):
    """A conversation that was stored, and the sentence about the parts that could not be kept."""

    conversation: Conversation
    losses: Sentence


class UpdateConversation(Protocol):
    """The service that changes tags and the place above the list (`chat.conversations.services`)."""

    def __call__(self, *, user: User, conversation: Conversation, fields: Mapping[str, Any]) -> Conversation: ...


_updates: list[UpdateConversation] = []


def update_conversations_with(service: UpdateConversation) -> None:
    """Register the service of the package above, which this one does not import. Raises ValueError for a second one."""
    if _updates:
        raise ValueError(f"the service {_updates[0]!r} is registered already")
    _updates.append(service)


def set_listing(*, owner: User, conversation: Conversation, tags: Sequence[str], pinned: bool) -> list[Sentence]:
    """Set tags and the place above the list, as far as the owner's limits allow. Return what did not succeed."""
    fields: dict[str, Any] = {"tags": list(tags)} if tags else {}
    if pinned:
        fields["pinned"] = True
    problems: list[Sentence] = []
    for name, value in fields.items():
        try:
            with transaction.atomic():
                _updates[0](user=owner, conversation=conversation, fields={name: value})
        except ProductError as error:
            problems.append(error.sentence)
    return problems
