"""A reading from claim to end. The row is the truth: whoever claims it does the work, and who has lost it ends.

A part that was read is never asked about again: whoever goes on, after a crash, a stop or an error, begins with what is
missing. A part that the model finds too long, or on which it has more to write than there is room for, is divided.
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

from accounts.realtime import News, tell
from chat.citations.judging import check_in_time, judge
from chat.citations.services import PartCheck
from chat.ledger.asking import Billing, OwnAnswer, ask
from chat.ledger.models import ModelCall
from chat.readings import asking, checking, planning, services
from chat.readings.layout import Layout, layout_of
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

PARTS_AT_ONCE = 3
LOOK_EVERY = 1.0  # seconds until a stop is seen
PAUSE, LONGEST_PAUSE = 1.0, 20.0  # seconds before a call is made once more
IN_A_ROW = 3  # parts that fail one after another; then the provider is given up
LONGEST = 60_000  # characters of an answer; a model that never ends is cut off
TOO_LONG = "context_too_long"
NOT_CHECKED = gettext_noop("The check of what the answer cites was ended before it was done.")

logger = logging.getLogger(__name__)


class _Lost(Exception):
    """The reading is stopped, removed, or another worker's."""


@dataclass(slots=True)
class _Work:
    """What a claimed reading is carried out with. `checker` is the id of the model that checks citations, if one does;
    `failed`: parts that failed since one was read; `error`: the last of their errors."""

    reading: Reading
    model: Model
    texts: Texts
    text: str
    layout: Layout
    budget: Budget
    waiting: "deque[ReadingPart]"
    checker: UUID | None
    failed: int = 0
    error: ProductError | None = None
    counts: tokens.NamedTokenizer = field(init=False)

    def __post_init__(self) -> None:
        self.counts = tokens.tokenizer(self.model.tokenizer or tokens.CATCH_ALL)

    @property
    def ours(self) -> QuerySet[Reading]:
        return READINGS.claimed(self.reading)

    @property
    def given_up(self) -> bool:
        return self.failed >= IN_A_ROW


def settle_lost(lost: QuerySet[Reading]) -> None:
    """End the readings that were answered when their worker was lost."""
    for pk in lost.filter(status=Reading.Status.CHECKING).values_list("pk", flat=True):
        services.settle(lost.filter(pk=pk))


def give_up(reading: Reading) -> None:
    """End a reading that loses its workers without any progress."""
    detail = Sentence("The server was ended several times while it read this. Go on, or ask again with another model.")
    _end(reading, status=Reading.Status.FAILED, code="reading_gave_up", detail=detail)


async def run(pk: UUID) -> None:
    """Carries out what nobody is carrying out; the end, good or bad, is in the row. A worker that ends leaves it to the
    next one."""
    reading = await on_database(READINGS.claim, pk, "person", "conversation__owner")
    if reading is None:
        return
    rows = READINGS.claimed(reading)
    try:
        with READINGS.alive(reading):
            await _while_ours(rows, _carry_out(reading))
    except asyncio.CancelledError:
        long_ago = timezone.now() - timedelta(minutes=1)
        again = {"status": Reading.Status.QUEUED, "tries": 0, "heartbeat": long_ago}
        await asyncio.shield(with_retries(lambda: services.settle(rows) or rows.update(**again)))
        raise
    except _Lost:
        logger.info("reading %s was stopped, or is another worker's", pk)
    except ProductError as error:
        code, detail = error.code, error.sentence
        stopped = code == "calls_used_up"
        status = Reading.Status.STOPPED if stopped else Reading.Status.FAILED
        await with_retries(lambda: _end(reading, status=status, code=code, detail=detail))
    except Exception:
        logger.exception("reading %s failed", pk)
        detail = Sentence("Something went wrong on the server. Go on with what is missing.")
        await with_retries(lambda: _end(reading, status=Reading.Status.FAILED, code="internal_error", detail=detail))


def _end(reading: Reading, **fields: Any) -> None:
    rows = READINGS.claimed(reading)
    if not services.settle(rows) and rows.update(finished=timezone.now(), **fields):
        tell(reading.person_id, News.READINGS)


async def _while_ours(rows: QuerySet[Reading], work: Coroutine[Any, Any, None]) -> None:
    """Cuts the work off, with the calls that are under way, once the reading is stopped or lost. Raises `_Lost`."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY))[0]:
            if not await with_retries(rows.exists):
                raise _Lost
        task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _carry_out(reading: Reading) -> None:
    work = await on_database(_load, reading)
    if not reading.only_answer:
        await _read_parts(work)
    await _answer(work)


def _load(reading: Reading) -> _Work:
    """Raises what `services.text_of`, `usable_model` and `budget_of` raise."""
    text, model, rules = services.text_of(reading), services.usable_model(reading), rules_at()
    waiting = reading.parts.filter(level=0, state=ReadingPart.State.WAITING)
    layout, checker = layout_of(reading, pages=False), rules.workspace.citation_model_id
    budget = services.budget_of(rules.texts, model, reading.question, several=layout.several)
    return _Work(reading, model, rules.texts, text, layout, budget, deque(waiting), checker)


async def _read_parts(work: _Work) -> None:
    """All that wait, some at once. Raises the last error where the provider was given up, or nothing could be read."""
    readers = [asyncio.create_task(_reader(work)) for _ in range(PARTS_AT_ONCE)]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
    done = work.reading.parts.filter(level=0, state=ReadingPart.State.DONE)
    if work.error is not None and (work.given_up or not await on_database(done.exists)):
        raise work.error


async def _reader(work: _Work) -> None:
    while work.waiting and not work.given_up:
        part = work.waiting.popleft()
        try:
            said = await _asked(work, _prompt(work, part), work.budget.findings)
        except ModelError as error:
            await _not_read(work, part, error)
            continue
        if said.unread or said.cut_off:
            if await _divided(work, part):
                continue
            if said.unread:
                detail = Sentence("The model's server did not read all of this part.")
                await _not_read(work, part, ModelError("part_cut", detail, retryable=False))
                continue
        work.failed = 0
        await on_database(_store, work, part, said)


def _prompt(work: _Work, part: ReadingPart) -> asking.Messages:
    reading = work.reading
    passages = asking.numbered(work.text, part.start, part.end, reading.passages)
    title = work.layout.named(part.start, part.end) or reading.file_name
    return asking.of_part(work.texts, reading.question, title, passages, work.budget)


async def _not_read(work: _Work, part: ReadingPart, error: ModelError) -> None:
    if error.code == TOO_LONG and await _divided(work, part):
        return
    work.failed, work.error = work.failed + 1, error
    await on_database(_store_failure, work, part, error)


async def _divided(work: _Work, part: ReadingPart) -> bool:
    """Whether the part could be divided; its halves are read next."""
    middle = planning.middle(work.reading.passages, part.start, part.end)
    if middle is None:
        return False
    work.waiting.extendleft(reversed(await on_database(_divide, work, part, middle)))
    return True


async def _asked(work: _Work, messages: asking.Messages, wanted: int) -> OwnAnswer:
    """One call, made once more where it may succeed then. Raises `ModelError`, `calls_used_up` and `_Lost`."""
    model, most = work.model, wanted + work.budget.thinking
    most = min(most, model.max_output or most)
    request = ModelRequest(model=model.name, messages=messages, max_output=most, window=model.window)
    reading = work.reading
    charge = Billing(reading.conversation, ModelCall.Purpose.FULL_READ, reading.person_id, reading.pk, reading.token_id)
    await on_database(_count_call, work)
    try:
        return await ask(model, request, charge, longest=LONGEST)
    except ModelError as error:
        if not error.retryable:
            raise
        await asyncio.sleep(min(error.retry_after or PAUSE, LONGEST_PAUSE))
    await on_database(_count_call, work)
    return await ask(model, request, charge, longest=LONGEST)


def _count_call(work: _Work) -> None:
    if not work.ours.update(asked=F("asked") + 1):
        raise _Lost
    reading = work.reading
    asked = Reading.objects.values_list("asked", flat=True).get(pk=reading.pk)
    if asked > planning.most_calls(reading.calls):
        detail = Sentence(
            "It takes more calls than you agreed to, as parts had to be divided. Go on to agree to the rest."
        )
        raise ProductError("calls_used_up", detail)


def _kept(said: OwnAnswer) -> str:
    """As the database takes it."""
    return said.text.replace("\x00", "").strip()


def _store(work: _Work, part: ReadingPart, said: OwnAnswer) -> None:
    """Raises `_Lost`."""
    text = _kept(said)
    part.findings = text if any(map(str.isalnum, text)) else ""
    part.tokens, part.cut_off = work.counts.count(part.findings), said.cut_off
    part.state = ReadingPart.State.DONE
    with transaction.atomic():
        _require_ours(work, tries=0)
        if part.pk is None:  # a fold, in the place of one of a smaller or larger window
            ReadingPart.objects.filter(reading=work.reading, level=part.level, start=part.start).delete()
        part.save()


def _store_failure(work: _Work, part: ReadingPart, error: ModelError) -> None:
    """Raises `_Lost`."""
    part.state, part.code, part.detail = ReadingPart.State.FAILED, error.code, error.sentence
    with transaction.atomic():
        _require_ours(work)
        part.save()


def _divide(work: _Work, part: ReadingPart, middle: int) -> list[ReadingPart]:
    """Raises `_Lost`."""
    with transaction.atomic():
        _require_ours(work)
        second = ReadingPart.objects.create(reading=work.reading, start=middle, end=part.end)
        part.end = middle
        part.save(update_fields=["end"])
    return [part, second]


def _require_ours(work: _Work, **fields: Any) -> None:
    """In the transaction of what it is about, of which open pages then hear. Raises `_Lost`."""
    if not work.ours.update(heartbeat=timezone.now(), **fields):
        raise _Lost
    tell(work.reading.person_id, News.READINGS)


async def _answer(work: _Work) -> None:
    """Folds what was found until it fits, then has the question answered from it; where nothing was found, nothing is
    asked."""
    rows = await on_database(_found, work)
    level = 0
    while sum(sizes := [row.tokens + work.budget.name for row in rows]) > work.budget.notes:
        level += 1
        groups = planning.groups_of(sizes, work.budget.fold)
        if len(groups) == len(rows):
            detail = Sentence("What was found does not become short enough to be answered from. Choose a larger model.")
            raise ProductError("notes_do_not_fit", detail)
        rows = [row for first, end in groups for row in await _folded(work, level, rows[first:end])]
    if not rows:
        await on_database(_keep, work, OwnAnswer(), Reading.Status.DONE)
        return
    percent = await on_database(_percent, work)
    reading, notes = work.reading, [_named(work, row) for row in rows]
    messages = asking.of_answer(work.texts, reading.question, reading.file_name, notes, percent)
    said = await _asked(work, messages, work.budget.answer)
    if said.unread:
        raise ProductError("notes_cut", "The model's server did not read all that was found. Choose another model.")
    await on_database(_keep, work, said, Reading.Status.CHECKING)
    await _check(work, _kept(said))


async def _check(work: _Work, answer: str) -> None:
    """Holds the answer against what it cites. What was found so far is kept before the model that checks is asked."""
    reading = work.reading
    charge = Billing(reading.conversation, ModelCall.Purpose.CITATIONS, reading.person_id, reading.pk, reading.token_id)
    found, note = await check_in_time(
        partial(checking.check, reading, work.layout, work.text, answer), charge, work.texts, None
    )
    if found and work.checker is not None:
        await on_database(_keep_check, work, found, Sentence(NOT_CHECKED))
        found, note = await judge(found, charge, work.texts, work.checker)
    await on_database(_keep_check, work, found, note)
    await on_database(services.settle, work.ours)


def _found(work: _Work) -> list[ReadingPart]:
    return list(work.reading.parts.filter(level=0, state=ReadingPart.State.DONE).exclude(findings=""))


def _percent(work: _Work) -> int:
    return services.percent_of(list(work.reading.parts.filter(level=0)))


def _named(work: _Work, row: ReadingPart) -> str:
    """Its notes, and above them which of several files they are on."""
    name = work.layout.named(row.start, row.end)
    return asking.named(name[: services.LONGEST_NAME], row.findings)


async def _folded(work: _Work, level: int, group: Sequence[ReadingPart]) -> list[ReadingPart]:
    """What the rows were folded into, by this worker or one before it; one alone stays as it is."""
    if len(group) == 1:
        return [*group]
    start, end = group[0].start, group[-1].end
    there = await on_database(work.reading.parts.filter(level=level, start=start, end=end).first)
    if there is not None:
        return [there] if there.findings else []
    reading = work.reading
    notes = [_named(work, row) for row in group]
    said = await _asked(
        work, asking.of_fold(work.texts, reading.question, reading.file_name, notes, work.budget), work.budget.folded
    )
    if (said.cut_off or said.unread) and len(group) > 2:
        half = len(group) // 2
        return [row for each in (group[:half], group[half:]) for row in await _folded(work, level, each)]
    row = ReadingPart(reading=reading, level=level, start=start, end=end)
    await on_database(_store, work, row, said)
    return [row] if row.findings else []


def _keep(work: _Work, said: OwnAnswer, status: Reading.Status) -> None:
    """The answer, before it is checked: a stop or a crash from here on does not cost it. Raises `_Lost`."""
    code = "answer_cut_off" if said.cut_off else ""
    detail = Sentence("The answer ends where the model had no room for more.") if said.cut_off else ""
    fields: dict[str, Any] = {"status": status, "answer": _kept(said), "code": code, "detail": detail}
    unchecked = {"checked": 0, "doubts": [], "note": NOT_CHECKED} if status == Reading.Status.CHECKING else None
    _require_ours(work, **fields, citation_check=unchecked, finished=timezone.now())


def _keep_check(work: _Work, found: Sequence[PartCheck], note: Sentence | None) -> None:
    """Raises `_Lost`."""
    stored = note.dump() if note else ""
    check = {"checked": found[0].checked, "doubts": found[0].doubts, "note": stored} if found else None
    _require_ours(work, citation_check=check)
