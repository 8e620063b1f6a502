"""What is asked: a person's message checked, then stored as a question with one empty answer and turn per model.

Only rows; `chat.services` and the tasks hand the turns to a worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts.models import User
from chat.mentions import remember
from chat.models import Attachment, Conversation, Message, Run, SummaryJob, Turn
from chat.plans import budget, chosen_files, refuse_over_line
from chat.prompts import place_of, setting
from chat.side.changes import list_changed
from chat.summaries.jobs import expire
from chat.titles import title_from
from files.models import File
from llm.errors import NotFound, ProductError
from llm.models import Model
from personas.services import model_for

MAX_TEXT = 1_000_000  # characters of one message
MAX_MODELS = 3


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


class Checked(NamedTuple):
    """What is asked, fit to be stored."""

    text: str
    models: Sequence[Model]
    files: Sequence[File]


def check(user: User, conversation: Conversation, ask: Ask) -> Checked:
    """Raises `empty_message`, `message_too_long`, `no_model`, what `refuse_over_line` raises, and `not_found`."""
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
    models = models_of(conversation, ask.models)
    return Checked(text, models, _files(user, conversation, models, ask.files))


def begin(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn]:
    """Stores the question and its pending answers; see `chat.services.start_turn`, which also has them written."""
    text, models, files = check(user, conversation, ask)
    try:
        with transaction.atomic():
            locked = lock(conversation)
            earlier = turns_of_key(locked, ask.key)
            if earlier:
                return earlier
            require_idle(locked, of_run=ask.of_run)
            parent = _parent(locked, ask)
            question = _add_message(locked, parent, Message.Role.USER, parts=[{"type": "text", "text": text}])
            remember(user=user, text=text, at=question.created)
            _attach(question, files)
            if not locked.title:
                locked.title = title_from(text)
            return begin_answers(locked, question, models, ask.key)
    except IntegrityError as error:
        raise busy() from error


def begin_answers(
    conversation: Conversation,
    question: Message,
    models: Sequence[Model],
    key: str | None,
    *,
    below: Message | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> list[Turn]:
    """`below`: the message that the answers stand below, where that is not the question; `options`: `chat.options`."""
    turns = []
    for slot, model in enumerate(models):
        answer = _add_message(
            conversation, below or question, Message.Role.ASSISTANT, status=Message.Status.PENDING, model=model
        )
        turns.append(
            Turn.objects.create(
                conversation=conversation,
                user_message=question,
                answer=answer,
                model=model,
                slot=slot,
                idempotency_key=key,
                options=dict(options),
                heartbeat=timezone.now(),
            )
        )
    conversation.leaf = turns[0].answer
    conversation.state = Conversation.State.ANSWERING
    conversation.updated = timezone.now()
    conversation.save(update_fields=["leaf", "state", "updated", "title"])
    list_changed(conversation)
    return turns


def _add_message(conversation: Conversation, parent: Message | None, role: str, **fields: object) -> Message:
    depth = 0 if parent is None else parent.depth + 1
    return Message.objects.create(conversation=conversation, parent=parent, role=role, depth=depth, **fields)


def lock(conversation: Conversation) -> Conversation:
    """The row, locked until the transaction ends: two sends at once come one after the other."""
    locked = Conversation.objects.select_for_update().filter(pk=conversation.pk, deleted=None).first()
    if locked is None:
        raise NotFound("conversation")
    return locked


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


def models_of(conversation: Conversation, chosen: Sequence[UUID]) -> list[Model]:
    if not chosen:
        return [model_for(place_of(conversation).persona)]
    if len(chosen) > MAX_MODELS:
        raise ProductError("too_many_models", f"At most {MAX_MODELS} models can answer side by side.")
    found = {model.pk: model for model in Model.objects.usable().filter(pk__in=chosen)}
    if any(pk not in found for pk in chosen):
        raise NotFound("model")
    return [found[pk] for pk in chosen]


class RunWaits(ProductError):
    """Whatever is sent here is an answer to this run."""

    def __init__(self, run: Run) -> None:
        self.run_id = run.pk
        super().__init__(
            "run_waits", "A run waits for you here. Answer it, or try again where it is shown.", status=409
        )  # fmt: skip


def require_idle(conversation: Conversation, *, of_run: bool = False) -> None:
    """Raises `already_answering`, `summarising`, `run_in_progress` or `RunWaits` (409).

    A summary that takes too long is no reason to wait.
    """
    here, jobs = Q(conversation=OuterRef("pk")), SummaryJob.objects.live()
    # One question for all three: each of its own would delay every first token.
    busy_with = Conversation.objects.filter(pk=conversation.pk).values_list(
        Exists(Turn.objects.live().filter(here)),
        Exists(jobs.filter(here)),
        Exists(Run.objects.unfinished().filter(here)),
    )
    answering, summarising, running = busy_with.get()
    if answering:
        raise busy()
    if summarising:
        expire(conversation.pk)
    if summarising and jobs.filter(conversation=conversation).exists():
        raise ProductError(
            "summarising",
            "Older messages are being summarised. Send again when that is done, at most two minutes from its start; "
            "your text is kept.",
            status=409,
        )
    if running and not of_run:
        require_no_run(conversation)


def require_no_run(conversation: Conversation) -> None:
    """Raises `run_in_progress` or `RunWaits` (409) where a run is at work or waits."""
    run = Run.objects.unfinished().filter(conversation=conversation).first()
    if run is not None:
        raise RunWaits(run) if run.status == Run.Status.WAITING else run_in_progress()


def run_in_progress() -> ProductError:
    return ProductError(
        "run_in_progress",
        "A run is at work in this conversation. Wait until it asks you, or stop it; your text is kept.",
        status=409,
    )


def busy() -> ProductError:
    return ProductError(
        "already_answering",
        "An answer is still being written here. Wait for it or stop it, then send again; your text is kept.",
        status=409,
    )


def require_owner(user: User, conversation: Conversation) -> None:
    if conversation.owner_id != user.pk:
        raise NotFound("conversation")
