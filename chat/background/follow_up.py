"""What comes next in a conversation once an answer or a summary has ended there: the one place that knows."""

import logging
from uuid import UUID

from django.db import DatabaseError, InterfaceError

from chat.conversations import titles
from chat.realtime.hints import announce, hint
from chat.runs import state_machine as runs
from chat.sending import queued_message
from chat.summaries import jobs
from core.background import enqueue, on_database

logger = logging.getLogger(__name__)


async def follow_up(conversation_id: UUID) -> None:
    """Begins it: the message that waits, the run's next step, the summary, the title.

    It is decided from the rows alone, so anybody may ask at any time and as often as they like. What is left undone,
    because a worker is killed in here or the database is away, the sweeper finds.
    """
    try:
        pages_change = await on_database(_begin, conversation_id)
    except (DatabaseError, InterfaceError):
        logger.warning("conversation %s: nothing follows yet, since the database is away", conversation_id)
        return
    if pages_change:
        await announce(conversation_id, hint(conversation_id))


def _begin(conversation_id: UUID) -> bool:
    """Whether open pages show something of it."""
    waited, run = queued_message.waits_in(conversation_id), runs.in_conversation(conversation_id)
    if waited:
        queued_message.send_kept(conversation_id)
    if run is not None:
        runs.advance(run)
    for job in jobs.queued_in(conversation_id):
        enqueue("chat.tasks.summarise", job)
    if titled := titles.claim(conversation_id):
        enqueue("chat.tasks.write_title", titled)
    return waited or run is not None
