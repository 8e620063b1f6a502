"""Send a message: at once, as the answer to a run, or queued until the answer that is being written is complete.

Every change of a queued message locks the conversation first. So concurrent requests cannot send
it twice or lose it.
"""

from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext as _

from accounts.models import User
from chat.conversations.services import create_conversation
from chat.models import Conversation, NextMessage, Turn
from chat.models.conversation_state import PASSING_REFUSALS, ChatScope, lock, require_owner
from chat.prompts.document_budget import chosen_files
from chat.realtime.event_stream import notify_pages
from chat.runs import state_machine as runs
from chat.summaries.idle import RunWaits, require_no_run
from chat.turns.submit import MAX_MODELS, Ask, check_message, remember_effort, submit
from core.audit.origin import current_origin
from core.errors import ProductError
from files.models import File


def send(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn]:
    """Submit a message (`chat.turns.submit.submit`), or answer the waiting run of the conversation."""
    try:
        return submit(user=user, conversation=conversation, ask=ask)
    except RunWaits as waits:
        return runs.answer(user=user, run_id=waits.run_id, ask=ask)


def send_or_queue(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn] | NextMessage:
    """Send a message, or queue it while an answer is live. A person's own page does this."""
    try:
        return send(user=user, conversation=conversation, ask=ask)
    except ProductError as error:
        # A queued message continues from the newest message, so it cannot have a parent.
        if error.code != "already_answering" or ask.parent is not None:
            raise
    try:
        return queue(user=user, conversation=conversation, ask=ask)
    except ProductError as error:
        if error.code != "not_answering":  # the answer ended between the two calls
            raise
    return send(user=user, conversation=conversation, ask=ask)


def send_queued(*, user: User, conversation: Conversation, pk: UUID | None = None) -> list[Turn]:
    """Send the queued message although the answer before it failed or was stopped.

    Raises `no_next_message` (404) and the errors of `submit`. The message then stays queued.
    """
    require_owner(user, conversation)
    with transaction.atomic():
        turns = submit(user=user, conversation=conversation, ask=take_queued(conversation, pk))
        notify_pages(conversation)
    return turns


@transaction.atomic
def start_conversation(*, user: User, scope: ChatScope, ask: Ask, temporary: bool = False) -> Conversation:
    """Create a conversation with its first turn. A repeated idempotency key returns the first conversation."""
    if ask.key:
        # The lock makes concurrent requests with one key run one after the other.
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        earlier = (
            Turn.objects.filter(conversation__owner=user, idempotency_key=ask.key)
            .select_related("conversation")
            .first()
        )
        if earlier is not None:
            return earlier.conversation
    conversation = create_conversation(user=user, persona=scope.persona, project=scope.project, temporary=temporary)
    send(user=user, conversation=conversation, ask=ask)
    return conversation


def queue(*, user: User, conversation: Conversation, ask: Ask, replace: bool = False) -> NextMessage:
    """Queue a message until the answer is complete. A repeated idempotency key returns the first one.

    Raises `not_answering` (409) when no answer is being written, `next_message_kept` (409) when a message is queued
    already and `replace` is false, and the errors of `chat.turns.submit.check_message`.
    """
    text, _models, _files = check_message(user, conversation, ask)
    with transaction.atomic():
        locked = lock(conversation)
        queued = NextMessage.objects.filter(conversation=locked).first()
        if queued is not None and ask.key and queued.idempotency_key == ask.key:
            return queued
        require_no_run(locked)
        if not Turn.objects.live().filter(conversation=locked).exists():
            raise ProductError(
                "not_answering",
                "No answer is being written here, so the message need not wait. Send it.",
                status=409,
            )
        if queued is not None and not replace:
            raise ProductError(
                "next_message_kept",
                "A message already waits for the answer. Edit or remove it first. Your text is kept.",
                status=409,
            )
        remember_effort(locked, ask.effort)
        locked.save(update_fields=["effort"])
        NextMessage.objects.filter(conversation=locked).delete()
        queued = NextMessage.objects.create(
            conversation=locked,
            text=text,
            files=[str(pk) for pk in ask.files],
            asked_models=[str(pk) for pk in ask.models],
            idempotency_key=ask.key or "",
            token_id=current_origin().token_id,
        )
        notify_pages(locked)
    return queued


def remove_next(*, user: User, conversation: Conversation, pk: UUID | None = None) -> Ask:
    """Remove the queued message and return it; with `pk` only this message. Raises `no_next_message` (404)."""
    require_owner(user, conversation)
    with transaction.atomic():
        ask = take_queued(conversation, pk)
        notify_pages(conversation)
    return ask


def take_queued(conversation: Conversation, pk: UUID | None = None) -> Ask:
    """Delete the queued message and return it. Call it inside a transaction. Raises `no_next_message` (404)."""
    queued = NextMessage.objects.select_for_update().filter(conversation=lock(conversation)).first()
    if queued is None or pk not in (None, queued.pk):
        raise no_next_message_error()
    queued.delete()
    return _queued_ask(queued)


def no_next_message_error() -> ProductError:
    return ProductError("no_next_message", "The waiting message was already sent or removed.", status=404)


def send_next(conversation_id: UUID) -> bool:
    """Send the queued message if the answer before it is complete. Return whether it was sent.

    It is deleted in the transaction that stores the question. A message that cannot be sent stays, with the reason.
    """
    rows = NextMessage.objects.filter(conversation=conversation_id, problem="")
    queued = rows.select_related("conversation__owner").first()
    if queued is None:
        return False
    conversation = queued.conversation
    try:
        with transaction.atomic():
            if not _is_complete(lock(conversation)):
                return False
            submit(user=conversation.owner, conversation=conversation, ask=take_queued(conversation, queued.pk))
        return True
    except ProductError as error:
        if error.code not in PASSING_REFUSALS:
            NextMessage.objects.filter(pk=queued.pk).update(problem=error.sentence)
        return False


def find_due() -> list[UUID]:
    """Return the conversations whose queued message can be sent, but was not, since a process was killed."""
    newest = (
        Turn.objects.with_answer().filter(conversation=OuterRef("conversation")).order_by("-id").values("status")[:1]
    )
    idle = NextMessage.objects.filter(problem="", conversation__state=Conversation.State.IDLE)
    done = idle.annotate(last=Subquery(newest)).filter(last=Turn.Status.DONE)
    return list(done.values_list("conversation", flat=True))


def newest_turn_statuses(conversation_id: UUID) -> list[str]:
    """Return the statuses of the newest turn, or of the newest turns of models side by side."""
    statuses: list[str] = []
    newest = (
        Turn.objects.with_answer().filter(conversation=conversation_id).order_by("-id").values_list("status", "slot")
    )
    for status, slot in newest[:MAX_MODELS]:
        statuses.append(status)
        if slot == 0:
            break
    return statuses


class QueuedMessageView(NamedTuple):
    """A queued message for a page. `blocked`: it is not sent automatically. `words`: the reason, or when it is sent."""

    row: NextMessage
    files: list[File]
    blocked: bool
    words: str


def next_view(conversation: Conversation | None) -> QueuedMessageView | None:
    """Return the queued message of a conversation for a page."""
    queued = NextMessage.objects.filter(conversation=conversation).first() if conversation else None
    if conversation is None or queued is None:
        return None
    files = chosen_files(user=conversation.owner, ids=[UUID(pk) for pk in queued.files])
    if queued.problem:
        return QueuedMessageView(queued, files, blocked=True, words=str(queued.problem))
    blocked, words = _blocked_and_words(conversation)
    return QueuedMessageView(queued, files, blocked, words)


def _blocked_and_words(conversation: Conversation) -> tuple[bool, str]:
    ended = newest_turn_statuses(conversation.pk)
    if set(ended) & set(Turn.LIVE):
        return False, _("Sent when the answer is complete.")
    if set(ended) == {Turn.Status.DONE}:
        summarising = conversation.state == Conversation.State.SUMMARISING
        return False, _("Sent when the earlier messages are summarised.") if summarising else _("Being sent…")
    if Turn.Status.STOPPED in ended:
        return True, _("Not sent, because the answer was stopped.")
    if Turn.Status.INTERRUPTED in ended:
        return True, _("Not sent, because the answer was interrupted.")
    if Turn.Status.FAILED in ended:
        return True, _("Not sent, because the answer failed.")
    return True, _("Not sent, because the answer before it was deleted.")


def _is_complete(conversation: Conversation) -> bool:
    return conversation.state == Conversation.State.IDLE and set(newest_turn_statuses(conversation.pk)) == {
        Turn.Status.DONE
    }


def _queued_ask(queued: NextMessage) -> Ask:
    return Ask(
        queued.text,
        files=[UUID(pk) for pk in queued.files],
        models=[UUID(pk) for pk in queued.asked_models],
        key=queued.idempotency_key or None,
        token=queued.token_id,
    )
