"""What people do with readings: planned, begun, stopped, gone on with, removed, and taken into a conversation."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial

from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.access.rights import models_of
from accounts.models import User
from accounts.realtime import News, tell
from audit.services import record
from chat.citations import judging
from chat.models import Conversation, Reading, ReadingPart
from chat.models.conversation_state import visible_conversation
from chat.readings import asking, checking, planning
from chat.readings.planning import Budget, Coverage, Passage, Plan
from core.background import enqueue
from core.errors import NotFound, ProductError
from core.i18n import dollars
from core.permissions import has_right
from core.requests import get_or_404
from files.index.chunks import chunks_of
from files.models import Chunk, File, FileText
from files.services import store
from llm import tokens
from llm.models import Model
from llm.types.model_call import Usage
from personas.services import model_for, rules_at
from personas.texts import Texts

AT_ONCE = 3  # readings of one person under way
STOPPED = "Stopped before it was read."
NOT_YET = "Not read yet."


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks what of which file; `model`: None for the one that the person's conversations have."""

    user: User
    file: File
    question: str
    model: Model | None = None
    conversation: Conversation | None = None


def asked_of(*, user: User, file: File, question: str, model: object, conversation: object) -> Asked:
    """With the rows that these ids name, None and "" for no id. Raises `NotFound`."""
    usable = models_of(user).select_related("provider")
    return Asked(
        user,
        file,
        question,
        get_or_404(usable, model, "model") if model else None,
        visible_conversation(user, conversation) if conversation else None,
    )


@dataclass(frozen=True, slots=True)
class Planned:
    """The most that a reading takes: `plan`, and in the end the calls of the model that checks citations, if the
    workspace names one; `cost` in US dollars is for both, None where one has no price."""

    model: Model
    plan: Plan
    checker: Model | None
    cost: Decimal | None

    @property
    def checks(self) -> int:
        return judging.CALLS if self.checker is not None else 0

    @property
    def usage(self) -> Usage:
        """Tokens read and written by all calls."""
        beside = judging.at_most() if self.checker is not None else Usage(0, 0)
        return Usage(self.plan.usage.input + beside.input, self.plan.usage.output + beside.output)

    @property
    def tokens(self) -> int:
        return self.usage.input + self.usage.output

    @property
    def money(self) -> str:
        """In words; empty without a price."""
        return "" if self.cost is None else dollars(self.cost, up=True)


def planned(*, asked: Asked) -> Planned:
    """What reading the whole file for the question takes at most.

    Raises `nothing_to_read` (409) for a file without text, `no_model`, and `reading_window_too_small`.
    """
    model = _model(asked)
    _text, passages = _divided(asked.file)
    return _planned(model, _parts(passages, model, asked.question), [], _budget(model, asked.question))


def start_reading(*, user: User, asked: Asked, calls: int) -> Reading:
    """Has a worker read all of it. `calls`: the number that the person was shown.

    Raises `empty_question`, `question_too_long`, `plan_changed` (409, with the new plan in `plan`) where the number is
    another now, `readings_running` (429), and what `planned` raises.
    """
    question = asked.question.strip()
    if not question:
        raise ProductError("empty_question", "There is no question. Write what you want to know of the file.")
    if len(question) > Reading.MAX_QUESTION:
        detail = f"The question has {len(question):,} characters, the most is {Reading.MAX_QUESTION:,}. Shorten it."
        raise ProductError("question_too_long", detail)
    model = _model(asked)
    text, passages = _divided(asked.file)
    parts = _parts(passages, model, question)
    found = _planned(model, parts, [], _budget(model, question))
    _require_agreed(found, calls)
    ends = [each.end for each in passages]
    with transaction.atomic():
        _require_turn(user)
        reading = Reading.objects.create(
            person=user,
            conversation=asked.conversation,
            file=asked.file,
            file_name=asked.file.name,
            question=question,
            model=model,
            model_name=model.name,
            passages=ends,
            text_sha256=digest(text),
            **_agreed(found),
        )
        ReadingPart.objects.bulk_create(
            ReadingPart(reading=reading, start=ends[first - 1] if first else 0, end=ends[last - 1])
            for first, last in _spans(passages, model, question)
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
        detail = "There is nothing to go on with: all of it was read and answered, or nothing was read yet."
        raise ProductError("nothing_to_read", detail, status=409)
    text, model = text_of(reading), usable_model(reading)
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    sizes = [count(text[row.start : row.end]) for row in unread]
    found = [row.tokens for row in rows if row.findings]
    return _planned(model, sizes, found, _budget(model, reading.question))


def resume_reading(*, user: User, reading: Reading, calls: int, only_answer: bool = False) -> Reading:
    """Goes on with one that was stopped, failed, or left something out: asks only what is missing. With `only_answer`
    it is answered from what was read.

    Raises `plan_changed` (409) and `readings_running` (429), and what `plan_again` raises.
    """
    found = plan_again(reading=reading, only_answer=only_answer)
    _require_agreed(found, calls)
    with transaction.atomic():
        _require_turn(user)
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
    if user.legal_hold or (reading.conversation is not None and reading.conversation.legal_hold):
        raise ProductError("legal_hold", "This is under a legal hold, so it cannot be removed.", status=409)
    with transaction.atomic():
        if reading.live:
            raise ProductError("reading_running", "This is being read. Stop it, then remove it.", status=409)
        record(user=user, action="reading.removed", row=reading)
        tell(reading.person_id, News.READINGS)
        reading.delete()


def erase_old(people: QuerySet[User], before: datetime) -> None:
    """Those of these people and of no conversation that ended before, and that no legal hold keeps."""
    old = Reading.objects.exclude(status__in=Reading.LIVE).filter(conversation=None, person__legal_hold=False)
    old = old.filter(person__in=people)
    old.filter(Q(finished__lt=before) | Q(finished=None, created__lt=before)).delete()


def take_along(*, user: User, reading: Reading) -> File:
    """What was found as a text of the person's files, to be sent with a message. Raises `not_answered` (409)."""
    if reading.status != Reading.Status.DONE:
        detail = "There is no answer yet. Go on with the reading first, or have it answered from what was read."
        raise ProductError("not_answered", detail, status=409)
    name = f"Notes on {reading.file_name[:200]}.md"
    return store(user=user, name=name, content=ContentFile(as_markdown(reading).encode(), name=name))


def as_markdown(reading: Reading) -> str:
    """Question, how much was read, the answer, and what was found on which passages."""
    rows, spans = list(reading.parts.filter(level=0)), spans_of(reading)
    percent = coverage(reading, rows, spans).percent
    lines = [f"# {reading.file_name}", "", reading.question, "", f"Read: {percent} % of the text.", ""]
    lines += [reading.answer, ""] if reading.answer else []
    if doubts := checking.doubts_of(reading):
        lines += ["## Not confirmed by the passages", "", *(f"- {each['sentence']}" for each in doubts), ""]
    for row in rows:
        if row.findings:
            numbers = planning.numbers_in(reading.passages, row.start, row.end)
            first, last = planning.page_at(spans, row.start), planning.page_at(spans, row.end - 1)
            pages = f" (pages {first} to {last})" if last else ""
            lines += [f"## Passages {numbers[0]} to {numbers[-1]}{pages}", "", row.findings, ""]
    return "\n".join(lines)


def coverage(reading: Reading, rows: Sequence[ReadingPart], spans: Sequence[Sequence[int]]) -> Coverage:
    """`rows` are the parts of level 0 in their order."""
    done, failed = ReadingPart.State.DONE, ReadingPart.State.FAILED
    parts = [
        planning.Part(row.start, row.end, row.state == done, *((row.code, row.detail) if row.state == failed else ()))
        for row in rows
    ]
    if reading.live:
        return planning.coverage_of(parts, spans, "waiting", NOT_YET)
    ended = (reading.code, reading.detail) if reading.status != Reading.Status.DONE else ("", "")
    return planning.coverage_of(parts, spans, ended[0] or "stopped", ended[1] or STOPPED)


def spans_of(reading: Reading) -> Sequence[Sequence[int]]:
    """Of the pages of its file; none where that is gone or was read anew."""
    if reading.file_id is None:
        return []
    found = FileText.objects.filter(file=reading.file_id).values_list("spans", flat=True).first()
    return found or []


def text_of(reading: Reading) -> str:
    """The text that its passages divide. Raises `file_gone` and `file_changed` (409)."""
    seen = File.objects.visible_to(reading.person).filter(pk__in=[reading.file_id])
    text = FileText.objects.filter(file__in=seen).values_list("text", flat=True).first()
    if text is None:
        detail = "The file was deleted, or is not yours to see any more, so no more of it can be read."
        raise ProductError("file_gone", detail, status=409)
    if digest(text) != reading.text_sha256:
        detail = "The file's text was read anew meanwhile, so this cannot go on. Ask again over the file as it is now."
        raise ProductError("file_changed", detail, status=409)
    return text


def usable_model(reading: Reading) -> Model:
    """Raises `model_gone` (409)."""
    model = models_of(reading.person).select_related("provider").filter(pk__in=[reading.model_id]).first()
    if model is None:
        detail = "The model was removed or switched off. Ask again with another model."
        raise ProductError("model_gone", detail, status=409)
    return model


def visible_reading(user: User, pk: object) -> Reading:
    """Raises `NotFound`."""
    rows = Reading.objects.visible_to(user).select_related("person", "file", "conversation", "model")
    return get_or_404(rows, pk, "reading")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def budget_of(texts: Texts, model: Model, question: str) -> Budget:
    """Raises `reading_window_too_small`."""
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    return planning.budget_for(model, count(asking.longest(texts)), count(question))


def _budget(model: Model, question: str) -> Budget:
    return budget_of(rules_at().texts, model, question)


def _model(asked: Asked) -> Model:
    return asked.model or model_for(asked.conversation.persona if asked.conversation is not None else None, asked.user)


def _divided(file: File) -> tuple[str, list[Passage]]:
    """The file's text and its passages. Raises `nothing_to_read` (409)."""
    content = FileText.objects.filter(file=file).first()
    text = content.text if content is not None else ""
    rows = list(Chunk.objects.filter(file=file).order_by("ordinal").values_list("start", "end", "tokens", "heading"))
    if not rows and content is not None:  # search does not know it yet
        made = chunks_of(file, file.media_type, text, content.spans)
        rows = [(row.start, row.end, row.tokens, row.heading) for row in made]
    passages = planning.passages_of(rows, len(text))
    if not passages:
        detail = "This file has no text that could be read. Wait until it is ready, or choose another file."
        raise ProductError("nothing_to_read", detail, status=409)
    return text, passages


def _spans(passages: Sequence[Passage], model: Model, question: str) -> list[tuple[int, int]]:
    return planning.parts_of(passages, _budget(model, question).part)


def _parts(passages: Sequence[Passage], model: Model, question: str) -> list[int]:
    """The tokens of each part."""
    return [sum(each.tokens for each in passages[first:end]) for first, end in _spans(passages, model, question)]


def _planned(model: Model, unread: Sequence[int], found: Sequence[int], budget: Budget) -> Planned:
    plan, named = planning.plan_of(unread, found, budget), rules_at().workspace.citation_model_id
    checker = Model.objects.usable().filter(pk=named).first() if named is not None else None
    asked = [(model, plan.usage), *([(checker, judging.at_most())] if checker is not None else [])]
    costs = [each.prices.cost(usage) if each.prices is not None else None for each, usage in asked]
    return Planned(model, plan, checker, None if None in costs else sum(filter(None, costs), Decimal(0)))


def _agreed(found: Planned) -> dict[str, object]:
    return {"calls": found.plan.calls, "tokens": found.tokens, "cost": found.cost}


def _require_agreed(found: Planned, calls: int) -> None:
    if calls != found.plan.calls:
        detail = f"It takes up to {found.plan.calls:,} calls of the model now. Look at the plan, then begin again."
        raise ProductError("plan_changed", detail, status=409, plan=as_json(found))


def as_json(found: Planned) -> dict[str, object]:
    """The plan for programs."""
    usage, plan = found.usage, found.plan
    numbers = {"calls": plan.calls, "parts": plan.parts, "folds": plan.folds, "checks": found.checks}
    cost = None if found.cost is None else f"{found.cost:f}"
    return {"model": str(found.model.pk), **numbers, "input": usage.input, "output": usage.output, "cost": cost}


def _require_turn(user: User) -> None:
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # two at once come one after the other
    if Reading.objects.live().filter(person=user).count() >= AT_ONCE:
        detail = f"{AT_ONCE} files are being read for you. Wait until one is done, or stop one."
        raise ProductError("readings_running", detail, status=429, retry_after=30)


def _hand_over(reading: Reading) -> None:
    tell(reading.person_id, News.READINGS)
    transaction.on_commit(partial(enqueue, "chat.tasks.read_all", reading.pk))
