"""What people do with readings: planned, begun, stopped, gone on with, removed, and taken into a conversation."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import accumulate, groupby

from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.holds import free, require_free
from accounts.access.rights import models_of
from accounts.models import User
from accounts.realtime import News, tell
from chat.citations import judging
from chat.models import Conversation
from chat.models.conversation_state import visible_conversation
from chat.readings import asking, checking, planning
from chat.readings.admission import require_turn
from chat.readings.layout import FileRead, Layout, layout_of
from chat.readings.models import Reading, ReadingFile, ReadingPart
from chat.readings.planning import Budget, Passage, Plan
from core.audit.origin import origin
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.i18n import dollars
from core.jobs import JobKind
from core.permissions import has_right
from core.requests import get_or_404
from core.sentences import NO_SENTENCE, Sentence
from files.index.chunks import chunks_of
from files.models import Chunk, File, FileText
from files.services import store, visible_file
from llm import tokens
from llm.models import Model
from llm.types.model_call import Usage
from personas.services import model_for, rules_at
from personas.texts import Texts

MOST_FILES = 50  # of one reading
MOST_NAMES = 255  # characters of the names of all
LONGEST_NAME = 60  # characters of a file's name above the notes on it
MAX_TRIES = 3  # claims without progress
STOPPED = Sentence("Stopped before it was read.")
NOT_YET = Sentence("Not read yet.")

# One in `CHECKING` is answered: where its worker is lost it is done, not read again, see `jobs.settle_lost`.
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
class Asked:
    """Who asks what of which files; `model`: None for the one that the person's conversations have."""

    user: User
    files: Sequence[File]
    question: str
    model: Model | None = None
    conversation: Conversation | None = None


def asked_of(*, user: User, files: Sequence[object], question: str, model: object, conversation: object) -> Asked:
    """With the rows that these ids name, None and "" for no id; a file that is named twice counts once.

    Raises `NotFound` and `too_many_files`.
    """
    ids = list(dict.fromkeys(map(str, files)))
    if len(ids) > MOST_FILES:
        detail = Sentence(
            "These are {ids} files, the most for one question is {most_files}. Choose fewer.",
            ids=len(ids),
            most_files=MOST_FILES,
        )
        raise ProductError("too_many_files", detail)
    usable = models_of(user).select_related("provider")
    return Asked(
        user,
        [visible_file(user, each) for each in ids],
        question,
        get_or_404(usable, model, "model") if model else None,
        visible_conversation(user, conversation) if conversation else None,
    )


@dataclass(frozen=True, slots=True)
class _Unread:
    """A part that is to be asked about: which file it is of, and its tokens."""

    file: File | None
    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class FileCost:
    """The most that asking about the parts of one file takes."""

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
class Planned:
    """The most that a reading takes: `plan`, and in the end the calls of the model that checks citations, if the
    workspace names one; `cost` in US dollars is for both, None where one has no price. `files` have what their parts
    take; the rest is for folds, answer and check."""

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
        """Tokens read and written by all calls."""
        beside = judging.largest_usage() if self.checker is not None else Usage(0, 0)
        return Usage(self.plan.usage.input + beside.input, self.plan.usage.output + beside.output)

    @property
    def tokens(self) -> int:
        return self.usage.input + self.usage.output

    @property
    def money(self) -> str:
        """In words; empty without a price."""
        return _money(self.cost)


def planned(*, asked: Asked) -> Planned:
    """What reading all of the files for the question takes at most.

    Raises `nothing_to_read` (409) for a file without text, `no_files`, `no_model`, and `reading_window_too_small`.
    """
    model = _model(asked)
    budget = _budget(model, asked.question, several=len(asked.files) > 1)
    return _planned(model, _parts(_divided(asked.files), asked.files, budget), [], budget)


def start_reading(*, user: User, asked: Asked, calls: int) -> Reading:
    """Has a worker read all of them. `calls`: the number that the person was shown.

    Raises `empty_question`, `question_too_long`, `plan_changed` (409, with the new plan in `plan`) where the number is
    another now, `readings_running` and `limit_reached` (429), and what `planned` raises.
    """
    question = asked.question.strip()
    if not question:
        raise ProductError("empty_question", "There is no question. Write what you want to know of the file.")
    if len(question) > Reading.MAX_QUESTION:
        detail = Sentence(
            "The question has {question} characters, the most is {max_question}. Shorten it.",
            question=len(question),
            max_question=Reading.MAX_QUESTION,
        )
        raise ProductError("question_too_long", detail)
    model = _model(asked)
    divided = _divided(asked.files)
    budget = _budget(model, question, several=len(asked.files) > 1)
    found = _planned(model, _parts(divided, asked.files, budget), [], budget)
    _require_agreed(found, calls)
    ends, token = [each.end for each in divided.passages], origin().token_id
    lengths = list(accumulate(map(len, divided.texts), initial=0))
    with transaction.atomic():
        require_turn(user, token)
        reading = Reading.objects.create(
            person=user,
            conversation=asked.conversation,
            file=asked.files[0],
            file_name=_names(asked.files),
            question=question,
            model=model,
            model_name=model.name,
            token_id=token,
            passages=ends,
            text_sha256=digest(divided.texts),
            **_agreed(found),
        )
        ReadingFile.objects.bulk_create(
            ReadingFile(reading=reading, file=file, name=file.name, start=start, end=end)
            for file, start, end in zip(asked.files, lengths, lengths[1:], strict=False)
        )
        ReadingPart.objects.bulk_create(
            ReadingPart(reading=reading, start=ends[first - 1] if first else 0, end=ends[last - 1])
            for first, last in planning.parts_of(divided.passages, budget.part)
        )
        record(user=user, action="reading.begun", row=reading, changes={"calls": found.plan.calls})
        _hand_over(reading)
    return reading


def plan_again(*, reading: Reading, only_answer: bool = False) -> Planned:
    """What is left to ask of one that is not under way: the parts that were not read, or with `only_answer` none, the
    folds and the answer.

    Raises `reading_running` and `nothing_to_read` (409), `file_gone` and `file_changed` (409), `model_gone` (409), and
    `reading_window_too_small`.
    """
    if reading.live:
        raise ProductError("reading_running", "This is being read. Wait until it is done, or stop it.", status=409)
    rows = list(reading.parts.filter(level=0))
    unread = [] if only_answer else [row for row in rows if row.state != ReadingPart.State.DONE]
    read = any(row.state == ReadingPart.State.DONE for row in rows)
    if (not unread and reading.status == Reading.Status.DONE) or (only_answer and not read):
        detail = Sentence("There is nothing to go on with: all of it was read and answered, or nothing was read yet.")
        raise ProductError("nothing_to_read", detail, status=409)
    text, model, layout = text_of(reading), usable_model(reading), layout_of(reading, pages=False)
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    budget = _budget(model, reading.question, several=layout.several)
    left = []
    for row in unread:
        of = layout.file_at(row.start)
        size = count(text[row.start : row.end])
        left.append(_Unread(of.file if of is not None else None, of.name if of is not None else "", size))
    return _planned(model, left, [row.tokens + budget.name for row in rows if row.findings], budget)


def resume_reading(*, user: User, reading: Reading, calls: int, only_answer: bool = False) -> Reading:
    """Goes on with one that was stopped, failed, or left something out: asks only what is missing. With `only_answer`
    it is answered from what was read.

    Raises `plan_changed` (409), `readings_running` and `limit_reached` (429), and what `plan_again` raises.
    """
    found = plan_again(reading=reading, only_answer=only_answer)
    _require_agreed(found, calls)
    with transaction.atomic():
        require_turn(user, reading.token_id or origin().token_id)
        again = Reading.objects.exclude(status__in=Reading.LIVE).filter(pk=reading.pk)
        state = {"status": Reading.Status.QUEUED, "code": "", "detail": "", "finished": None}
        fields = {**state, **_agreed(found), "asked": 0, "tries": 0, "only_answer": only_answer}
        if again.update(**fields, heartbeat=timezone.now()):
            if found.plan.parts:  # folds of what was there before are not those of all of it
                reading.parts.filter(level__gt=0).delete()
                failed = reading.parts.filter(level=0, state=ReadingPart.State.FAILED)
                failed.update(state=ReadingPart.State.WAITING, code="", detail="")
            _hand_over(reading)
    reading.refresh_from_db()
    return reading


def stop_reading(*, user: User, reading: Reading) -> Reading:
    """Ends it within some seconds; what was found stays. Staff may do so for others. Raises `not_running` (409)."""
    if reading.person_id != user.pk and not has_right(user, "change", reading):
        raise NotFound("reading")
    ended = {"status": Reading.Status.STOPPED, "code": "stopped", "detail": "", "finished": timezone.now()}
    rows = Reading.objects.live().filter(pk=reading.pk)
    if not settle(rows) and not rows.update(**ended):
        raise ProductError("not_running", "This is not being read any more. Reload the page.", status=409)
    tell(reading.person_id, News.READINGS)
    reading.refresh_from_db()
    return reading


def settle(rows: QuerySet[Reading]) -> bool:
    """Whether the one of these rows was answered already, and is done with that: its citations as far as they were
    checked."""
    answered = rows.filter(status=Reading.Status.CHECKING)
    person = answered.values_list("person", flat=True).first()
    if person is None or not answered.update(status=Reading.Status.DONE, finished=timezone.now()):
        return False
    tell(person, News.READINGS)
    return True


def remove_reading(*, user: User, reading: Reading) -> None:
    """With all that was found; what it took stays in the ledger.

    Raises `reading_running` (409), and `legal_hold` (409) where its person or its conversation is under one.
    """
    require_free(reading)
    with transaction.atomic():
        if reading.live:
            raise ProductError("reading_running", "This is being read. Stop it, then remove it.", status=409)
        record(user=user, action="reading.removed", row=reading)
        tell(reading.person_id, News.READINGS)
        reading.delete()


def erase_old(people: QuerySet[User], before: datetime) -> None:
    """Those of these people and of no conversation that ended before, and that no legal hold keeps."""
    old = free(Reading.objects.all()).exclude(status__in=Reading.LIVE).filter(conversation=None, person__in=people)
    old.filter(Q(finished__lt=before) | Q(finished=None, created__lt=before)).delete()


def take_along(*, user: User, reading: Reading) -> File:
    """What was found as a text of the person's files, to be sent with a message. Raises `not_answered` (409)."""
    if reading.status != Reading.Status.DONE:
        detail = Sentence(
            "There is no answer yet. Go on with the reading first, or have it answered from what was read."
        )
        raise ProductError("not_answered", detail, status=409)
    name = f"Notes on {reading.file_name[:200]}.md"
    return store(user=user, name=name, content=ContentFile(as_markdown(reading).encode(), name=name))


def as_markdown(reading: Reading) -> str:
    """Question, how much was read, the answer, and what was found on which passages."""
    rows, layout = list(reading.parts.filter(level=0)), layout_of(reading)
    percent = percent_of(rows)
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
    if doubts := checking.doubts_of(reading):
        lines += ["## Not confirmed by the passages", "", *(f"- {each['sentence']}" for each in doubts), ""]
    for row in rows:
        if row.findings:
            numbers = planning.numbers_in(reading.passages, row.start, row.end)
            first, last = layout.page_at(row.start), layout.page_at(row.end - 1)
            pages = f" (pages {first} to {last})" if last else ""
            name = f"{named}: p" if (named := layout.named(row.start, row.end)) else "P"
            lines += [f"## {name}assages {numbers[0]} to {numbers[-1]}{pages}", "", row.findings, ""]
    return "\n".join(lines)


def coverage(reading: Reading, rows: Sequence[ReadingPart], layout: Layout) -> list[FileRead]:
    """Of each file. `rows` are the parts of level 0 in their order."""
    if reading.live:
        return layout.read(_as_parts(rows), "waiting", NOT_YET)
    if reading.status == Reading.Status.DONE:
        return layout.read(_as_parts(rows), "stopped", STOPPED)
    return layout.read(_as_parts(rows), reading.code or "stopped", reading.detail or STOPPED)


def percent_of(rows: Sequence[ReadingPart]) -> int:
    """How much of all of the text was read; 100 only if that is all."""
    return planning.coverage_of(_as_parts(rows), [], "", NO_SENTENCE).percent


def _as_parts(rows: Sequence[ReadingPart]) -> list[planning.Part]:
    done, failed = ReadingPart.State.DONE, ReadingPart.State.FAILED
    return [
        planning.Part(row.start, row.end, row.state == done, *((row.code, row.detail) if row.state == failed else ()))
        for row in rows
    ]


def text_of(reading: Reading) -> str:
    """The text that its passages divide. Raises `file_gone` and `file_changed` (409)."""
    files = list(reading.files.all())
    seen = File.objects.visible_to(reading.person).filter(pk__in=[row.file_id for row in files])
    texts = dict(FileText.objects.filter(file__in=seen).values_list("file", "text"))
    ordered = []
    for row in files:
        if row.file_id is None or row.file_id not in texts:
            detail = Sentence(
                "“{name}” was deleted, or is not yours to see any more, so no more of it can be read.", name=row.name
            )
            raise ProductError("file_gone", detail, status=409)
        ordered.append(texts[row.file_id])
    if digest(ordered) != reading.text_sha256:
        changed = Sentence(
            "The file's text was read anew meanwhile, so this cannot go on. Ask again over the file as it is now."
        )
        raise ProductError("file_changed", changed, status=409)
    return "".join(ordered)


def usable_model(reading: Reading) -> Model:
    """Raises `model_gone` (409)."""
    model = models_of(reading.person).select_related("provider").filter(pk__in=[reading.model_id]).first()
    if model is None:
        detail = Sentence("The model was removed or switched off. Ask again with another model.")
        raise ProductError("model_gone", detail, status=409)
    return model


def visible_reading(user: User, pk: object) -> Reading:
    """Raises `NotFound`."""
    rows = Reading.objects.visible_to(user).select_related("person", "file", "conversation", "model")
    return get_or_404(rows, pk, "reading")


def digest(texts: Iterable[str]) -> str:
    """Of these texts, one behind the other."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode(errors="surrogatepass"))
    return found.hexdigest()


def budget_of(texts: Texts, model: Model, question: str, *, several: bool) -> Budget:
    """`several`: files. Raises `reading_window_too_small`."""
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    name = LONGEST_NAME if several else 0  # a character is a token at most, nearly always less than half of one
    return planning.budget_for(model, count(asking.longest(texts)), count(question), name)


def _budget(model: Model, question: str, *, several: bool) -> Budget:
    return budget_of(rules_at().texts, model, question, several=several)


def _model(asked: Asked) -> Model:
    return asked.model or model_for(asked.conversation.persona if asked.conversation is not None else None, asked.user)


def _names(files: Sequence[File]) -> str:
    """All of them, as long as they fit."""
    names = ", ".join(file.name for file in files)
    return names if len(names) <= MOST_NAMES else names[: MOST_NAMES - 1] + "…"


@dataclass(frozen=True, slots=True)
class _Divided:
    """The texts of the files, and the passages of all of them."""

    texts: list[str]
    passages: list[Passage]


def _divided(files: Sequence[File]) -> _Divided:
    """Raises `no_files`, and `nothing_to_read` (409)."""
    if not files:
        raise ProductError("no_files", "No file was chosen. Choose at least one.")
    each = [_chunks_of(file) for file in files]
    return _Divided([text for text, _ in each], planning.passages_of([(rows, len(text)) for text, rows in each]))


def _chunks_of(file: File) -> tuple[str, list[tuple[int, int, int, str]]]:
    """The file's text, and (start, end, tokens, heading) of its chunks. Raises `nothing_to_read` (409)."""
    content = FileText.objects.filter(file=file).first()
    text = content.text if content is not None else ""
    rows = list(Chunk.objects.filter(file=file).order_by("ordinal").values_list("start", "end", "tokens", "heading"))
    if not rows and content is not None:  # search does not know it yet
        made = chunks_of(file, file.media_type, text, content.spans)
        rows = [(row.start, row.end, row.tokens, row.heading) for row in made]
    if not rows:
        detail = Sentence(
            "“{name}” has no text that could be read. Wait until it is ready, or choose another file.", name=file.name
        )
        raise ProductError("nothing_to_read", detail, status=409)
    return text, rows


def _parts(divided: _Divided, files: Sequence[File], budget: Budget) -> list[_Unread]:
    passages = divided.passages
    found = []
    for first, end in planning.parts_of(passages, budget.part):
        file = files[passages[first].file]
        found.append(_Unread(file, file.name, sum(each.tokens for each in passages[first:end])))
    return found


def _planned(model: Model, unread: Sequence[_Unread], found: Sequence[int], budget: Budget) -> Planned:
    plan = planning.plan_of([each.tokens for each in unread], found, budget)
    named = rules_at().workspace.citation_model_id
    checker = Model.objects.usable().filter(pk=named).first() if named is not None else None
    asked = [(model, plan.usage), *([(checker, judging.largest_usage())] if checker is not None else [])]
    costs = [_cost(each, usage) for each, usage in asked]
    files = []
    for (file, name), parts in groupby(unread, key=lambda each: (each.file, each.name)):
        sizes = [each.tokens for each in parts]
        usage = planning.parts_take(sizes, budget)
        files.append(FileCost(file, name, len(sizes), usage, _cost(model, usage)))
    return Planned(model, plan, checker, None if None in costs else sum(filter(None, costs), Decimal(0)), files)


def _cost(model: Model, usage: Usage) -> Decimal | None:
    """In US dollars; None where the model has no price."""
    return model.prices.cost(usage) if model.prices is not None else None


def _money(cost: Decimal | None) -> str:
    return "" if cost is None else dollars(cost, up=True)


def _agreed(found: Planned) -> dict[str, object]:
    return {"calls": found.plan.calls, "tokens": found.tokens, "cost": found.cost}


def _require_agreed(found: Planned, calls: int) -> None:
    if calls != found.plan.calls:
        detail = Sentence(
            "It takes up to {calls} calls of the model now. Look at the plan, then begin again.", calls=found.plan.calls
        )
        raise ProductError("plan_changed", detail, status=409, plan=as_json(found))


def as_json(found: Planned) -> dict[str, object]:
    """The plan for programs."""
    plan = found.plan
    numbers = {"calls": plan.calls, "parts": plan.parts, "folds": plan.folds, "checks": found.checks}
    files = [
        {"file": each.file and str(each.file.pk), "name": each.name, "parts": each.parts, **_takes(each)}
        for each in found.files
    ]
    return {"model": str(found.model.pk), **numbers, **_takes(found), "files": files}


def _takes(each: Planned | FileCost) -> dict[str, object]:
    cost = None if each.cost is None else f"{each.cost:f}"
    return {"input": each.usage.input, "output": each.usage.output, "cost": cost}


def _hand_over(reading: Reading) -> None:
    tell(reading.person_id, News.READINGS)
    READINGS.hand_over(reading.pk)
