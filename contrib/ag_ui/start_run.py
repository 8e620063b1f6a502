"""What a run changes: a thread's conversation, its new message or the results of the program's tools, and a turn."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from accounts.models import User
from chat.conversations import services
from chat.models import Conversation, Message, Turn
from chat.models.conversation_state import list_changed, lock, visible_turn
from chat.prompts.turn_context import parse_options
from chat.sending.services import send
from chat.summaries.idle import require_idle
from chat.turns.admission import QuestionTokens, admit
from chat.turns.services import decide_call
from chat.turns.submit import Ask, begin_answers, check_effort, models_of, remember_effort, turns_of_key
from contrib.ag_ui.run_input import Decision, Said, Wanted
from core.errors import NotFound, ProductError
from core.sentences import Sentence

NOT_RUN = "This call was not run."
DECIDED = ("already_decided", "not_waiting")  # then the rest of the answer says what became of the call


class Started(NamedTuple):
    """The turn to tell of, from its first event after `seq` on; an earlier run has told its first `parts` parts."""

    turn: Turn
    seq: int = 0
    parts: int = 0


@transaction.atomic
def start(*, user: User, wanted: Wanted, key: str | None) -> Started:
    """Begins the turn that answers, or finds the one that the run goes on with; a repeated key finds its turn.

    Raises `not_found` for what is another's, `tools_missing`, `no_tool_waits`, `results_missing`, and what
    `chat.sending.services.send` raises.
    """
    if wanted.decision is not None:
        return _decided(user, wanted.thread, wanted.decision)
    conversation = _thread(user, wanted)
    if wanted.text is None:
        return Started(_go_on(conversation, wanted, key))
    _take_results(lock(conversation), wanted)
    _require_tools(conversation, wanted, [wanted.model] if wanted.model else [])
    ask = Ask(
        text=wanted.text,
        files=wanted.files,
        models=[wanted.model] if wanted.model else [],
        key=key,
        effort=wanted.effort,
        options=dict(wanted.options.as_json()),
    )
    return Started(send(user=user, conversation=conversation, ask=ask)[0])


def call_id(answer: object, call: str) -> str:
    """A tool call's id as the program knows it: unique in the thread, where a model's own is so in an answer only."""
    return f"{answer}:{call}"


def _thread(user: User, wanted: Wanted) -> Conversation:
    """The conversation of this id, made where there is none: the client chooses the id of a new thread."""
    persona = services.visible_persona(user, wanted.persona)
    conversation, new = Conversation.objects.get_or_create(
        pk=wanted.thread, defaults={"owner": user, "persona": persona}
    )
    if conversation.owner_id != user.pk or conversation.deleted:
        raise NotFound("conversation")
    if new:
        _begin_with(conversation, wanted.earlier)
        list_changed(conversation)
    elif persona is not None and conversation.persona_id != persona.pk:
        services.update_conversation(user=user, conversation=conversation, fields={"persona": persona})
    return conversation


def _begin_with(conversation: Conversation, earlier: Sequence[Said]) -> None:
    """A new thread's history is what the run brings of it; later the server's own counts."""
    rows: list[Message] = []
    for said in earlier:
        if said.text.strip():
            parent, parts = (rows[-1] if rows else None), [{"type": "text", "text": said.text}]
            fields = {"parent": parent, "parts": parts, "depth": len(rows), "owner_id": conversation.owner_id}
            rows.append(Message(conversation=conversation, role=said.role, **fields))
    if rows:
        conversation.leaf = Message.objects.bulk_create(rows)[-1]
        conversation.save(update_fields=["leaf"])


def _require_tools(conversation: Conversation, wanted: Wanted, models: list[UUID]) -> None:
    [model] = models_of(conversation, models)
    if wanted.options.tools and not model.tools:
        sentence = Sentence(
            "{name} cannot call tools. Leave “tools” out, or ask an admin to switch them on for it.", name=model.name
        )
        raise ProductError("tools_missing", sentence)


def _go_on(conversation: Conversation, wanted: Wanted, key: str | None) -> Turn:
    """A turn below the answer whose calls the program has run."""
    locked = lock(conversation)
    if earlier := turns_of_key(locked, key):
        return earlier[0]
    found = require_idle(locked)
    asked = _take_results(locked, wanted)
    if asked is None:
        sentence = "The newest answer of this thread waits for no such result. End “messages” with one of the user."
        raise ProductError("no_tool_waits", sentence, status=409)
    models = [pk for pk in (wanted.model or asked.model_id,) if pk]
    _require_tools(locked, wanted, models)
    chosen, options = models_of(locked, models), dict(wanted.options.as_json())
    check_effort(wanted.effort, chosen)
    remember_effort(locked, wanted.effort)
    admitted = admit(locked, found, chosen, QuestionTokens())
    [turn] = begin_answers(locked, asked.user_message, admitted, key, below=asked.answer, options=options)
    return turn


def _take_results(locked: Conversation, wanted: Wanted) -> Turn | None:
    """Writes what the program's tools returned into the newest answer and returns its turn.

    None where nothing was returned that it waits for. All or nothing: raises `results_missing`.
    """
    rows = Turn.objects.exclude(status__in=Turn.LIVE).select_related("answer", "user_message")
    turn = rows.filter(answer=locked.leaf_id).first()
    if turn is None:
        return None
    parts, external = turn.answer.parts, {tool.name for tool in parse_options(turn.options).tools}
    answered = {part["id"] for part in parts if part["type"] == "tool_result"}
    open_calls = [part for part in parts if part["type"] == "tool_call" and part["id"] not in answered]
    waiting = {call["id"]: call_id(turn.answer_id, call["id"]) for call in open_calls if call["name"] in external}
    missing = [name for name in waiting.values() if name not in wanted.results]
    if not waiting or len(missing) == len(waiting):
        return None
    if missing:
        sentence = Sentence(
            "Send the result of every call that waits for one; missing: {missing}.", missing=", ".join(missing)
        )
        raise ProductError("results_missing", sentence)
    for call in open_calls:
        text, error = wanted.results[waiting[call["id"]]] if call["id"] in waiting else (NOT_RUN, True)
        result = {"type": "tool_result", "id": call["id"], "text": text, "error": error, "documents": []}
        parts.append(result)
    turn.answer.tokens = {}  # it has grown
    turn.answer.save(update_fields=["parts", "tokens"])
    return turn


def _decided(user: User, thread: UUID, decision: Decision) -> Started:
    left = decision.interrupted
    turn = visible_turn(user, left.turn)
    if turn.conversation_id != thread:
        raise NotFound("turn")
    try:
        decide_call(user=user, turn=turn, call=left.call, allow=decision.allow, remember=decision.remember)
    except ProductError as error:
        if error.code not in DECIDED:
            raise
    return Started(turn, left.seq, left.parts)
