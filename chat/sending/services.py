"""How pages, sockets and programs send a message: at once, as the answer to a run, or queued until an answer ends."""

from uuid import UUID

from django.db import transaction

from accounts.models import User
from chat.conversations.services import create_conversation
from chat.models import Conversation, NextMessage, Turn
from chat.models.conversation_state import ChatScope, RunWaits, require_owner
from chat.realtime.event_stream import tell_pages
from chat.runs import state_machine as runs
from chat.sending.queued_message import queue, take
from chat.turns.submit import Ask, submit
from core.errors import ProductError


def send(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn]:
    """Sends a message: `chat.turns.submit.submit`, or where a run waits the answer to that run."""
    try:
        return submit(user=user, conversation=conversation, ask=ask)
    except RunWaits as waits:
        return runs.answer(user=user, run_id=waits.run_id, ask=ask)


def send_or_queue(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn] | NextMessage:
    """`send`, or while an answer is live `queue`: what a person's own page does with a message."""
    try:
        return send(user=user, conversation=conversation, ask=ask)
    except ProductError as error:
        if error.code != "already_answering":
            raise
    try:
        return queue(user=user, conversation=conversation, ask=ask)
    except ProductError as error:
        if error.code != "not_answering":  # it has ended between the two
            raise
    return send(user=user, conversation=conversation, ask=ask)


def send_queued(*, user: User, conversation: Conversation, pk: UUID | None = None) -> list[Turn]:
    """Sends the message that was kept although the answer before it did not end well.

    Raises `no_next_message` (404) and what `submit` raises; then it is still kept.
    """
    require_owner(user, conversation)
    with transaction.atomic():
        turns = submit(user=user, conversation=conversation, ask=take(conversation, pk))
        tell_pages(conversation)
    return turns


@transaction.atomic
def start_conversation(*, user: User, scope: ChatScope, ask: Ask) -> Conversation:
    """A conversation and its first turn, both or neither; a repeated idempotency key finds the one it made."""
    if ask.key:
        User.objects.select_for_update().get(pk=user.pk)  # two sends of one key at once come one after the other
        earlier = (
            Turn.objects.filter(conversation__owner=user, idempotency_key=ask.key)
            .select_related("conversation")
            .first()
        )
        if earlier is not None:
            return earlier.conversation
    conversation = create_conversation(user=user, persona=scope.persona, project=scope.project)
    send(user=user, conversation=conversation, ask=ask)
    return conversation
