"""The tree of messages: the services that change it, and its branches for pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from accounts.access.rights import models_of
from accounts.models import User
from chat.models import Conversation, Message, Turn
from chat.models.conversation_state import busy, list_changed, lock, require_owner, visible_message
from chat.models.parts import MessagePart
from chat.models.summary import carry_marks
from chat.models.tree import below, ids_side_by_side, newest_leaf, with_rows
from chat.prompts.document_budget import chosen_files
from chat.summaries.idle import lock_idle
from chat.turns.submit import Ask, checked_text, submit
from core.audit.services import record
from core.errors import ProductError
from core.requests import get_or_404
from personas.services import rules_at


def edit_question(
    *, user: User, message: Message, text: str, files: Sequence[UUID] | None = None, key: str | None = None
) -> list[Turn]:
    """Ask a question in other words. This begins a new branch next to the old question; the same model answers.

    If `files` is None, the new question has the files of the old one. Raises `not_a_question` and the errors of
    `submit`.
    """
    require_owner(user, message.conversation)
    if message.role != Message.Role.USER:
        raise ProductError("not_a_question", "Only your own messages can be edited. Send a new one instead.")
    ask = Ask(
        text=text,
        files=_carried_files(user, message) if files is None else files,
        models=_usable_models(user, _model_of_newest_answer(message)),
        key=key,
        sibling=message.pk,
    )
    return submit(user=user, conversation=message.conversation, ask=ask)


def edit_answer(*, user: User, message: Message, text: str) -> Message:
    """Store the user's edited version of an answer next to it. The conversation continues from this version.

    No model is called. The version keeps the tool calls of the answer, and so its sources. Its text is marked as
    edited. Raises `not_an_answer`, `already_answering` (409) and the other errors of `lock_idle` and of `checked_text`.
    """
    require_owner(user, message.conversation)
    if message.role != Message.Role.ASSISTANT:
        raise ProductError("not_an_answer", "This is not an answer. Edit your message instead.")
    text_part: MessagePart = {"type": "text", "text": checked_text(Ask(text)), "edited": True}
    with lock_idle(user, message.conversation) as conversation:
        leaf_before = conversation.leaf_id
        version = Message.objects.create(
            conversation=conversation,
            owner_id=conversation.owner_id,
            parent_id=message.parent_id,
            role=Message.Role.ASSISTANT,
            parts=[*(part for part in message.parts if part["type"] in ("tool_call", "tool_result")), text_part],
            model_id=message.model_id,
            depth=message.depth,
        )
        conversation.leaf = version
        conversation.updated = timezone.now()
        conversation.save(update_fields=["leaf", "updated"])
        if message.parent_id is not None:
            carry_marks(conversation.pk, leaf_before, message.parent_id, [version.pk])
        record(user=user, action="message.edited", row=version)
        list_changed(conversation)
    return visible_message(user, version.pk)


def continue_answer(*, user: User, message: Message, key: str | None = None) -> list[Turn]:
    """Ask the model to continue an answer that was stopped, broke off, or reached its length limit.

    The request is a separate question, which pages show small. Not every protocol and model can continue an unfinished
    message. All models understand a question, and the conversation shows exactly what the model saw.

    Raises `nothing_to_continue` for a complete or empty answer, and the errors of `submit`.
    """
    require_owner(user, message.conversation)
    if not (message.continuable and message.text.strip()):
        raise ProductError(
            "nothing_to_continue", "Only an unfinished answer can be continued. Ask a new question instead."
        )
    models = _usable_models(user, message.asked_model_id)
    ask = Ask(rules_at().texts["continue"], models=models, key=key, parent=message.pk, continues=True)
    return submit(user=user, conversation=message.conversation, ask=ask)


def shorten_answer(*, user: User, message: Message, key: str | None = None) -> list[Turn]:
    """Ask the answer's model for a shorter version. The question below the answer is the workspace's text “shorten”.

    The answer itself does not change. Raises `nothing_to_shorten` if it is not complete, and the errors of `submit`.
    """
    require_owner(user, message.conversation)
    if not can_be_shortened(message):
        raise ProductError("nothing_to_shorten", "Only a complete answer can be shortened. Choose another one.")
    ask = Ask(
        rules_at().texts["shorten"], models=_usable_models(user, message.asked_model_id), key=key, parent=message.pk
    )
    return submit(user=user, conversation=message.conversation, ask=ask)


def can_be_shortened(message: Message) -> bool:
    complete = message.role == Message.Role.ASSISTANT and message.status == Message.Status.DONE
    return complete and bool(message.text.strip())


def choose_branch(*, user: User, message: Message) -> Conversation:
    """Show the branch of this message, down to its newest leaf. Raises `already_answering` (409)."""
    with lock_idle(user, message.conversation) as conversation:
        conversation.leaf_id = newest_leaf(message.pk) or conversation.leaf_id
        conversation.save(update_fields=["leaf"])
    return conversation


def delete_message(*, user: User, message: Message) -> Conversation:
    """Hide a message with everything below it. `restore_message` undoes this.

    If the displayed branch is deleted, the newest branch below the message's parent is displayed. If the parent has no
    other branch, the branch then ends at the parent and takes over the marks. Raises `already_answering` (409) while
    one of the deleted answers is live.
    """
    require_owner(user, message.conversation)
    with transaction.atomic():
        conversation = lock(message.conversation)
        deleted_ids = [row.id for row in below(message.pk)]
        if Turn.objects.live().filter(Q(answer__in=deleted_ids) | Q(user_message__in=deleted_ids)).exists():
            raise busy()
        was_on_show = conversation.leaf_id in deleted_ids
        parent = message.parent_id
        if was_on_show and parent and not Message.objects.filter(parent=parent).exclude(pk=message.pk).exists():
            carry_marks(conversation.pk, conversation.leaf_id, parent, [parent])
        Message.objects.filter(pk__in=deleted_ids).update(deleted=timezone.now())
        # The same request, sent again, must begin a new turn.
        Turn.objects.filter(answer__in=deleted_ids).update(idempotency_key=None)
        record(user=user, action="message.deleted", row=message)
        if was_on_show:
            conversation.leaf_id = _remaining_leaf(conversation, message.parent_id)
            conversation.save(update_fields=["leaf"])
    return conversation


def restore_message(*, user: User, pk: object) -> Message:
    """Restore a deleted message with everything below it, and show its branch.

    Raises `not_found` if it was not deleted, was deleted with a message above it, or was deleted longer ago than
    `RESTORABLE_FOR`. Raises the errors of `lock_idle`, too.
    """
    restorable = Message.with_deleted.restorable_by(user).select_related("conversation")
    message = get_or_404(restorable, pk, "deleted message")
    with lock_idle(user, message.conversation) as conversation:
        restored_ids = [row.id for row in below(message.pk)]
        Message.with_deleted.filter(pk__in=restored_ids).update(deleted=None)
        conversation.leaf_id = newest_leaf(message.pk)
        conversation.save(update_fields=["leaf"])
        record(user=user, action="message.restored", row=message)
    return visible_message(user, message.pk)


def _remaining_leaf(conversation: Conversation, parent: UUID | None) -> UUID | None:
    if parent is not None:
        return newest_leaf(parent)
    newest = Message.objects.filter(conversation=conversation).order_by("-id").values_list("pk", flat=True).first()
    return newest_leaf(newest) if newest else None


def _carried_files(user: User, message: Message) -> list[UUID]:
    """Return the message's files that the user may still see, in order."""
    ids = [pk for pk in message.attachments.values_list("file", flat=True) if pk is not None]
    visible = {file.pk for file in chosen_files(user=user, ids=ids)}
    return [pk for pk in ids if pk in visible]


def _model_of_newest_answer(question: Message) -> UUID | None:
    model = Coalesce("turn__model", "model")
    return question.children.order_by("-id").values_list(model, flat=True).first()


def _usable_models(user: User, model: UUID | None) -> Sequence[UUID]:
    """Return the model if the user may use it, else nothing, so that the conversation's own model answers."""
    return list(models_of(user).filter(pk=model).values_list("pk", flat=True)) if model else ()


@dataclass(frozen=True, slots=True)
class BranchView:
    """The place of a message among its siblings: its `number`, from 1, of `count`, and the `previous` and `next` one.

    `pick`: the newest question has several answers, and the user has to choose one. `picked`: this one is chosen.
    """

    number: int
    count: int
    previous: UUID | None
    next: UUID | None
    pick: bool
    picked: bool

    @property
    def switch(self) -> bool:
        return (not self.pick or self.picked) and bool(self.previous or self.next)


def build_branch_views(
    messages: Sequence[Message], siblings: dict[UUID, list[UUID]], leaf: UUID | None
) -> dict[UUID, BranchView]:
    """Return the views of messages of one conversation by id. `leaf`: the displayed leaf."""
    group = _newest_answers(messages, siblings, leaf)
    return {message.pk: _branch_view(message.pk, siblings[message.pk], group, leaf) for message in messages}


def answers_side_by_side(answer: Message) -> list[Message]:
    """Return the answers that were requested together, this one included; none if it is the only one."""
    if answer.role != Message.Role.ASSISTANT:
        return []
    ids = ids_side_by_side(answer)
    if len(ids) == 1:
        return []
    rows = {message.pk: message for message in with_rows(Message.objects.filter(pk__in=ids))}
    return [rows[pk] for pk in ids]


def describe_removal(message: Message) -> str:
    """Return a phrase that names the messages that would be deleted."""
    questions = sum(row.role == Message.Role.USER for row in below(message.pk))
    template = ngettext("%(count)d message and its answers", "%(count)d messages and their answers", questions)
    phrase = template % {"count": questions}
    if message.role == Message.Role.USER:
        return phrase
    return _("this answer, and below it %(words)s") % {"words": phrase} if questions else _("this answer")


def _newest_answers(messages: Sequence[Message], siblings: dict[UUID, list[UUID]], leaf: UUID | None) -> list[UUID]:
    """Return the answers to the newest question if there are several."""
    for message in messages:
        if message.role == Message.Role.ASSISTANT and leaf in siblings[message.pk] and len(siblings[message.pk]) > 1:
            group = ids_side_by_side(message)
            return group if leaf in group and len(group) > 1 else []
    return []


def _branch_view(pk: UUID, place: list[UUID], group: list[UUID], leaf: UUID | None) -> BranchView:
    pick = pk in group
    first, last = (group[0], group[-1]) if pick else (pk, pk)
    before = place[: place.index(first)]
    after = place[place.index(last) + 1 :]
    return BranchView(
        number=place.index(pk) + 1,
        count=len(place),
        previous=before[-1] if before else None,
        next=after[0] if after else None,
        pick=pick,
        picked=pick and pk == leaf,
    )
