"""Copy a shared conversation into a conversation of the reader.

The copy has what the reader sees: the texts of questions and answers, the names of models, and the names of files. It
has no files, no results of tools, no reasoning, no summaries and no reports. So a model that answers in the copy sees
nothing that the reader was not shown.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Sum, TextField
from django.db.models.functions import Cast, Length

from accounts.models import User
from chat.models import Attachment, Conversation, Message, TeamShare
from chat.models.conversation_state import list_changed
from chat.models.parts import MessagePart
from chat.models.tree import branch_rows
from chat.rendering.references import cited_numbers
from core.audit.services import record
from core.errors import ProductError
from core.ids import new_id_at
from core.sentences import Sentence
from projects.models import Project

BATCH_MESSAGES = 200  # messages in memory
MAX_MESSAGES = 5_000
MAX_CHARACTERS = 20_000_000  # of the stored parts
ID_TIME_STEP = timedelta(milliseconds=1)  # the precision of times in ids


@transaction.atomic
def copy_shared(*, user: User, share: TeamShare) -> Conversation:
    """Copy the shared branch into a new conversation of the user, and return it.

    The copy of a share with a project is in that project. Raises `copy_not_allowed` (403) and `too_long_to_copy`.
    """
    require_copyable(share)
    _require_size(share)
    project = Project.objects.visible_to(user).filter(pk=share.project_id).first() if share.project_id else None
    conversation = Conversation.objects.create(owner=user, title=share.title, titled=bool(share.title), project=project)
    cited: set[int] = set()
    leaf: Message | None = None
    above: tuple[UUID, datetime] | None = None
    for batch in _batches(share):
        copies = []
        for original in batch:
            leaf = _copy_message(original, conversation, above)
            above = (leaf.pk, leaf.created)
            copies.append(leaf)
            cited |= cited_numbers(leaf.text) if leaf.role == Message.Role.ASSISTANT else set()
        _store(batch, copies)
    # The copy does not reuse the numbers of the original's documents, so that no copied citation leads to a document of
    # the copy. A slash marks ids that are not ids of files.
    conversation.documents = {f"copied/{number}": number for number in sorted(cited)}
    conversation.leaf = leaf
    conversation.save(update_fields=["documents", "leaf"])
    record(user=user, action="team_share.copied", row=share, changes={"copy": str(conversation.pk)})
    list_changed(conversation)
    return conversation


def require_copyable(share: TeamShare) -> None:
    """Raise `copy_not_allowed` (403) if readers of the share may not copy it."""
    if not share.may_copy:
        sentence = Sentence("You may read this conversation but not copy it. Ask the person who shared it.")
        raise ProductError("copy_not_allowed", sentence, status=403)


def _require_size(share: TeamShare) -> None:
    size = branch_rows(share.leaf_id).aggregate(characters=Sum(Length(Cast("parts", TextField()))))
    if share.leaf.depth >= MAX_MESSAGES or (size["characters"] or 0) > MAX_CHARACTERS:
        sentence = Sentence(
            "A conversation of more than {messages} messages or {millions} million characters cannot be copied. "
            "Ask the person who shared it to share an earlier part.",
            messages=MAX_MESSAGES,
            millions=MAX_CHARACTERS // 1_000_000,
        )
        raise ProductError("too_long_to_copy", sentence)


def _batches(share: TeamShare) -> Iterator[list[Message]]:
    """Yield the messages of the shared branch from the root on."""
    rows = branch_rows(share.leaf_id).order_by("depth")
    depth = -1
    while batch := list(rows.filter(depth__gt=depth)[:BATCH_MESSAGES]):
        yield batch
        depth = batch[-1].depth


def _copy_message(original: Message, conversation: Conversation, above: tuple[UUID, datetime] | None) -> Message:
    """Return an unsaved copy of the message. Its id has its time, so that lists keep their order."""
    created = max(original.created, above[1] + ID_TIME_STEP) if above is not None else original.created
    return Message(
        id=new_id_at(created),
        conversation=conversation,
        owner_id=conversation.owner_id,
        parent_id=above[0] if above is not None else None,
        depth=original.depth,
        role=original.role,
        parts=_text_parts(original),
        model=original.model,
        status=original.status,
        error_code=original.error_code,
        error_detail=original.error_detail,
        created=created,
    )


def _text_parts(original: Message) -> list[MessagePart]:
    """Return the text parts of the message, without reasoning that is part of an answer's text."""
    parts: list[MessagePart] = []
    for part in original.separated_parts:
        if part["type"] != "text":
            continue
        copied: MessagePart = {"type": "text", "text": part["text"]}
        if part.get("continues"):
            copied["continues"] = True
        parts.append(copied)
    return parts


def _store(originals: list[Message], copies: list[Message]) -> None:
    times = [message.created for message in copies]
    Message.objects.bulk_create(copies)
    for message, created in zip(copies, times, strict=True):
        message.created = created  # the insert has set it to the present time
    Message.objects.bulk_update(copies, ["created"])
    Attachment.objects.bulk_create(
        Attachment(message=copied, file=None, name=attached.name, ordinal=attached.ordinal)
        for original, copied in zip(originals, copies, strict=True)
        for attached in original.attachments.all()
    )
