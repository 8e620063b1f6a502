"""The rows of a running turn: claimed, checkpointed and ended by conditional updates, so that no worker can win twice.

Synchronous; the event loop calls these through `on_database`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, cast
from uuid import UUID

from django.db import connection, transaction
from django.db.models import OuterRef, Subquery
from django.urls import reverse
from django.utils import timezone

from accounts.access.rights import counted_to
from accounts.webhooks.services import emit
from chat.context.cache import SentPrompt
from chat.ledger.models import ModelCall, total_cost
from chat.ledger.recording import record_calls
from chat.models import LastPrompt, Message, StepReasoning, SummaryJob, Turn, queries
from chat.models.conversation_state import list_changed, scope_of, settle
from chat.prompts.history import known_by
from chat.prompts.report import CallReport
from chat.realtime.events import EventType
from chat.turns.line import left_behind
from core.background import silent, unclaimed
from core.errors import ModelError, ProductError
from core.sentences import NO_SENTENCE, Sentence
from llm import tokens
from llm.models import Model, Provider
from llm.types.model_call import ModelMessage as LoopMessage
from llm.types.model_call import Usage
from projects.planner.models import RunStep


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends. `status` is one of Turn.Status; Message.Status has the same words for all of them."""

    status: str
    code: str = ""
    detail: Sentence = NO_SENTENCE
    retryable: bool = False


NOTHING = {"input": 0, "output": 0}  # tokens
NO_CACHE = {"expected": 0}  # of reports of earlier versions
INTERRUPTED = Ending(
    Turn.Status.INTERRUPTED,
    "interrupted",
    Sentence(
        "The answer was cut off because the server stopped. What was written is kept; try again to get a whole one."
    ),
    retryable=True,
)
UNEXPECTED = Ending(
    Turn.Status.FAILED,
    "internal_error",
    Sentence("Something went wrong on the server while answering. Try again; if it happens again, tell your admin."),
    retryable=True,
)


def of_empty_answer(finish_reason: str, finish_detail: str = "") -> Ending:
    """How a turn ends whose model has written nothing. `finish_detail`: the provider's word for a reason not known."""
    match finish_reason:
        case "refusal":
            code = "model_declined"
            detail = Sentence("The model declined to answer this. Ask in other words, or another model.")
        case "content_filter":
            code = "content_filtered"
            detail = Sentence("The provider's content filter let nothing of the answer through. Rephrase.")
        case "length" | "context_window":
            code = "empty_answer"
            detail = Sentence(
                "The model used up its answer before its first word, as models do that think long. Try again with less "
                "effort, or ask an administrator to allow longer answers."
            )
        case "other":
            code = "empty_answer"
            detail = Sentence(
                "The model wrote nothing: its provider ended the answer with “{finish_detail}”. Try again.",
                finish_detail=finish_detail,
            )
        case _:
            code, detail = "empty_answer", Sentence("The model finished without writing anything. Try again.")
    return Ending(Turn.Status.FAILED, code, detail, retryable=True)


def of_error(error: ProductError, why: ModelError | None, model: str) -> Ending:
    """How a turn ends that failed so. `why`: for which `model` was asked, a fallback; empty when none was.

    Where the prompt cannot be made for that one, the model that was chosen is still worth waiting for.
    """
    if why is None or not model or isinstance(error, ModelError):
        return Ending(Turn.Status.FAILED, error.code, error.sentence, getattr(error, "retryable", True))
    reason, problem = why.sentence, error.sentence
    return Ending(
        Turn.Status.FAILED,
        why.code,
        Sentence(
            "{reason} “{model}” cannot take its place (“{problem}”).", reason=reason, model=model, problem=problem
        ),
        retryable=True,
    )


def last_event(
    ending: Ending, usage: dict[str, int], finish: str = "stop", finish_detail: str = ""
) -> tuple[EventType, dict[str, Any]]:
    """The type and payload of the last event of a turn that ends so."""
    if ending.status == Turn.Status.DONE:
        return EventType.RUN_FINISHED, {"usage": usage, "finish": finish, "finish_detail": finish_detail}
    if ending.status == Turn.Status.STOPPED:
        return EventType.RUN_STOPPED, {}
    payload = {
        "code": ending.code,
        "detail": ending.detail.dump(),
        "status": ending.status,
        "retryable": ending.retryable,
    }
    return EventType.RUN_ERROR, payload


class Progress(NamedTuple):
    """How far a turn has come: `parts` of its answer as JSON, up to event `seq`; None where nothing is new.

    `turned`: since the last time it has begun to wait for its person, or waits no more.
    """

    turn: Turn
    parts: str | None
    seq: int
    turned: bool = False


# A row that somebody else holds locked is left out this time: one person's turn must not hold up everybody's.
_CHECKPOINT = """
WITH given AS (
    SELECT * FROM unnest(%s::uuid[], %s::int[], %s::int[], %s::text[]) AS given (id, attempt, seq, parts)
), ours AS (
    SELECT turn.id FROM chat_turn turn JOIN given USING (id)
    WHERE turn.attempt = given.attempt AND turn.status = 'running' FOR NO KEY UPDATE OF turn SKIP LOCKED
), beat AS (
    UPDATE chat_turn turn SET heartbeat = now(), seq = given.seq FROM ours JOIN given USING (id)
    WHERE turn.id = ours.id RETURNING turn.answer_id, given.parts
), written AS (
    UPDATE chat_message SET parts = beat.parts::jsonb FROM beat WHERE id = beat.answer_id AND beat.parts IS NOT NULL
)
SELECT turn.id, turn.stop_requested FROM chat_turn turn JOIN given USING (id)
WHERE turn.attempt = given.attempt AND turn.status = 'running'
"""


def checkpoint(progress: Sequence[Progress]) -> dict[UUID, bool]:
    """Writes the heartbeats and what is new in the answers, in one statement.

    Returns, of the turns that are still ours, whether a stop was asked for.
    """
    rows = [(each.turn.pk, each.turn.attempt, each.seq, each.parts) for each in progress]
    with connection.cursor() as cursor:
        cursor.execute(_CHECKPOINT, [list(column) for column in zip(*rows, strict=True)])
        ours = dict(cursor.fetchall())
    for each in progress:
        if each.turned and each.turn.pk in ours:
            list_changed(each.turn.conversation)
    return ours


class Asked(TypedDict):
    """What is known of a call before it is made; the fields of a `CallReport` by the same names."""

    cycle: int
    model: str
    model_id: str
    used: int
    tools_tokens: int


def note_asked(turn: Turn, calls: Sequence[CallReport]) -> None:
    """Committed before a request leaves: the ledger has it whatever becomes of its worker.

    Raises `interrupted` where somebody else has ended the turn, who has written down what it cost.
    """
    asked = [{name: call[name] for name in Asked.__annotations__} for call in calls]  # type: ignore[literal-required]  # they are its keys
    if not queries.note_asked(turn, asked):
        raise ProductError(INTERRUPTED.code, INTERRUPTED.detail)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a turn leaves behind: the answer's parts up to event `seq`, token usage, and a report of each model call.

    `summary` is a job that is due now, not stored yet; `prompts` what was asked last, by model. `finish_reason`: of
    the last step; `finish_detail`: the provider's word for one that is not known. `first_token`: how many milliseconds
    after it was asked for. `asked`: of a worker that was killed, perhaps before it had stored the reports of its last
    calls. `window_caps`: by model, a smaller window that holds for the conversation, see `chat.models.LastPrompt`.
    """

    parts: list[dict[str, Any]]
    seq: int
    usage: dict[str, int] = field(default_factory=dict)
    calls: list[CallReport] = field(default_factory=list)
    summary: SummaryJob | None = None
    prompts: Mapping[UUID, SentPrompt] = field(default_factory=dict)
    window_caps: Mapping[UUID, int | None] = field(default_factory=dict)
    finish_reason: str = ""
    first_token: int | None = None
    asked: Sequence["Asked"] = ()
    finish_detail: str = ""


def end(turn: Turn, ending: Ending, outcome: Outcome) -> str | None:
    """Ends the turn and completes its answer, once: None when somebody else has ended it already.

    What its model calls cost is written down with it. Returns the state of its conversation.
    """
    spent = _spent(turn, ending, outcome) if outcome.calls or outcome.asked else []
    values = {
        "status": ending.status,
        "seq": outcome.seq,
        "usage": outcome.usage,
        "asked": [],
        "finish_reason": outcome.finish_reason if ending.status == Turn.Status.DONE else "",
        "finish_detail": storable(outcome.finish_detail) if ending.status == Turn.Status.DONE else "",
        "cost": total_cost(spent),
        "first_token_ms": outcome.first_token,
        **_context(outcome.calls),
        "finished": timezone.now(),
    }
    answer = {
        "parts": storable(outcome.parts),
        "status": ending.status,
        "error_code": ending.code,
        "error_detail": storable(ending.detail.dump()),
    }
    asked = [
        LastPrompt(
            conversation_id=turn.conversation_id,
            model_id=model,
            prompt=prompt.as_json(),
            window_cap=outcome.window_caps.get(model),
        )
        for model, prompt in outcome.prompts.items()
    ]
    with transaction.atomic():
        if not queries.end(turn, values, answer):
            return None
        record_calls(spent, asked)
        state = settle(turn.conversation_id, outcome.summary)
        _tell(turn, ending)
    return state


def _spent(turn: Turn, ending: Ending, outcome: Outcome) -> list[ModelCall]:
    """A row for each model call. One that was refused, or failed before it wrote anything, costs nothing anywhere.

    A call in the middle of which the turn was stopped, or lost its worker, is counted as far as it came, with what the
    provider's cache was expected to serve.
    """
    scope = scope_of(turn.conversation)
    written = _written(outcome.parts)
    named = {
        "person_id": turn.conversation.owner_id,
        "group_id": counted_to(turn.conversation.owner_id, getattr(turn, "version", None)),
        "conversation_id": turn.conversation_id,
        "turn": turn,
        "token_id": turn.token_id,
        "project": scope.project,
        "persona": turn.conversation.persona or scope.persona,  # also where it was taken away meanwhile
        "purpose": ModelCall.Purpose.RUN if getattr(turn, "run_step", None) else ModelCall.Purpose.ANSWER,
    }
    spent = []
    # A prompt that was refused as too long, and its successor, are of the same cycle.
    reported = {call["cycle"]: call for call in outcome.calls}
    calls = {call["cycle"]: cast("CallReport", call) for call in outcome.asked} | reported
    for number, call in calls.items():
        answer, said = written.get(number, ""), Usage(**(call.get("usage") or NOTHING))
        if not (answer or said.input) and ending.status == Turn.Status.FAILED:
            continue
        model = _asked(turn, call)
        tokenizer = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL)
        counted = Usage(
            call["used"] + call["tools_tokens"],
            0 if said.output else tokenizer.count(answer),
            cached_input=call.get("cache", NO_CACHE)["expected"],
        )
        spent.append(ModelCall.of(model, said, counted, number=number, **named))
    return spent


def _asked(turn: Turn, call: CallReport) -> Model:
    """The model of one call; of one that is gone only the name is left."""
    pk = call.get("model_id", str(turn.model_id))
    if turn.model is not None and pk == str(turn.model_id):
        return turn.model
    found = Model.objects.select_related("provider").filter(pk=pk).first() if pk != "None" else None
    return found or Model(pk=None, name=call["model"], provider=Provider())


def _written(parts: list[dict[str, Any]]) -> dict[int, str]:
    """What the model wrote in each cycle, from 1, reasoning and the arguments of tool calls included."""
    written: dict[int, str] = {}
    cycle, closed = 1, False
    for part in parts:
        if part["type"] == "tool_result":
            closed = True
            continue
        if closed:
            cycle, closed = cycle + 1, False
        said = part.get("text") or part.get("name", "") + part.get("arguments", "")
        written[cycle] = written.get(cycle, "") + said
    return written


def _tell(turn: Turn, ending: Ending) -> None:
    place = turn.conversation
    ids = {"turn": str(turn.pk), "conversation": str(place.pk), "message": str(turn.answer_id)}
    paths = {"url": reverse("turn-detail", args=[turn.pk]), "page": reverse("chat:conversation", args=[place.pk])}
    emit(owner_id=place.owner_id, event="turn.finished", ids={**ids, "status": str(ending.status)}, paths=paths)


def keep_reasoning(turn: Turn, added: Sequence[LoopMessage], reminders: Mapping[int, str]) -> None:
    """Stores what the provider wants back of the newest step. Before the next step, so that a dead worker's turn, too,
    can be gone on from. `reminders` as those of `chat.prompts.builder.Step`."""
    asked = [number for number, message in enumerate(added) if message.tool_calls]
    if asked and (state := added[asked[-1]].reasoning) is not None:
        kept = {
            "items": storable(list(state.items)),
            "tokens": state.tokens,
            "calls": known_by(added[asked[-1]].tool_calls),
            "reminder": reminders.get(asked[-1], ""),
        }
        StepReasoning.objects.update_or_create(turn=turn, number=len(asked), defaults=kept)


def fall_back(turn: Turn, model: Model, reason: str) -> None:
    """The turn's answer is this model's from now on, and what another has thought in it is not replayed any more.

    `reason`: the code of the error for which the turn's own model, or a fallback of it, is not asked.
    """
    with transaction.atomic():
        if Turn.objects.live().filter(pk=turn.pk, attempt=turn.attempt).update(fallback_reason=reason):
            Message.objects.filter(pk=turn.answer_id).update(model=model)
            turn.reasoning.all().delete()


def store_report(turn: Turn, calls: list[CallReport]) -> None:
    """What its model calls saw, before the turn ends."""
    Turn.objects.filter(pk=turn.pk).update(**_context(calls))


def _context(calls: list[CallReport]) -> dict[str, Any]:
    """The fields of a turn that tell what its model calls saw; none before the first call."""
    if not calls:
        return {}
    last = calls[-1]
    return {
        "report": {"calls": calls},
        "context_limit": max(0, last["limit"]),
        "context_used": last["used"],
        "context_left_out": last.get("without_room", 0),
        "context_unread": max(call.get("unread", 0) for call in calls),
        "context_notice": next((notice for call in reversed(calls) if (notice := call.get("notice", ""))), ""),
    }


@dataclass(frozen=True, slots=True)
class Stale:
    interrupted: list[UUID]
    unclaimed: list[UUID]


def stale() -> Stale:
    """Running turns without a heartbeat; queued ones that may be written and no worker has claimed."""
    running = silent(Turn.objects.filter(status=Turn.Status.RUNNING))
    return Stale(
        list(running.values_list("pk", flat=True)),
        unclaimed(Turn.objects.filter(status=Turn.Status.QUEUED, pk__in=left_behind())),
    )


_RUN_STEP = Subquery(RunStep.objects.filter(turn=OuterRef("pk")).values("pk"))


def stale_turn(turn_id: UUID) -> Turn | None:
    rows = silent(Turn.objects.filter(pk=turn_id, status=Turn.Status.RUNNING))
    related = ("answer", "conversation__persona", "conversation__owner", "model__provider")
    return rows.select_related(*related).annotate(run_step=_RUN_STEP).first()


def end_queued(turn: Turn, ending: Ending) -> bool:
    """Ends a turn that no worker has claimed yet."""
    with transaction.atomic():
        queued = Turn.objects.select_for_update().filter(pk=turn.pk, status=Turn.Status.QUEUED).first()
        return queued is not None and end(queued, ending, Outcome([], 0)) is not None


def dump(parts: list[dict[str, Any]]) -> str:
    """The parts of an answer as JSON that can be stored."""
    return json.dumps(storable(parts), ensure_ascii=False, separators=(",", ":"))


def storable(value: Any) -> Any:
    """A JSON value without what PostgreSQL cannot hold, NUL and halves of characters: whoever writes one, a model or a
    program, must not lose the rest."""
    if isinstance(value, str):
        text = value.replace("\x00", "")
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode(errors="replace").decode()
        return text  # itself: a copy of each text would double a request's memory
    if isinstance(value, list):
        return [storable(each) for each in value]
    if isinstance(value, dict):
        return {storable(name): storable(each) for name, each in value.items()}
    return value
