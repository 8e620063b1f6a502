"""The prompt lab: which turns are planned again, one after the other, for the admin's page and the command alike."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from accounts.models import User
from chat.context.types import ContextError
from chat.lab.models import Replay, ReplayedTurn
from chat.lab.past import AS_IT_WAS, Changed, Problem, Variation
from chat.lab.planning import Again, Figures, Replayer, figures, stored_turns
from chat.ledger.asking import Billing, ask
from chat.ledger.models import ModelCall
from chat.models import Conversation, Turn
from chat.prompts.builder import model_request
from chat.prompts.report import Change, compare
from core.audit.services import record
from core.background import claim, enqueue, heartbeat, on_database, stale_rows, submit
from core.errors import NotFound, ProductError
from core.i18n import dollars
from core.permissions import require_right
from core.sentences import Sentence

AMONG = 20_000  # newest turns, of which a sample is taken
AT_ONCE = 50  # turns that are read, each with its reports
SAVED = 20  # turns after which the row says how far it is
SHOWN = 50  # changed sources of a turn
MAX_ATTEMPTS = 3
TIMEOUT = 120.0  # seconds for one answer
LONGEST = 100_000  # characters of one

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Result:
    """One turn. `sent` and `planned` are None where `problems` say why it cannot be compared; `planned` alone, where
    what was sent would not fit. `again` has the prompts; `answer` is there once a model was asked."""

    turn: Turn
    sent: Figures | None = None
    planned: Figures | None = None
    problems: list[Problem] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    again: Again | None = None
    answer: str = ""


@dataclass(slots=True)
class Totals:
    """Of the turns that could be compared, which are `compared`."""

    turns: int = 0
    compared: int = 0
    sent: Figures = field(default_factory=Figures)
    planned: Figures = field(default_factory=Figures)

    def add(self, result: Result) -> None:
        self.turns += 1
        if result.sent is not None and result.planned is not None:
            self.compared += 1
            self.sent, self.planned = self.sent + result.sent, self.planned + result.planned

    def as_json(self) -> dict[str, Any]:
        counts = {"turns": self.turns, "compared": self.compared}
        return {**counts, "sent": self.sent.as_json(), "planned": self.planned.as_json()}


def chosen(*, conversation: Conversation | None = None, most: int, owner: User | None = None) -> list[UUID]:
    """The turns to plan: the conversation's newest, or a sample of all, spread evenly over the newest of them, the same
    every time until more are added. In the order of conversations and moments. `owner`: of that person alone.

    Raises `nothing_to_replay`.
    """
    rows: QuerySet[Turn] = stored_turns().filter(conversation__deleted=None)
    rows = rows.filter(conversation=conversation) if conversation is not None else rows
    rows = rows.filter(conversation__owner=owner) if owner is not None else rows
    newest = list(rows.order_by("-id").values_list("pk", flat=True)[: most if conversation is not None else AMONG])
    if not newest:
        raise ProductError("nothing_to_replay", "There is no complete answer with a report to plan again.", status=404)
    step = max(1, -(-len(newest) // most))
    sample = rows.filter(pk__in=newest[::step]).order_by("conversation_id", "started", "pk")
    return list(sample.values_list("pk", flat=True))


def planned(turns: Sequence[UUID], variation: Variation = AS_IT_WAS) -> Iterator[Result]:
    """Each as soon as it is planned; one that was deleted meanwhile is left out."""
    replayer = Replayer(variation)
    for first in range(0, len(turns), AT_ONCE):
        found = {turn.pk: turn for turn in stored_turns().filter(pk__in=turns[first : first + AT_ONCE])}
        yield from (_planned(replayer, found[pk]) for pk in turns[first : first + AT_ONCE] if pk in found)


def _planned(replayer: Replayer, turn: Turn) -> Result:
    try:
        again = replayer.turn(turn)
    except Changed as changed:
        return Result(turn, problems=list(changed.problems))
    sent, now = figures(again)
    if again.refused is not None:
        return Result(turn, sent, problems=[refusal(again.refused)], again=again)
    before, after = ([*each["sources"]] for each in (again.past[-1].stored, again.planned[-1].report))
    changes = [each for each in compare(before, after) if each["kind"] != "task"]
    return Result(turn, sent, now, changes=changes, again=again)


def refusal(error: ContextError) -> Problem:
    """Why it would not fit, without the name of a file."""
    extra = error.extra
    if error.code == "file_too_long":
        return Problem(
            error.code, Sentence("An attached file of {extra} tokens would not fit any more.", extra=extra["tokens"])
        )
    return Problem(
        error.code,
        Sentence(
            "{extra} tokens would have to fit into {extra2}.", extra=extra["needed"], extra2=max(0, extra["limit"])
        ),
    )


async def answered(results: Sequence[Result], asker: User | None = None) -> None:
    """Asks the models for the last call of each turn that could be planned, with the results of its tools as they were;
    no tool is called any more. What a model does not answer is a problem of its turn."""
    for result in results:
        if result.again is not None and result.planned is not None:
            await _answer(result, result.again, asker)


async def _answer(result: Result, again: Again, asker: User | None) -> None:
    last = again.planned[-1]
    request = await on_database(model_request, last.context, last.prompt, last.step)
    request = replace(request, tool_choice="none", required_tool=None)
    charge = Billing(result.turn.conversation, ModelCall.Purpose.REPLAY, asker.pk if asker is not None else None)
    try:
        async with asyncio.timeout(TIMEOUT):
            result.answer = (await ask(last.context.model, request, charge, longest=LONGEST)).text
    except TimeoutError:
        result.problems.append(Problem("model_timeout", Sentence("The model took too long to answer.")))
    except ProductError as error:
        result.problems.append(Problem(error.code, error.sentence))


def variation_of(job: Replay) -> Variation:
    return Variation(job.model, job.profile, job.layout, job.policy, job.system_prompt)


def cells(sent: Mapping[str, Any], planned: Mapping[str, Any]) -> tuple[str, ...]:
    """Figures side by side, for people: tokens, cached share, left out and cost, each of what was sent first."""
    names = ("tokens", "cached_share", "left_out", "cost")
    return tuple(_cell(figures.get(name)) for name in names for figures in (sent, planned))


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else dollars(Decimal(value))


def check(*, user: User, job: Replay) -> int:
    """How many turns it is about.

    What people write is theirs: whoever wants answers to be asked for gets them in conversations of their own alone.
    Raises `bad_number_of_turns`, `too_many_to_ask`, `not_yours_to_ask` (403) and `nothing_to_replay`.
    """
    require_right(user, "add", Replay)
    if not 1 <= job.most <= Replay.MOST:
        raise ProductError("bad_number_of_turns", Sentence("Choose from 1 to {most} turns.", most=Replay.MOST))
    if job.asks and job.most > Replay.MOST_ASKED:
        detail = Sentence(
            "At most {most_asked} turns can be asked anew at once. Choose fewer, or do not ask the model.",
            most_asked=Replay.MOST_ASKED,
        )
        raise ProductError("too_many_to_ask", detail)
    if job.asks and job.conversation is not None and job.conversation.owner_id != user.pk:
        detail = Sentence(
            "This is somebody else's conversation, whose texts are theirs. Plan it without asking the model."
        )
        raise ProductError("not_yours_to_ask", detail, status=403)
    job.author = user
    return len(_chosen(job))


@transaction.atomic
def start_replay(*, user: User, job: Replay) -> Replay:
    """Stores a row whose fields are set, and has a worker carry it out. Raises what `check` raises."""
    job.total = check(user=user, job=job)
    job.save(force_insert=True)
    place = None if job.conversation_id is None else str(job.conversation_id)
    record(user=user, action="replay.begun", row=job, changes={"turns": job.total, "conversation": place})
    transaction.on_commit(partial(enqueue, "chat.tasks.replay", job.pk))
    return job


def _chosen(job: Replay) -> list[UUID]:
    return chosen(conversation=job.conversation, most=job.most, owner=job.author if job.asks else None)


def conversation_of(text: str) -> Conversation:
    """Raises `NotFound`."""
    try:
        found = Conversation.objects.filter(pk=UUID(text.strip()), deleted=None).first()
    except ValueError:
        found = None
    if found is None:
        raise NotFound("conversation")
    return found


def unclaimed() -> list[UUID]:
    """Replays that wait for a worker, or whose worker is gone."""
    return list(stale_rows(Replay.objects.live()).values_list("pk", flat=True))


def run(pk: UUID) -> None:
    """Carries out what nobody is carrying out; the end, good or bad, is in the row."""
    job = _claim(pk)
    if job is None:
        return
    with heartbeat(Replay.objects.live().filter(pk=pk, attempt=job.attempt)):
        try:
            _carry_out(job)
        except ProductError as error:
            _save(job, status=Replay.Status.FAILED, code=error.code, detail=error.sentence)
        except Exception:
            logger.exception("replay %s failed", pk)
            detail = "Something went wrong on the server."
            _save(job, status=Replay.Status.FAILED, code="internal_error", detail=detail)


def _claim(pk: UUID) -> Replay | None:
    waiting = Replay.objects.filter(status=Replay.Status.QUEUED)
    running = stale_rows(Replay.objects.filter(status=Replay.Status.RUNNING))
    if not claim(waiting | running, pk, status=Replay.Status.RUNNING, planned=0, attempt=F("attempt") + 1):
        return None
    related = ("author", "conversation", "model__provider", "profile", "system_prompt")
    job = Replay.objects.select_related(*related).get(pk=pk)
    job.turns.all().delete()
    if job.attempt > MAX_ATTEMPTS:
        detail = Sentence("This ended the worker several times. Choose fewer turns.")
        _save(job, status=Replay.Status.FAILED, code="replay_gave_up", detail=detail)
        return None
    return job


def _carry_out(job: Replay) -> None:
    totals, rows = Totals(), []
    turns = _chosen(job)
    for result in planned(turns, variation_of(job)):
        if job.asks:
            submit(answered([result], job.author)).result()
        totals.add(result)
        rows.append(_row(job, result))
        if len(rows) == SAVED or job.asks:
            if not _save(job, planned=totals.turns, total=len(turns), totals=totals.as_json(), rows=rows):
                return  # somebody else has taken it over
            rows = []
    _save(job, planned=totals.turns, totals=totals.as_json(), rows=rows, status=Replay.Status.DONE)


def _row(job: Replay, result: Result) -> ReplayedTurn:
    return ReplayedTurn(
        replay=job,
        turn=result.turn,
        sent=result.sent.as_json() if result.sent is not None else {},
        planned=result.planned.as_json() if result.planned is not None else {},
        problems=[{"code": problem.code, "detail": problem.detail.dump()} for problem in result.problems],
        changes=result.changes[:SHOWN],
        answer=result.answer,
    )


def _save(job: Replay, *, rows: Sequence[ReplayedTurn] = (), **fields: Any) -> bool:
    """False when another worker has claimed it."""
    ended = {"finished": timezone.now()} if "status" in fields else {}
    with transaction.atomic():
        ours = Replay.objects.filter(Q(status=Replay.Status.RUNNING), pk=job.pk, attempt=job.attempt)
        if not ours.update(**fields, **ended):
            return False
        # A turn that was deleted meanwhile takes its row with it.
        here = set(Turn.objects.with_answer().filter(pk__in=[row.turn_id for row in rows]).values_list("pk", flat=True))
        ReplayedTurn.objects.bulk_create([row for row in rows if row.turn_id in here])
    return True
