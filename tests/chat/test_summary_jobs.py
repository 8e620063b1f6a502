"""Summary jobs that fail, hang, are killed or come twice: nobody waits for long and no message is lost."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from chat.background.tasks import sweep_turns
from chat.models import Conversation, Message, Summary, SummaryJob, Turn
from chat.summaries import due
from chat.summaries.jobs import decided_for
from tests.application import Application
from tests.chat.conversations import kill_worker
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
from tests.product import Product


def test_sending_is_refused_while_it_summarises_and_the_message_is_kept_by_whoever_wrote_it(
    application: Application, person: Person
) -> None:
    place = conversation(person, small(person))
    slow = {"summary": {"text": "## Now\nSlowly.", "ttft": 3.0}}
    while True:
        asked = person.caller.ask(f"slow {FILLER}", {"tokens": 100, **slow}, str(place))
        person.caller.ended(asked["id"])
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
        ({"text": "qwertz uiop"}, "summary_without_sections"),
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


def test_a_summary_that_hangs_stops_nobody_from_sending_after_two_minutes(
    application: Application, person: Person
) -> None:
    name = uuid4().hex
    hanging = writer(application, name, {"text": "## Now\nNever.", "silent_after": 0})
    place = conversation(person, small(person, window=6_000, summary_model=hanging))
    until_running(application, person, place, name)
    SummaryJob.objects.filter(conversation=place).update(created=timezone.now() - timedelta(seconds=121))
    application.model.set_script(name, {"text": "## Now\nIt works again."})
    sweep_turns()
    assert turn(person, place, "after all")["status"] == "done"
    first = SummaryJob.objects.filter(conversation=place).earliest("id")
    assert first.code in ("summary_timeout", "summary_interrupted")


@pytest.mark.product
def test_a_killed_worker_leaves_a_failed_job_and_every_message(product: Product, person: Person) -> None:
    name = uuid4().hex
    hanging = writer(product, name, {"text": "## Now\nNever.", "silent_after": 0})
    place = conversation(person, small(person, window=6_000, summary_model=hanging))
    until_running(product, person, place, name)
    messages = Message.objects.filter(conversation=place).count()
    kill_worker(product)
    product.start_worker()
    product.wait_until_ready()
    settled(person, place)
    assert SummaryJob.objects.get(conversation=place).status == SummaryJob.Status.FAILED
    assert Message.objects.filter(conversation=place).count() == messages
    product.model.set_script(name, {"text": "## Now\nIt works again."})
    turn(person, place, "and on")
    assert Summary.objects.filter(conversation=place).count() == 1


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
    context = decided_for(SummaryJob(conversation=row, model=ended.model))
    result = {"section": "current", "source": "r", "role": "tool", "tokens": 1_400, "state": "full"}
    assert call["used"] + result["tokens"] > 1_500  # the ceiling
    heavy: Any = {**call, "used": call["used"] + 1_400, "messages": [*call["messages"], result]}
    assert due.job_after(context, heavy, ended.user_message_id, "Found.") is None
    assert due.job_after(context, heavy, ended.user_message_id, f"Found: {FILLER * 5}") is not None
