"""Tells whatever one person has open, on all their devices, that something of theirs has changed: not what, nor how.

Pages and programs hear it on their sockets and ask again for what they show. Only services tell it.
"""

import asyncio
import logging
from enum import StrEnum
from functools import partial
from uuid import UUID

from django.db import transaction
from redis.exceptions import RedisError

from accounts.realtime import missed
from core import event_loop

GATHERED_FOR = 0.1  # seconds: many changes in a row are one piece of news, and the first token goes before it

logger = logging.getLogger(__name__)
_gathering: "set[tuple[UUID, News]]" = set()  # touched on the loop alone


class News(StrEnum):
    """What has changed, as the socket's frame names it."""

    CONVERSATIONS = "CONVERSATIONS"
    TASKS = "TASKS"

    @property
    def scope(self) -> str:
        """What a token needs to hear it."""
        return {News.CONVERSATIONS: "chat", News.TASKS: "tasks"}[self]


def group_of_person(user_id: UUID) -> str:
    """The channel group of every socket that somebody has open."""
    return f"person.{user_id}"


def subject_of(user_id: UUID, news: News) -> str:
    """What is noted of such news, for a page that was on its way."""
    return f"{group_of_person(user_id)}.{news}"


def tell(owner_id: UUID, news: News) -> None:
    """Once the change is committed, and beside whoever made it: nobody waits for this."""
    transaction.on_commit(partial(_soon, owner_id, news))


def _soon(owner_id: UUID, news: News) -> None:
    event_loop.submit(_send(owner_id, news))


async def _send(owner_id: UUID, news: News) -> None:
    if (owner_id, news) in _gathering:
        return
    _gathering.add((owner_id, news))
    await asyncio.sleep(GATHERED_FOR)
    _gathering.discard((owner_id, news))
    hint = {"type": "person.news", "news": str(news)}
    try:
        await missed.tell(group_of_person(owner_id), hint, subject_of(owner_id, news))
    except (RedisError, OSError):
        logger.warning("no news to open pages: Redis is away")
