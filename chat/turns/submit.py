"""The one door for a message: checked, stored as a question with an empty answer and a turn per model, handed over.

Pages, sockets and programs come here through `chat.sending.services`, which knows of runs that wait for an answer;
runs, queued messages, edits and the OpenAI API come directly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.access.rights import cached_models_of
from accounts.models import User
from chat.models import Attachment, Conversation, Message, Turn
from chat.models.conversation_state import busy, list_changed, lock, require_owner, scope_of
from chat.models.queries import Standing, store
from chat.models.summary import carry_marks
from chat.models.words import title_from
from chat.prompts.document_budget import budget, chosen_files, refuse_over_line
from chat.prompts.turn_context import base_context
from chat.summaries.idle import RunWaits, require_idle, run_in_progress
from chat.turns.admission import Admitted, admit, tokens_given
from chat.turns.mentions import remember_mentions
from chat.turns.smaller import smaller_prompt
from core.background import TURNS
from core.errors import NotFound, ProductError
from core.logs.context import log_fields
from core.requests import get_or_404
from core.sentences import Sentence
from files.models import File
from llm.models import Effort, Model
from personas.services import one_of

MAX_TEXT = 1_000_000  # characters of one message
MAX_MODELS = 3
LONGEST_EFFORT = 100  # characters; a shorter one that is no effort is refused by its name


@dataclass(frozen=True, slots=True)
class Ask:
    """What a person sends: the text, and optionally files, models to answer side by side and an idempotency key.

    `of_run`: a run asks, which nobody else may in its conversation while it is at work.
    """

    text: str
    files: Sequence[UUID] = ()
    models: Sequence[UUID] = ()
    key: str | None = None
    parent: UUID | None = None  # the message to go on from; by default the conversation's leaf
    beside: UUID | None = None  # the question to stand beside, as a new branch, instead
    of_run: bool = False
    continues: bool = False  # an answer that was cut off; pages show such a question small
    token: UUID | None = None  # of the program that asked before, for what has waited since then
    effort: str | None = None  # of reasoning, from now on in this conversation; "" takes a choice back
    options: Mapping[str, Any] = field(default_factory=dict)  # of a program's turn, see `chat.prompts.turn_context`


class Checked(NamedTuple):
    """What is asked, fit to be stored."""

    text: str
    models: Sequence[Model]
    files: Sequence[File]


def check(user: User, conversation: Conversation, ask: Ask, version: UUID | None = None) -> Checked:
    """Raises `no_model`, `not_found`, and what `text_of`, `refuse_over_line` and `check_effort` raise.

    `version` of the workspace, as `models_of` has it.
    """
    require_owner(user, conversation)
    text, models = text_of(ask), models_of(conversation, ask.models, version)
    check_effort(ask.effort, models)
    return Checked(text, models, _files(user, conversation, models, ask.files))


def text_of(ask: Ask) -> str:
    """Return the message as it was written, byte for byte. Raises `empty_message` and `message_too_long` (413)."""
    text = ask.text
    if not text.strip():
        raise ProductError("empty_message", "The message is empty. Write something, then send it.")
    if len(text) > MAX_TEXT:
        raise ProductError(
            "message_too_long",
            Sentence(
                "The message has {text} characters; the most is {max_text}. Upload it as a file instead.",
                text=len(text),
                max_text=MAX_TEXT,
            ),
            status=413,
        )
    return text


def submit(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn]:
    """Stores the user's message and one empty answer and turn per model, which a worker writes once this is committed.

    The same idempotency key again returns the turns of the first time. Raises what `check` and `require_idle` raise;
    a message that goes on elsewhere than at the leaf is no answer to a run (`run_in_progress`, 409).
    """
    require_owner(user, conversation)
    text_of(ask)  # what is wrong whatever the rows say is said before anybody waits for them
    try:
        with transaction.atomic():
            locked = lock(conversation)
            earlier = turns_of_key(locked, ask.key)
            if earlier:
                return earlier
            found = _require_idle(locked, ask)
            text, models, files = check(user, conversation, ask, found.version)
            admitted = admit(locked, found, models, tokens_given(text, files), ask.token)
            parent, before = _parent(locked, ask, found), locked.leaf_id
            part = {"type": "text", "text": text, **({"continues": True} if ask.continues else {})}
            question = _message(locked, parent, Message.Role.USER, parts=[part])
            remember_effort(locked, ask.effort)
            if not locked.title and not locked.temporary:
                locked.title = title_from(text)
            turns = begin_answers(locked, question, admitted, ask.key, options=ask.options)
            if not locked.temporary:
                remember_mentions(user=user, text=text, at=question.created)
            _attach(question, files)
            if parent is not None and parent.pk != before:
                carry_marks(locked.pk, before, parent.pk, [question.pk])
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
    """Answers the question above `message` anew, as a branch beside the old answer, which stays.

    `effort` as in `Ask`; `send_less`: with at most half of the prompt that was sent last, for this answer alone.
    """
    conversation = message.conversation
    require_owner(user, conversation)
    question = message if message.role == Message.Role.USER else message.parent
    if question is None:
        raise ProductError("nothing_to_answer", "This message has no question above it to answer again.")
    asked = message.asked_model_id
    chosen = models_of(conversation, models or ([asked] if asked else ()))
    check_effort(effort, chosen)
    with transaction.atomic():
        locked = lock(conversation)
        earlier = turns_of_key(locked, key)
        if earlier:
            return earlier
        admitted = admit(locked, require_idle(locked), chosen, tokens_given(question.text))
        if send_less:
            cap = smaller_prompt(question)
            admitted = [each._replace(prompt_cap=cap) for each in admitted]
        remember_effort(locked, effort)
        before, turns = locked.leaf_id, begin_answers(locked, question, admitted, key)
        carry_marks(locked.pk, before, question.pk, [turn.answer_id for turn in turns])
    return turns


def begin_answers(
    conversation: Conversation,
    question: Message,
    admitted: Sequence[Admitted],
    key: str | None,
    *,
    below: Message | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> list[Turn]:
    """One empty answer and turn for each that `admit` has admitted, inside the caller's transaction; a worker gets them
    on commit, but for those that wait.

    What they stand below is stored with them where it is not stored yet. `below`: the message that the answers stand
    below, where that is not the question; `options`: see `chat.prompts.turn_context`.
    """
    above = Place(below.pk, below.depth) if below is not None else Place(question.pk, question.depth)
    turns = []
    for slot, each in enumerate(admitted):
        model = each.model
        answer = _message(conversation, above, Message.Role.ASSISTANT, status=Message.Status.PENDING, model=model)
        turn = Turn(conversation=conversation, user_message=question, answer=answer, model=model, slot=slot)
        turn.owner_id, turn.token_id = conversation.owner_id, each.token
        turn.reserved_tokens, turn.reserved_cost, turn.prompt_cap = each.tokens, each.cost, each.prompt_cap
        turn.idempotency_key, turn.options, turn.effort = key, dict(options), conversation.effort
        turn.heartbeat, turn.request_id = timezone.now(), log_fields().get("request_id", "")
        turns.append(turn)
    conversation.leaf = turns[0].answer
    conversation.state = Conversation.State.ANSWERING
    conversation.updated = timezone.now()
    rows = [*_unstored(below or question), *(turn.answer for turn in turns), *turns]
    store(rows, conversation, ["leaf", "state", "updated", "title", "effort"])
    list_changed(conversation)
    for turn, each in zip(turns, admitted, strict=True):
        if not each.waits:
            transaction.on_commit(partial(TURNS.put, turn.pk))
    return turns


def _unstored(message: Message | None) -> list[Message]:
    """It and those above it that are not stored yet, the first of them first."""
    rows: list[Message] = []
    while message is not None and message._state.adding:
        rows.append(message)
        message = message._state.fields_cache.get("parent")
    return rows[::-1]


def check_effort(effort: str | None, models: Sequence[Model] = ()) -> None:
    """Raises `bad_effort` for what is none, and `effort_not_offered` for one that none of `models` takes."""
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
                "{name} takes the efforts of reasoning {offered}, not {effort}. Choose one of them, or none.",
                name=models[0].name,
                offered=offered,
                effort=effort,
            )
            if offered
            else Sentence(
                "{name} cannot be told how long to reason. Leave the effort out, or choose another model.",
                name=models[0].name,
            ),
        )


def remember_effort(conversation: Conversation, effort: str | None) -> None:
    if effort is not None:
        conversation.effort = effort


def _require_idle(conversation: Conversation, ask: Ask) -> Standing:
    try:
        return require_idle(conversation, of_run=ask.of_run)
    except RunWaits:
        if ask.parent or ask.beside:
            raise run_in_progress() from None
        raise


class Place(NamedTuple):
    """A message that others stand below."""

    pk: UUID
    depth: int


def _message(conversation: Conversation, parent: Place | None, role: str, **fields: object) -> Message:
    above, depth = (None, 0) if parent is None else (parent.pk, parent.depth + 1)
    whose = {"conversation": conversation, "owner_id": conversation.owner_id}
    return Message(**whose, parent_id=above, role=role, depth=depth, **fields)


def turns_of_key(conversation: Conversation, key: str | None) -> list[Turn]:
    if not key:
        return []
    turns = Turn.objects.filter(conversation=conversation, idempotency_key=key).order_by("slot")
    return list(turns.select_related("answer", "user_message", "model"))


def _files(user: User, conversation: Conversation, models: Sequence[Model], ids: Sequence[UUID]) -> list[File]:
    """The files to attach, checked against the line of every model that will answer."""
    if not ids:
        return []
    files = chosen_files(user=user, ids=ids)
    if len(files) != len(ids):
        raise NotFound("file")
    scope, ids = scope_of(conversation), [model.pk for model in models]
    for model in Model.objects.select_related("provider").filter(pk__in=ids):  # with what it has learnt by now
        refuse_over_line(files, budget(base_context(user=user, model=model, scope=scope), scope))
    return files


def _attach(question: Message, files: Sequence[File]) -> None:
    Attachment.objects.bulk_create(
        Attachment(message=question, file=file, name=file.name, ordinal=number) for number, file in enumerate(files)
    )


def _parent(conversation: Conversation, ask: Ask, standing: Standing) -> Place | None:
    named, leaf, depth = ask.beside or ask.parent, conversation.leaf_id, standing.leaf_depth
    if named is None:
        return Place(leaf, depth) if leaf is not None and depth is not None else None
    found = get_or_404(Message.objects.filter(conversation=conversation), named, "message")
    if ask.beside:
        return Place(found.parent_id, found.depth - 1) if found.parent_id is not None else None
    if found.role == Message.Role.USER:
        raise ProductError("parent_is_a_question", "Go on from an answer, or edit the question instead.")
    return Place(found.pk, found.depth)


def models_of(conversation: Conversation, chosen: Sequence[UUID], version: UUID | None = None) -> list[Model]:
    """Those that are asked, as administrators had set them at this version of the workspace or later; without one as
    they are now."""
    usable = cached_models_of(conversation.owner_id, version)
    if not chosen:
        return [one_of(usable, scope_of(conversation).persona)]
    if len(chosen) > MAX_MODELS:
        raise ProductError(
            "too_many_models", Sentence("At most {max_models} models can answer side by side.", max_models=MAX_MODELS)
        )
    found = {model.pk: model for model in usable}
    if any(pk not in found for pk in chosen):
        raise NotFound("model")
    return [found[pk] for pk in chosen]
