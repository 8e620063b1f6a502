"""How people send a message: at once, as the answer to a run, or queued until the answer being written is complete.

Every change of a queued message locks the conversation first, so it is kept or sent, and sent once, whoever comes at
the same time.
"""

from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext as _

from accounts.models import User
from chat.conversations.services import create_conversation
from chat.models import Conversation, NextMessage, Turn
from chat.models.conversation_state import NOT_NOW, ChatScope, lock, require_owner
from chat.prompts.document_budget import chosen_files
from chat.realtime.event_stream import tell_pages
from chat.runs import state_machine as runs
from chat.summaries.idle import RunWaits, require_no_run
from chat.turns.submit import MAX_MODELS, Ask, check, remember_effort, submit
from core.audit.origin import origin
from core.errors import ProductError
from files.models import File


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
        if error.code != "already_answering" or ask.parent is not None:  # what waits goes on from the newest message
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
def start_conversation(*, user: User, scope: ChatScope, ask: Ask, temporary: bool = False) -> Conversation:
    """A conversation and its first turn, both or neither; a repeated idempotency key finds the one it made."""
    if ask.key:
        # Two sends of one key at once come one after the other.
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
    """Keeps what is asked until the answer is complete; the same idempotency key again finds the one it made.

    Raises `not_answering` (409) when nothing is being answered, `next_message_kept` (409) when one is kept already and
    is not to be replaced, and what `chat.turns.submit.check` raises.
    """
    text, _models, _files = check(user, conversation, ask)
    with transaction.atomic():
        locked = lock(conversation)
        there = NextMessage.objects.filter(conversation=locked).first()
        if there is not None and ask.key and there.idempotency_key == ask.key:
            return there
        require_no_run(locked)
        if not Turn.objects.live().filter(conversation=locked).exists():
            raise ProductError(
                "not_answering",
                "Nothing is being answered here. Send the message itself; it need not wait.",
                status=409,
            )
        if there is not None and not replace:
            raise ProductError(
                "next_message_kept",
                "One message waits for the answer already. Edit or remove it first; your text is kept.",
                status=409,
            )
        remember_effort(locked, ask.effort)
        locked.save(update_fields=["effort"])
        NextMessage.objects.filter(conversation=locked).delete()
        kept = NextMessage.objects.create(
            conversation=locked,
            text=text,
            files=[str(pk) for pk in ask.files],
            asked_models=[str(pk) for pk in ask.models],
            idempotency_key=ask.key or "",
            token_id=origin().token_id,
        )
        tell_pages(locked)
    return kept


def remove_next(*, user: User, conversation: Conversation, pk: UUID | None = None) -> Ask:
    """What was kept, now removed; with `pk` only that very message. Raises `no_next_message` (404)."""
    require_owner(user, conversation)
    with transaction.atomic():
        taken = take(conversation, pk)
        tell_pages(conversation)
    return taken


def take(conversation: Conversation, pk: UUID | None = None) -> Ask:
    """Deletes what was kept and returns it; inside a transaction. Raises `no_next_message` (404)."""
    kept = NextMessage.objects.select_for_update().filter(conversation=lock(conversation)).first()
    if kept is None or pk not in (None, kept.pk):
        raise no_next()
    kept.delete()
    return _ask(kept)


def no_next() -> ProductError:
    return ProductError("no_next_message", "No such message waits here. It was sent or removed already.", status=404)


def send_kept(conversation_id: UUID) -> bool:
    """Whether it has sent what was kept, which waits for the answer before it to be complete.

    The message goes in the transaction that stores the question. What cannot be sent stays, with the sentence why.
    """
    rows = NextMessage.objects.filter(conversation=conversation_id, problem="")
    kept = rows.select_related("conversation__owner").first()
    if kept is None:
        return False
    conversation = kept.conversation
    try:
        with transaction.atomic():
            if not _complete(lock(conversation)):
                return False
            submit(user=conversation.owner, conversation=conversation, ask=take(conversation, kept.pk))
        return True
    except ProductError as error:
        if error.code not in NOT_NOW:
            NextMessage.objects.filter(pk=kept.pk).update(problem=error.sentence)
        return False


def due() -> list[UUID]:
    """The conversations in which a message waits for nothing any more: whoever was to send it has been killed."""
    newest = (
        Turn.objects.with_answer().filter(conversation=OuterRef("conversation")).order_by("-id").values("status")[:1]
    )
    idle = NextMessage.objects.filter(problem="", conversation__state=Conversation.State.IDLE)
    done = idle.annotate(last=Subquery(newest)).filter(last=Turn.Status.DONE)
    return list(done.values_list("conversation", flat=True))


def endings(conversation_id: UUID) -> list[str]:
    """How the turns of the newest asking ended: one, or those of the models side by side."""
    found: list[str] = []
    newest = (
        Turn.objects.with_answer().filter(conversation=conversation_id).order_by("-id").values_list("status", "slot")
    )
    for status, slot in newest[:MAX_MODELS]:
        found.append(status)
        if slot == 0:
            break
    return found


class NextView(NamedTuple):
    """What a page shows of it. `held`: it is not sent by itself; `words` say why, or when it is sent."""

    row: NextMessage
    files: list[File]
    held: bool
    words: str


def next_view(conversation: Conversation | None) -> NextView | None:
    kept = NextMessage.objects.filter(conversation=conversation).first() if conversation else None
    if conversation is None or kept is None:
        return None
    files = chosen_files(user=conversation.owner, ids=[UUID(pk) for pk in kept.files])
    held, words = (True, str(kept.problem)) if kept.problem else _state(conversation)
    return NextView(kept, files, held, words)


def _state(conversation: Conversation) -> tuple[bool, str]:
    ended = endings(conversation.pk)
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


def _complete(conversation: Conversation) -> bool:
    return conversation.state == Conversation.State.IDLE and set(endings(conversation.pk)) == {Turn.Status.DONE}


def _ask(kept: NextMessage) -> Ask:
    return Ask(
        kept.text,
        files=[UUID(pk) for pk in kept.files],
        models=[UUID(pk) for pk in kept.asked_models],
        key=kept.idempotency_key or None,
        token=kept.token_id,
    )
