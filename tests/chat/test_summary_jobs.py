"""Summary jobs that fail, hang, are killed or run twice: sending is not blocked for long, and no message is lost."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chat.ledger.models import ModelCall
from chat.models import Conversation, Message, Summary, SummaryJob, Turn
from chat.models.conversation_state import state_of
from chat.models.tree import rows_between
from chat.summaries import due
from chat.summaries.ending import SUMMARIES, interrupt
from chat.summaries.idle import lock_idle
from chat.summaries.jobs import claim_job, load_context
from core.jobs import sweep
from llm.models import Model
from tests.application import Application
from tests.chat.conversations import kill_worker, past
from tests.chat.documents import ask_and_wait, upload
from tests.chat.growing import (
    FILLER,
    conversation,
    prompt,
    settled,
    small,
    summary_requests,
    turn,
    until_running,
    until_summarised,
    writer,
)
from tests.conftest import Person
from tests.product import Product, until

WRITTEN = "## Now\nThey go on talking."


def test_sending_is_refused_while_it_summarises_and_the_message_is_kept_by_whoever_wrote_it(
    application: Application, person: Person
) -> None:
    place = conversation(person, small(person))
    slow = {"summary": {"text": "## Now\nSlowly.", "ttft": 3.0}}
    while True:
        started = person.caller.ask(f"slow {FILLER}", {"tokens": 100, **slow}, str(place))
        person.caller.ended(started["id"])
        if person.caller.get(f"conversations/{place}/")["state"] == "summarising":
            break
    body = {"text": "Too early."}
    refusal = person.caller.post(f"conversations/{place}/turns/", body, expect=409)
    assert refusal["code"] == "summarising"
    assert not Message.objects.filter(conversation=place, parts__contains=[{"text": "Too early."}]).exists()
    settled(person, place)
    person.caller.ended(person.caller.post(f"conversations/{place}/turns/", body)["turns"][0]["id"])


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"error": {"status": 500}}, "provider_overloaded"),
        ({"text": ""}, "empty_summary"),
        ({"text": "I'm sorry, I cannot help with that."}, "summary_is_an_error"),
        ({"text": "## Now\n\n## Today"}, "summary_without_sections"),
        ({"text": "## Now\nHalf of", "finish": "length"}, "summary_cut_off"),
        ({"text": "## Now\n" + " ".join(f"again{number}" for number in range(4_000))}, "summary_not_shorter"),
    ],
)
def test_a_summary_that_cannot_stand_for_the_messages_is_tried_twice_and_then_left(
    application: Application, person: Person, answer: dict[str, Any], code: str
) -> None:
    name = uuid4().hex
    place = conversation(person, small(person, window=6_000, summary_model=writer(application, name, answer)))
    marks = until_summarised(person, place)
    job = SummaryJob.objects.get(conversation=place)
    assert (job.status, job.code) == (SummaryJob.Status.FAILED, code)
    assert job.detail
    assert len(summary_requests(application, marks[0])) == 2
    assert not Summary.objects.filter(conversation=place).exists()
    application.model.set_script(name, {"text": "## Now\nIt works again."})
    turn(person, place, again := f"after {uuid4().hex}")
    assert all(mark in json.dumps(prompt(application, again)) for mark in marks)
    assert Summary.objects.filter(conversation=place).count() == 1


def test_a_text_without_any_heading_is_taken_at_the_second_attempt(application: Application, person: Person) -> None:
    name = uuid4().hex
    answer = {"text": "They talked about the harbour of Conwy."}
    place = conversation(person, small(person, window=6_000, summary_model=writer(application, name, answer)))
    marks = until_summarised(person, place)
    assert len(summary_requests(application, marks[0])) == 2
    summary = Summary.objects.get(conversation=place)
    assert summary.sections == [{"name": "Earlier", "text": "They talked about the harbour of Conwy."}]


def test_a_summary_that_hangs_stops_nobody_from_sending_after_two_minutes(
    application: Application, person: Person
) -> None:
    name = uuid4().hex
    hanging = writer(application, name, {"text": "## Now\nNever.", "silent_after": 0})
    place = conversation(person, small(person, window=6_000, summary_model=hanging))
    until_running(application, person, place, name)
    SummaryJob.objects.filter(conversation=place).update(created=timezone.now() - timedelta(seconds=121))
    application.model.set_script(name, {"text": "## Now\nIt works again."})
    sweep(SUMMARIES)
    assert turn(person, place, "after all")["status"] == "done"
    first = SummaryJob.objects.filter(conversation=place).earliest("id")
    assert first.code == "summary_timeout"


@pytest.mark.product
def test_another_job_stands_in_once_for_one_whose_worker_was_killed(product: Product, person: Person) -> None:
    name = uuid4().hex
    hanging = writer(product, name, {"text": "## Now\nNever.", "silent_after": 0})
    place = conversation(person, small(person, window=6_000, summary_model=hanging))
    until_running(product, person, place, name)
    messages = Message.objects.filter(conversation=place).count()
    kill_worker(product)
    product.model.set_script(name, {"text": "## Now\nIt works again."})
    product.start_worker()
    product.wait_until_ready()
    settled(person, place)
    jobs = SummaryJob.objects.filter(conversation=place).order_by("id")
    assert [(job.status, job.code, job.again) for job in jobs] == [
        (SummaryJob.Status.FAILED, "summary_interrupted", False),
        (SummaryJob.Status.DONE, "", True),
    ]
    assert Message.objects.filter(conversation=place).count() == messages
    assert Summary.objects.filter(conversation=place).count() == 1
    written = ModelCall.objects.filter(conversation=place, purpose="summary").order_by("pk")
    assert len(product.model.requests(name)) == len(written) == 2  # the ledger has what the killed worker had asked
    assert (written[0].output, written[0].counted) == (0, True) and written[0].input > 0


def test_what_kills_its_worker_twice_is_given_up_and_sending_works(person: Person) -> None:
    place = past(person.user, 2)
    job = SummaryJob.objects.create(conversation=place, reason=SummaryJob.Reason.ASKED, used=7, fixed=3)
    assert interrupt(job.pk)
    second = SummaryJob.objects.live().get(conversation=place)
    assert (second.status, second.reason, second.used, second.fixed) == (SummaryJob.Status.QUEUED, job.reason, 7, 3)
    assert (second.again, state_of(place.pk)) == (True, Conversation.State.SUMMARISING)
    assert interrupt(second.pk) and not interrupt(second.pk)
    assert not SummaryJob.objects.live().filter(conversation=place).exists()
    assert state_of(place.pk) == Conversation.State.IDLE


def _swept(_: Conversation) -> None:
    sweep(SUMMARIES)  # or a worker of a running product has just done it


def _sent(place: Conversation) -> None:
    with lock_idle(place.owner, place):
        pass


@pytest.mark.parametrize("ended", [_swept, _sent])
@pytest.mark.parametrize(
    ("status", "age", "silence", "code"),
    [
        (SummaryJob.Status.QUEUED, 91, 91, "summary_not_begun"),
        (SummaryJob.Status.RUNNING, 121, 31, "summary_interrupted"),
        (SummaryJob.Status.RUNNING, 121, 0, "summary_timeout"),
    ],
)
def test_when_its_time_is_over_nothing_stands_in_and_the_model_is_blamed_for_its_own_time_alone(
    person: Person, ended: Callable[[Conversation], None], status: str, age: int, silence: int, code: str
) -> None:
    place, now = past(person.user, 2), timezone.now()
    times = {"created": now - timedelta(seconds=age), "heartbeat": now - timedelta(seconds=silence)}
    job = SummaryJob.objects.create(conversation=place, status=status, **times)
    ended(place)
    job.refresh_from_db()
    assert (job.status, job.code) == (SummaryJob.Status.FAILED, code)
    assert not SummaryJob.objects.filter(conversation=place).exclude(pk=job.pk).exists()
    assert state_of(place.pk) == Conversation.State.IDLE


@pytest.mark.parametrize("ended", [_swept, _sent])
def test_what_stands_in_has_the_rest_of_the_two_minutes(person: Person, ended: Callable[[Conversation], None]) -> None:
    place, began = past(person.user, 2), timezone.now() - timedelta(seconds=60)
    first = SummaryJob.objects.create(conversation=place, status=SummaryJob.Status.RUNNING, created=began)
    assert interrupt(first.pk)
    sweep(SUMMARIES)
    second = SummaryJob.objects.live().get(conversation=place)
    SummaryJob.objects.filter(conversation=place).update(created=F("created") - timedelta(seconds=61))
    ended(place)
    second.refresh_from_db()
    assert (second.again, second.status) == (True, SummaryJob.Status.FAILED)
    assert state_of(place.pk) == Conversation.State.IDLE


def test_a_job_with_too_little_time_left_is_not_begun_nor_stood_in_for(person: Person) -> None:
    place, long_ago = past(person.user, 2), timezone.now() - timedelta(seconds=91)
    job = SummaryJob.objects.create(conversation=place, created=long_ago)
    assert claim_job(job.pk) is None
    interrupt(job.pk)
    assert not SummaryJob.objects.live().filter(conversation=place).exists()


def test_its_end_locks_the_conversation_first_as_a_send_does(person: Person) -> None:
    job = SummaryJob.objects.create(conversation=past(person.user, 2))
    with CaptureQueriesContext(connection) as queries:
        interrupt(job.pk)
    statements = [each["sql"] for each in queries]
    locked = next(place for place, sql in enumerate(statements) if "FOR UPDATE" in sql)
    changed = next(place for place, sql in enumerate(statements) if sql.startswith('UPDATE "chat_summaryjob"'))
    assert '"chat_conversation"' in statements[locked] and locked < changed


def test_the_command_goes_on_with_what_stands_in(application: Application, person: Person) -> None:
    name, output, problems = uuid4().hex, StringIO(), StringIO()
    place = conversation(
        person, small(person, window=6_000, summary_model=writer(application, name, {"text": WRITTEN}))
    )
    until_summarised(person, place)
    requests = len(application.model.finished(name))
    Summary.objects.exclude(conversation=place).delete()
    Summary.objects.filter(conversation=place).update(prompt_version=999)
    application.model.set_script(name, {"text": "## Now\nNever.", "silent_after": 0})

    def rebuild() -> None:
        try:
            call_command("summaries", "rebuild", stdout=output, stderr=problems)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        rebuilt = pool.submit(rebuild)
        application.model.arrived(name, requests + 1)
        assert interrupt(SummaryJob.objects.live().get(conversation=place).pk)
        application.model.set_script(name, {"text": WRITTEN})
        application.model.drop()
        rebuilt.result()
    assert (output.getvalue().splitlines()[-1][:2], problems.getvalue()) == ("1 ", "")
    newest = SummaryJob.objects.filter(conversation=place).latest("id")
    assert (newest.again, newest.status) == (True, SummaryJob.Status.DONE)
    assert Summary.objects.filter(conversation=place).latest("id").prompt_version != 999


def test_a_job_that_ends_between_chunks_leaves_whole_turns_and_the_next_job_goes_on_from_them(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    note = uuid4().hex
    hangs = json.dumps({"summary": {"text": "Never.", "silent_after": 0}, "note": note})
    writes = Model.objects.create(
        provider=scripted_model_row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=4_096
    )
    row = past(person.user, 12, words=120, persona=small(person, window=12_288, summary_model=writes))
    rows = list(Message.objects.filter(conversation=row).order_by("depth"))
    hurt = Message.objects.filter(pk=rows[14].pk)
    hurt.update(parts=[{"type": "text", "text": f"{rows[14].text}\nscript: {hangs}"}])
    person.caller.ended(person.caller.ask("And?", {"text": "Yes."}, str(row.pk))["id"])
    until(lambda: any("# The form" in each.text for each in application.model.arrived(note)), "a later chunk is read")
    SummaryJob.objects.filter(conversation=row).update(created=timezone.now() - timedelta(seconds=121))
    sweep(SUMMARIES)
    settled(person, row.pk)
    failed = SummaryJob.objects.get(conversation=row)
    assert (failed.status, failed.code) == (SummaryJob.Status.FAILED, "summary_timeout")
    half = Summary.objects.filter(conversation=row).latest("id")
    count = half.messages
    assert (half.first, half.last) == (rows[0], rows[count - 1]) and half.last.role == "assistant" and count <= 14
    hurt.update(parts=rows[14].parts)
    turn(person, row.pk, mark := uuid4().hex)
    system, summary, *history = prompt(application, mark)
    assert (system["role"], summary["role"]) == ("system", "system")
    assert [message["content"] for message in history[:-3]] == [each.text for each in rows[count:]]
    whole = Summary.objects.filter(conversation=row).latest("id")
    assert SummaryJob.objects.filter(conversation=row).latest("id").status == SummaryJob.Status.DONE
    assert whole.messages == whole.last.depth + 1 > count and whole.first == rows[0]
    since = Summary.objects.filter(conversation=row, pk__gt=half.pk).earliest("id")
    assert since.supersedes == half and since.last.role == "assistant"


def test_two_tabs_at_once_make_one_job(application: Application, person: Person) -> None:
    place = conversation(person, small(person, ceiling=100_000, window=None, floor=700))
    for number in range(5):
        turn(person, place, f"tab {number}")

    def ask(_: int) -> int:
        return int(person.caller.http.post(f"conversations/{place}/summarise/").status_code)

    with ThreadPoolExecutor(6) as pool:
        codes = sorted(pool.map(ask, range(6)))
    assert codes == [202, 409, 409, 409, 409, 409]
    settled(person, place)
    assert SummaryJob.objects.filter(conversation=place).count() == 1


@pytest.mark.parametrize("before", [(), ("Hello.",)])
def test_a_long_turn_with_nothing_older_worth_a_summary_keeps_nobody_from_sending(
    application: Application, person: Person, before: tuple[str, ...]
) -> None:
    place = conversation(person, small(person))
    for text in before:
        person.caller.ended(person.caller.ask(text, {"text": "Hi."}, str(place))["id"])
    ended = person.caller.ended(person.caller.ask(" ".join([FILLER] * 10), {"text": "Read."}, str(place))["id"])
    assert ended["status"] == "done" and ended["usage"]["input"] > 1_500  # the ceiling
    assert person.caller.get(f"conversations/{place}/")["state"] == "idle"
    assert not SummaryJob.objects.filter(conversation=place).exists()


def test_a_turn_full_of_tool_results_is_no_reason_to_summarise(application: Application, person: Person) -> None:
    place = conversation(person, small(person))
    for text in ("One.", "Two.", "Three."):
        person.caller.ended(person.caller.ask(f"{text} {FILLER}", {"text": "Noted."}, str(place))["id"])
    row = Conversation.objects.get(pk=place)
    ended = Turn.objects.filter(conversation=place).latest("pk")
    call = ended.report["calls"][-1]
    context = load_context(SummaryJob(conversation=row, model=ended.model))
    result = {"section": "current", "source": "r", "role": "tool", "tokens": 1_400, "state": "full"}
    assert call["used"] + result["tokens"] > 1_500  # the ceiling
    heavy: Any = {**call, "used": call["used"] + 1_400, "messages": [*call["messages"], result]}
    assert due.plan_job_after(context, heavy, ended, "Found.") is None
    assert due.plan_job_after(context, heavy, ended, f"Found: {FILLER * 5}") is not None


def test_a_file_that_only_its_name_is_sent_of_counts_as_that(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    file = upload(person, "long.txt", ("word " * 4_800).encode())
    place = conversation(person, small(person, window=12_288, ceiling=None, floor=None))
    Conversation.objects.filter(pk=place).update(automatic_summaries=False)
    ask_and_wait(person, str(place), "Here it is.", files=[file["id"]])
    for number in range(9):
        ask_and_wait(person, str(place), f"{number} {FILLER * 4}")
    row = Conversation.objects.select_related("owner", "persona__budget_profile").get(pk=place)
    ended = Turn.objects.filter(conversation=place).latest("pk")
    context, call = load_context(SummaryJob(conversation=row, model=ended.model)), ended.report["calls"][-1]
    assert {"kind": "file", "state": "stubbed"}.items() <= next(
        s for s in call["sources"] if s["kind"] == "file"
    ).items()
    rows = rows_between(None, ended.user_message_id)
    sent = sum(call["sections"].get(section, 0) for section in ("file", "history", "current"))
    assert due.total_tokens(due.measure_messages(context, rows, due.fixed_tokens(call))) == sent
    assert due.total_tokens(due.measure_messages(context, rows[:2], due.fixed_tokens(call))) > 4_800  # alone it fits
