"""Marks that a person sets on an earlier turn, or on a file of it: always send it, or leave it out."""

from collections.abc import Mapping
from uuid import UUID

from django.db import transaction

from accounts.models import User
from chat.models import Attachment, Conversation, Mark, Message
from chat.models.conversation_state import lock, require_owner
from chat.models.summary import Marks, marks_on, set_marks
from chat.models.tree import ids_down_to, ids_side_by_side
from chat.realtime.event_stream import notify_marks
from core.errors import NotFound, ProductError

MARKS = (Mark.Kind.PINNED, Mark.Kind.EXCLUDED)


def mark_turn(*, user: User, message: Message, mark: str | None) -> Message:
    """Mark the whole turn of a message on the displayed branch. None removes the mark. Returns the message.

    A mark that is set while an answer is being written takes effect with the next answer. Raises `bad_mark`,
    `no_question` and `other_branch` (409).
    """
    _check_mark(user, message, mark)
    with transaction.atomic():
        conversation = lock(message.conversation)
        question = _question_of_turn(message)
        _set_marks(conversation, question, {None: mark})
    return message


def mark_file(*, user: User, message: Message, file: UUID, mark: str | None) -> Message:
    """Mark one file of a turn: of its question, or one that a tool returned to an answer. Returns the question.

    `excluded` leaves the file out. `pinned` pins its turn and sends the file again. None removes the file's mark; if it
    has none, the mark of its turn. Raises `NotFound` for a file that is not attached to the message or its question,
    and the errors of `mark_turn`.
    """
    _check_mark(user, message, mark)
    question = _question_of_turn(message)
    if not Attachment.objects.filter(message__in=(question, message), file=file).exists():
        raise NotFound("file of this message")
    with transaction.atomic():
        conversation = lock(message.conversation)
        left_out = file in _current_marks(conversation).files.get(question.pk, ())
        if mark == Mark.Kind.EXCLUDED or (mark is None and left_out):
            _set_marks(conversation, question, {file: mark})
        elif mark is None:
            _set_marks(conversation, question, {None: None})
        else:
            _set_marks(conversation, question, {file: None, None: mark})
    return question


def _check_mark(user: User, message: Message, mark: str | None) -> None:
    require_owner(user, message.conversation)
    if mark is not None and mark not in MARKS:
        raise ProductError("bad_mark", "“mark” is “pinned”, “excluded”, or null to remove the mark.")


def _question_of_turn(message: Message) -> Message:
    """Return the question of the message's turn. Raises `no_question`."""
    row: Message | None = message
    while row is not None and row.role != Message.Role.USER:
        row = row.parent
    if row is None:
        raise ProductError("no_question", "This message belongs to no question, so it cannot be marked.")
    return row


def _set_marks(conversation: Conversation, question: Message, marks: Mapping[UUID | None, str | None]) -> None:
    """Set marks. The keys are ids of the question's files; None stands for its turn. Raises `other_branch` (409).

    The marks take effect after the end of the displayed branch. Answers side by side all count as its end, until one of
    them is chosen.
    """
    leaf = conversation.leaf_id
    if leaf is None or ids_down_to(leaf, question.depth)[-1] != question.pk:
        raise ProductError(
            "other_branch",
            "This message is not on the displayed branch. Choose its branch first, then mark it.",
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
    notify_marks(conversation.pk, question.pk)


def _current_marks(conversation: Conversation) -> Marks:
    return marks_on(conversation.pk, conversation.leaf_id)
