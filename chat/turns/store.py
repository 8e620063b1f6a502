"""Write the rows of a running turn.

1. A worker claims a turn (`chat.models.queries.claim`), which raises its `attempt`.
2. `store_requested_calls` stores each request to a model before it leaves.
3. `checkpoint` writes heartbeats and the answers so far, once a second for all turns of a process.
4. `end_turn` completes the turn, its answer and the ledger, and settles its conversation.

Updates are conditional on `attempt`, so two workers can never both carry out a turn. All functions are synchronous; the
event loop calls them through `on_database`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, cast
from uuid import UUID

from django.db import connection, transaction
from django.db.models import CharField, F, Func, Value
from django.db.models.lookups import Exact
from django.urls import reverse
from django.utils import timezone

from accounts.access.rights import billing_group
from accounts.webhooks.services import emit
from chat.context.cache import SentPrompt
from chat.ledger.models import ModelCall, total_cost
from chat.ledger.recording import record_calls
from chat.models import LastPrompt, Message, StepReasoning, SummaryJob, Turn
from chat.models.conversation import TurnScope
from chat.models.conversation_state import list_changed, scope_of, settle
from chat.models.parts import MessagePart
from chat.prompts.history import calls_digest
from chat.prompts.report import CallReport
from chat.realtime.events import EventPayload, EventType
from chat.turns.line import find_unclaimed
from core.background import stale_rows, take_unclaimed
from core.errors import ModelError, ProductError
from core.sentences import NO_SENTENCE, Sentence
from llm import tokens
from llm.models import Model, Provider
from llm.types.model_call import ModelMessage as LoopMessage
from llm.types.model_call import Usage
from projects.planner.models import RunStep


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a turn. `status` is a final Turn.Status; Message.Status has the same values for these."""

    status: str
    code: str = ""
    detail: Sentence = NO_SENTENCE
    retryable: bool = False


NO_USAGE = {"input": 0, "output": 0}  # tokens
NO_CACHE = {"expected": 0}  # in reports of earlier versions
INTERRUPTED = Ending(
    Turn.Status.INTERRUPTED,
    "interrupted",
    Sentence(
        "The server stopped before the answer was complete. The text so far is kept. Try again to get a "
        "complete answer."
    ),
    retryable=True,
)
UNEXPECTED = Ending(
    Turn.Status.FAILED,
    "internal_error",
    Sentence("An internal error occurred while answering. Try again; if it happens again, tell your admin."),
    retryable=True,
)


def empty_answer_ending(finish_reason: str, finish_detail: str = "") -> Ending:
    """Return the end of a turn whose model wrote nothing. `finish_detail`: the reason in the provider's words."""
    match finish_reason:
        case "refusal":
            code = "model_declined"
            detail = Sentence("The model declined to answer. Rephrase your question, or ask another model.")
        case "content_filter":
            code = "content_filtered"
            detail = Sentence("The provider's content filter blocked the whole answer. Rephrase your question.")
        case "length" | "context_window":
            code = "empty_answer"
            detail = Sentence(
                "The model used its whole output limit for reasoning. Try again with less effort, or ask an "
                "administrator to allow longer answers."
            )
        case "other":
            code = "empty_answer"
            detail = Sentence(
                "The model wrote nothing: its provider ended the answer with “{finish_detail}”. Try again.",
                finish_detail=finish_detail,
            )
        case _:
            code = "empty_answer"
            detail = Sentence("The model finished without writing anything. Try again.")
    return Ending(Turn.Status.FAILED, code, detail, retryable=True)


def error_ending(error: ProductError, outage: ModelError | None, fallback: str) -> Ending:
    """Return the end of a turn that failed with an error.

    `fallback`: the name of the model that was asked instead, because of the `outage` of the chosen model; empty without
    one. If the prompt cannot be built for the fallback, the error is retryable: the chosen model may recover.
    """
    if outage is None or not fallback or isinstance(error, ModelError):
        return Ending(Turn.Status.FAILED, error.code, error.sentence, getattr(error, "retryable", True))
    detail = Sentence(
        "{reason} “{model}” cannot take its place (“{problem}”).",
        reason=outage.sentence,
        model=fallback,
        problem=error.sentence,
    )
    return Ending(Turn.Status.FAILED, outage.code, detail, retryable=True)


def last_event(
    ending: Ending, usage: dict[str, int], finish: str = "stop", finish_detail: str = ""
) -> tuple[EventType, EventPayload]:
    """Return the type and payload of the last event of a turn."""
    if ending.status == Turn.Status.DONE:
        return EventType.RUN_FINISHED, {"usage": usage, "finish": finish, "finish_detail": finish_detail}
    if ending.status == Turn.Status.STOPPED:
        return EventType.RUN_STOPPED, {}
    payload: EventPayload = {
        "code": ending.code,
        "detail": ending.detail.dump(),
        "status": ending.status,
        "retryable": ending.retryable,
    }
    return EventType.RUN_ERROR, payload


class TurnProgress(NamedTuple):
    """The progress of a turn: the `parts` of its answer as JSON, up to event `seq`; None if nothing is new.

    `asks_changed`: since the last checkpoint the turn has begun, or stopped, waiting for its user.
    """

    turn: Turn
    parts: str | None
    seq: int
    asks_changed: bool = False


# One statement for many turns, which the ORM cannot write. It skips rows that are locked: one user's turn must not
# delay all others.
_CHECKPOINT = """
WITH progress AS (
    SELECT * FROM unnest(%s::uuid[], %s::int[], %s::int[], %s::text[]) AS progress (id, attempt, seq, parts)
), ours AS (
    SELECT turn.id FROM chat_turn turn JOIN progress USING (id)
    WHERE turn.attempt = progress.attempt AND turn.status = 'running' FOR NO KEY UPDATE OF turn SKIP LOCKED
), beat AS (
    UPDATE chat_turn turn SET heartbeat = now(), seq = progress.seq FROM ours JOIN progress USING (id)
    WHERE turn.id = ours.id RETURNING turn.answer_id, progress.parts
), written AS (
    UPDATE chat_message SET parts = beat.parts::jsonb FROM beat WHERE id = beat.answer_id AND beat.parts IS NOT NULL
)
SELECT turn.id, turn.stop_requested FROM chat_turn turn JOIN progress USING (id)
WHERE turn.attempt = progress.attempt AND turn.status = 'running'
"""


def checkpoint(progress: Sequence[TurnProgress]) -> dict[UUID, bool]:
    """Write the heartbeats and the new text of the answers in one statement.

    Return whether a stop was requested, for each turn that this worker still carries out.
    """
    rows = [(each.turn.pk, each.turn.attempt, each.seq, each.parts) for each in progress]
    with connection.cursor() as cursor:
        cursor.execute(_CHECKPOINT, [list(column) for column in zip(*rows, strict=True)])
        stop_requested = dict(cursor.fetchall())
    for each in progress:
        if each.asks_changed and each.turn.pk in stop_requested:
            list_changed(each.turn.conversation)
    return stop_requested


class RequestedCall(TypedDict):
    """A model call, stored before its request is sent. The members are the same as in its `CallReport`."""

    cycle: int
    model: str
    model_id: str
    used: int
    tools_tokens: int


# Always true. A statement with this condition commits without waiting for the disk, since the wait would delay the
# first token. If the worker is killed, nothing is lost. If the database server fails within about 0.6 s, the commit is
# lost.
_WITHOUT_WAITING_FOR_THE_DISK = Exact(
    Func(Value("synchronous_commit"), Value("off"), Value(True), function="set_config", output_field=CharField()),
    Value("off"),
)


def store_requested_calls(turn: Turn, calls: Sequence[CallReport]) -> None:
    """Commit the calls of a turn before a request is sent, so that the ledger counts it even if the worker is killed.

    Raises `interrupted` if another process has ended the turn and recorded its cost.
    """
    requested = [
        RequestedCall(
            cycle=call["cycle"],
            model=call["model"],
            model_id=call["model_id"],
            used=call["used"],
            tools_tokens=call["tools_tokens"],
        )
        for call in calls
    ]
    running = Turn.objects.filter(
        _WITHOUT_WAITING_FOR_THE_DISK, pk=turn.pk, attempt=turn.attempt, status=Turn.Status.RUNNING
    )
    if not running.update(asked=requested):
        raise ProductError(INTERRUPTED.code, INTERRUPTED.detail)


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The result of a turn: the answer's parts up to event `seq`, token usage, and a report of each model call.

    * `summary`: a job that is due now and not stored yet.
    * `prompts`: the last prompt to each model.
    * `window_caps`: by model, a smaller window that holds for the conversation (`chat.models.LastPrompt`).
    * `finish_reason`: the reason of the last step. `finish_detail`: an unknown reason in the provider's words.
    * `first_token`: milliseconds from the question to the first token.
    * `requested`: calls of a killed worker, which may not have stored the reports of its last calls.
    * `of_run`: a step of a run has asked.
    * `version`: the version of the workspace at which the turn was claimed; None means the present one.
    """

    parts: list[MessagePart]
    seq: int
    usage: dict[str, int] = field(default_factory=dict)
    calls: list[CallReport] = field(default_factory=list)
    summary: SummaryJob | None = None
    prompts: Mapping[UUID, SentPrompt] = field(default_factory=dict)
    window_caps: Mapping[UUID, int | None] = field(default_factory=dict)
    finish_reason: str = ""
    first_token: int | None = None
    requested: Sequence[RequestedCall] = ()
    finish_detail: str = ""
    of_run: bool = False
    version: UUID | None = None


def end_turn(turn: Turn, ending: Ending, outcome: TurnOutcome) -> str | None:
    """End the turn and complete its answer, once. Return the state of its conversation.

    Return None if another process has already ended it. The cost of its model calls is stored in the same transaction.
    The raised `attempt` stops a worker that still carries it out.
    """
    ledger_rows = _ledger_rows(turn, ending, outcome) if outcome.calls or outcome.requested else []
    done = ending.status == Turn.Status.DONE
    prompts = [
        LastPrompt(
            conversation_id=turn.conversation_id,
            model_id=model,
            prompt=prompt.as_json(),
            window_cap=outcome.window_caps.get(model),
        )
        for model, prompt in outcome.prompts.items()
    ]
    with transaction.atomic():
        ended = (
            Turn.objects.live()
            .filter(pk=turn.pk, attempt=turn.attempt)
            .update(
                status=ending.status,
                attempt=F("attempt") + 1,
                seq=outcome.seq,
                usage=outcome.usage,
                asked=[],
                finish_reason=outcome.finish_reason if done else "",
                finish_detail=storable(outcome.finish_detail) if done else "",
                cost=total_cost(ledger_rows),
                first_token_ms=outcome.first_token,
                finished=timezone.now(),
                **_report_columns(outcome.calls),
            )
        )
        if not ended:
            return None
        Message.with_deleted.filter(pk=turn.answer_id).update(
            parts=storable(outcome.parts),
            status=ending.status,
            error_code=ending.code,
            error_detail=storable(ending.detail.dump()),
        )
        record_calls(ledger_rows, prompts)
        state = settle(turn.conversation_id, outcome.summary)
        _send_webhooks(turn, ending)
    return state


def _ledger_rows(turn: Turn, ending: Ending, outcome: TurnOutcome) -> list[ModelCall]:
    """Return a row for each model call. A call that was refused, or failed before it wrote anything, costs nothing.

    If the turn was stopped or lost its worker during a call, the call is counted up to that point, with the cached
    tokens that were expected.
    """
    scope = scope_of(turn.conversation)
    texts = _texts_by_cycle(outcome.parts)
    purpose = ModelCall.Purpose.RUN if outcome.of_run else ModelCall.Purpose.ANSWER
    group = billing_group(turn.conversation.owner_id, outcome.version)
    persona = turn.conversation.persona or scope.persona  # also if the user has lost access to it
    rows = []
    # A prompt that was refused as too long and the next prompt have the same cycle.
    reported = {call["cycle"]: call for call in outcome.calls}
    calls = {call["cycle"]: cast("CallReport", call) for call in outcome.requested} | reported
    for number, call in calls.items():
        text = texts.get(number, "")
        usage = Usage(**(call.get("usage") or NO_USAGE))
        if not (text or usage.input) and ending.status == Turn.Status.FAILED:
            continue
        model = _call_model(turn, call)
        tokenizer = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL)
        counted = Usage(
            call["used"] + call["tools_tokens"],
            0 if usage.output else tokenizer.count(text),
            cached_input=call.get("cache", NO_CACHE)["expected"],
        )
        row = ModelCall.of(
            model,
            usage,
            counted,
            number=number,
            person_id=turn.conversation.owner_id,
            group_id=group,
            conversation_id=turn.conversation_id,
            turn=turn,
            token_id=turn.token_id,
            project=scope.project,
            persona=persona,
            purpose=purpose,
        )
        rows.append(row)
    return rows


def _call_model(turn: Turn, call: CallReport) -> Model:
    """Return the model of one call. If it was deleted, return a new row with its name only."""
    pk = call.get("model_id", str(turn.model_id))
    if turn.model is not None and pk == str(turn.model_id):
        return turn.model
    model = Model.objects.select_related("provider").filter(pk=pk).first() if pk != "None" else None
    return model or Model(pk=None, name=call["model"], provider=Provider())


def _texts_by_cycle(parts: Sequence[MessagePart]) -> dict[int, str]:
    """Return the text that the model wrote in each cycle, from 1, with its reasoning and the arguments of its calls."""
    texts: dict[int, str] = {}
    cycle = 1
    after_result = False
    for part in parts:
        if part["type"] == "tool_result":
            after_result = True
            continue
        if after_result:
            cycle += 1
            after_result = False
        text = part.get("text") or part.get("name", "") + part.get("arguments", "")
        texts[cycle] = texts.get(cycle, "") + text
    return texts


def _send_webhooks(turn: Turn, ending: Ending) -> None:
    conversation = turn.conversation
    ids = {
        "turn": str(turn.pk),
        "conversation": str(conversation.pk),
        "message": str(turn.answer_id),
        "status": str(ending.status),
    }
    paths = {
        "url": reverse("turn-detail", args=[turn.pk]),
        "page": reverse("chat:conversation", args=[conversation.pk]),
    }
    emit(owner_id=conversation.owner_id, event="turn.finished", ids=ids, paths=paths)


def store_reasoning(turn: Turn, added: Sequence[LoopMessage], reminders: Mapping[int, str]) -> None:
    """Store the reasoning of the newest step, which the provider needs in the next request.

    It is stored before the next step, so that another worker can continue the turn. `reminders` as in
    `chat.prompts.builder.CallStep`.
    """
    steps = [number for number, message in enumerate(added) if message.tool_calls]
    if steps and (state := added[steps[-1]].reasoning) is not None:
        columns = {
            "items": storable(list(state.items)),
            "tokens": state.tokens,
            "calls": calls_digest(added[steps[-1]].tool_calls),
            "reminder": reminders.get(steps[-1], ""),
        }
        StepReasoning.objects.update_or_create(turn=turn, number=len(steps), defaults=columns)


def fall_back(turn: Turn, model: Model, reason: str) -> None:
    """Make the fallback the model of the answer, and delete the stored reasoning of the previous model.

    `reason`: the error code of the previous model.
    """
    with transaction.atomic():
        if Turn.objects.live().filter(pk=turn.pk, attempt=turn.attempt).update(fallback_reason=reason):
            Message.objects.filter(pk=turn.answer_id).update(model=model)
            turn.reasoning.all().delete()


def store_report(turn: Turn, calls: list[CallReport]) -> None:
    """Store the reports of the model calls before the turn ends."""
    Turn.objects.filter(pk=turn.pk).update(**_report_columns(calls))


class StoredReport(TypedDict):
    """The JSON of `Turn.report`."""

    calls: list[CallReport]


class ReportColumns(TypedDict, total=False):
    """The columns of a turn about the prompts of its model calls."""

    report: StoredReport
    context_limit: int
    context_used: int
    context_left_out: int
    context_unread: int
    context_notice: str
    scope: TurnScope


def _report_columns(calls: list[CallReport]) -> ReportColumns:
    """Return the columns about the model calls. They are empty before the first call."""
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
        "scope": last.get("scope", {}),
    }


@dataclass(frozen=True, slots=True)
class StaleTurns:
    """Running turns without a recent heartbeat, and queued turns that may begin but that no worker has claimed."""

    interrupted: list[UUID]
    unclaimed: list[UUID]


def find_stale() -> StaleTurns:
    """Return the turns for the sweeper."""
    running = stale_rows(Turn.objects.filter(status=Turn.Status.RUNNING))
    return StaleTurns(
        list(running.values_list("pk", flat=True)),
        take_unclaimed(Turn.objects.filter(status=Turn.Status.QUEUED, pk__in=find_unclaimed())),
    )


def load_stale_turn(turn_id: UUID) -> Turn | None:
    """Return a running turn without a recent heartbeat, with the related rows that `end_turn` needs."""
    rows = stale_rows(Turn.objects.filter(pk=turn_id, status=Turn.Status.RUNNING))
    related = ("answer", "conversation__persona", "conversation__owner", "model__provider")
    return rows.select_related(*related).first()


def is_run_step(turn: Turn) -> bool:
    """Return whether a step of a run has begun this turn."""
    return RunStep.objects.filter(turn=turn).exists()


def end_queued(turn: Turn, ending: Ending) -> bool:
    """End a turn that no worker has claimed yet. Return False for any other."""
    with transaction.atomic():
        queued = Turn.objects.select_for_update().filter(pk=turn.pk, status=Turn.Status.QUEUED).first()
        return queued is not None and end_turn(queued, ending, TurnOutcome([], 0)) is not None


def dump_parts(parts: list[MessagePart]) -> str:
    """Return the parts of an answer as JSON that can be stored."""
    return json.dumps(storable(parts), ensure_ascii=False, separators=(",", ":"))


def storable(value: Any) -> Any:
    """Return a JSON value without characters that PostgreSQL cannot store: NUL and lone surrogates.

    Models and programs send them by mistake. The rest of the text must not be lost.
    """
    if isinstance(value, str):
        text = value.replace("\x00", "")
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode(errors="replace").decode()
        return text  # the same object: copies would double the memory of a request
    if isinstance(value, list):
        return [storable(each) for each in value]
    if isinstance(value, dict):
        return {storable(name): storable(each) for name, each in value.items()}
    return value
