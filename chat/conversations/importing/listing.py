"""Set the tags of an imported conversation, and pin it.

`chat.conversations` registers its service for both, since this package must not import it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from django.db import transaction

from accounts.models import User
from chat.models import Conversation
from core.errors import ProductError
from core.sentences import Sentence


class StoredConversation(NamedTuple):
    """A stored conversation, and a sentence about the parts that were not imported."""

    conversation: Conversation
    losses: Sentence


class UpdateConversation(Protocol):
    """The service that changes tags and pins (`chat.conversations.services`)."""

    def __call__(self, *, user: User, conversation: Conversation, fields: Mapping[str, Any]) -> Conversation: ...


_update_services: list[UpdateConversation] = []


def register_update_service(service: UpdateConversation) -> None:
    """Register the service that changes conversations. Raises ValueError for a second one."""
    if _update_services:
        raise ValueError(f"the service {_update_services[0]!r} is registered already")
    _update_services.append(service)


def set_listing(*, owner: User, conversation: Conversation, tags: Sequence[str], pinned: bool) -> list[Sentence]:
    """Set tags and pin, as far as the owner's limits allow. Return the errors."""
    fields: dict[str, Any] = {"tags": list(tags)} if tags else {}
    if pinned:
        fields["pinned"] = True
    problems: list[Sentence] = []
    for name, value in fields.items():
        try:
            with transaction.atomic():
                _update_services[0](user=owner, conversation=conversation, fields={name: value})
        except ProductError as error:
            problems.append(error.sentence)
    return problems
