"""Copy a conversation, down to one of its messages, into a new conversation.

1. `fork_conversation` locks the conversation and reads the ids of the branch.
2. Results of tools that are stored whole are copied first, since messages name their ids.
3. Messages are copied a few at a time, with their files and the numbers and reports of their turns.
4. The summary and the marks that apply to the branch are copied, so that the next prompt is the same as before.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Sum
from uuid_utils.compat import uuid7

from accounts.models import User
from chat.conversations.erasing import require_lasting
from chat.models import Attachment, Conversation, Mark, Message, Summary, ToolResult, Turn
from chat.models.conversation_state import busy, list_changed, lock, require_owner
from chat.models.summary import Marks, in_force, marks_on
from chat.models.tree import ids_down_to
from core.errors import ProductError
from core.ids import new_id_at
from core.sentences import Sentence
from files.services import reserve_storage

MAX_MESSAGES = 2_000
MAX_TITLE = 200
BATCH_MESSAGES = 20  # messages in memory; each may have a long text and a long report
ID_TIME_STEP = timedelta(milliseconds=1)  # the precision of times in ids
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r" \((\d{1,4})\)$")

Ids = Mapping[UUID, UUID]
"""The ids of copied rows by the ids of their originals."""


@transaction.atomic
def fork_conversation(*, user: User, message: Message) -> Conversation:
    """Copy the branch from its first message down to `message` into a new conversation. The original does not change.

    No model is asked, and the copies cost nothing. Raises `already_answering` (409) for an answer that is being
    written, `temporary_conversation` (409), `fork_too_long` and the errors of `reserve_storage`.
    """
    require_owner(user, message.conversation)
    require_lasting(message.conversation)
    source = lock(message.conversation)
    if Message.objects.filter(pk=message.pk, status=Message.Status.PENDING).exists():
        raise busy()
    if message.depth >= MAX_MESSAGES:
        sentence = Sentence(
            "At most {most} messages can be copied. Choose a message further up.",
            most=MAX_MESSAGES,
        )
        raise ProductError("fork_too_long", sentence)
    branch = ids_down_to(message.pk, 0)[::-1]
    target = Conversation.objects.create(
        owner=user,
        title=next_title(source.title),
        titled=bool(source.title),
        persona_id=source.persona_id,
        project_id=source.project_id,
        effort=source.effort,
        documents=source.documents,
        loaded_tools=source.loaded_tools,
        tasks_in_prompts=source.tasks_in_prompts,
        memory_in_prompts=source.memory_in_prompts,
        findable=source.findable,
        automatic_summaries=source.automatic_summaries,
        forked_from=message.pk,
    )
    ids = _new_ids(branch)
    results = _copy_results(user, branch)
    for start in range(0, len(branch), BATCH_MESSAGES):
        _copy_messages(target, branch[start : start + BATCH_MESSAGES], ids, results)
    _copy_stored_results(target, ids, results)
    marks = marks_on(source.pk, source.leaf_id if _is_on_show(source, message) else message.pk)
    _copy_summary(source, message, marks, target, ids)
    _copy_marks(marks, ids[message.pk], target, ids)
    target.leaf_id = ids[message.pk]
    target.save(update_fields=["leaf"])
    list_changed(target)
    return target


def next_title(title: str) -> str:
    """Return the title of a copy: “Storage” becomes “Storage (2)”, and that becomes “Storage (3)”."""
    if not title:
        return ""
    match = _NUMBER.search(title)
    ending = f" ({int(match[1]) + 1 if match else 2})"
    stem = title[: match.start()] if match else title
    return stem[: MAX_TITLE - len(ending)] + ending


def translate_ids(value: Any, ids: Ids) -> Any:
    """Return a JSON value in which the ids of originals are replaced by the ids of their copies."""

    def replaced(match: re.Match[str]) -> str:
        return str(ids.get(UUID(match[0]), match[0]))

    return json.loads(_UUID.sub(replaced, json.dumps(value)))


def _new_ids(branch: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return new ids with the times of the messages, so that lists and days keep their order. They grow downwards."""
    created = dict(Message.objects.filter(pk__in=branch).values_list("pk", "created"))
    ids: dict[UUID, UUID] = {}
    latest: datetime | None = None
    for pk in branch:
        at = created[pk] if latest is None else max(created[pk], latest + ID_TIME_STEP)
        ids[pk] = new_id_at(at)
        latest = at
    return ids


def _copy_results(user: User, branch: Sequence[UUID]) -> dict[UUID, UUID]:
    """Reserve storage for the stored tool results of the branch, and return the ids of their copies."""
    rows = ToolResult.objects.filter(message__in=branch)
    if size := rows.aggregate(size=Sum("size"))["size"]:
        reserve_storage(user, size)
    return {pk: uuid7() for pk in rows.values_list("pk", flat=True)}


def _copy_stored_results(target: Conversation, ids: Ids, results: Ids) -> None:
    for row in ToolResult.objects.filter(pk__in=results).iterator(1):  # each may have 4,000,000 characters
        message_id = ids[row.message_id]
        row.pk, row.conversation, row.message_id = results[row.pk], target, message_id
        row._state.adding = True
        row.save(force_insert=True)


def _copy_messages(target: Conversation, originals: Sequence[UUID], ids: Ids, results: Ids) -> None:
    rows = Message.objects.filter(pk__in=originals).prefetch_related("attachments").order_by("depth")
    copies: list[Message] = []
    attachments: list[Attachment] = []
    times: list[datetime] = []
    for row in rows:
        parts = translate_ids(row.parts, results) if results else row.parts
        copies.append(
            Message(
                id=ids[row.pk],
                conversation=target,
                owner_id=target.owner_id,
                parent_id=ids[row.parent_id] if row.parent_id is not None else None,
                role=row.role,
                parts=parts,
                tokens=row.tokens if parts == row.parts else {},
                model_id=row.model_id,
                status=row.status,
                error_code=row.error_code,
                error_detail=row.error_detail,
                depth=row.depth,
            )
        )
        times.append(row.created)
        attachments += [
            Attachment(message_id=ids[row.pk], file_id=each.file_id, name=each.name, ordinal=each.ordinal)
            for each in row.attachments.all()
        ]
    Message.objects.bulk_create(copies)
    for copy, created in zip(copies, times, strict=True):
        copy.created = created  # the insert has set it to the present time
    Message.objects.bulk_update(copies, ["created"])
    Attachment.objects.bulk_create(attachments)
    _copy_turns(target, originals, ids)


def _copy_turns(target: Conversation, originals: Sequence[UUID], ids: Ids) -> None:
    """Copy the numbers and the reports of the answers. Their model calls stay with the original in the ledger."""
    copies: list[Turn] = []
    times: list[datetime] = []
    for row in Turn.objects.filter(answer__in=originals, user_message__in=ids):
        copies.append(
            Turn(
                id=new_id_at(row.created),
                conversation=target,
                owner_id=target.owner_id,
                user_message_id=ids[row.user_message_id],
                answer_id=ids[row.answer_id],
                model_id=row.model_id,
                status=row.status,
                effort=row.effort,
                fallback_reason=row.fallback_reason,
                finish_reason=row.finish_reason,
                finish_detail=row.finish_detail,
                usage=row.usage,
                report=translate_ids(row.report, ids),
                cost=row.cost,
                context_limit=row.context_limit,
                context_used=row.context_used,
                context_left_out=row.context_left_out,
                context_unread=row.context_unread,
                context_notice=row.context_notice,
                scope=row.scope,
                started=row.started,
                finished=row.finished,
                first_token_ms=row.first_token_ms,
            )
        )
        times.append(row.created)
    Turn.objects.bulk_create(copies)
    for copy, created in zip(copies, times, strict=True):
        copy.created = created
    Turn.objects.bulk_update(copies, ["created"])


def _is_on_show(source: Conversation, message: Message) -> bool:
    """Return whether the message is on the displayed branch. Marks apply from the end of a branch on."""
    return source.leaf_id is not None and ids_down_to(source.leaf_id, message.depth)[-1:] == [message.pk]


def _copy_summary(source: Conversation, message: Message, marks: Marks, target: Conversation, ids: Ids) -> None:
    row = in_force(source.pk, message.pk, marks)
    if row is None:
        return
    Summary.objects.create(
        conversation=target,
        leaf_id=ids.get(row.leaf_id) if row.leaf_id is not None else None,
        first_id=ids[row.first_id],
        last_id=ids[row.last_id],
        messages=row.messages,
        span_start=row.span_start,
        span_end=row.span_end,
        sections=row.sections,
        shortened=translate_ids(row.shortened, ids),
        left_aside=translate_ids(row.left_aside, ids),
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        as_of=row.as_of,
        timezone=row.timezone,
        model_name=row.model_name,
        author_id=row.author_id,
        prompt_version=row.prompt_version,
    )


def _copy_marks(marks: Marks, since: UUID, target: Conversation, ids: Ids) -> None:
    """Store the marks on copied messages. All of them apply from the last copied message, `since`, on."""
    turns = {each.question: each.mark for each in marks.messages if each.question in ids}
    rows = [Mark(conversation=target, message_id=ids[pk], since_id=since, mark=mark) for pk, mark in turns.items()]
    rows += [
        Mark(conversation=target, message_id=ids[pk], file_id=file, since_id=since, mark=Mark.Kind.EXCLUDED)
        for pk, files in marks.files.items()
        if pk in ids
        for file in files
    ]
    Mark.objects.bulk_create(rows)
