"""Every change to conversations, messages and turns. Page, API, socket and task all come through here."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import User
from chat import streams, tasks
from chat.endings import Ending
from chat.events import Event, EventType
from chat.models import Attachment, Conversation, Message, Turn
from chat.plans import budget, chosen_files, refuse_over_line
from chat.prompts import Place, place_of, setting
from chat.titles import title_from
from chat.turn_rows import end_queued
from files.models import File
from llm.errors import NotFound, ProductError
from llm.models import Model
from personas.models import Persona
from personas.services import model_for
from projects.models import Project
from projects.services import identifier

MAX_TEXT = 1_000_000  # characters of one message
MAX_MODELS = 3
MAX_TITLE = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a person sends: the text, and optionally files, models to answer side by side and an idempotency key."""

    text: str
    files: Sequence[UUID] = ()
    models: Sequence[UUID] = ()
    key: str | None = None
    parent: UUID | None = None  # the message to go on from; by default the conversation's leaf
    beside: UUID | None = None  # the question to stand beside, as a new branch, instead


def visible_model(pk: object) -> Model | None:
    """None for no id. Raises `NotFound` for a model that is unknown or switched off."""
    if not pk:
        return None
    found = Model.objects.usable().filter(pk=identifier(pk, "model")).first()
    if found is None:
        raise NotFound("model")
    return found


def visible_persona(user: User, pk: object) -> Persona | None:
    """None for no id. Raises `NotFound` for a persona that this user may not use."""
    if not pk:
        return None
    rows = Persona.objects.visible_to(user).select_related("budget_profile", "model__provider")
    found = rows.filter(pk=identifier(pk, "persona")).first()
    if found is None:
        raise NotFound("persona")
    return found


def create_conversation(
    *, user: User, title: str = "", persona: Persona | None = None, project: Project | None = None
) -> Conversation:
    title = title.strip()[:MAX_TITLE]
    return Conversation.objects.create(owner=user, title=title, titled=bool(title), persona=persona, project=project)


@transaction.atomic
def start_conversation(*, user: User, place: Place, ask: Ask) -> Conversation:
    """A conversation and its first turn, both or neither; a repeated idempotency key finds the one it made."""
    if ask.key:
        User.objects.select_for_update().get(pk=user.pk)  # two sends of one key at once come one after the other
        earlier = (
            Turn.objects.filter(conversation__owner=user, idempotency_key=ask.key)
            .select_related("conversation")
            .first()
        )
        if earlier is not None:
            return earlier.conversation
    conversation = create_conversation(user=user, persona=place.persona, project=place.project)
    start_turn(user=user, conversation=conversation, ask=ask)
    return conversation


def update_conversation(*, user: User, conversation: Conversation, fields: Mapping[str, Any]) -> Conversation:
    """Changes title, persona, project or archived; an empty title is refused."""
    require_owner(user, conversation)
    changes = {name: fields[name] for name in ("title", "persona", "project", "archived") if name in fields}
    if "title" in changes:
        changes["title"] = changes["title"].strip()[:MAX_TITLE]
        if not changes["title"]:
            raise ProductError("empty_title", "Give the conversation a title of at least one character.")
        changes["titled"] = True
    for name, value in changes.items():
        setattr(conversation, name, value)
    conversation.save(update_fields=list(changes))
    return conversation


def delete_conversation(*, user: User, conversation: Conversation) -> None:
    """Stops what is being answered, then removes the conversation with all its messages."""
    require_owner(user, conversation)
    for turn in Turn.objects.live().filter(conversation=conversation).select_related("conversation"):
        stop_turn(user=user, turn=turn)
    conversation.delete()


def start_turn(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn]:
    """Stores the user's message and one empty answer and turn per model; the answers are then written by the worker.

    The same idempotency key again returns the turns of the first time. Raises `already_answering` (409) while a turn of
    this conversation is live, `empty_message`, `message_too_long`, `no_model`, and `not_found` for unknown ids.
    """
    require_owner(user, conversation)
    text = ask.text.strip()
    if not text:
        raise ProductError("empty_message", "The message is empty. Write something, then send it.")
    if len(text) > MAX_TEXT:
        raise ProductError(
            "message_too_long",
            f"The message has {len(text):,} characters; the most is {MAX_TEXT:,}. Upload it as a file instead.",
            status=413,
        )
    models = _models(conversation, ask.models)
    files = _files(user, conversation, models, ask.files)
    try:
        with transaction.atomic():
            locked = lock(conversation)
            earlier = _turns_of_key(locked, ask.key)
            if earlier:
                return earlier
            require_idle(locked)
            parent = _parent(locked, ask)
            question = _add_message(locked, parent, Message.Role.USER, parts=[{"type": "text", "text": text}])
            _attach(question, files)
            if not locked.title:
                locked.title = title_from(text)
            return _start_answers(locked, question, models, ask.key)
    except IntegrityError as error:
        raise busy() from error


def regenerate(*, user: User, message: Message, models: Sequence[UUID] = (), key: str | None = None) -> list[Turn]:
    """Answers the question above `message` anew, as a branch beside the old answer, which stays."""
    conversation = message.conversation
    require_owner(user, conversation)
    question = message if message.role == Message.Role.USER else message.parent
    if question is None:
        raise ProductError("nothing_to_answer", "This message has no question above it to answer again.")
    chosen = _models(conversation, models or ([message.model_id] if message.model_id else ()))
    with transaction.atomic():
        locked = lock(conversation)
        earlier = _turns_of_key(locked, key)
        if earlier:
            return earlier
        require_idle(locked)
        return _start_answers(locked, question, chosen, key)


def stop_turn(*, user: User, turn: Turn) -> None:
    """Asks a live turn to stop. One that no worker has claimed yet ends at once; an ended one stays as it is."""
    require_owner(user, turn.conversation)
    if turn.status not in Turn.LIVE:
        return
    if end_queued(turn, Ending(Turn.Status.STOPPED)):
        last = Event(EventType.RUN_STOPPED, str(turn.pk), 1, {})
        async_to_sync(streams.append)(turn.pk, [last])
        return
    Turn.objects.live().filter(pk=turn.pk).update(stop_requested=True)
    streams.signal_stop(turn.pk)


def _start_answers(
    conversation: Conversation, question: Message, models: Sequence[Model], key: str | None
) -> list[Turn]:
    turns = []
    for slot, model in enumerate(models):
        answer = _add_message(
            conversation, question, Message.Role.ASSISTANT, status=Message.Status.PENDING, model=model
        )
        turns.append(
            Turn.objects.create(
                conversation=conversation,
                user_message=question,
                answer=answer,
                model=model,
                slot=slot,
                idempotency_key=key,
                heartbeat=timezone.now(),
            )
        )
    conversation.leaf = turns[0].answer
    conversation.state = Conversation.State.ANSWERING
    conversation.updated = timezone.now()
    conversation.save(update_fields=["leaf", "state", "updated", "title"])
    for turn in turns:
        transaction.on_commit(partial(enqueue, turn.pk))
    return turns


def enqueue(turn_id: UUID) -> None:
    """Hands the turn to a worker. A broker that is away is not an error here: the sweeper finds the queued row."""
    try:
        tasks.run_turn.apply_async((str(turn_id),), retry=False)
    except tasks.BROKER_ERRORS:
        logger.warning("the broker is away; turn %s waits for the sweeper", turn_id)


def _add_message(conversation: Conversation, parent: Message | None, role: str, **fields: object) -> Message:
    depth = 0 if parent is None else parent.depth + 1
    return Message.objects.create(conversation=conversation, parent=parent, role=role, depth=depth, **fields)


def lock(conversation: Conversation) -> Conversation:
    """The row, locked until the transaction ends: two sends at once come one after the other."""
    locked = Conversation.objects.select_for_update().filter(pk=conversation.pk).first()
    if locked is None:
        raise NotFound("conversation")
    return locked


def _turns_of_key(conversation: Conversation, key: str | None) -> list[Turn]:
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
    for model in models:
        refuse_over_line(files, budget(setting(user=user, model=model, place=place_of(conversation))))
    return files


def _attach(question: Message, files: Sequence[File]) -> None:
    Attachment.objects.bulk_create(
        Attachment(message=question, file=file, name=file.name, ordinal=number) for number, file in enumerate(files)
    )


def _parent(conversation: Conversation, ask: Ask) -> Message | None:
    named = ask.beside or ask.parent
    if named is None:
        return Message.objects.filter(pk=conversation.leaf_id).first() if conversation.leaf_id else None
    found = Message.objects.filter(pk=named, conversation=conversation).select_related("parent").first()
    if found is None:
        raise NotFound("message")
    if ask.beside:
        return found.parent
    if found.role == Message.Role.USER:
        raise ProductError("parent_is_a_question", "Go on from an answer, or edit the question instead.")
    return found


def _models(conversation: Conversation, chosen: Sequence[UUID]) -> list[Model]:
    if not chosen:
        return [model_for(place_of(conversation).persona)]
    if len(chosen) > MAX_MODELS:
        raise ProductError("too_many_models", f"At most {MAX_MODELS} models can answer side by side.")
    found = {model.pk: model for model in Model.objects.usable().filter(pk__in=chosen)}
    if any(pk not in found for pk in chosen):
        raise NotFound("model")
    return [found[pk] for pk in chosen]


def require_idle(conversation: Conversation) -> None:
    if Turn.objects.live().filter(conversation=conversation).exists():
        raise busy()


def busy() -> ProductError:
    return ProductError(
        "already_answering",
        "An answer is still being written here. Wait for it or stop it, then send again; your text is kept.",
        status=409,
    )


def require_owner(user: User, conversation: Conversation) -> None:
    if conversation.owner_id != user.pk:
        raise NotFound("conversation")
