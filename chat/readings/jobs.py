"""Carry out a reading, from the claim to the end.

1. `run_reading` claims the reading and checks every second whether it was stopped or lost.
2. `_read_parts` has the model make notes on the unread parts, several at once. It divides a part that is too long for
   the model, or whose notes do not fit.
3. `_answer` folds notes until they fit into one call, then has the question answered from them.
4. `_check` compares the answer with the passages that it cites.

A part that was read is never read again: after a crash, a stop or an error the next worker begins with the missing
parts. Every write goes through the claim, so a worker that has lost it writes nothing (`_ClaimLost`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts.realtime import News, notify
from chat.citations.judging import check_in_time, judge
from chat.citations.services import PartCheck
from chat.ledger.asking import Billing, OwnAnswer, ask
from chat.ledger.models import ModelCall
from chat.readings import asking, checking, planning, services
from chat.readings.layout import TextLayout, load_layout
from chat.readings.models import Reading, ReadingPart
from chat.readings.planning import Budget
from chat.readings.services import READINGS
from core.background import on_database, with_retries
from core.errors import ModelError, ProductError
from core.sentences import Sentence
from llm import tokens
from llm.models import Model
from llm.types.model_call import ModelRequest
from personas.services import rules_at
from personas.texts import Texts

CONCURRENT_PARTS = 3
STOP_CHECK_INTERVAL = 1.0  # seconds until a stop is seen
RETRY_PAUSE = 1.0  # seconds before a second try, if the provider does not say how long to wait
MAX_PAUSE = 20.0  # seconds
MAX_CONSECUTIVE_FAILURES = 3  # consecutive failed parts after which the provider is given up
MAX_LENGTH = 60_000  # characters of an answer; a model that does not stop is cut off
TOO_LONG = "context_too_long"
NOT_CHECKED = gettext_noop("The check of the answer's citations ended before it was complete.")

logger = logging.getLogger(__name__)


class _ClaimLost(Exception):
    """The reading was stopped or removed, or another worker has claimed it."""


@dataclass(slots=True)
class _ReadingRun:
    """The state of a claimed reading. `checker` is the id of the model that checks citations, if there is one.

    `failed` counts the consecutive failed parts; `error` is the last of their errors.
    """

    reading: Reading
    model: Model
    texts: Texts
    text: str
    layout: TextLayout
    budget: Budget
    waiting: "deque[ReadingPart]"
    checker: UUID | None
    failed: int = 0
    error: ProductError | None = None
    counts: tokens.NamedTokenizer = field(init=False)

    def __post_init__(self) -> None:
        self.counts = tokens.tokenizer(self.model.tokenizer or tokens.CATCH_ALL)

    @property
    def claimed_rows(self) -> QuerySet[Reading]:
        return READINGS.claimed(self.reading)

    @property
    def given_up(self) -> bool:
        return self.failed >= MAX_CONSECUTIVE_FAILURES


def settle_lost(lost: QuerySet[Reading]) -> None:
    """End the readings that already have their answer and lost their worker during the check."""
    for pk in lost.filter(status=Reading.Status.CHECKING).values_list("pk", flat=True):
        services.end_if_answered(lost.filter(pk=pk))


def give_up(reading: Reading) -> None:
    """End a reading that has repeatedly lost its worker without progress."""
    detail = Sentence("The server stopped several times during this reading. Continue, or choose another model.")
    _end(reading, status=Reading.Status.FAILED, code="reading_gave_up", detail=detail)


async def run_reading(pk: UUID) -> None:
    """Claim a reading and carry it out. The row stores the result, also of a failure.

    When this worker is asked to end, the reading waits for the next worker.
    """
    reading = await on_database(READINGS.claim, pk, "person", "conversation__owner")
    if reading is None:
        return
    rows = READINGS.claimed(reading)
    try:
        with READINGS.alive(reading):
            await _run_while_claimed(rows, _carry_out(reading))
    except asyncio.CancelledError:
        await asyncio.shield(with_retries(lambda: _release(rows)))
        raise
    except _ClaimLost:
        logger.info("reading %s was stopped, or another worker has claimed it", pk)
    except ProductError as error:
        code = error.code
        detail = error.sentence
        status = Reading.Status.STOPPED if code == "calls_used_up" else Reading.Status.FAILED
        await with_retries(lambda: _end(reading, status=status, code=code, detail=detail))
    except Exception:
        logger.exception("reading %s failed", pk)
        detail = Sentence("An internal error occurred. Continue with the missing parts.")
        await with_retries(lambda: _end(reading, status=Reading.Status.FAILED, code="internal_error", detail=detail))


def _release(rows: QuerySet[Reading]) -> None:
    """Put a claimed reading back for the next worker, without delay. A reading that has its answer ends."""
    long_ago = timezone.now() - timedelta(minutes=1)
    if not services.end_if_answered(rows):
        rows.update(status=Reading.Status.QUEUED, tries=0, heartbeat=long_ago)


def _end(reading: Reading, *, status: Reading.Status, code: str, detail: Sentence) -> None:
    rows = READINGS.claimed(reading)
    if not services.end_if_answered(rows) and rows.update(
        finished=timezone.now(), status=status, code=code, detail=detail
    ):
        notify(reading.person_id, News.READINGS)


async def _run_while_claimed(rows: QuerySet[Reading], work: Coroutine[Any, Any, None]) -> None:
    """Do the work. Cancel it with its model calls once the reading is stopped or lost. Raises `_ClaimLost`."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=STOP_CHECK_INTERVAL))[0]:
            if not await with_retries(rows.exists):
                raise _ClaimLost
        task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _carry_out(reading: Reading) -> None:
    work = await on_database(_load, reading)
    if not reading.only_answer:
        await _read_parts(work)
    await _answer(work)


def _load(reading: Reading) -> _ReadingRun:
    """Load the data that the work needs. Raises the errors of `services.load_text`, `usable_model` and `budget_of`."""
    text = services.load_text(reading)
    model = services.usable_model(reading)
    rules = rules_at()
    waiting = reading.parts.filter(level=0, state=ReadingPart.State.WAITING)
    layout = load_layout(reading, pages=False)
    checker = rules.workspace.citation_model_id
    budget = services.compute_budget(rules.texts, model, reading.question, several=layout.several)
    return _ReadingRun(reading, model, rules.texts, text, layout, budget, deque(waiting), checker)


async def _read_parts(work: _ReadingRun) -> None:
    """Read all waiting parts, several at once.

    Raises the last error if the provider was given up, or if no part could be read.
    """
    readers = [asyncio.create_task(_reader(work)) for _ in range(CONCURRENT_PARTS)]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
    done = work.reading.parts.filter(level=0, state=ReadingPart.State.DONE)
    if work.error is not None and (work.given_up or not await on_database(done.exists)):
        raise work.error


async def _reader(work: _ReadingRun) -> None:
    while work.waiting and not work.given_up:
        part = work.waiting.popleft()
        try:
            reply = await _ask(work, _part_messages(work, part), work.budget.findings)
        except ModelError as error:
            await _handle_failure(work, part, error)
            continue
        if reply.unread or reply.cut_off:
            if await _try_to_divide(work, part):
                continue
            if reply.unread:
                detail = Sentence("The model's server did not read all of this part.")
                await _handle_failure(work, part, ModelError("part_cut", detail, retryable=False))
                continue
        work.failed = 0
        await on_database(_store, work, part, reply)


def _part_messages(work: _ReadingRun, part: ReadingPart) -> asking.Messages:
    reading = work.reading
    passages = asking.number_passages(work.text, part.start, part.end, reading.passages)
    title = work.layout.named(part.start, part.end) or reading.file_name
    return asking.part_prompt(work.texts, reading.question, title, passages, work.budget)


async def _handle_failure(work: _ReadingRun, part: ReadingPart, error: ModelError) -> None:
    if error.code == TOO_LONG and await _try_to_divide(work, part):
        return
    work.failed += 1
    work.error = error
    await on_database(_store_failure, work, part, error)


async def _try_to_divide(work: _ReadingRun, part: ReadingPart) -> bool:
    """Divide a part; its halves are read next. Return False if it cannot be divided."""
    middle = planning.find_middle(work.reading.passages, part.start, part.end)
    if middle is None:
        return False
    work.waiting.extendleft(reversed(await on_database(_divide, work, part, middle)))
    return True


async def _ask(work: _ReadingRun, messages: asking.Messages, output: int) -> OwnAnswer:
    """Ask the model for at most `output` tokens, with a second try after a temporary error.

    Raises `ModelError`, `calls_used_up` and `_ClaimLost`.
    """
    model = work.model
    most = output + work.budget.thinking
    most = min(most, model.max_output or most)
    request = ModelRequest(model=model.name, messages=messages, max_output=most, window=model.window)
    reading = work.reading
    charge = Billing(reading.conversation, ModelCall.Purpose.FULL_READ, reading.person_id, reading.pk, reading.token_id)
    await on_database(_count_call, work)
    try:
        return await ask(model, request, charge, longest=MAX_LENGTH)
    except ModelError as error:
        if not error.retryable:
            raise
        await asyncio.sleep(min(error.retry_after or RETRY_PAUSE, MAX_PAUSE))
    await on_database(_count_call, work)
    return await ask(model, request, charge, longest=MAX_LENGTH)


def _count_call(work: _ReadingRun) -> None:
    """Count a call before it is made. Raises `calls_used_up` and `_ClaimLost`."""
    if not work.claimed_rows.update(asked=F("asked") + 1):
        raise _ClaimLost
    reading = work.reading
    calls = Reading.objects.values_list("asked", flat=True).get(pk=reading.pk)
    if calls > planning.max_calls(reading.calls):
        detail = Sentence(
            "It needs more calls than you agreed to, since parts had to be divided. Continue to agree to the rest."
        )
        raise ProductError("calls_used_up", detail)


def _storable_text(reply: OwnAnswer) -> str:
    """Return the text without characters that PostgreSQL cannot store."""
    return reply.text.replace("\x00", "").strip()


def _store(work: _ReadingRun, part: ReadingPart, reply: OwnAnswer) -> None:
    """Store the notes on a part, or a fold. Raises `_ClaimLost`."""
    text = _storable_text(reply)
    part.findings = text if any(map(str.isalnum, text)) else ""
    part.tokens = work.counts.count(part.findings)
    part.cut_off = reply.cut_off
    part.state = ReadingPart.State.DONE
    with transaction.atomic():
        _update_claimed(work, tries=0)
        if part.pk is None:  # a fold replaces the earlier fold for another window size
            ReadingPart.objects.filter(reading=work.reading, level=part.level, start=part.start).delete()
        part.save()


def _store_failure(work: _ReadingRun, part: ReadingPart, error: ModelError) -> None:
    """Store why a part was not read. Raises `_ClaimLost`."""
    part.state = ReadingPart.State.FAILED
    part.code = error.code
    part.detail = error.sentence
    with transaction.atomic():
        _update_claimed(work)
        part.save()


def _divide(work: _ReadingRun, part: ReadingPart, middle: int) -> list[ReadingPart]:
    """Store the two halves of a part. Raises `_ClaimLost`."""
    with transaction.atomic():
        _update_claimed(work)
        second = ReadingPart.objects.create(reading=work.reading, start=middle, end=part.end)
        part.end = middle
        part.save(update_fields=["end"])
    return [part, second]


def _update_claimed(work: _ReadingRun, **fields: Any) -> None:
    """Set columns of the claimed reading, in the transaction of the caller's change, and notify open pages.

    Raises `_ClaimLost` if the claim is lost.
    """
    if not work.claimed_rows.update(heartbeat=timezone.now(), **fields):
        raise _ClaimLost
    notify(work.reading.person_id, News.READINGS)


async def _answer(work: _ReadingRun) -> None:
    """Fold the notes until they fit, then have the question answered from them. Without notes no call is made."""
    rows = await on_database(_notes, work)
    level = 0
    while sum(sizes := [row.tokens + work.budget.name for row in rows]) > work.budget.notes:
        level += 1
        groups = planning.group_notes(sizes, work.budget.fold)
        if len(groups) == len(rows):
            detail = Sentence("The notes cannot be shortened enough for one answer. Choose a larger model.")
            raise ProductError("notes_do_not_fit", detail)
        rows = [row for first, end in groups for row in await _fold(work, level, rows[first:end])]
    if not rows:
        await on_database(_store_answer, work, OwnAnswer(), Reading.Status.DONE)
        return
    percent = await on_database(_percent, work)
    reading = work.reading
    notes = [_named_notes(work, row) for row in rows]
    messages = asking.answer_prompt(work.texts, reading.question, reading.file_name, notes, percent)
    reply = await _ask(work, messages, work.budget.answer)
    if reply.unread:
        raise ProductError("notes_cut", "The model's server did not read all of the notes. Choose another model.")
    await on_database(_store_answer, work, reply, Reading.Status.CHECKING)
    await _check(work, _storable_text(reply))


async def _check(work: _ReadingRun, answer: str) -> None:
    """Compare the answer with the passages that it cites. The results of rules are stored before a model is called."""
    reading = work.reading
    charge = Billing(reading.conversation, ModelCall.Purpose.CITATIONS, reading.person_id, reading.pk, reading.token_id)
    checks, note = await check_in_time(
        partial(checking.check_answer, reading, work.layout, work.text, answer), charge, work.texts, None
    )
    if checks and work.checker is not None:
        await on_database(_store_checks, work, checks, Sentence(NOT_CHECKED))
        checks, note = await judge(checks, charge, work.texts, work.checker)
    await on_database(_store_checks, work, checks, note)
    await on_database(services.end_if_answered, work.claimed_rows)


def _notes(work: _ReadingRun) -> list[ReadingPart]:
    return list(work.reading.parts.filter(level=0, state=ReadingPart.State.DONE).exclude(findings=""))


def _percent(work: _ReadingRun) -> int:
    return services.percent_read(list(work.reading.parts.filter(level=0)))


def _named_notes(work: _ReadingRun, row: ReadingPart) -> str:
    """Return the notes of a part, below the name of its file if the reading has several files."""
    name = work.layout.named(row.start, row.end)
    return asking.with_file_name(name[: services.MAX_NAME_LENGTH], row.findings)


async def _fold(work: _ReadingRun, level: int, group: Sequence[ReadingPart]) -> list[ReadingPart]:
    """Fold the notes of several rows, and return the fold. An earlier worker may have made it. A single row stays."""
    if len(group) == 1:
        return [*group]
    start = group[0].start
    end = group[-1].end
    existing = await on_database(work.reading.parts.filter(level=level, start=start, end=end).first)
    if existing is not None:
        return [existing] if existing.findings else []
    reading = work.reading
    notes = [_named_notes(work, row) for row in group]
    reply = await _ask(
        work,
        asking.fold_prompt(work.texts, reading.question, reading.file_name, notes, work.budget),
        work.budget.folded,
    )
    if (reply.cut_off or reply.unread) and len(group) > 2:
        half = len(group) // 2
        return [row for each in (group[:half], group[half:]) for row in await _fold(work, level, each)]
    row = ReadingPart(reading=reading, level=level, start=start, end=end)
    await on_database(_store, work, row, reply)
    return [row] if row.findings else []


def _store_answer(work: _ReadingRun, reply: OwnAnswer, status: Reading.Status) -> None:
    """Store the answer before it is checked, so that a stop or a crash does not lose it. Raises `_ClaimLost`."""
    unchecked = (
        {"checked": 0, "doubts": [], "places": [], "note": NOT_CHECKED} if status == Reading.Status.CHECKING else None
    )
    _update_claimed(
        work,
        status=status,
        answer=_storable_text(reply),
        code="answer_cut_off" if reply.cut_off else "",
        detail=Sentence("The answer is cut off at the model's limit of length.") if reply.cut_off else "",
        citation_check=unchecked,
        finished=timezone.now(),
    )


def _store_checks(work: _ReadingRun, checks: Sequence[PartCheck], note: Sentence | None) -> None:
    """Store the result of the check of citations. Raises `_ClaimLost`."""
    stored = note.dump() if note else ""
    check = None
    if checks:
        first = checks[0]
        check = {"checked": first.checked, "doubts": first.doubts, "note": stored, "places": first.places}
    _update_claimed(work, citation_check=check)
