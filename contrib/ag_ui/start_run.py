"""Write the rows of a run: the conversation, the new message or the results of the program's tools, and a turn."""

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
from chat.turns.submit import Ask, begin_answers, check_effort, choose_models, find_turns_of_key, remember_effort
from contrib.ag_ui.run_input import EarlierMessage, RunDecision, RunRequest
from core.errors import NotFound, ProductError
from core.sentences import Sentence

NOT_RUN_TEXT = "This call was not run."
DECIDED_CODES = ("already_decided", "not_waiting")  # no errors here, since the rest of the answer shows the decision


class TurnToStream(NamedTuple):
    """The turn to stream, starting after event `seq`. An earlier run has already sent the first `parts` parts."""

    turn: Turn
    seq: int = 0
    parts: int = 0


@transaction.atomic
def start_run(*, user: User, run: RunRequest, key: str | None) -> TurnToStream:
    """Begin the answering turn, or return the turn that the run continues. A repeated `key` returns its turn.

    Raises `not_found` for a row of another person, `tools_missing`, `no_tool_waits`, `results_missing`, and the errors
    of `chat.sending.services.send`.
    """
    if run.decision is not None:
        return _apply_decision(user, run.thread, run.decision)
    conversation = _get_or_create_conversation(user, run)
    if run.text is None:
        return TurnToStream(_continue_turn(conversation, run, key))
    _store_results(lock(conversation), run)
    _require_model_with_tools(conversation, run, [run.model] if run.model else [])
    ask = Ask(
        text=run.text,
        files=run.files,
        models=[run.model] if run.model else [],
        key=key,
        effort=run.effort,
        options=run.options.as_json(),
    )
    return TurnToStream(send(user=user, conversation=conversation, ask=ask)[0])


def program_call_id(answer: object, call: str) -> str:
    """Return the id of a tool call for the program. It is unique in its thread, not only in its answer."""
    return f"{answer}:{call}"


def _get_or_create_conversation(user: User, run: RunRequest) -> Conversation:
    """Return the conversation of the thread, or create it with the client's id."""
    persona = services.visible_persona(user, run.persona)
    conversation, new = Conversation.objects.get_or_create(pk=run.thread, defaults={"owner": user, "persona": persona})
    if conversation.owner_id != user.pk or conversation.deleted:
        raise NotFound("conversation")
    if new:
        _store_earlier_messages(conversation, run.earlier)
        list_changed(conversation)
    elif persona is not None and conversation.persona_id != persona.pk:
        services.update_conversation(user=user, conversation=conversation, fields={"persona": persona})
    return conversation


def _store_earlier_messages(conversation: Conversation, earlier: Sequence[EarlierMessage]) -> None:
    """Store the earlier messages of a new thread. Later runs use these and ignore the copies in requests."""
    rows: list[Message] = []
    for message in earlier:
        if message.text.strip():
            parent, parts = (rows[-1] if rows else None), [{"type": "text", "text": message.text}]
            fields = {"parent": parent, "parts": parts, "depth": len(rows), "owner_id": conversation.owner_id}
            rows.append(Message(conversation=conversation, role=message.role, **fields))
    if rows:
        conversation.leaf = Message.objects.bulk_create(rows)[-1]
        conversation.save(update_fields=["leaf"])


def _require_model_with_tools(conversation: Conversation, run: RunRequest, models: list[UUID]) -> None:
    [model] = choose_models(conversation, models)
    if run.options.tools and not model.tools:
        sentence = Sentence(
            "{name} cannot call tools. Leave “tools” out, or ask an admin to switch them on for it.", name=model.name
        )
        raise ProductError("tools_missing", sentence)


def _continue_turn(conversation: Conversation, run: RunRequest, key: str | None) -> Turn:
    """Begin a turn below the answer whose tool calls the program has run."""
    locked = lock(conversation)
    if earlier := find_turns_of_key(locked, key):
        return earlier[0]
    status = require_idle(locked)
    answered_turn = _store_results(locked, run)
    if answered_turn is None:
        sentence = (
            "The newest answer of this thread does not wait for these results. End “messages” with a user message."
        )
        raise ProductError("no_tool_waits", sentence, status=409)
    models = [pk for pk in (run.model or answered_turn.model_id,) if pk]
    _require_model_with_tools(locked, run, models)
    chosen, options = choose_models(locked, models), run.options.as_json()
    check_effort(run.effort, chosen)
    remember_effort(locked, run.effort)
    admitted = admit(locked, status, chosen, QuestionTokens())
    [turn] = begin_answers(
        locked, answered_turn.user_message, admitted, key, below=answered_turn.answer, options=options
    )
    return turn


def _store_results(locked: Conversation, run: RunRequest) -> Turn | None:
    """Write the results of the program's tools into the newest answer and return its turn.

    Returns None if the run has none of the results. Raises `results_missing` if it has only some.
    """
    rows = Turn.objects.exclude(status__in=Turn.LIVE).select_related("answer", "user_message")
    turn = rows.filter(answer=locked.leaf_id).first()
    if turn is None:
        return None
    parts, external = turn.answer.parts, {tool.name for tool in parse_options(turn.options).tools}
    answered = {part["id"] for part in parts if part["type"] == "tool_result"}
    open_calls = [part for part in parts if part["type"] == "tool_call" and part["id"] not in answered]
    waiting_calls = {
        call["id"]: program_call_id(turn.answer_id, call["id"]) for call in open_calls if call["name"] in external
    }
    missing = [name for name in waiting_calls.values() if name not in run.results]
    if not waiting_calls or len(missing) == len(waiting_calls):
        return None
    if missing:
        sentence = Sentence(
            "Send the result of every call that waits for one; missing: {missing}.", missing=", ".join(missing)
        )
        raise ProductError("results_missing", sentence)
    for call in open_calls:
        text, error = run.results[waiting_calls[call["id"]]] if call["id"] in waiting_calls else (NOT_RUN_TEXT, True)
        result = {"type": "tool_result", "id": call["id"], "text": text, "error": error, "documents": []}
        parts.append(result)
    turn.answer.tokens = {}  # the stored counts are those of the shorter answer
    turn.answer.save(update_fields=["parts", "tokens"])
    return turn


def _apply_decision(user: User, thread: UUID, decision: RunDecision) -> TurnToStream:
    point = decision.point
    turn = visible_turn(user, point.turn)
    if turn.conversation_id != thread:
        raise NotFound("turn")
    try:
        decide_call(
            user=user,
            turn=turn,
            call=point.call,
            allow=decision.allow,
            remember=decision.remember,
            content=decision.content,
        )
    except ProductError as error:
        if error.code not in DECIDED_CODES:
            raise
    return TurnToStream(turn, point.seq, point.parts)
