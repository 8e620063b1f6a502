"""How an answer that was interrupted, because its worker ended or was lost, goes on without anybody asking for it."""

import logging
from datetime import timedelta
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from chat.conversations.branches import continue_answer
from chat.models import Conversation, Turn
from chat.turns.submit import regenerate
from core.errors import ProductError
from projects.planner.models import RunStep

WITHIN = timedelta(minutes=10)  # of its end; who comes back later decides for themselves
LOST_AFTER = timedelta(seconds=10)  # of its end; whoever ended it has gone on by then, or was killed in between
AMONG = 1_000  # of the newest turns that did not end well
_KEY = "resumed-"

logger = logging.getLogger(__name__)


def resume(conversation_id: UUID) -> bool:
    """Whether the newest answer there goes on now: it is continued, or where it says nothing its question asked anew.

    Once: what is interrupted a second time waits for its person, since it may be what ends the workers. Not where a
    tool was called, which could act twice; not where a program waits for the answer itself, as one of OpenAI's protocol
    does; not of a run, which tries its steps again by itself; not beside answers of other models.
    """
    turn = _interrupted(conversation_id)
    if turn is None or not _may_go_on(turn):
        return False
    user, key = turn.conversation.owner, f"{_KEY}{turn.pk}"
    try:
        if turn.answer.text.strip():
            continue_answer(user=user, message=turn.answer, key=key)
        else:
            regenerate(user=user, message=turn.answer, key=key)
    except ProductError as error:
        logger.info("turn %s does not go on by itself: %s", turn.pk, error.code)
        return False
    return True


def due() -> list[UUID]:
    """The conversations whose newest answer may go on and does not: whoever was to see to it has been killed."""
    now, newest = timezone.now(), Turn.objects.filter(status__in=Turn.BROKEN).order_by("-id")[:AMONG]
    rows = Turn.objects.filter(
        pk__in=newest.values("pk"),
        status=Turn.Status.INTERRUPTED,
        finished__range=(now - WITHIN, now - LOST_AFTER),
        conversation__leaf=F("answer"),
    )
    return [turn.conversation_id for turn in rows.select_related("conversation__owner", "answer") if _may_go_on(turn)]


def _interrupted(conversation_id: UUID) -> Turn | None:
    """The turn of the conversation's newest answer, if that was interrupted just now."""
    rows = Turn.objects.filter(conversation=conversation_id, finished__gt=timezone.now() - WITHIN)
    newest: Turn | None = rows.select_related("conversation__owner", "answer").order_by("-pk").first()
    there = newest is not None and newest.status == Turn.Status.INTERRUPTED
    return newest if newest is not None and there and newest.conversation.leaf_id == newest.answer_id else None


def _may_go_on(turn: Turn) -> bool:
    tools = any(part["type"].startswith("tool") for part in turn.answer.parts)
    again = (turn.idempotency_key or "").startswith(_KEY)
    ours = (
        turn.conversation.origin != Conversation.Origin.API and not turn.options and turn.conversation.owner.is_active
    )
    return ours and not (tools or again or turn.slot or turn.stop_requested) and not _asked_by_run(turn)


def _asked_by_run(turn: Turn) -> bool:
    return RunStep.objects.filter(turn=turn).exists()
