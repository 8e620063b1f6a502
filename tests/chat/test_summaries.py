"""Long conversations through the application: summarised at the ceiling, never forgotten or blocked."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.utils import timezone

from chat.conversations.marks import mark_turn
from chat.models import Attachment, Message, Summary, SummaryJob
from chat.models.tree import newest_leaf, rows_between
from chat.summaries import due
from chat.summaries.jobs import load_context, load_task
from chat.summaries.writing import transcript
from core.errors import ProductError
from files.models import File, FileText
from llm import tokens
from llm.models import Model, Provider
from tests.application import Application
from tests.chat.citing import ask
from tests.chat.conversations import past
from tests.chat.growing import (
    FILLER,
    LIMIT,
    conversation,
    prompt,
    report,
    settled,
    small,
    summary_requests,
    turn,
    until_summarised,
    wendy,
    writer,
)
from tests.conftest import Person


@pytest.mark.slow
def test_300_turns_in_a_small_window_lose_nothing_and_stay_within_bounds(
    application: Application, person: Person, caller_of_tools: Model
) -> None:
    place, mark = conversation(person, wendy(person)), uuid4().hex
    marks = [f"{mark}-{number}." for number in range(300)]
    planted = {box: f"colour{uuid4().hex}" for box in range(22)}  # one each twelve turns
    left_out = (5, 14)
    for number, each in enumerate(marks):
        box = number // 12
        if number % 12 or box not in planted:
            turn(person, place, each)
            continue
        turn(person, place, f"{each} The paint in box {box} is {planted[box]}.")
        if box in left_out:
            question = Message.objects.get(conversation=place, depth=2 * number)
            mark_turn(user=person.user, message=question, mark="excluded")
    rows = {str(row.pk): row.depth for row in Message.objects.filter(conversation=place)}
    summaries = {str(row.pk): rows[str(row.last_id)] for row in Summary.objects.filter(conversation=place)}
    assert 15 <= len(summaries) <= 300 // 6
    covered, shares, before = [], [], ""
    aside = {12 * box for box in left_out}
    for number, each in enumerate(marks):
        sent = prompt(application, each)
        counted = sum(tokens.count(str(message["content"])) + 4 for message in sent)
        assert counted <= LIMIT
        text = "\n".join(str(message["content"]) for message in sent)
        answer = Message.objects.get(conversation=place, depth=2 * number + 1)
        call = answer.turn.report["calls"][-1]
        lost = [source for source in call["sources"] if source.get("reason") in ("no_room", "behind_gap")]
        assert lost == [] and call["unloaded"] == 0
        end = summaries[call["summary"]["id"]] if call["summary"] else -1
        expected = [old for at, old in enumerate(marks[: number + 1]) if 2 * at > end and at not in aside]
        missing = [old for old in expected if old not in text]
        assert missing == []
        covered.append(end)
        if before and number >= 240:
            common = next((at for at, (a, b) in enumerate(zip(before, text, strict=False)) if a != b), len(before))
            shares.append(common / len(text))
        before = text
    assert covered == sorted(covered)
    changes = sum(1 for a, b in pairwise(covered) if a != b)
    assert changes <= 300 / 6
    assert sum(shares) / len(shares) > 0.75
    assert covered[-1] > 24 * max(planted)
    _every_fact_is_found_again(person, place, caller_of_tools, planted, left_out)


def _every_fact_is_found_again(
    person: Person, place: UUID, model: Model, planted: dict[int, str], left_out: tuple[int, ...]
) -> None:
    """The model finds facts by a search, except those that the person leaves out."""
    calls = [{"name": "search_conversation", "arguments": {"query": f"paint in box {box}"}} for box in planted]
    steps: list[dict[str, Any]] = [{"tool_calls": calls[:11]}, {"tool_calls": calls[11:]}, {"text": "That is all."}]
    ended = ask(person, str(place), model, "Which paint is in each box?", *steps)
    results = [part["text"] for part in ended["parts"] if part["type"] == "tool_result"]
    assert len(results) == len(planted)
    answered = {box for (box, paint), result in zip(planted.items(), results, strict=True) if paint in result}
    assert answered == set(planted) - set(left_out)
    assert not [box for box in left_out if planted[box] in str(results)]


def test_the_summary_stands_after_the_system_prompt_and_the_report_says_what_it_covers(
    application: Application, person: Person
) -> None:
    place = conversation(person, small(person))
    marks = until_summarised(person, place, {"summary": "## Earlier\nThey met.\n\n## Now\nThey count words."})
    mark = f"next {uuid4().hex}"
    ended = turn(person, place, mark)
    sent = prompt(application, mark)
    assert [message["role"] for message in sent[:3]] == ["system", "system", "user"]
    assert "[Earlier: They met.]\n[Now: They count words.]" in sent[1]["content"]
    summary = Summary.objects.get(conversation=place)
    assert summary.tokens_out < summary.tokens_in
    seen = report(person, ended)
    assert seen["summary"]["messages"] == summary.messages
    assert seen["versions"]["summary_prompt"] == str(summary.prompt_version)
    [source] = [source for source in seen["sources"] if source["kind"] == "summary"]
    assert (source["id"], source["state"]) == (str(summary.pk), "full")
    left_out = [source for source in seen["sources"] if source["reason"] == "summarised"]
    assert len(left_out) == summary.messages
    assert left_out[0]["title"].startswith(marks[0][:20])
    assert marks[0] not in json.dumps(sent)
    assert marks[-1] in json.dumps(sent)


def test_the_next_summary_goes_on_from_the_last_and_reads_only_what_is_new(
    application: Application, person: Person
) -> None:
    place = conversation(person, small(person))
    marks = until_summarised(person, place, {"summary": "## Now\nThe first summary."})
    first = Summary.objects.get(conversation=place)
    while Summary.objects.filter(conversation=place).count() < 2:
        marks.append(f"later {uuid4().hex}")
        turn(person, place, marks[-1], {"summary": "## Earlier\nOld.\n\n## Now\nThe second summary."})
    second = Summary.objects.filter(conversation=place).latest("id")
    assert second.supersedes == first
    assert second.messages > first.messages and second.first_id == first.first_id
    assert second.tokens_in > first.tokens_in
    request = json.dumps(summary_requests(application, marks[first.messages // 2])[-1])
    assert "The first summary." in request
    assert marks[0] not in request


def test_a_branch_that_forked_before_the_summarys_end_has_all_its_own_messages(
    application: Application, person: Person
) -> None:
    place = conversation(person, small(person))
    marks = until_summarised(person, place)
    second = Message.objects.filter(conversation=place, role="user").order_by("depth")[1]
    mark = f"other {uuid4().hex}"
    edited = person.caller.post(f"messages/{second.pk}/edit/", {"text": mark})["turns"][0]
    person.caller.ended(edited["id"])
    sent = json.dumps(prompt(application, mark))
    assert "Summary of this conversation" not in sent
    assert marks[0] in sent and marks[1] not in sent
    settled(person, place)
    person.caller.http.post(f"messages/{second.pk}/choose/")
    leaf = newest_leaf(Message.objects.get(conversation=place, role="assistant", parent=second).pk)
    mark = f"back {uuid4().hex}"
    person.caller.ended(person.caller.ask(mark, None, str(place), parent=str(leaf))["id"])
    assert "Summary of this conversation" in json.dumps(prompt(application, mark))


def test_what_a_person_wants_of_a_summary_is_done_edited_rebuilt_and_undone(
    application: Application, person: Person
) -> None:
    caller, place = person.caller, conversation(person, small(person))
    marks = until_summarised(person, place)
    [summary] = caller.get(f"summaries/?conversation={place}")["results"]
    sections = [{"name": "Now", "text": "What a person wrote."}]
    edited = caller.post(f"summaries/{summary['id']}/edit/", {"sections": sections}, expect=201)
    assert edited["supersedes"] == summary["id"] and edited["sections"] == sections
    mark = f"edited {uuid4().hex}"
    turn(person, place, mark)
    assert "[Now: What a person wrote.]" in json.dumps(prompt(application, mark))
    holds = caller.get(f"conversations/{place}/summary/")
    caller.post(f"summaries/{holds['id']}/rebuild/")
    settled(person, place)
    rebuilt = caller.get(f"conversations/{place}/summary/")
    assert rebuilt["supersedes"] == holds["id"] and rebuilt["messages"] == holds["messages"]
    assert any(marks[0] in json.dumps(body) for body in summary_requests(application, marks[0])[1:])
    while (response := caller.http.get(f"conversations/{place}/summary/")).status_code == 200:
        caller.post(f"summaries/{response.json()['id']}/undo/", expect=204)
    mark = f"undone {uuid4().hex}"
    turn(person, place, mark)
    assert marks[-1] in json.dumps(prompt(application, mark))
    assert "Summary of this conversation" not in json.dumps(prompt(application, mark))
    assert not caller.get(f"conversations/{place}/")["automatic_summaries"]
    caller.post(f"conversations/{place}/summarise/")
    settled(person, place)
    assert caller.get(f"conversations/{place}/summary/")["id"]
    assert caller.get(f"conversations/{place}/")["automatic_summaries"]


def test_midnight_and_another_timezone_change_no_text_and_lose_no_message(
    application: Application, person: Person
) -> None:
    person.user.timezone = "Pacific/Auckland"
    person.user.save()
    place = conversation(person, small(person))
    marks = until_summarised(person, place)
    turn(person, place, before := f"before {uuid4().hex}")
    person.user.timezone = "America/Los_Angeles"
    person.user.save()
    day = timedelta(days=1)
    for row in Message.objects.filter(conversation=place):
        Message.objects.filter(pk=row.pk).update(created=row.created - day)
    turn(person, place, after := f"after {uuid4().hex}")
    first, second = (prompt(application, mark) for mark in (before, after))
    assert first[1] == second[1]
    summary = Summary.objects.filter(conversation=place).latest("id")
    assert summary.timezone == "Pacific/Auckland"
    sent_marks = [mark for mark in [*marks, before] if mark in json.dumps(second)]
    assert len(sent_marks) * 2 + summary.messages == (len(marks) + 1) * 2


def test_an_input_larger_than_the_model_is_summarised_in_chunks(application: Application, person: Person) -> None:
    short = writer(application, uuid4().hex, {"text": "## Now\nThey counted words."})
    row = past(person.user, 40, words=120, persona=small(person, summary_model=short))
    place = row.pk
    long = Message.objects.filter(conversation=row, role="user").earliest("depth")
    Message.objects.filter(pk=long.pk).update(parts=[{"type": "text", "text": f"long {FILLER * 40}"}], tokens={})
    turn(person, place, mark := f"now {uuid4().hex}")
    summary = Summary.objects.filter(conversation=row).latest("id")
    count = Summary.objects.filter(conversation=row).count()
    assert count > 3
    assert all(each.last.role == "assistant" for each in Summary.objects.filter(conversation=row))  # whole turns
    sent = due.measure_messages(
        load_context(SummaryJob.objects.get(conversation=row)), rows_between(None, summary.last_id), 0
    )
    assert summary.tokens_in == sum(cost.tokens for cost in sent)
    assert summary.shortened == [str(long.pk)]
    assert summary.first.depth == 0 and summary.messages == summary.last.depth + 1
    assert SummaryJob.objects.get(conversation=row).status == SummaryJob.Status.DONE
    turn(person, place, after := f"after {uuid4().hex}")
    assert mark in json.dumps(prompt(application, after))


@pytest.fixture
def reader(scripted_model_row: Model) -> Iterator[Model]:
    """Yield a model with a small window that writes the summary of the newest script in its prompt."""
    endpoint = scripted_model_row.provider
    provider = Provider.objects.create(name=uuid4().hex, kind=endpoint.kind, base_url=endpoint.base_url)
    yield Model.objects.create(provider=provider, name="scripted", context_window=6_000)
    provider.delete()


def test_a_job_that_fails_half_way_leaves_whole_turns_and_the_next_goes_on_from_there(
    application: Application, person: Person, reader: Model
) -> None:
    row = past(person.user, 40, words=120, persona=small(person, summary_model=reader))
    refusing = Message.objects.get(conversation=row, depth=40)
    script = json.dumps({"summary": {"error": {"status": 400, "message": "This text is refused."}}})
    Message.objects.filter(pk=refusing.pk).update(parts=[{"type": "text", "text": f"script: {script}"}], tokens={})
    turn(person, row.pk, mark := f"now {uuid4().hex}")
    job, summaries = SummaryJob.objects.get(conversation=row), Summary.objects.filter(conversation=row).order_by("id")
    assert (job.status, job.code) == (SummaryJob.Status.FAILED, "bad_model_request")
    assert summaries.count() > 0 and all(each.last.role == "assistant" for each in summaries)
    reached = summaries.last()
    assert reached is not None and reached.last.depth < 40
    assert reached.messages == reached.last.depth + 1
    Message.objects.filter(pk=refusing.pk).update(parts=[{"type": "text", "text": "It is gone."}], tokens={})
    turn(person, row.pk, after := f"after {uuid4().hex}")
    sent = prompt(application, after)
    assert [message["role"] for message in sent[1:3]] == ["system", "user"] and mark in json.dumps(sent)
    following = summaries.filter(pk__gt=reached.pk).first()
    assert following is not None and following.supersedes == reached and following.last.depth > 40


@pytest.mark.parametrize("window", [4_096, 8_000, 16_000, 32_000])
def test_no_window_is_so_small_that_messages_are_cut_to_nothing(
    person: Person, scripted_model_row: Model, window: int
) -> None:
    model = Model.objects.create(provider=scripted_model_row.provider, name=uuid4().hex, context_window=window)
    place = past(person.user, 200, words=100)
    job = SummaryJob.objects.create(conversation=place, model=model, reason=SummaryJob.Reason.ASKED, fixed=300)
    work = load_task(job, model, None)
    assert work is not None
    assert not any(piece.shortened for piece in transcript(work.rows, work.brief))
    model.max_output = 600
    short = load_task(job, model, None)
    assert short is not None and short.brief.budget <= 400  # or every attempt would be cut off
    tiny = Model(name="tiny", context_window=1_500)
    with pytest.raises(ProductError, match="Choose a larger model") as refused:
        load_task(job, tiny, None)
    assert refused.value.code == "summary_window_too_small"


def test_a_file_that_no_prompt_has_whole_costs_its_stub(person: Person, reader: Model) -> None:
    place = past(person.user, 2)
    question = Message.objects.filter(conversation=place, role="user").earliest("depth")
    file = File.objects.create(owner=person.user, name="big.txt", size=10, status="ready", media_type="text/plain")
    FileText.objects.create(file=file, text="word " * 9_000)
    Attachment.objects.create(message=question, file=file, name=file.name, ordinal=0)
    job = SummaryJob(conversation=place, model=reader)
    first, *_ = due.measure_messages(load_context(job), rows_between(None, question.pk), 0)
    assert first.tokens < 200


def test_a_new_prompt_version_has_stale_summaries_written_from_the_messages(
    application: Application, person: Person
) -> None:
    place = conversation(person, small(person))
    marks = until_summarised(person, place)
    Summary.objects.filter(conversation=place).update(prompt_version=999)
    while Summary.objects.filter(conversation=place).count() < 2:
        turn(person, place, f"later {uuid4().hex}")
    bodies = summary_requests(application, marks[0])
    assert len(bodies) == 2
    assert re.search("The summary so far", json.dumps(bodies[1])) is None


def test_a_day_lists_what_was_said_and_summarised_in_pages_and_as_files(
    application: Application, person: Person
) -> None:
    place = conversation(person, small(person))
    marks = until_summarised(person, place)
    day = f"{timezone.localdate():%Y-%m-%d}"
    first = person.caller.get(f"daily/{day}/chat/?page_size=3")
    assert [entry["role"] for entry in first["results"]] == ["user", "assistant", "user"]
    assert first["results"][0]["content"].startswith(marks[0])
    seen = list(first["results"])
    while first["next"]:
        first = person.caller.http.get(first["next"]).json()
        seen += first["results"]
    assert len(seen) == 2 * len(marks)
    assert person.caller.get(f"daily/{day}/Daily_chat.json") == seen
    [summary] = person.caller.get(f"daily/{day}/summary/")["results"]
    assert summary["span"]["start"] == seen[0]["timestamp"]
    assert summary["covers"]["messages"] == Summary.objects.get(conversation=place).messages
    assert person.caller.get(f"daily/{day}/Daily_summary.json") == [summary]
    assert person.caller.get("daily/2001-01-01/Daily_chat.json") == []
    assert person.caller.http.get("daily/2026-02-30/chat/").status_code == 404


def test_the_command_rebuilds_what_an_older_prompt_made(application: Application, person: Person) -> None:
    place = conversation(person, small(person))
    until_summarised(person, place)
    Summary.objects.exclude(conversation=place).delete()
    Summary.objects.filter(conversation=place).update(prompt_version=999)
    output = StringIO()
    call_command("summaries", "rebuild", stdout=output)
    assert "1 of 1 summaries" in output.getvalue()
    newest = Summary.objects.filter(conversation=place).latest("id")
    assert newest.prompt_version != 999
    again = StringIO()
    call_command("summaries", "rebuild", stdout=again)
    assert "0 summaries are of version" in again.getvalue()
