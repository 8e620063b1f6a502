"""A question over all of a file: planned, carried out, stopped, broken off, gone on with, and shown."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from django.utils.html import escape

from accounts.models import User
from chat.conversations.export import _json_lists
from chat.ledger.models import ModelCall
from chat.models import Conversation, Message
from chat.readings import jobs, services
from chat.readings.layout import load_layout
from chat.readings.models import Reading, ReadingPart
from core.background import on_database, submit
from core.errors import ProductError
from core.jobs import sweep
from files.models import File
from llm.models import Model
from tests.application import Application
from tests.chat import books
from tests.chat.books import heading, notes, small_model
from tests.chat.documents import upload
from tests.config.household import signed_in
from tests.conftest import Person
from tests.product import until
from workspace import services as workspace
from workspace.models import Workspace

QUESTION = "How much cacao was bought?"
HANGS = {"ttft": 600}


@pytest.fixture
def model(application: Application) -> Iterator[Model]:
    small = small_model(application)
    yield small
    small.provider.delete()


def book(person: Person, *answers: dict[str, Any], fact: str = "") -> File:
    return File.objects.get(pk=upload(person, "book.md", books.book(*answers, fact=fact).encode())["id"])


def question_on(file: File, model: Model, answer: str = "Ten kg [1][2].", *others: File) -> services.ReadingRequest:
    return services.ReadingRequest(
        file.owner, (file, *others), f"{QUESTION}\nscript: {json.dumps({'text': answer})}\n\n", model
    )


def begin_reading(person: Person, question: services.ReadingRequest) -> Reading:
    calls = services.estimate(request=question).plan.calls
    return services.start_reading(user=person.user, request=question, calls=calls)


def ended(reading: Reading) -> Reading:
    def look() -> Reading | None:
        reading.refresh_from_db()
        return None if reading.live else reading

    row: Reading = until(look, "the reading has ended")
    return row


def gone_on(person: Person, reading: Reading, **how: Any) -> Reading:
    calls = services.plan_again(reading=reading, **how).plan.calls
    return ended(services.resume_reading(user=person.user, reading=reading, calls=calls, **how))


def covered(reading: Reading) -> int:
    return services.percent_read(list(reading.parts.filter(level=0)))


def missing(reading: Reading) -> list[str]:
    """The codes of why."""
    files = services.coverage(reading, list(reading.parts.filter(level=0)), load_layout(reading))
    return [each.code for one in files for each in one.coverage.missing]


def done(reading: Reading) -> int:
    return reading.parts.filter(level=0, state=ReadingPart.State.DONE).count()


def of_parts(application: Application, file: File, chapter: int) -> int:
    """Return the number of requests about a chapter."""
    return len(application.model.requests(heading(file.content.text, chapter)))


def test_all_of_it_is_read_and_cited_over_the_api(application: Application, person: Person, model: Model) -> None:
    file = book(person, *[notes(number) for number in range(1, 7)])
    body = {"file": str(file.pk), "question": question_on(file, model).question, "model": str(model.pk)}
    plan = person.caller.post("readings/plan/", body, expect=200)
    assert plan["parts"] >= 3 and plan["calls"] == plan["parts"] + plan["folds"] + 1 and float(plan["cost"]) > 0
    refused = person.caller.post("readings/", {**body, "calls": plan["calls"] + 1}, expect=409)
    assert (refused["code"], refused["plan"]) == ("plan_changed", plan)
    reading = person.caller.post("readings/", {**body, "calls": plan["calls"]})
    until(lambda: person.caller.get(f"readings/{reading['id']}/")["status"] == "done", "it is read")
    row = person.caller.get(f"readings/{reading['id']}/")
    of_file = {"file": str(file.pk), "name": "book.md", "percent": 100, "parts": plan["parts"], "read": plan["parts"]}
    whole = {"percent": 100, "missing": [], "files": [of_file]}
    assert (row["answer"], row["coverage"]) == ("Ten kg [1][2].", whole)
    assert len(row["parts"]) == plan["parts"] and row["spent"]["calls"] == plan["parts"] + 1
    calls = ModelCall.objects.filter(reading=reading["id"])
    assert {(call.purpose, call.person_id) for call in calls} == {("full_read", person.user.pk)}
    first = next(each for each in row["sources"] if each["number"] == 1)
    page = signed_in(person.user).get(first["href"]).content.decode()
    assert '<mark id="passage"' in page and first["start"] == 0
    assert row["left_out"] and 1 not in row["left_out"]
    assert [each["id"] for each in person.caller.get("readings/")["results"]] == [reading["id"]]
    refused = person.caller.post(f"readings/{reading['id']}/resume/", {"calls": 1}, expect=409)
    assert refused["code"] == "nothing_to_read"
    assert person.caller.http.delete(f"readings/{reading['id']}/").status_code == 204
    assert not calls.all() and ModelCall.objects.filter(person=person.user, purpose="full_read").count() > 3


def test_several_files_are_read_for_one_answer_that_names_them(
    application: Application, person: Person, model: Model
) -> None:
    first = book(person, *[notes(number) for number in range(1, 4)])
    failing = {"error": {"status": 400, "message": "No."}, "error_times": 1}
    text = books.book(*[notes(number) for number in range(1, 4)], {**notes(4), **failing})
    second = File.objects.get(pk=upload(person, "letters.md", text.encode())["id"])
    question = question_on(first, model, "Ten kg [1], and four [9999].", second).question
    body = {"files": [str(first.pk), str(second.pk), str(first.pk)], "question": question, "model": str(model.pk)}
    plan = person.caller.post("readings/plan/", body, expect=200)
    assert [each["name"] for each in plan["files"]] == ["book.md", "letters.md"]
    assert sum(each["parts"] for each in plan["files"]) == plan["parts"]
    assert 0 < sum(float(each["cost"]) for each in plan["files"]) < float(plan["cost"])
    alone = person.caller.post("readings/plan/", {**body, "files": [], "file": str(first.pk)}, expect=200)
    assert alone["parts"] == plan["files"][0]["parts"] and alone["files"][0]["input"] == plan["files"][0]["input"]
    reading = Reading.objects.get(pk=person.caller.post("readings/", {**body, "calls": plan["calls"]})["id"])
    assert ended(reading).file_name == "book.md, letters.md"
    last = len(reading.passages)
    Reading.objects.filter(pk=reading.pk).update(answer=f"Ten kg [1], and four [{last}].")
    row = person.caller.get(f"readings/{reading.pk}/")
    assert [(each["name"], each["percent"] == 100) for each in row["coverage"]["files"]] == [
        ("book.md", True),
        ("letters.md", False),
    ]
    assert [each["file"] for each in row["coverage"]["missing"]] == [str(second.pk)]
    cited = {each["number"]: each for each in row["sources"]}
    assert (cited[1]["title"], cited[last]["title"]) == ("book.md", "letters.md")
    assert cited[last]["end"] == len(second.content.text) and str(second.pk) in cited[last]["href"]
    notes_of_all = str(application.model.requests("# Notes on “book.md, letters.md”")[-1].body)
    assert "## book.md" in notes_of_all and "## letters.md" in notes_of_all
    page = signed_in(person.user).get(f"/readings/{reading.pk}/").content.decode()
    assert "letters.md</span> ·" in page and f"?with={second.pk}" in page
    assert "- letters.md: " in services.to_markdown(reading)
    assert gone_on(person, reading).status == Reading.Status.DONE and covered(reading) == 100


def test_the_page_offers_the_files_beside_one_and_says_what_each_takes(
    application: Application, person: Person, model: Model
) -> None:
    first, second = book(person, notes(1), notes(2)), book(person, notes(3))
    browser = signed_in(person.user)
    page = browser.get(f"/files/{first.pk}/read/").content.decode()
    assert re.search(rf'name="with"\s+value="{second.pk}"', page) and "parts of each file" not in page
    form = {"with": [str(second.pk)], "question": QUESTION, "model": str(model.pk)}
    assert "parts of each file" in browser.post(f"/files/{first.pk}/read/plan/", form).content.decode()
    assert browser.get(f"/files/{first.pk}/read/?with={uuid4()}").status_code == 404
    assert browser.get(f"/files/{first.pk}/read/?project={uuid4()}").status_code == 404
    many = person.caller.post(
        "readings/plan/", {"files": [str(uuid4()) for _ in range(51)], "question": "?"}, expect=400
    )
    assert many["code"] == "too_many_files"
    none = person.caller.post("readings/plan/", {"question": "?"}, expect=400)
    assert none["code"] == "no_files"


FACT = "In March Anna Berger bought 40 kg of cacao in Hamburg."
SAYS = f"{FACT} [1] In March Anna Berger bought 90 kg of cacao in Hamburg [1]."


def test_a_sentence_that_its_passage_does_not_carry_is_marked(
    application: Application, person: Person, model: Model
) -> None:
    file = book(person, *[notes(number) for number in range(1, 4)], fact=FACT)
    reading = ended(begin_reading(person, question_on(file, model, SAYS)))
    check = reading.citation_check
    reasons = [{"reason": "number", "words": "90"}]
    assert (check["checked"], [each["reasons"] for each in check["doubts"]], check["note"]) == (2, [reasons], "")
    browser = signed_in(person.user)
    page = browser.get(f"/readings/{reading.pk}/").content.decode()
    assert page.count('class="doubt"') == 1 and "1 of 2 sentences that cite something is not confirmed" in page
    shown = browser.get(f"/readings/{reading.pk}/citations/1/").content.decode()
    assert FACT in shown and "does not have the number “90”" in shown
    assert browser.get(f"/readings/{reading.pk}/citations/0/").status_code == 404
    assert person.caller.get(f"readings/{reading.pk}/")["citation_check"] == check
    assert "## Not confirmed by the passages\n\n- In March Anna Berger bought 90 kg" in services.to_markdown(reading)


def test_the_model_that_checks_citations_is_in_the_plan_and_looks_at_the_answer(
    application: Application, person: Person, model: Model
) -> None:
    fields = {"context_window": 16_000, "input_price": 1, "output_price": 2}
    name = application.model.set_script(uuid4().hex, {"text": "1: no, it was sold\n2: yes"})
    judge = Model.objects.create(provider=model.provider, name=name, **fields)
    file = book(person, *[notes(number) for number in range(1, 4)], fact=FACT)
    question = question_on(file, model, f"{FACT} [1] {FACT} [1]")
    without = services.estimate(request=question)
    workspace.change_settings(user=None, fields={"citation_model": judge})
    try:
        planned = services.estimate(request=question)
        assert (planned.checks, planned.plan) == (10, without.plan)
        assert planned.cost is not None and without.cost is not None and planned.cost > without.cost
        reading = ended(begin_reading(person, question))
    finally:
        Workspace.objects.all().delete()
    assert [each["reasons"] for each in reading.citation_check["doubts"]] == [
        [{"reason": "model", "words": "it was sold"}]
    ]
    [call] = ModelCall.objects.filter(reading=reading.pk, purpose="citations")
    assert (call.model, call.person) == (judge, person.user)


def compared(reading: Reading) -> int:
    """Sentences of its answer."""
    reading.refresh_from_db()
    return int((reading.citation_check or {}).get("checked", 0))


def test_a_stop_or_a_crash_while_citations_are_checked_keeps_the_answer_with_a_note(
    application: Application, person: Person, model: Model
) -> None:
    name = application.model.set_script(uuid4().hex, HANGS)
    judge = Model.objects.create(provider=model.provider, name=name, context_window=16_000)
    file = book(person, *[notes(number) for number in range(1, 4)], fact=FACT)
    workspace.change_settings(user=None, fields={"citation_model": judge})
    try:
        readings = [begin_reading(person, question_on(file, model, SAYS)) for _ in range(2)]
        for reading in readings:
            until(partial(compared, reading), "the rules have looked at it")
    finally:
        Workspace.objects.all().delete()
    stopped, crashed = readings
    with pytest.raises(ProductError, match="reading_running"):
        services.remove_reading(user=person.user, reading=stopped)
    services.stop_reading(user=person.user, reading=stopped)
    Reading.objects.filter(pk=crashed.pk).update(heartbeat=timezone.now() - timedelta(minutes=5))
    sweep(services.READINGS)
    submit(jobs.run_reading(crashed.pk)).result()  # an ended one stays as it is
    for reading in readings:
        reading.refresh_from_db()
        assert (reading.status, reading.answer, reading.code) == (Reading.Status.DONE, SAYS, "")
        assert reading.citation_check["checked"] == 2 and len(reading.citation_check["doubts"]) == 1
        page = signed_in(person.user).get(f"/readings/{reading.pk}/").content.decode()
        assert escape(jobs.NOT_CHECKED) in page and "90 kg" in page


def test_a_part_that_the_model_finds_too_long_is_divided(
    application: Application, person: Person, model: Model
) -> None:
    Model.objects.filter(pk=model.pk).update(context_window=8_000)
    model.refresh_from_db()
    file = book(person, *[notes(number, context_limit=4_200) for number in range(1, 7)])
    reading = begin_reading(person, question_on(file, model))
    planned = reading.parts.count()
    assert ended(reading).status == Reading.Status.DONE
    assert reading.parts.filter(level=0).count() > planned and covered(reading) == 100
    ends = [0, *reading.parts.filter(level=0).values_list("end", flat=True)]
    assert ends[:-1] == list(reading.parts.filter(level=0).values_list("start", flat=True))


def test_more_calls_than_were_agreed_to_are_asked_for_first(
    application: Application, person: Person, model: Model
) -> None:
    file = book(person, *[notes(number) for number in range(1, 7)])
    reading = ended(begin_reading(person, question_on(file, model)))
    reading.parts.update(state="waiting", findings="")
    Reading.objects.filter(pk=reading.pk).update(status="queued", answer="", asked=1_000)
    submit(jobs.run_reading(reading.pk)).result()
    assert (ended(reading).status, reading.code) == (Reading.Status.STOPPED, "calls_used_up")
    assert (covered(reading), missing(reading)) == (0, ["calls_used_up"])
    assert gone_on(person, reading).status == Reading.Status.DONE


def test_a_part_at_which_the_provider_fails_is_named_and_can_be_asked_again(
    application: Application, person: Person, model: Model
) -> None:
    answers = [notes(number) for number in range(1, 7)]
    fails = {"error": {"status": 400, "message": "No."}, "error_times": 1}
    file = book(person, *answers[:-1], {**answers[-1], **fails})
    reading = ended(begin_reading(person, question_on(file, model)))
    assert (reading.status, reading.answer) == (Reading.Status.DONE, "Ten kg [1][2].")
    assert covered(reading) < 100 and missing(reading) == ["bad_model_request"]
    before = of_parts(application, file, 1)
    assert gone_on(person, reading).status == Reading.Status.DONE
    assert covered(reading) == 100 and of_parts(application, file, 1) == before == 1


def test_a_stop_keeps_what_was_found_and_going_on_asks_what_is_missing(
    application: Application, person: Person, model: Model
) -> None:
    answers = [notes(number) for number in range(1, 7)]
    file = book(person, *answers[:-1], HANGS)
    reading = begin_reading(person, question_on(file, model))
    parts = reading.parts.count()
    until(lambda: done(reading) == parts - 1, "all but one are read")
    with pytest.raises(ProductError, match="reading_running"):
        services.remove_reading(user=person.user, reading=reading)
    services.stop_reading(user=person.user, reading=reading)
    assert reading.status == Reading.Status.STOPPED and 0 < covered(reading) < 100
    application.model.finished(heading(file.content.text, 6))  # the call that was under way is cut off
    early = gone_on(person, reading, only_answer=True)
    assert (early.answer, done(early)) == ("Ten kg [1][2].", parts - 1)
    unread = application.model.requests("% of the document were read")[-1]
    assert f"{covered(reading)} %" in str(unread.body)
    assert of_parts(application, file, 1) == 1


def test_after_a_crash_another_worker_goes_on_where_it_was(
    application: Application, person: Person, model: Model
) -> None:
    answers = [notes(number) for number in range(1, 7)]
    file = book(person, *answers[:-1], HANGS)
    reading = begin_reading(person, question_on(file, model))
    parts = reading.parts.count()
    until(lambda: done(reading) == parts - 1, "all but one are read")
    dead = {"heartbeat": timezone.now() - timedelta(minutes=5)}
    Reading.objects.filter(pk=reading.pk).update(**dead)
    claimed = submit(_claimed(reading)).result()
    assert claimed is not None and claimed.attempt == 2
    assert submit(_claimed(reading)).result() is None  # it is somebody's now
    application.model.finished(heading(file.content.text, 6))  # who has lost it ends
    Reading.objects.filter(pk=reading.pk).update(**dead, only_answer=True)
    submit(jobs.run_reading(reading.pk)).result()
    assert (ended(reading).status, reading.attempt) == (Reading.Status.DONE, 3)
    assert of_parts(application, file, 1) == 1
    Reading.objects.filter(pk=reading.pk).update(status="running", tries=9, heartbeat=dead["heartbeat"])
    sweep(services.READINGS)
    assert (ended(reading).status, reading.code) == (Reading.Status.FAILED, "reading_gave_up")


async def _claimed(reading: Reading) -> Reading | None:
    return await on_database(services.READINGS.claim, reading.pk)


def test_a_provider_that_is_down_is_given_up(application: Application, person: Person, model: Model) -> None:
    wrong = {"error": {"status": 401}}
    file = book(person, *[wrong] * 12)
    reading = ended(begin_reading(person, question_on(file, model)))
    assert (reading.status, reading.code, covered(reading)) == (Reading.Status.FAILED, "bad_credentials", 0)
    assert reading.parts.filter(state=ReadingPart.State.WAITING).exists()
    with pytest.raises(ProductError, match="nothing_to_read"):
        services.plan_again(reading=reading, only_answer=True)


def test_notes_that_are_too_long_are_put_together_first_and_what_is_left_out_is_named(
    application: Application, person: Person, model: Model
) -> None:
    answers = [{"text": f"- Chapter {n} [{n}]. {'word ' * 260}"} for n in range(1, 25)]
    file = book(person, *answers)
    reading = ended(begin_reading(person, question_on(file, model, "Put together [1].")))
    assert (reading.status, covered(reading)) == (Reading.Status.DONE, 100)
    folds = reading.parts.filter(level__gt=0)
    assert folds and reading.asked <= reading.calls
    page = signed_in(person.user).get(f"/readings/{reading.pk}/").content.decode()
    assert "Left out here" in page and "Found, and not in the answer" in page


def test_where_nothing_was_found_nothing_more_is_asked(application: Application, person: Person, model: Model) -> None:
    file = book(person, *[{"text": "."}] * 6)
    reading = ended(begin_reading(person, question_on(file, model)))
    assert (reading.status, reading.answer) == (Reading.Status.DONE, "")
    assert ModelCall.objects.filter(reading=reading.pk).count() == reading.parts.count()
    page = signed_in(person.user).get(f"/readings/{reading.pk}/").content.decode()
    assert "Nothing in what was read has to do with the question." in page


def test_what_cannot_be_begun_is_refused(application: Application, person: Person, model: Model) -> None:
    file = book(person, *[HANGS] * 6)
    question = question_on(file, model)
    for text, code in (("  ", "empty_question"), ("x" * 10_001, "question_too_long")):
        with pytest.raises(ProductError, match=code):
            services.start_reading(
                user=person.user, request=services.ReadingRequest(person.user, [file], text, model), calls=4
            )
    empty = File.objects.get(pk=upload(person, "empty.txt", b" ")["id"])
    with pytest.raises(ProductError, match="nothing_to_read"):
        services.estimate(request=services.ReadingRequest(person.user, [file, empty], QUESTION, model))
    several = [begin_reading(person, question) for _ in range(3)]
    with pytest.raises(ProductError, match="readings_running"):
        begin_reading(person, question)
    for each in several:
        services.stop_reading(user=person.user, reading=each)
    with pytest.raises(ProductError, match="not_running"):
        services.stop_reading(user=person.user, reading=several[0])
    file.content.text = "Something else."
    file.content.save()
    with pytest.raises(ProductError, match="file_changed"):
        services.plan_again(reading=several[0])
    file.delete()
    several[0].refresh_from_db()
    with pytest.raises(ProductError, match="file_gone"):
        services.plan_again(reading=several[0])
    assert signed_in(person.user).get(f"/readings/{several[0].pk}/").status_code == 200


def test_the_pages(application: Application, person: Person, model: Model) -> None:
    file, browser = book(person, *[notes(number) for number in range(1, 7)]), signed_in(person.user)
    assert f"/files/{file.pk}/read/" in browser.get(f"/files/{file.pk}/").content.decode()
    place = Conversation.objects.create(owner=person.user)
    address = f"/files/{file.pk}/read/"
    form = {"question": question_on(file, model).question, "model": str(model.pk), "conversation": str(place.pk)}
    message = Message.objects.create(
        conversation=place, role="user", depth=0, status="done", parts=[{"type": "text", "text": "Which cacao?"}]
    )
    carried = browser.get(address, {"message": str(message.pk), "conversation": str(place.pk)})
    assert carried.context["asked"].question == "Which cacao?"
    assert browser.get(address, {"message": str(uuid4())}).status_code == 404
    again = browser.post(f"{address}plan/", {**form, "question": "ở" * 10_000})  # no address could be as long
    assert again.status_code == 200 and "reading_window_too_small" in again.content.decode()
    shown = browser.get(address, form)
    calls = shown.context["planned"].plan.calls
    assert "up to $" in shown.content.decode()
    refused = browser.post(address, {**form, "calls": calls + 1})
    assert refused.status_code == 409 and QUESTION in refused.content.decode()
    started = browser.post(address, {**form, "calls": calls})
    reading = ended(Reading.objects.get(person=person.user))
    assert started["Location"] == f"/readings/{reading.pk}/"
    page = browser.get(started["Location"]).content.decode()
    assert "100 % of the text" in page and 'class="citation"' in page
    assert str(reading.pk) in browser.get("/readings/").content.decode()
    assert str(reading.pk) in browser.get(f"/c/{place.pk}/organise/").content.decode()
    taken_along = browser.post(f"/readings/{reading.pk}/take-along/")
    assert taken_along["Location"].startswith(f"/c/{place.pk}/?file=")
    assert "Notes on book.md" in browser.get(taken_along["Location"]).content.decode()
    assert browser.post(f"/readings/{reading.pk}/resume/", {"calls": "1"}).status_code == 409
    assert browser.post(f"/readings/{reading.pk}/stop/").status_code == 409
    listed = list(_json_lists(person.user)["readings.json"])
    assert [each["answer"] for each in listed] == [reading.answer]
    assert browser.post(f"/readings/{reading.pk}/remove/").status_code == 302
    assert not Reading.objects.filter(pk=reading.pk).exists()


def test_old_ones_go_and_those_of_a_conversation_go_with_it(
    application: Application, person: Person, model: Model
) -> None:
    file = book(person, notes(1))
    fields = {"person": person.user, "file": file, "file_name": "book.md", "question": "?", "calls": 1, "tokens": 1}
    place = Conversation.objects.create(owner=person.user, origin=Conversation.Origin.TEMPORARY)
    in_conversation = Reading.objects.create(**fields, conversation=place, status="done")
    alone = Reading.objects.create(**fields, status="done", finished=timezone.now())
    assert list(Reading.objects.listed_for(person.user)) == [alone]
    services.erase_old(User.objects.all(), timezone.now() - timedelta(days=1))
    assert Reading.objects.filter(pk__in=[in_conversation.pk, alone.pk]).count() == 2
    services.erase_old(User.objects.all(), timezone.now() + timedelta(days=1))
    assert not Reading.objects.filter(pk=alone.pk).exists()
    under_hold = Reading.objects.create(**fields, status="done")
    type(person.user).objects.filter(pk=person.user.pk).update(legal_hold=True)
    services.erase_old(User.objects.all(), timezone.now() + timedelta(days=1))
    person.user.refresh_from_db()
    with pytest.raises(ProductError, match="legal_hold"):
        services.remove_reading(user=person.user, reading=under_hold)
    place.delete()
    assert not Reading.objects.filter(pk=in_conversation.pk).exists()
