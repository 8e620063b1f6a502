"""The message that a person writes while an answer is being written: kept, and sent when that answer is complete.

Every change locks the conversation first, so a message is kept or sent, and sent once, whoever comes at the same time.
"""

from functools import partial
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models import OuterRef, Subquery

from accounts.models import User
from chat.asking import MAX_MODELS, Ask, begin, check, lock, require_no_run, require_owner
from chat.models import Conversation, NextMessage, Turn
from chat.turns import announce
from llm.errors import ProductError

NOT_NOW = ("already_answering", "summarising")  # refusals that pass by themselves


def keep_next(*, user: User, conversation: Conversation, ask: Ask, replace: bool = False) -> NextMessage:
    """Keeps what is asked until the answer is complete; the same idempotency key again finds the one it made.

    Raises `not_answering` (409) when nothing is being answered, `next_message_kept` (409) when one is kept already and
    is not to be replaced, and what `asking.check` raises.
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
        NextMessage.objects.filter(conversation=locked).delete()
        kept = NextMessage.objects.create(
            conversation=locked,
            text=text,
            files=[str(pk) for pk in ask.files],
            asked_models=[str(pk) for pk in ask.models],
            idempotency_key=ask.key or "",
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


def send_kept(conversation_id: UUID) -> list[UUID]:
    """Begins the turns of what was kept when the answer before it is complete; none when not now, or not any more.

    The message goes in the transaction that stores the question. What cannot be sent stays, with the sentence why.
    """
    rows = NextMessage.objects.filter(conversation=conversation_id, problem="")
    kept = rows.select_related("conversation__owner").first()
    if kept is None:
        return []
    conversation = kept.conversation
    try:
        with transaction.atomic():
            if not _complete(lock(conversation)):
                return []
            turns = begin(user=conversation.owner, conversation=conversation, ask=take(conversation, kept.pk))
        return [turn.pk for turn in turns]
    except ProductError as error:
        if error.code not in NOT_NOW:
            NextMessage.objects.filter(pk=kept.pk).update(problem=error.detail)
        return []


def waiting_for(turn_id: UUID) -> UUID | None:
    """The conversation of this turn, when a message waits there."""
    waiting = NextMessage.objects.filter(conversation__turns=turn_id)
    return waiting.values_list("conversation", flat=True).first()


def due() -> list[UUID]:
    """The conversations in which a message waits for nothing any more: whoever was to send it has been killed."""
    newest = Turn.objects.filter(conversation=OuterRef("conversation")).order_by("-id").values("status")[:1]
    idle = NextMessage.objects.filter(problem="", conversation__state=Conversation.State.IDLE)
    done = idle.annotate(last=Subquery(newest)).filter(last=Turn.Status.DONE)
    return list(done.values_list("conversation", flat=True))


def endings(conversation_id: UUID) -> list[str]:
    """How the turns of the newest asking ended: one, or those of the models side by side."""
    found: list[str] = []
    newest = Turn.objects.filter(conversation=conversation_id).order_by("-id").values_list("status", "slot")
    for status, slot in newest[:MAX_MODELS]:
        found.append(status)
        if slot == 0:
            break
    return found


def tell_pages(conversation: Conversation) -> None:
    """Once the change is committed, open pages look again at what waits."""
    transaction.on_commit(partial(async_to_sync(announce), conversation.pk, hint(conversation.pk)))


def hint(conversation_id: UUID) -> dict[str, str]:
    return {"type": "conversation.next", "conversation": str(conversation_id)}


def _complete(conversation: Conversation) -> bool:
    return conversation.state == Conversation.State.IDLE and set(endings(conversation.pk)) == {Turn.Status.DONE}


def _ask(kept: NextMessage) -> Ask:
    return Ask(
        kept.text,
        files=[UUID(pk) for pk in kept.files],
        models=[UUID(pk) for pk in kept.asked_models],
        key=kept.idempotency_key or None,
    )
