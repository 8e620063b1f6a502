"""Resume answers that were interrupted because their worker ended or was lost."""

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

RESUMABLE_FOR = timedelta(minutes=10)  # after the answer's end; later only the user can resume it
LOST_AFTER = timedelta(seconds=10)  # after the answer's end; by then its process has resumed it or was killed
NEWEST_TURNS = 1_000  # newest turns that did not end well
_KEY = "resumed-"

logger = logging.getLogger(__name__)


def resume(conversation_id: UUID) -> bool:
    """Continue the newest answer of a conversation, or regenerate it if it has no text. Return whether it is resumed.

    An answer is resumed once. An answer that is interrupted twice may itself crash the workers, so it waits for the
    person. An answer is not resumed:

    * if a tool was called, which could act twice;
    * if a program waits for it, as with OpenAI's protocol;
    * in a run, which retries its steps by itself;
    * next to answers of other models.
    """
    turn = _interrupted_turn(conversation_id)
    if turn is None or not _may_resume(turn):
        return False
    user = turn.conversation.owner
    key = f"{_KEY}{turn.pk}"
    try:
        if turn.answer.text.strip():
            continue_answer(user=user, message=turn.answer, key=key)
        else:
            regenerate(user=user, message=turn.answer, key=key)
    except ProductError as error:
        logger.info("turn %s is not resumed automatically: %s", turn.pk, error.code)
        return False
    return True


def find_due() -> list[UUID]:
    """Return the conversations whose newest answer was not resumed because a process was killed."""
    now = timezone.now()
    newest = Turn.objects.filter(status__in=Turn.BROKEN).order_by("-id")[:NEWEST_TURNS]
    rows = Turn.objects.filter(
        pk__in=newest.values("pk"),
        status=Turn.Status.INTERRUPTED,
        finished__range=(now - RESUMABLE_FOR, now - LOST_AFTER),
        conversation__leaf=F("answer"),
    )
    return [turn.conversation_id for turn in rows.select_related("conversation__owner", "answer") if _may_resume(turn)]


def _interrupted_turn(conversation_id: UUID) -> Turn | None:
    """Return the turn of the conversation's newest answer, if it was interrupted just now."""
    rows = Turn.objects.filter(conversation=conversation_id, finished__gt=timezone.now() - RESUMABLE_FOR)
    newest: Turn | None = rows.select_related("conversation__owner", "answer").order_by("-pk").first()
    if newest is None or newest.status != Turn.Status.INTERRUPTED:
        return None
    return newest if newest.conversation.leaf_id == newest.answer_id else None


def _may_resume(turn: Turn) -> bool:
    has_tools = any(part["type"].startswith("tool") for part in turn.answer.parts)
    resumed = (turn.idempotency_key or "").startswith(_KEY)
    from_user = (
        turn.conversation.origin != Conversation.Origin.API and not turn.options and turn.conversation.owner.is_active
    )
    return from_user and not (has_tools or resumed or turn.slot or turn.stop_requested) and not _asked_by_run(turn)


def _asked_by_run(turn: Turn) -> bool:
    return RunStep.objects.filter(turn=turn).exists()
