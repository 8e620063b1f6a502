"""Submit a message.

1. `submit` locks the conversation and requires that it is idle.
2. `check_message` validates the text, the models and the files. `chat.turns.admission.admit` checks the user's limits.
3. `begin_answers` stores the question with an empty answer and a turn for each model, in one statement.
4. On commit the turns are put into the queue of the workers.

Pages, sockets and programs call this through `chat.sending.services`, which handles runs that wait for an answer.
Runs, queued messages, edits and the OpenAI API call it directly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.access.rights import cached_models_of
from accounts.models import User
from chat.models import Attachment, Conversation, Message, Turn
from chat.models.conversation_state import (
    ConversationStatus,
    busy,
    list_changed,
    lock,
    require_owner,
    scope_of,
)
from chat.models.parts import MessagePart
from chat.models.queries import store_turns
from chat.models.summary import carry_marks
from chat.models.words import title_from
from chat.prompts.document_budget import budget, chosen_files, refuse_over_line
from chat.prompts.turn_context import StoredOptions, base_context
from chat.summaries.idle import RunWaits, require_idle, run_in_progress_error
from chat.turns.admission import AdmittedModel, admit, estimate_question
from chat.turns.mentions import remember_mentions
from chat.turns.smaller import smaller_prompt_limit
from core.background import TURNS
from core.errors import NotFound, ProductError
from core.logs.context import log_fields
from core.requests import get_or_404
from core.sentences import Sentence
from files.models import File
from llm.models import Effort, Model
from personas.services import rules_at, select_model

MAX_TEXT = 1_000_000  # characters of one message
MAX_MODELS = 3
MAX_EFFORT_LENGTH = 100  # characters; up to this length, the error for an unknown effort quotes it


@dataclass(frozen=True, slots=True)
class Ask:
    """A message to submit: the text, and optionally files, models to answer side by side and an idempotency key.

    `of_run`: the message comes from a run. While a run is in progress, only it may send messages in its conversation.
    """

    text: str
    files: Sequence[UUID] = ()
    models: Sequence[UUID] = ()
    key: str | None = None
    parent: UUID | None = None  # the message to continue from; by default the conversation's leaf
    sibling: UUID | None = None  # alternative to `parent`: a question, next to which a new branch begins
    of_run: bool = False
    continues: bool = False  # the message asks to continue a cut-off answer; pages show it small
    token: UUID | None = None  # the API token of the program that sent a queued message
    effort: str | None = None  # reasoning effort, stored for the conversation; "" resets it
    options: StoredOptions | None = None  # only for a program's turn


class CheckedMessage(NamedTuple):
    """A message that passed the checks and may be stored."""

    text: str
    models: Sequence[Model]
    files: Sequence[File]


def check_message(user: User, conversation: Conversation, ask: Ask, version: UUID | None = None) -> CheckedMessage:
    """Validate a message. `version` is the workspace version, as in `choose_models`.

    Raises `no_model`, `not_found`, and the errors of `checked_text`, `refuse_over_line` and `check_effort`.
    """
    require_owner(user, conversation)
    text = checked_text(ask)
    models = choose_models(conversation, ask.models, version)
    check_effort(ask.effort, models)
    return CheckedMessage(text, models, _files(user, conversation, models, ask.files))


def checked_text(ask: Ask) -> str:
    """Return the message as it was written, byte for byte; empty for files without a message.

    Raises `empty_message` and `message_too_long` (413).
    """
    text = ask.text
    if not text.strip():
        if ask.files:
            return ""
        raise ProductError("empty_message", "The message is empty. Write something or attach a file, then send it.")
    if len(text) > MAX_TEXT:
        raise ProductError(
            "message_too_long",
            Sentence(
                "The message has {text} characters. The maximum is {max_text}. Upload it as a file instead.",
                text=len(text),
                max_text=MAX_TEXT,
            ),
            status=413,
        )
    return text


def submit(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn]:
    """Store the user's message, and an empty answer and a turn for each model. Workers get the turns on commit.

    A repeated idempotency key returns the turns of the first request. Raises the errors of `check_message`,
    `require_idle` and `admit`. A message on another branch cannot answer a waiting run, so it raises `run_in_progress`
    (409).
    """
    require_owner(user, conversation)
    checked_text(ask)  # raises before anybody waits for the lock
    try:
        with transaction.atomic():
            locked = lock(conversation)
            earlier = find_turns_of_key(locked, ask.key)
            if earlier:
                return earlier
            status = _require_idle(locked, ask)
            text, models, files = check_message(user, conversation, ask, status.version)
            admitted = admit(locked, status, models, estimate_question(text, files), ask.token)
            parent = _parent(locked, ask, status)
            leaf_before = locked.leaf_id
            part: MessagePart = {"type": "text", "text": text}
            if ask.continues:
                part["continues"] = True
            elif not text:
                part = {"type": "text", "text": rules_at(status.version).texts["files_alone"], "files_alone": True}
            question = _message(locked, parent, Message.Role.USER, parts=[part])
            remember_effort(locked, ask.effort)
            if not locked.title and not locked.temporary:
                locked.title = title_from(text or ", ".join(file.name for file in files))
            turns = begin_answers(locked, question, admitted, ask.key, options=ask.options)
            if not locked.temporary:
                remember_mentions(user=user, text=text, at=question.created)
            _attach(question, files)
            if parent is not None and parent.pk != leaf_before:
                carry_marks(locked.pk, leaf_before, parent.pk, [question.pk])
            return turns
    except IntegrityError as error:
        raise busy() from error


def regenerate(
    *,
    user: User,
    message: Message,
    models: Sequence[UUID] = (),
    key: str | None = None,
    effort: str | None = None,
    send_less: bool = False,
) -> list[Turn]:
    """Answer a question again, as a branch next to the old answer, which stays. `message`: the question or an answer.

    `effort` as in `Ask`. `send_less`: limit the prompt of this answer to half of the prompt that was sent last.
    """
    conversation = message.conversation
    require_owner(user, conversation)
    question = message if message.role == Message.Role.USER else message.parent
    if question is None:
        raise ProductError("nothing_to_answer", "There is no question above this message to answer again.")
    earlier_model = message.asked_model_id
    chosen = choose_models(conversation, models or ([earlier_model] if earlier_model else ()))
    check_effort(effort, chosen)
    with transaction.atomic():
        locked = lock(conversation)
        earlier = find_turns_of_key(locked, key)
        if earlier:
            return earlier
        admitted = admit(locked, require_idle(locked), chosen, estimate_question(question.text))
        if send_less:
            cap = smaller_prompt_limit(question)
            admitted = [each._replace(prompt_cap=cap) for each in admitted]
        remember_effort(locked, effort)
        leaf_before = locked.leaf_id
        turns = begin_answers(locked, question, admitted, key)
        carry_marks(locked.pk, leaf_before, question.pk, [turn.answer_id for turn in turns])
    return turns


def begin_answers(
    conversation: Conversation,
    question: Message,
    admitted: Sequence[AdmittedModel],
    key: str | None,
    *,
    below: Message | None = None,
    options: StoredOptions | None = None,
) -> list[Turn]:
    """Store an empty answer and a turn for each model that `admit` has admitted, inside the caller's transaction.

    Workers get the turns on commit, except turns that wait in their person's queue. Also stores messages above the
    answers that are not stored yet. `below`: the parent of the answers, if that is not the question. `options` as in
    `Ask`.
    """
    parent = below or question
    place = ParentMessage(parent.pk, parent.depth)
    turns = []
    for slot, each in enumerate(admitted):
        model = each.model
        answer = _message(conversation, place, Message.Role.ASSISTANT, status=Message.Status.PENDING, model=model)
        turn = Turn(
            conversation=conversation,
            owner_id=conversation.owner_id,
            user_message=question,
            answer=answer,
            model=model,
            slot=slot,
            token_id=each.token,
            reserved_tokens=each.tokens,
            reserved_cost=each.cost,
            prompt_cap=each.prompt_cap,
            idempotency_key=key,
            options=options or {},
            effort=conversation.effort,
            heartbeat=timezone.now(),
            request_id=log_fields().get("request_id", ""),
        )
        turns.append(turn)
    conversation.leaf = turns[0].answer
    conversation.state = Conversation.State.ANSWERING
    conversation.updated = timezone.now()
    messages = [*_unstored_messages(parent), *(turn.answer for turn in turns)]
    store_turns(conversation, messages, turns, ["leaf", "state", "updated", "title", "effort"])
    list_changed(conversation)
    for turn, each in zip(turns, admitted, strict=True):
        if not each.waits:
            transaction.on_commit(partial(TURNS.put, turn.pk))
    return turns


def _unstored_messages(message: Message | None) -> list[Message]:
    """Return the unstored messages from the top of the branch down to this message."""
    rows: list[Message] = []
    while message is not None and message._state.adding:
        rows.append(message)
        message = message._state.fields_cache.get("parent")
    return rows[::-1]


def check_effort(effort: str | None, models: Sequence[Model] = ()) -> None:
    """Raise `bad_effort` for an unknown effort, and `effort_not_offered` if none of `models` takes it."""
    if not effort:
        return
    if effort not in Effort.values:
        raise ProductError(
            "bad_effort", Sentence("“effort” is one of {values}, or empty.", values=", ".join(Effort.values))
        )
    if models and not any(effort in model.offered_efforts for model in models):
        offered = ", ".join(models[0].offered_efforts)
        raise ProductError(
            "effort_not_offered",
            Sentence(
                "{name} supports the reasoning efforts {offered}, not {effort}. Choose one of them, or none.",
                name=models[0].name,
                offered=offered,
                effort=effort,
            )
            if offered
            else Sentence(
                ("{name} has no setting for the effort of reasoning. Leave the effort out, or choose another model."),
                name=models[0].name,
            ),
        )


def remember_effort(conversation: Conversation, effort: str | None) -> None:
    if effort is not None:
        conversation.effort = effort


def _require_idle(conversation: Conversation, ask: Ask) -> ConversationStatus:
    try:
        return require_idle(conversation, of_run=ask.of_run)
    except RunWaits:
        if ask.parent or ask.sibling:
            raise run_in_progress_error() from None
        raise


class ParentMessage(NamedTuple):
    """The id and depth of a message that new messages get as their parent."""

    pk: UUID
    depth: int


def _message(
    conversation: Conversation,
    parent: ParentMessage | None,
    role: str,
    *,
    parts: Sequence[MessagePart] = (),
    status: str = Message.Status.DONE,
    model: Model | None = None,
) -> Message:
    return Message(
        conversation=conversation,
        owner_id=conversation.owner_id,
        parent_id=parent.pk if parent is not None else None,
        role=role,
        parts=list(parts),
        status=status,
        model=model,
        depth=parent.depth + 1 if parent is not None else 0,
    )


def find_turns_of_key(conversation: Conversation, key: str | None) -> list[Turn]:
    """Return the turns that an earlier request with this idempotency key began."""
    if not key:
        return []
    turns = Turn.objects.filter(conversation=conversation, idempotency_key=key).order_by("slot")
    return list(turns.select_related("answer", "user_message", "model"))


def _files(user: User, conversation: Conversation, models: Sequence[Model], ids: Sequence[UUID]) -> list[File]:
    """Return the files to attach, checked against the budget for files of every model that will answer."""
    if not ids:
        return []
    files = chosen_files(user=user, ids=ids)
    if len(files) != len(ids):
        raise NotFound("file")
    scope = scope_of(conversation)
    model_ids = [model.pk for model in models]
    for model in Model.objects.select_related("provider").filter(pk__in=model_ids):  # with newly learnt limits
        refuse_over_line(files, budget(base_context(user=user, model=model, scope=scope), scope))
    return files


def _attach(question: Message, files: Sequence[File]) -> None:
    Attachment.objects.bulk_create(
        Attachment(message=question, file=file, name=file.name, ordinal=number) for number, file in enumerate(files)
    )


def _parent(conversation: Conversation, ask: Ask, status: ConversationStatus) -> ParentMessage | None:
    message_id = ask.sibling or ask.parent
    if message_id is None:
        leaf = conversation.leaf_id
        depth = status.leaf_depth
        return ParentMessage(leaf, depth) if leaf is not None and depth is not None else None
    message = get_or_404(Message.objects.filter(conversation=conversation), message_id, "message")
    if ask.sibling:
        return ParentMessage(message.parent_id, message.depth - 1) if message.parent_id is not None else None
    if message.role == Message.Role.USER:
        raise ProductError("parent_is_a_question", "Continue from an answer, or edit the question instead.")
    return ParentMessage(message.pk, message.depth)


def choose_models(conversation: Conversation, chosen: Sequence[UUID], version: UUID | None = None) -> list[Model]:
    """Return the models that will answer: the chosen ones, or the default of the conversation.

    Their settings are those of this workspace version or a later one; without a version, the current settings. Raises
    `no_model`, `too_many_models` and `not_found`.
    """
    usable = cached_models_of(conversation.owner_id, version)
    if not chosen:
        return [select_model(usable, scope_of(conversation).persona)]
    if len(chosen) > MAX_MODELS:
        raise ProductError(
            "too_many_models", Sentence("At most {max_models} models can answer side by side.", max_models=MAX_MODELS)
        )
    by_id = {model.pk: model for model in usable}
    if any(pk not in by_id for pk in chosen):
        raise NotFound("model")
    return [by_id[pk] for pk in chosen]
