"""Hints to open pages that something has changed; each asks for what it shows. A lost hint costs nothing."""

import logging
from functools import partial
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import transaction

from accounts.realtime import missed
from chat.models import Conversation
from chat.models.conversation_state import state_of
from chat.realtime import event_stream
from core.event_loop import on_database

logger = logging.getLogger(__name__)


def group_of(conversation_id: UUID) -> str:
    """The channel group of everyone who looks at a conversation."""
    return f"conversation.{conversation_id}"


async def announce_state(conversation_id: UUID, **more: str) -> None:
    state = await on_database(state_of, conversation_id)
    hint = {"type": "conversation.state", "conversation": str(conversation_id), "state": state}
    await announce(conversation_id, {**hint, **more})


async def announce(conversation_id: UUID, hint: dict[str, str]) -> None:
    """A hint to open pages; a page that misses it sees the same at its next request."""
    group = group_of(conversation_id)
    try:
        await missed.tell(group, hint, group)
    except event_stream.CONNECTION_ERRORS:
        logger.warning("no hint to open pages: Redis is away")


def tell_pages(conversation: Conversation) -> None:
    """Once the change is committed, open pages look again at what waits."""
    transaction.on_commit(partial(async_to_sync(announce), conversation.pk, hint(conversation.pk)))


def hint(conversation_id: UUID) -> dict[str, str]:
    return {"type": "conversation.next", "conversation": str(conversation_id)}
