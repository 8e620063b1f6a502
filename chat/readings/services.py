"""User actions on readings: estimate, start, stop, resume, remove, and take the notes into a conversation."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import accumulate, groupby
from typing import TypedDict

from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.holds import require_free, without_holds
from accounts.access.rights import models_of
from accounts.models import User
from accounts.realtime import News, notify
from chat.citations import judging
from chat.models import Conversation
from chat.models.conversation_state import visible_conversation
from chat.readings import asking, checking, planning
from chat.readings.admission import require_reading_allowed
from chat.readings.layout import FileRead, TextLayout, load_layout
from chat.readings.models import Reading, ReadingFile, ReadingPart
from chat.readings.planning import Budget, Passage, Plan
from core.audit.origin import current_origin
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.i18n import dollars
from core.jobs import JobKind
from core.permissions import has_right
from core.requests import get_or_404
from core.sentences import NO_SENTENCE, Sentence
from files.index.chunks import build_chunks
from files.models import Chunk, File, FileText
from files.services import store, visible_file
from llm import tokens
from llm.models import Model
from llm.types.model_call import Usage
from personas.services import model_for, rules_at
from personas.texts import Texts

MAX_FILES = 50  # per reading
MAX_NAMES = 255  # characters of all file names together
MAX_NAME_LENGTH = 60  # characters of a file's name above the notes on it
MAX_TRIES = 3  # claims without progress
STOPPED = Sentence("Stopped before it was read.")
NOT_YET = Sentence("Not read yet.")

# A reading in `CHECKING` has its answer. If its worker is lost, it is done and not read again, see `jobs.settle_lost`.
READINGS = JobKind(
    model=Reading,
    task="chat.tasks.read_all",
    waiting=Q(status=Reading.Status.QUEUED),
    running=Q(status__in=[Reading.Status.RUNNING, Reading.Status.CHECKING]),
    resumable=Q(status=Reading.Status.RUNNING),
    on_claim={"status": Reading.Status.RUNNING},
    tries_column="tries",
    max_tries=MAX_TRIES,
)


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """A person's question about files. `model` None: the default model of the conversation's persona or the person."""

    user: User
    files: Sequence[File]
    question: str
    model: Model | None = None
    conversation: Conversation | None = None


def reading_request(
    *, user: User, files: Sequence[object], question: str, model: object, conversation: object
) -> ReadingRequest:
    """Return the request with the rows of these ids. None and "" mean no id. A file that is named twice counts once.

    Raises `NotFound` and `too_many_files`.
    """
    ids = list(dict.fromkeys(map(str, files)))
    if len(ids) > MAX_FILES:
        detail = Sentence(
            "You chose {ids} files. A question can have at most {most_files}.",
            ids=len(ids),
            most_files=MAX_FILES,
        )
        raise ProductError("too_many_files", detail)
    usable = models_of(user).select_related("provider")
    return ReadingRequest(
        user,
        [visible_file(user, each) for each in ids],
        question,
        get_or_404(usable, model, "model") if model else None,
        visible_conversation(user, conversation) if conversation else None,
    )


@dataclass(frozen=True, slots=True)
class _UnreadPart:
    """A part that is still to be read: its file and its tokens."""

    file: File | None
    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class FileCost:
    """The upper bound of the calls for the parts of one file. `cost` is in US dollars, None without a price."""

    file: File | None
    name: str
    parts: int
    usage: Usage
    cost: Decimal | None

    @property
    def tokens(self) -> int:
        return self.usage.input + self.usage.output

    @property
    def money(self) -> str:
        return _money(self.cost)


@dataclass(frozen=True, slots=True)
class ReadingEstimate:
    """The upper bound of a reading: the calls of `plan`, and the calls of the `checker`, which checks citations.

    `cost` is in US dollars for both, None if either has no price. `files` have the costs of their parts. The rest is
    for the folds, the answer and the check.
    """

    model: Model
    plan: Plan
    checker: Model | None
    cost: Decimal | None
    files: list[FileCost]

    @property
    def checks(self) -> int:
        return judging.MAX_CALLS if self.checker is not None else 0

    @property
    def usage(self) -> Usage:
        """Return the tokens that all calls read and write."""
        checks = judging.largest_usage() if self.checker is not None else Usage(0, 0)
        return Usage(self.plan.usage.input + checks.input, self.plan.usage.output + checks.output)

    @property
    def tokens(self) -> int:
        return self.usage.input + self.usage.output

    @property
    def money(self) -> str:
        """Return the cost in words; empty without a price."""
        return _money(self.cost)


def estimate(*, request: ReadingRequest) -> ReadingEstimate:
    """Return the upper bound of reading all the files for the question.

    Raises `nothing_to_read` (409) for a file without text, `no_files`, `no_model`, and `reading_window_too_small`.
    """
    model = _model(request)
    budget = _budget(model, request.question, several=len(request.files) > 1)
    return _estimate(model, _parts(_divide_files(request.files), request.files, budget), [], budget)


def start_reading(*, user: User, request: ReadingRequest, calls: int) -> Reading:
    """Store a reading and queue it for a worker. `calls` is the number of calls that the person agreed to.

    Raises `empty_question`, `question_too_long`, `plan_changed` (409, with the new plan in `plan`) if the number has
    changed, `readings_running` and `limit_reached` (429), and the errors of `estimate`.
    """
    question = request.question.strip()
    if not question:
        raise ProductError("empty_question", "Write a question about the file.")
    if len(question) > Reading.MAX_QUESTION:
        detail = Sentence(
            "The question has {question} characters. The maximum is {max_question}. Shorten it.",
            question=len(question),
            max_question=Reading.MAX_QUESTION,
        )
        raise ProductError("question_too_long", detail)
    model = _model(request)
    divided = _divide_files(request.files)
    budget = _budget(model, question, several=len(request.files) > 1)
    agreed = _estimate(model, _parts(divided, request.files, budget), [], budget)
    _require_agreed(agreed, calls)
    ends = [each.end for each in divided.passages]
    token = current_origin().token_id
    lengths = list(accumulate(map(len, divided.texts), initial=0))
    with transaction.atomic():
        require_reading_allowed(user, token)
        reading = Reading.objects.create(
            person=user,
            conversation=request.conversation,
            file=request.files[0],
            file_name=_names(request.files),
            question=question,
            model=model,
            model_name=model.name,
            token_id=token,
            passages=ends,
            text_sha256=digest(divided.texts),
            calls=agreed.plan.calls,
            tokens=agreed.tokens,
            cost=agreed.cost,
        )
        ReadingFile.objects.bulk_create(
            ReadingFile(reading=reading, file=file, name=file.name, start=start, end=end)
            for file, start, end in zip(request.files, lengths, lengths[1:], strict=False)
        )
        ReadingPart.objects.bulk_create(
            ReadingPart(reading=reading, start=ends[first - 1] if first else 0, end=ends[last - 1])
            for first, last in planning.group_into_parts(divided.passages, budget.part)
        )
        record(user=user, action="reading.begun", row=reading, changes={"calls": agreed.plan.calls})
        _hand_over(reading)
    return reading


def plan_again(*, reading: Reading, only_answer: bool = False) -> ReadingEstimate:
    """Return the upper bound of resuming a reading: the parts that were not read, the folds and the answer.

    With `only_answer` no part is read.

    Raises `reading_running` and `nothing_to_read` (409), `file_gone` and `file_changed` (409), `model_gone` (409), and
    `reading_window_too_small`.
    """
    if reading.live:
        raise ProductError("reading_running", "This reading is running. Wait for its end, or stop it.", status=409)
    rows = list(reading.parts.filter(level=0))
    unread = [] if only_answer else [row for row in rows if row.state != ReadingPart.State.DONE]
    read = any(row.state == ReadingPart.State.DONE for row in rows)
    if (not unread and reading.status == Reading.Status.DONE) or (only_answer and not read):
        detail = Sentence("This reading cannot continue: it is complete, or no part was read yet.")
        raise ProductError("nothing_to_read", detail, status=409)
    text = load_text(reading)
    model = usable_model(reading)
    layout = load_layout(reading, pages=False)
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    budget = _budget(model, reading.question, several=layout.several)
    left = []
    for row in unread:
        source = layout.file_at(row.start)
        size = count(text[row.start : row.end])
        left.append(_UnreadPart(source.file, source.name, size) if source is not None else _UnreadPart(None, "", size))
    return _estimate(model, left, [row.tokens + budget.name for row in rows if row.findings], budget)


def resume_reading(*, user: User, reading: Reading, calls: int, only_answer: bool = False) -> Reading:
    """Resume a reading that was stopped, failed, or left parts out. Only the missing parts are read.

    With `only_answer` it is answered from the parts that were read. Raises `plan_changed` (409), `readings_running` and
    `limit_reached` (429), and the errors of `plan_again`.
    """
    current = plan_again(reading=reading, only_answer=only_answer)
    _require_agreed(current, calls)
    with transaction.atomic():
        require_reading_allowed(user, reading.token_id or current_origin().token_id)
        resumed = Reading.objects.exclude(status__in=Reading.LIVE).filter(pk=reading.pk)
        if resumed.update(
            status=Reading.Status.QUEUED,
            code="",
            detail="",
            finished=None,
            calls=current.plan.calls,
            tokens=current.tokens,
            cost=current.cost,
            asked=0,
            tries=0,
            only_answer=only_answer,
            heartbeat=timezone.now(),
        ):
            if current.plan.parts:  # existing folds cover fewer parts
                reading.parts.filter(level__gt=0).delete()
                failed = reading.parts.filter(level=0, state=ReadingPart.State.FAILED)
                failed.update(state=ReadingPart.State.WAITING, code="", detail="")
            _hand_over(reading)
    reading.refresh_from_db()
    return reading


def stop_reading(*, user: User, reading: Reading) -> Reading:
    """Stop a reading within a few seconds. Its notes stay. Staff may stop any reading. Raises `not_running` (409)."""
    if reading.person_id != user.pk and not has_right(user, "change", reading):
        raise NotFound("reading")
    rows = Reading.objects.live().filter(pk=reading.pk)
    stopped = Reading.Status.STOPPED
    if not end_if_answered(rows) and not rows.update(
        status=stopped, code="stopped", detail="", finished=timezone.now()
    ):
        raise ProductError("not_running", "This reading is no longer running. Reload the page.", status=409)
    notify(reading.person_id, News.READINGS)
    reading.refresh_from_db()
    return reading


def end_if_answered(rows: QuerySet[Reading]) -> bool:
    """End the reading in `rows` if it has its answer. Citations stay as far as they were checked.

    `rows` has one reading at most. Returns False if it has no answer yet.
    """
    answered = rows.filter(status=Reading.Status.CHECKING)
    person = answered.values_list("person", flat=True).first()
    if person is None or not answered.update(status=Reading.Status.DONE, finished=timezone.now()):
        return False
    notify(person, News.READINGS)
    return True


def remove_reading(*, user: User, reading: Reading) -> None:
    """Remove a reading with its notes. Its costs stay in the ledger.

    Raises `reading_running` (409), and `legal_hold` (409) if its person or its conversation is under a legal hold.
    """
    require_free(reading)
    with transaction.atomic():
        if reading.live:
            raise ProductError("reading_running", "This reading is running. Stop it, then remove it.", status=409)
        record(user=user, action="reading.removed", row=reading)
        notify(reading.person_id, News.READINGS)
        reading.delete()


def erase_old(people: QuerySet[User], before: datetime) -> None:
    """Delete these people's readings without a conversation that ended before this time, unless a legal hold exists."""
    readings = (
        without_holds(Reading.objects.all())
        .exclude(status__in=Reading.LIVE)
        .filter(conversation=None, person__in=people)
    )
    readings.filter(Q(finished__lt=before) | Q(finished=None, created__lt=before)).delete()


def store_notes_as_file(*, user: User, reading: Reading) -> File:
    """Store the notes as a file of the user, who can send it with a message. Raises `not_answered` (409)."""
    if reading.status != Reading.Status.DONE:
        detail = Sentence(
            "There is no answer yet. Continue the reading, or have it answered from the parts that were read."
        )
        raise ProductError("not_answered", detail, status=409)
    name = f"Notes on {reading.file_name[:200]}.md"
    return store(user=user, name=name, content=ContentFile(to_markdown(reading).encode(), name=name))


def to_markdown(reading: Reading) -> str:
    """Return the reading as Markdown: question, coverage, answer, and the notes with their passages."""
    rows = list(reading.parts.filter(level=0))
    layout = load_layout(reading)
    percent = percent_read(rows)
    lines = [
        f"# {reading.file_name}",
        "",
        reading.question,
        "",
        f"Read: {percent} % of the text.",
        "",
    ]
    if layout.several:
        each_read = coverage(reading, rows, layout)
        lines += [*(f"- {each.row.name}: {each.coverage.percent} %" for each in each_read), ""]
    lines += [reading.answer, ""] if reading.answer else []
    if doubts := checking.get_doubts(reading):
        lines += ["## Not confirmed by the passages", "", *(f"- {each['sentence']}" for each in doubts), ""]
    for row in rows:
        if row.findings:
            numbers = planning.passage_numbers(reading.passages, row.start, row.end)
            first = layout.page_at(row.start)
            last = layout.page_at(row.end - 1)
            pages = f" (pages {first} to {last})" if last else ""
            name = f"{named}: p" if (named := layout.named(row.start, row.end)) else "P"
            lines += [f"## {name}assages {numbers[0]} to {numbers[-1]}{pages}", "", row.findings, ""]
    return "\n".join(lines)


def coverage(reading: Reading, rows: Sequence[ReadingPart], layout: TextLayout) -> list[FileRead]:
    """Return how much of each file was read. `rows` are the parts of level 0, in order."""
    if reading.live:
        return layout.read(_part_coverages(rows), "waiting", NOT_YET)
    if reading.status == Reading.Status.DONE:
        return layout.read(_part_coverages(rows), "stopped", STOPPED)
    return layout.read(_part_coverages(rows), reading.code or "stopped", reading.detail or STOPPED)


def percent_read(rows: Sequence[ReadingPart]) -> int:
    """Return the percentage of the whole text that was read. 100 only if all of it was read."""
    return planning.compute_coverage(_part_coverages(rows), [], "", NO_SENTENCE).percent


def _part_coverages(rows: Sequence[ReadingPart]) -> list[planning.PartCoverage]:
    return [
        planning.PartCoverage(row.start, row.end, read=False, code=row.code, why=row.detail)
        if row.state == ReadingPart.State.FAILED
        else planning.PartCoverage(row.start, row.end, read=row.state == ReadingPart.State.DONE)
        for row in rows
    ]


def load_text(reading: Reading) -> str:
    """Return the text that is divided into passages. Raises `file_gone` and `file_changed` (409)."""
    files = list(reading.files.all())
    seen = File.objects.visible_to(reading.person).filter(pk__in=[row.file_id for row in files])
    texts = dict(FileText.objects.filter(file__in=seen).values_list("file", "text"))
    ordered = []
    for row in files:
        if row.file_id is None or row.file_id not in texts:
            detail = Sentence(
                "“{name}” was deleted, or you can no longer see it, so the reading cannot continue.", name=row.name
            )
            raise ProductError("file_gone", detail, status=409)
        ordered.append(texts[row.file_id])
    if digest(ordered) != reading.text_sha256:
        changed = Sentence(
            "The text of the file has changed, so this reading cannot continue. Ask again about the new text."
        )
        raise ProductError("file_changed", changed, status=409)
    return "".join(ordered)


def usable_model(reading: Reading) -> Model:
    """Return the model of a reading if its person may still use it. Raises `model_gone` (409)."""
    model = models_of(reading.person).select_related("provider").filter(pk__in=[reading.model_id]).first()
    if model is None:
        detail = Sentence("The model was removed or turned off. Ask again with another model.")
        raise ProductError("model_gone", detail, status=409)
    return model


def visible_reading(user: User, pk: object) -> Reading:
    """Return a reading of the person. Raises `NotFound`."""
    rows = Reading.objects.visible_to(user).select_related("person", "file", "conversation", "model")
    return get_or_404(rows, pk, "reading")


def digest(texts: Iterable[str]) -> str:
    """Return the SHA-256 of these texts, one after the other."""
    sha256 = hashlib.sha256()
    for text in texts:
        sha256.update(text.encode(errors="surrogatepass"))
    return sha256.hexdigest()


def compute_budget(texts: Texts, model: Model, question: str, *, several: bool) -> Budget:
    """Return the budget of a call. `several`: the reading has several files. Raises `reading_window_too_small`."""
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    name = (
        MAX_NAME_LENGTH if several else 0
    )  # tokens; a character takes at most one token, nearly always less than half
    return planning.budget_for(model, count(asking.longest_instructions(texts)), count(question), name)


def _budget(model: Model, question: str, *, several: bool) -> Budget:
    return compute_budget(rules_at().texts, model, question, several=several)


def _model(request: ReadingRequest) -> Model:
    persona = request.conversation.persona if request.conversation is not None else None
    return request.model or model_for(persona, request.user)


def _names(files: Sequence[File]) -> str:
    """Return the names of the files, cut off at `MAX_NAMES`."""
    names = ", ".join(file.name for file in files)
    return names if len(names) <= MAX_NAMES else names[: MAX_NAMES - 1] + "…"


@dataclass(frozen=True, slots=True)
class _DividedFiles:
    """The texts of the files, and the passages of all of them."""

    texts: list[str]
    passages: list[Passage]


def _divide_files(files: Sequence[File]) -> _DividedFiles:
    """Return texts and passages of the files. Raises `no_files`, and `nothing_to_read` (409)."""
    if not files:
        raise ProductError("no_files", "Choose at least one file.")
    each = [_load_chunks(file) for file in files]
    return _DividedFiles(
        [text for text, _ in each], planning.divide_into_passages([(rows, len(text)) for text, rows in each])
    )


def _load_chunks(file: File) -> tuple[str, list[tuple[int, int, int, str]]]:
    """Return the file's text, and (start, end, tokens, heading) of its chunks. Raises `nothing_to_read` (409)."""
    content = FileText.objects.filter(file=file).first()
    text = content.text if content is not None else ""
    rows = list(Chunk.objects.filter(file=file).order_by("ordinal").values_list("start", "end", "tokens", "heading"))
    if not rows and content is not None:  # the file has no chunks yet
        chunks = build_chunks(file, file.media_type, text, content.spans)
        rows = [(chunk.start, chunk.end, chunk.tokens, chunk.heading) for chunk in chunks]
    if not rows:
        detail = Sentence(
            "“{name}” has no text that could be read. Wait until it is ready, or choose another file.", name=file.name
        )
        raise ProductError("nothing_to_read", detail, status=409)
    return text, rows


def _parts(divided: _DividedFiles, files: Sequence[File], budget: Budget) -> list[_UnreadPart]:
    passages = divided.passages
    parts = []
    for first, end in planning.group_into_parts(passages, budget.part):
        file = files[passages[first].file]
        parts.append(_UnreadPart(file, file.name, sum(each.tokens for each in passages[first:end])))
    return parts


def _estimate(model: Model, unread: Sequence[_UnreadPart], notes: Sequence[int], budget: Budget) -> ReadingEstimate:
    plan = planning.plan_calls([each.tokens for each in unread], notes, budget)
    checker_id = rules_at().workspace.citation_model_id
    checker = Model.objects.usable().filter(pk=checker_id).first() if checker_id is not None else None
    costs = [_cost(model, plan.usage), *([_cost(checker, judging.largest_usage())] if checker is not None else [])]
    files = []
    for (file, name), parts in groupby(unread, key=lambda each: (each.file, each.name)):
        sizes = [each.tokens for each in parts]
        usage = planning.estimate_parts(sizes, budget)
        files.append(FileCost(file, name, len(sizes), usage, _cost(model, usage)))
    cost = None if None in costs else sum(filter(None, costs), Decimal(0))
    return ReadingEstimate(model, plan, checker, cost, files)


def _cost(model: Model, usage: Usage) -> Decimal | None:
    """Return the cost in US dollars; None if the model has no price."""
    return model.prices.cost(usage) if model.prices is not None else None


def _money(cost: Decimal | None) -> str:
    return "" if cost is None else dollars(cost, up=True)


def _require_agreed(current: ReadingEstimate, calls: int) -> None:
    """Check that the person agreed to the current number of calls. Raises `plan_changed` (409)."""
    if calls != current.plan.calls:
        detail = Sentence(
            "It now takes up to {calls} calls of the model. Check the plan, then start again.",
            calls=current.plan.calls,
        )
        raise ProductError("plan_changed", detail, status=409, plan=as_json(current))


class UsageJson(TypedDict):
    """Tokens, and US dollars as text; None without a price."""

    input: int
    output: int
    cost: str | None


class FileCostJson(UsageJson):
    file: str | None
    name: str
    parts: int


class EstimateJson(UsageJson):
    """A `ReadingEstimate` for programs."""

    model: str
    calls: int
    parts: int
    folds: int
    checks: int
    files: list[FileCostJson]


def as_json(current: ReadingEstimate) -> EstimateJson:
    """Return an estimate for programs."""
    return {
        "model": str(current.model.pk),
        "calls": current.plan.calls,
        "parts": current.plan.parts,
        "folds": current.plan.folds,
        "checks": current.checks,
        "input": current.usage.input,
        "output": current.usage.output,
        "cost": _decimal_text(current.cost),
        "files": [
            {
                "file": str(each.file.pk) if each.file is not None else None,
                "name": each.name,
                "parts": each.parts,
                "input": each.usage.input,
                "output": each.usage.output,
                "cost": _decimal_text(each.cost),
            }
            for each in current.files
        ],
    }


def _decimal_text(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost:f}"


def _hand_over(reading: Reading) -> None:
    notify(reading.person_id, News.READINGS)
    READINGS.hand_over(reading.pk)
