"""What a person says of an earlier turn, or of a file of it: always send it, leave it out, or neither."""

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction

from accounts.models import User
from chat.models import Conversation, Mark, Message
from chat.models.conversation_state import lock, require_owner
from chat.models.summary import Marks, marks_on, set_marks
from chat.models.tree import ids_down_to, ids_side_by_side
from chat.realtime.event_stream import tell_marks
from core.errors import NotFound, ProductError

MARKS = (Mark.Kind.PINNED, Mark.Kind.EXCLUDED)


def mark_turn(*, user: User, message: Message, mark: str | None) -> Message:
    """Marks the whole turn of the message, on the branch on show; None takes its mark back. Returns the message.

    What is said while an answer is being written holds from the next one on. Raises `bad_mark`, `no_question` and
    `other_branch` (409).
    """
    _check(user, message, mark)
    with transaction.atomic():
        conversation, question = lock(message.conversation), _question(message)
        _set(conversation, question, {None: mark})
    return message


def mark_file(*, user: User, message: Message, file: UUID, mark: str | None) -> Message:
    """Leaves one file of a question out; `pinned` pins its turn and sends the file again, and None takes back what is
    marked: the file, else its turn.

    Returns the question. Raises `NotFound` for a file that is not the question's, and what `mark_turn` raises.
    """
    _check(user, message, mark)
    question = _question(message)
    if not question.attachments.filter(file=file).exists():
        raise NotFound("file of this message")
    with transaction.atomic():
        conversation = lock(message.conversation)
        left_out = file in _holding(conversation).files.get(question.pk, ())
        if mark == Mark.Kind.EXCLUDED or (mark is None and left_out):
            _set(conversation, question, {file: mark})
        elif mark is None:
            _set(conversation, question, {None: None})
        else:
            _set(conversation, question, {file: None, None: mark})
    return question


def _check(user: User, message: Message, mark: str | None) -> None:
    require_owner(user, message.conversation)
    if mark is not None and mark not in MARKS:
        raise ProductError("bad_mark", "“mark” is “pinned”, “excluded” or null, which takes it back.")


def _question(message: Message) -> Message:
    """The one that begins the message's turn."""
    found: Message | None = message
    while found is not None and found.role != Message.Role.USER:
        found = found.parent
    if found is None:
        raise ProductError("no_question", "This message belongs to no question, so it cannot be marked.")
    return found


def _set(conversation: Conversation, question: Message, marks: Mapping[UUID | None, str | None]) -> None:
    """`marks` by the id of a file of the question, or None for its turn. From the end of the branch on show on; answers
    side by side are one end until one of them is chosen."""
    leaf = conversation.leaf_id
    if leaf is None or ids_down_to(leaf, question.depth)[-1] != question.pk:
        raise ProductError(
            "other_branch",
            "This message is on another branch than the one on show. Choose its branch first, then mark it.",
            status=409,
        )
    end = Message.objects.get(pk=leaf)
    ends = ids_side_by_side(end) if end.role == Message.Role.ASSISTANT else [leaf]
    set_marks(
        Mark(
            conversation=conversation,
            message=question,
            file_id=file,
            since_id=since,
            mark=Mark.Kind.NONE if mark is None else mark,
        )
        for since in ends
        for file, mark in marks.items()
    )
    tell_marks(conversation.pk, question.pk)


def _holding(conversation: Conversation) -> Marks:
    return marks_on(conversation.pk, conversation.leaf_id)
