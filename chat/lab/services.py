"""Plan turns again in the prompt lab, one after the other. The admin page and the command use these functions.

`start_replay` stores a replay. A worker claims it (`run_replay`) and stores the comparison of each turn. The command
calls `choose_turns` and `plan_turns` itself and stores nothing.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NoReturn, TypedDict
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.models import User
from chat.context.types import ContextError
from chat.lab.models import Replay, ReplayedTurn
from chat.lab.past import NO_VARIATION, CannotReplan, Problem, Variation
from chat.lab.planning import FiguresJson, PromptFigures, ReplannedTurn, Replayer, stored_turns, sum_figures
from chat.ledger.asking import Billing, ask
from chat.ledger.models import ModelCall
from chat.models import Conversation, Turn
from chat.prompts.builder import model_request
from chat.prompts.report import Change, compare
from core.audit.services import record
from core.background import on_database, submit
from core.errors import NotFound, ProductError
from core.i18n import dollars
from core.jobs import JobKind
from core.permissions import require_right
from core.sentences import Sentence

SAMPLED_FROM = 20_000  # newest turns from which a sample is taken
BATCH_TURNS = 50  # turns per query, each with its reports
SAVE_INTERVAL = 20  # turns between two updates of the progress
MAX_SHOWN_CHANGES = 50  # changed sources per turn
MAX_ATTEMPTS = 3
TIMEOUT = 120.0  # seconds for one answer
MAX_LENGTH = 100_000  # characters per answer

REPLAYS = JobKind(
    model=Replay,
    task="chat.tasks.replay",
    waiting=Q(status=Replay.Status.QUEUED),
    running=Q(status=Replay.Status.RUNNING),
    resumable=Q(status=Replay.Status.RUNNING),
    on_claim={"status": Replay.Status.RUNNING, "planned": 0},
    max_tries=MAX_ATTEMPTS,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TurnComparison:
    """The figures of one turn, as it was sent and as it is planned.

    Both are None if the turn cannot be compared; `problems` give the reasons. Only `plan_turns` is None if the prompts
    would not fit. `replanned` has the prompts. `answer` is empty until a model is called.
    """

    turn: Turn
    sent: PromptFigures | None = None
    planned: PromptFigures | None = None
    problems: list[Problem] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    replanned: ReplannedTurn | None = None
    answer: str = ""


class TotalsJson(TypedDict):
    """`Totals` as it is stored and shown."""

    turns: int
    compared: int
    sent: FiguresJson
    planned: FiguresJson


@dataclass(slots=True)
class Totals:
    """Sums over the turns that could be compared. `compared` is their number."""

    turns: int = 0
    compared: int = 0
    sent: PromptFigures = field(default_factory=PromptFigures)
    planned: PromptFigures = field(default_factory=PromptFigures)

    def add(self, result: TurnComparison) -> None:
        self.turns += 1
        if result.sent is not None and result.planned is not None:
            self.compared += 1
            self.sent += result.sent
            self.planned += result.planned

    def as_json(self) -> TotalsJson:
        return {
            "turns": self.turns,
            "compared": self.compared,
            "sent": self.sent.as_json(),
            "planned": self.planned.as_json(),
        }


def choose_turns(*, conversation: Conversation | None = None, most: int, owner: User | None = None) -> list[UUID]:
    """Return at most `most` turns to plan, by conversation and time. Raises `nothing_to_replay` (404).

    They are the newest turns of the conversation. Without a conversation they are a sample of all turns, or of the
    turns of `owner`, spread evenly over the newest `SAMPLED_FROM`. The sample is the same until turns are added.
    """
    rows: QuerySet[Turn] = stored_turns().filter(conversation__deleted=None)
    rows = rows.filter(conversation=conversation) if conversation is not None else rows
    rows = rows.filter(conversation__owner=owner) if owner is not None else rows
    newest = list(
        rows.order_by("-id").values_list("pk", flat=True)[: most if conversation is not None else SAMPLED_FROM]
    )
    if not newest:
        _nothing_to_replay()
    step = max(1, -(-len(newest) // most))
    sample = rows.filter(pk__in=newest[::step]).order_by("conversation_id", "started", "pk")
    return list(sample.values_list("pk", flat=True))


def _nothing_to_replay() -> NoReturn:
    raise ProductError("nothing_to_replay", "There is no complete answer with a report to plan again.", status=404)


def plan_turns(turns: Sequence[UUID], variation: Variation = NO_VARIATION) -> Iterator[TurnComparison]:
    """Plan turns again and yield each as soon as it is planned. A turn that was deleted meanwhile is left out."""
    replayer = Replayer(variation)
    for first in range(0, len(turns), BATCH_TURNS):
        rows = {turn.pk: turn for turn in stored_turns().filter(pk__in=turns[first : first + BATCH_TURNS])}
        yield from (_compare(replayer, rows[pk]) for pk in turns[first : first + BATCH_TURNS] if pk in rows)


def _compare(replayer: Replayer, turn: Turn) -> TurnComparison:
    try:
        replanned = replayer.turn(turn)
    except CannotReplan as error:
        return TurnComparison(turn, problems=list(error.problems))
    sent_figures, planned_figures = sum_figures(replanned)
    if replanned.refused is not None:
        return TurnComparison(turn, sent_figures, problems=[describe_refusal(replanned.refused)], replanned=replanned)
    before, after = ([*report["sources"]] for report in (replanned.past[-1].stored, replanned.planned[-1].report))
    changes = [change for change in compare(before, after) if change["kind"] != "task"]
    return TurnComparison(turn, sent_figures, planned_figures, changes=changes, replanned=replanned)


def describe_refusal(error: ContextError) -> Problem:
    """Return the reason why the prompt would not fit, without file names."""
    extra = error.extra
    if error.code == "file_too_long":
        return Problem(
            error.code, Sentence("An attached file of {extra} tokens would no longer fit.", extra=extra["tokens"])
        )
    return Problem(
        error.code,
        Sentence(
            "{extra} tokens would have to fit into {extra2}.", extra=extra["needed"], extra2=max(0, extra["limit"])
        ),
    )


async def ask_models(results: Sequence[TurnComparison], asker: User | None = None) -> None:
    """Ask the models for the last call of each turn that could be planned, and set `answer`.

    Tools are not called; their stored results are sent. An error of the model is recorded as a problem of its turn.
    """
    for result in results:
        if result.replanned is not None and result.planned is not None:
            await _answer(result, result.replanned, asker)


async def _answer(result: TurnComparison, replanned: ReplannedTurn, asker: User | None) -> None:
    last = replanned.planned[-1]
    request = await on_database(model_request, last.context, last.prompt, last.step)
    request = replace(request, tool_choice="none", required_tool=None)
    billing = Billing(result.turn.conversation, ModelCall.Purpose.REPLAY, asker.pk if asker is not None else None)
    try:
        async with asyncio.timeout(TIMEOUT):
            result.answer = (await ask(last.context.model, request, billing, longest=MAX_LENGTH)).text
    except TimeoutError:
        result.problems.append(Problem("model_timeout", Sentence("The model took too long to answer.")))
    except ProductError as error:
        result.problems.append(Problem(error.code, error.sentence))


def get_variation(job: Replay) -> Variation:
    """Return the settings that a replay changes."""
    return Variation(
        model=job.model,
        profile=job.profile,
        layout=job.layout,
        policy=job.policy,
        note_form=job.note_form,
        reminder_place=job.reminder_place,
        citation_reminder=job.citation_reminder,
        prompt=job.system_prompt,
    )


def format_figures(sent: Mapping[str, Any], planned: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the figures as text: tokens, cached share, sources left out, and cost, each as sent and as planned."""
    names = ("tokens", "cached_share", "left_out", "cost")
    return tuple(_cell(figures.get(name)) for name in names for figures in (sent, planned))


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else dollars(Decimal(value))


def check_replay(*, user: User, job: Replay) -> int:
    """Return the number of turns of a replay that is not stored yet, and set its author.

    A replay that asks the model may only use its author's own conversations, since other texts are private. Raises
    `bad_number_of_turns`, `too_many_to_ask`, `not_yours_to_ask` (403) and `nothing_to_replay` (404).
    """
    require_right(user, "add", Replay)
    if not 1 <= job.most <= Replay.MAX_COUNT:
        raise ProductError("bad_number_of_turns", Sentence("Choose from 1 to {most} turns.", most=Replay.MAX_COUNT))
    if job.asks and job.most > Replay.MAX_ASKED:
        detail = Sentence(
            ("A replay can send at most {most_asked} turns to the model. Choose fewer turns, or do not ask the model."),
            most_asked=Replay.MAX_ASKED,
        )
        raise ProductError("too_many_to_ask", detail)
    if job.asks and job.conversation is not None and job.conversation.owner_id != user.pk:
        detail = Sentence(
            "This conversation belongs to another person, and its texts are private. Plan it without asking the model."
        )
        raise ProductError("not_yours_to_ask", detail, status=403)
    job.author = user
    return len(_choose_turns(job))


@transaction.atomic
def start_replay(*, user: User, job: Replay) -> Replay:
    """Store a replay and have a worker carry it out. Raises the errors of `check_replay`."""
    job.total = check_replay(user=user, job=job)
    job.save(force_insert=True)
    place = None if job.conversation_id is None else str(job.conversation_id)
    record(user=user, action="replay.begun", row=job, changes={"turns": job.total, "conversation": place})
    REPLAYS.hand_over(job.pk)
    return job


def _choose_turns(job: Replay) -> list[UUID]:
    if job.turn_id is not None:
        turns = stored_turns().filter(pk=job.turn_id, conversation__deleted=None).values_list("pk", flat=True)
        return list(turns) or _nothing_to_replay()
    return choose_turns(conversation=job.conversation, most=job.most, owner=job.author if job.asks else None)


def get_conversation(text: str) -> Conversation:
    """Return the conversation with this id. Raises `NotFound`."""
    try:
        conversation = Conversation.objects.filter(pk=UUID(text.strip()), deleted=None).first()
    except ValueError:
        conversation = None
    if conversation is None:
        raise NotFound("conversation")
    return conversation


def get_turn(text: str) -> Turn:
    """Return the turn with this id, with its conversation. Raises `NotFound`."""
    try:
        rows = Turn.objects.select_related("conversation").filter(conversation__deleted=None)
        turn = rows.filter(pk=UUID(text.strip())).first()
    except ValueError:
        turn = None
    if turn is None:
        raise NotFound("turn")
    return turn


def run_replay(pk: UUID) -> None:
    """Claim a replay and carry it out. Success or failure is stored in the row."""
    job = REPLAYS.claim(pk, "author", "conversation", "model__provider", "profile", "system_prompt")
    if job is None:
        return
    job.turns.all().delete()
    with REPLAYS.alive(job):
        try:
            _carry_out(job)
        except ProductError as error:
            _save(job, status=Replay.Status.FAILED, code=error.code, detail=error.sentence)
        except Exception:
            logger.exception("replay %s failed", pk)
            detail = "An internal error occurred. The server's log has the details."
            _save(job, status=Replay.Status.FAILED, code="internal_error", detail=detail)


def give_up(job: Replay) -> None:
    """End a replay that keeps losing its worker."""
    detail = Sentence("The worker ended several times during this replay. Choose fewer turns.")
    _save(job, status=Replay.Status.FAILED, code="replay_gave_up", detail=detail)


def _carry_out(job: Replay) -> None:
    totals = Totals()
    rows: list[ReplayedTurn] = []
    turns = _choose_turns(job)
    for result in plan_turns(turns, get_variation(job)):
        if job.asks:
            submit(ask_models([result], job.author)).result()
        totals.add(result)
        rows.append(_row(job, result))
        if len(rows) == SAVE_INTERVAL or job.asks:
            if not _save(job, planned=totals.turns, total=len(turns), totals=totals.as_json(), rows=rows):
                return  # the claim is lost
            rows = []
    _save(job, planned=totals.turns, totals=totals.as_json(), rows=rows, status=Replay.Status.DONE)


def _row(job: Replay, result: TurnComparison) -> ReplayedTurn:
    return ReplayedTurn(
        replay=job,
        turn=result.turn,
        sent=result.sent.as_json() if result.sent is not None else {},
        planned=result.planned.as_json() if result.planned is not None else {},
        problems=[{"code": problem.code, "detail": problem.detail.dump()} for problem in result.problems],
        changes=result.changes[:MAX_SHOWN_CHANGES],
        answer=result.answer,
    )


def _save(job: Replay, *, rows: Sequence[ReplayedTurn] = (), **fields: Any) -> bool:
    """Store columns of the replay and `rows` in one transaction. Returns False if the claim is lost."""
    if "status" in fields:
        fields["finished"] = timezone.now()
    with transaction.atomic():
        if not REPLAYS.claimed(job).update(**fields):
            return False
        # A turn may have been deleted meanwhile.
        present = set(
            Turn.objects.with_answer().filter(pk__in=[row.turn_id for row in rows]).values_list("pk", flat=True)
        )
        ReplayedTurn.objects.bulk_create([row for row in rows if row.turn_id in present])
    return True
