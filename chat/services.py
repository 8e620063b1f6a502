"""Every change to conversations, messages and turns. Page, API, socket and task all come through here."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import transaction

from accounts.models import User
from chat import deletion, streams, tasks
from chat.asking import (
    Ask,
    RunWaits,
    begin,
    begin_answers,
    lock,
    models_of,
    require_idle,
    require_owner,
    turns_of_key,
)
from chat.endings import Ending
from chat.events import Approval, Event, EventType
from chat.models import Conversation, Message, NextMessage, Turn
from chat.prompts import Place
from chat.runs import course as runs
from chat.side.changes import list_changed
from chat.turn_rows import end_queued
from chat.waiting import approvals
from chat.waiting.next_messages import keep_next, take, tell_pages
from llm.errors import NotFound, ProductError
from llm.models import Model
from personas.models import Persona
from projects.models import Project
from projects.services import identifier

MAX_TITLE = 200

logger = logging.getLogger(__name__)


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
    fields = {"title": title, "titled": bool(title), "persona": persona, "project": project}
    made = Conversation.objects.create(owner=user, **fields)
    list_changed(made)
    return made


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
    list_changed(conversation)
    return conversation


def delete_conversation(*, user: User, conversation: Conversation) -> None:
    """Stops what is being answered, then hides the conversation: `deletion.restore_conversation` takes that back."""
    require_owner(user, conversation)
    for turn in Turn.objects.live().filter(conversation=conversation).select_related("conversation"):
        stop_turn(user=user, turn=turn)
    deletion.hide(conversation)


def regenerate(*, user: User, message: Message, models: Sequence[UUID] = (), key: str | None = None) -> list[Turn]:
    """Answers the question above `message` anew, as a branch beside the old answer, which stays."""
    conversation = message.conversation
    require_owner(user, conversation)
    question = message if message.role == Message.Role.USER else message.parent
    if question is None:
        raise ProductError("nothing_to_answer", "This message has no question above it to answer again.")
    chosen = models_of(conversation, models or ([message.model_id] if message.model_id else ()))
    with transaction.atomic():
        locked = lock(conversation)
        earlier = turns_of_key(locked, key)
        if earlier:
            return earlier
        require_idle(locked)
        turns = begin_answers(locked, question, chosen, key)
        _have_written(turns)
    return turns


def start_turn(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn]:
    """Stores the user's message and one empty answer and turn per model; the answers are then written by the worker.

    The same idempotency key again returns the turns of the first time. Raises `already_answering` (409) while a turn of
    this conversation is live, `empty_message`, `message_too_long`, `no_model`, and `not_found` for unknown ids. Where a
    run is at work it raises `run_in_progress` (409), and where one waits the message is the answer to it.
    """
    try:
        turns = begin(user=user, conversation=conversation, ask=ask)
    except RunWaits as waits:
        turns = runs.answer(user=user, run_id=waits.run_id, ask=ask)
    _have_written(turns)
    return turns


def send_or_keep(*, user: User, conversation: Conversation, ask: Ask) -> list[Turn] | NextMessage:
    """`start_turn`, or while an answer is live `keep_next`: what a person's own page does with a message."""
    try:
        return start_turn(user=user, conversation=conversation, ask=ask)
    except ProductError as error:
        if error.code != "already_answering":
            raise
    try:
        return keep_next(user=user, conversation=conversation, ask=ask)
    except ProductError as error:
        if error.code != "not_answering":  # it has ended between the two
            raise
    return start_turn(user=user, conversation=conversation, ask=ask)


def send_next(*, user: User, conversation: Conversation, pk: UUID | None = None) -> list[Turn]:
    """Sends the message that was kept although the answer before it did not end well.

    Raises `no_next_message` (404) and what `start_turn` raises; then it is still kept.
    """
    require_owner(user, conversation)
    with transaction.atomic():
        turns = begin(user=user, conversation=conversation, ask=take(conversation, pk))
        _have_written(turns)
        tell_pages(conversation)
    return turns


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


def decide_call(*, user: User, turn: Turn, call: str, allow: bool) -> None:
    """Says whether a tool call that waits for its person may run.

    Raises `not_found` for a call that does not ask, `already_decided` and `not_waiting` (409).
    """
    require_owner(user, turn.conversation)
    approvals.require_waiting(turn, async_to_sync(approvals.parts_of)(turn), call)
    if not streams.decide(turn.pk, call, Approval.ALLOWED if allow else Approval.REFUSED):
        raise approvals.already_decided()


def enqueue(turn_id: UUID) -> None:
    """Hands the turn to a worker. A broker that is away is not an error here: the sweeper finds the queued row."""
    try:
        tasks.run_turn.apply_async((str(turn_id),), retry=False)
    except tasks.BROKER_ERRORS:
        logger.warning("the broker is away; turn %s waits for the sweeper", turn_id)


def _have_written(turns: Sequence[Turn]) -> None:
    """Enqueues, once they are committed, those that no worker has yet."""
    for turn in turns:
        if turn.status == Turn.Status.QUEUED:
            transaction.on_commit(partial(enqueue, turn.pk))
