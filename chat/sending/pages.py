"""What a page shows of the message that waits for an answer."""

from dataclasses import dataclass
from uuid import UUID

from django.utils.translation import gettext as _

from chat.models import Conversation, NextMessage, Turn
from chat.prompts.preview import chosen_files
from chat.sending.queued_message import endings
from core.i18n import translated
from files.models import File


@dataclass(frozen=True, slots=True)
class NextView:
    """`held`: it is not sent by itself; `words` say why, or when it is sent."""

    id: UUID
    text: str
    files: list[File]
    held: bool
    words: str


def next_view(conversation: Conversation | None) -> NextView | None:
    kept = NextMessage.objects.filter(conversation=conversation).first() if conversation else None
    if conversation is None or kept is None:
        return None
    files = chosen_files(user=conversation.owner, ids=[UUID(pk) for pk in kept.files])
    held, words = (True, translated(kept.problem)) if kept.problem else _state(conversation)
    return NextView(kept.pk, kept.text, files, held, words)


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
